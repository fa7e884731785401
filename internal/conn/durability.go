package conn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Acks are what must know of a renewal in addition to its node; nothing by default.
type Acks struct {
	Replicas int
	Disk     bool // it is on the disks of the node and of the replicas
	Timeout  time.Duration
}

// A Durability is what a renewal needs in addition to its node's reply.
type Durability struct {
	Acks
	Mark  string        // the key by which the server is asked for its age, if it is
	Lease time.Duration // for as long a server that has just started is not believed
}

// An Acknowledgement is the result of a Durability.
type Acknowledgement struct {
	Left time.Duration // how long the server is not to be believed yet
	Age  time.Duration // for how long it has forgotten nothing, at the least
	Err  error         // why that, or what the replicas know, could not be asked

	job     Job
	renewal rueidis.RedisResult
	unsent  error // why there is no renewal
	short   error // who knows of it, if that is too few
}

// Reply is the reply to the renewal. It is an error if the node has renewed and the durability could not be asked for.
func (v *Acknowledgement) Reply() (wire.Reply, error) {
	if v.unsent != nil {
		return wire.Reply{}, v.unsent
	}
	r, err := v.job.Script.Decode(v.renewal)
	if err == nil && r.Status == wire.Granted {
		err = v.Err
	}
	return r, err
}

// Short is an error that wraps [lease.ErrReplicas] where fewer know of the renewal than were asked for.
func (v *Acknowledgement) Short() error { return v.short }

// Acknowledge runs renewals, and asks for the durability of each.
func (c *Servers) Acknowledge(n *Node, jobs []Job, p Durability) []Acknowledgement {
	if p == (Durability{}) {
		found := make([]Acknowledgement, len(jobs))
		for i, res := range c.RunBeside(n, jobs) {
			found[i] = Acknowledgement{job: jobs[i], renewal: res}
		}
		return found
	}
	asked := make([]*unacknowledged, len(jobs))
	for i, j := range jobs {
		asked[i] = &unacknowledged{job: j, Durability: p, done: make(chan Acknowledgement, 1)}
	}
	c.acknowledgements.ask(ackKey{n, p.Acks}, asked)
	found := make([]Acknowledgement, len(asked))
	for i, w := range asked {
		found[i] = <-w.done
	}
	return found
}

// acknowledgements batches the waits for replicas, and the questions for the age of a server: a connection waits or asks once,
// for all renewals sent before. Renewals that come meanwhile go together in the next batch.
type acknowledgements struct {
	servers *Servers

	mu      sync.Mutex // guards pending; nothing is called under it but spawn
	pending map[ackKey][]*unacknowledged
}

// A ackKey is the same for renewals that can wait together.
type ackKey struct {
	node *Node
	Acks
}

// An unacknowledged is one renewal that waits to be acknowledged.
type unacknowledged struct {
	Durability
	job  Job
	done chan Acknowledgement
}

// ackBatch is the most renewals that one wait, or one question, is for.
const ackBatch = 512

// ask adds renewals to those that wait for the same durability. Each learns of it through its channel.
func (v *acknowledgements) ask(key ackKey, asked []*unacknowledged) {
	v.mu.Lock()
	defer v.mu.Unlock()
	pending, running := v.pending[key]
	v.pending[key] = append(pending, asked...)
	if !running && !v.servers.Spawn(func() { v.serve(key) }) {
		delete(v.pending, key)
		for _, w := range asked {
			w.done <- Acknowledgement{unsent: lease.ErrClosed}
		}
	}
}

// serve runs in the background while renewals at one node wait for the same durability. A wait for replicas needs a connection
// that nobody else uses, because it blocks it.
func (v *acknowledgements) serve(key ackKey) {
	take := func() (pipeline, func(), error) {
		if key.Acks == (Acks{}) {
			return v.servers.Side, func() {}, nil
		}
		ctx, cancel := context.WithTimeout(v.servers.life, AnswerTime)
		defer cancel()
		conn, release, err := key.node.dedicate(ctx)
		if conn == nil {
			return nil, release, err
		}
		return conn, release, err
	}
	conn, release, none := take()
	defer func() { release() }()
	for {
		v.mu.Lock()
		pending := v.pending[key]
		batch := slices.Clone(pending[:min(len(pending), ackBatch)])
		if len(batch) == 0 {
			delete(v.pending, key)
			v.mu.Unlock()
			return
		}
		v.pending[key] = pending[len(batch):]
		v.mu.Unlock()
		found := v.through(conn, cmp.Or(none, errSilent), batch, key)
		for i, w := range batch {
			w.done <- found[i]
		}
		if found[0].unsent != nil || found[0].Err != nil { // Redis too ends it where its master is replaced.
			release()
			conn, release, none = take()
		}
	}
}

// through asks on a connection; none is why there is no connection.
func (v *acknowledgements) through(conn pipeline, none error, batch []*unacknowledged, key ackKey) []Acknowledgement {
	if conn == nil {
		v.servers.routes.doubt()
		return slices.Repeat([]Acknowledgement{{unsent: none}}, len(batch))
	}
	if key.Acks == (Acks{}) {
		return v.servers.acknowledge(v.servers.Patient, key.node, conn, batch, Acks{})
	}
	ctx, cancel := context.WithTimeout(v.servers.life, key.Timeout+AnswerTime)
	defer cancel()
	return v.servers.acknowledge(ctx, key.node, conn, batch, key.Acks)
}

// A pipeline is a client, or a connection of one.
type pipeline interface {
	B() rueidis.Builder
	DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult
}

// acknowledge runs renewals, then asks for the server's age, then waits for the replicas, in this order on one connection. If
// the server does not know a script, all is sent again in full: the order must hold.
func (c *Servers) acknowledge(ctx context.Context, n *Node, conn pipeline, batch []*unacknowledged, acks Acks) []Acknowledgement {
	if err := n.introducedBeside(ctx, conn); err != nil {
		return slices.Repeat([]Acknowledgement{{unsent: err}}, len(batch))
	}
	found, known := c.acknowledgeWith(ctx, conn, batch, acks, c.evalsha)
	if !known {
		found, _ = c.acknowledgeWith(ctx, conn, batch, acks, c.eval)
	}
	return found
}

type encoder func(b rueidis.Builder, s *lua.Script, keys, args []string) rueidis.Completed

func (c *Servers) acknowledgeWith(
	ctx context.Context, conn pipeline, batch []*unacknowledged, acks Acks, encode encoder,
) (found []Acknowledgement, known bool) {
	cmds := make([]rueidis.Completed, 0, len(batch)+2)
	var marks []string
	asked := make(map[string]int) // where the answers are
	for _, w := range batch {
		j := w.job
		cmds = append(cmds, encode(conn.B(), j.Script, j.Keys, j.Args))
		if _, ok := asked[w.Mark]; !ok && w.Mark != "" {
			asked[w.Mark] = len(batch) + len(marks)
			marks = append(marks, w.Mark)
		}
	}
	for _, mark := range marks {
		cmds = append(cmds, encode(conn.B(), lua.Restart, []string{mark}, nil))
	}
	if acks != (Acks{}) {
		cmds = append(cmds, acks.command(conn.B()))
	}
	results := conn.DoMulti(ctx, cmds...)
	for _, res := range results {
		if err, ok := rueidis.IsRedisErr(res.Error()); ok && err.IsNoScript() {
			return nil, false
		}
		c.demoted(res)
	}
	var err, short error
	if acks != (Acks{}) {
		short, err = acks.missing(results[len(results)-1])
	}
	found = make([]Acknowledgement, len(batch))
	for i, w := range batch {
		v := Acknowledgement{job: w.job, renewal: results[i], Err: err, short: short}
		if w.Mark != "" {
			var err error
			if v.Age, err = age(results[asked[w.Mark]]); v.Err == nil {
				v.Err = err
			}
			v.Left = w.Lease - v.Age
		}
		found[i] = v
	}
	return found, true
}

// command waits for the acknowledgements.
func (a Acks) command(b rueidis.Builder) rueidis.Completed {
	if a.Disk {
		return b.Waitaof().Numlocal(1).Numreplicas(int64(a.Replicas)).Timeout(a.Timeout.Milliseconds()).Build()
	}
	return b.Wait().Numreplicas(int64(a.Replicas)).Timeout(a.Timeout.Milliseconds()).Build()
}

// missing reads the answer to the command, and says which acknowledgements are not there.
func (a Acks) missing(res rueidis.RedisResult) (short, err error) {
	if !a.Disk {
		replicas, err := res.ToInt64()
		if err == nil && replicas < int64(a.Replicas) {
			short = fmt.Errorf("%w: %d of %d within %v", lease.ErrReplicas, replicas, a.Replicas, a.Timeout)
		}
		return short, err
	}
	disks, err := res.AsIntSlice()
	switch {
	case err == nil && len(disks) != 2:
		err = fmt.Errorf("%d fields of WAITAOF: %w", len(disks), errOdd)
	case err == nil && (disks[0] < 1 || disks[1] < int64(a.Replicas)):
		short = fmt.Errorf("%w: on the disks of %d of 1 master and of %d of %d replicas within %v",
			lease.ErrReplicas, disks[0], disks[1], a.Replicas, a.Timeout)
	}
	return short, err
}

// age reads for how long a server has forgotten nothing.
func age(res rueidis.RedisResult) (time.Duration, error) {
	fields, err := res.AsIntSlice()
	if err == nil && len(fields) != 1 {
		err = fmt.Errorf("%d fields of a restart: %w", len(fields), errOdd)
	}
	if err != nil {
		return 0, err
	}
	return time.Duration(fields[0]) * time.Millisecond, nil
}

// A sound node has forgotten nothing since a time, for as long as the connections to it stay the same.
type sound struct {
	connection uint64
	since      time.Time
	asked      time.Time
}

// soundFor is how long a node is believed to be sound before it is asked again, which lets its mark live on.
const soundFor = 24 * time.Hour

// Sound reports whether the node is known to have forgotten nothing of a slot for longer than a lease. It asks nothing: an
// earlier answer counts while the connections are the same, because a server that restarts breaks them.
func (n *Node) Sound(slot uint16, lease time.Duration) bool {
	v, _ := n.sound.Load(slot)
	s, ok := v.(*sound)
	return ok && time.Since(s.since) > lease && time.Since(s.asked) < soundFor && s.connection == n.Connection()
}

// Connection is a number that changes when a connection of the commands to the node is made or has ended; 0 if that is
// not known. If nobody reads a connection rueidis notices its end at the next use. So listening connections count too: a
// grant by message from a restarted server comes on a new one. They do not count where nodes pass messages on.
func (n *Node) Connection() uint64 {
	c := n.servers
	if c.sockets == nil || c.Plain {
		return 0
	}
	n.listener.mu.Lock()
	defer n.listener.mu.Unlock()
	return c.sockets.change(n.address) + n.listener.changes
}

// Aged notes the age that a node gave in reply to a request sent at a time, when Connection was that number.
func (n *Node) Aged(slot uint16, v *Acknowledgement, sent time.Time, connection uint64) {
	if v.Err == nil && v.Age > 0 && connection != 0 {
		n.sound.Store(slot, &sound{connection, sent.Add(-v.Age), sent})
	}
}
