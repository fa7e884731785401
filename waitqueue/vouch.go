package waitqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// What a grant must have beside the word of the server before its call returns, where that is asked for:
// replicas that know of it, and a server that cannot have forgotten another's lease. Both are asked for behind a
// renewal, on the connection that wrote it: a grant by message was written by somebody else's.

// vouched reports whether a hold of the site on these terms needs more than the word of its node.
func (s *site) vouched(t Terms) bool {
	return t.Replicas > 0 || t.SafeRestart && !s.node().sounds(s.slot, t.Lease)
}

// A voucher is what was found.
type voucher struct {
	renewal rueidis.RedisResult
	left    time.Duration // how long the server is not to be believed yet
	age     time.Duration // for how long it has forgotten nothing, at the least
	acks    int64         // replicas that know of the renewal
	err     error
}

// vouch runs a renewal and what its terms want behind it.
func (s *site) vouch(n *node, j job, t Terms) voucher {
	c := s.client
	w := &vouchee{job: j, terms: t}
	if t.SafeRestart {
		w.mark = lua.MarkKey(c.opts.Prefix, s.slot, c.routes.table != nil)
	}
	if t.Replicas > 0 {
		return c.vouchers.ask(voucherKey{n, t.Replicas, t.ReplicasTimeout}, w)
	}
	return c.prove(c.patient, c.side, []*vouchee{w}, voucherKey{})[0]
}

// vouchers batches those who wait for replicas: a connection waits for them once for all renewals before.
type vouchers struct {
	client *Client

	mu      sync.Mutex // guards pending; nothing is called under it but spawn
	pending map[voucherKey][]*vouchee
}

// A voucherKey is what those have in common who can wait together.
type voucherKey struct {
	node     *node
	replicas int
	timeout  time.Duration
}

// A vouchee is one renewal that waits to be vouched for.
type vouchee struct {
	job   job
	terms Terms
	mark  string // the key by which the server is asked for its age, if it is
	done  chan voucher
}

// vouchBatch is how many renewals one wait for replicas is for at the most.
const vouchBatch = 128

func (v *vouchers) ask(key voucherKey, w *vouchee) voucher {
	w.done = make(chan voucher, 1)
	v.mu.Lock()
	pending, running := v.pending[key]
	v.pending[key] = append(pending, w)
	if !running && !v.client.spawn(func() { v.serve(key) }) {
		delete(v.pending, key)
		w.done <- voucher{err: lease.ErrClosed}
	}
	v.mu.Unlock()
	return <-w.done
}

// serve runs in the background while somebody waits for the same number of replicas of the same node.
func (v *vouchers) serve(key voucherKey) {
	conn, release := key.node.dedicate()
	defer func() { release() }()
	for {
		v.mu.Lock()
		pending := v.pending[key]
		batch := slices.Clone(pending[:min(len(pending), vouchBatch)])
		if len(batch) == 0 {
			delete(v.pending, key)
			v.mu.Unlock()
			return
		}
		v.pending[key] = pending[len(batch):]
		v.mu.Unlock()
		found := v.through(conn, batch, key)
		for i, w := range batch {
			w.done <- found[i]
		}
		if err := found[0].err; err != nil && !answered(err) {
			release()
			conn, release = key.node.dedicate()
		}
	}
}

// through asks through a connection that nobody else uses: the wait for replicas holds it up.
func (v *vouchers) through(conn rueidis.DedicatedClient, batch []*vouchee, key voucherKey) []voucher {
	if conn == nil {
		v.client.routes.doubt()
		return slices.Repeat([]voucher{{err: errSilent}}, len(batch))
	}
	ctx, cancel := context.WithTimeout(v.client.life, key.timeout+answerTime)
	defer cancel()
	return v.client.prove(ctx, conn, batch, key)
}

// A pipeline is a client, or a connection of one.
type pipeline interface {
	B() rueidis.Builder
	DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult
}

// prove runs renewals, what must be known of the server behind each, and the wait for replicas behind all, in this
// order on one connection. If the server does not know a script, all is sent again in full: the order must hold.
func (c *Client) prove(ctx context.Context, conn pipeline, batch []*vouchee, key voucherKey) []voucher {
	found, known := c.proveWith(ctx, conn, batch, key, c.evalsha)
	if !known {
		found, _ = c.proveWith(ctx, conn, batch, key, c.eval)
	}
	return found
}

type encoder func(b rueidis.Builder, s *lua.Script, keys, args []string) rueidis.Completed

func (c *Client) proveWith(
	ctx context.Context, conn pipeline, batch []*vouchee, key voucherKey, encode encoder,
) (found []voucher, known bool) {
	cmds := make([]rueidis.Completed, 0, 2*len(batch)+1)
	for _, w := range batch {
		j := w.job
		cmds = append(cmds, encode(conn.B(), j.script, j.keys, j.args))
		if w.mark != "" {
			cmds = append(cmds, encode(conn.B(), lua.Restart, []string{w.mark}, nil))
		}
	}
	if key.replicas > 0 {
		cmds = append(cmds, conn.B().Wait().Numreplicas(int64(key.replicas)).Timeout(key.timeout.Milliseconds()).Build())
	}
	results := conn.DoMulti(ctx, cmds...)
	for _, res := range results {
		if err, ok := rueidis.IsRedisErr(res.Error()); ok && err.IsNoScript() {
			return nil, false
		}
		c.demoted(res)
	}
	var acks int64
	var err error
	if key.replicas > 0 {
		acks, err = results[len(results)-1].ToInt64()
	}
	found = make([]voucher, len(batch))
	for i, w := range batch {
		v := voucher{renewal: results[0], acks: acks, err: err}
		results = results[1:]
		if w.mark != "" {
			var err error
			if v.age, err = age(results[0]); v.err == nil {
				v.err = err
			}
			v.left = w.terms.Lease - v.age
			results = results[1:]
		}
		found[i] = v
	}
	return found, true
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

// A sound node has forgotten nothing since a time, for as long as the commands' connection to it is the one that it was.
type sound struct {
	connection uint64
	since      time.Time
	asked      time.Time
}

// soundFor is how long a node is believed to be sound before it is asked again, which lets its mark live on.
const soundFor = 24 * time.Hour

// sounds reports whether the node has forgotten nothing of a slot for longer than a lease, as is known without asking it:
// it was so on the connection which commands go by, and a server that restarts breaks its connections.
func (n *node) sounds(slot uint16, lease time.Duration) bool {
	v, _ := n.sound.Load(slot)
	s, ok := v.(*sound)
	return ok && time.Since(s.since) > lease && time.Since(s.asked) < soundFor && s.connection == n.connection()
}

// connection is the number of the commands' newest connection to the node; 0 if that is not known.
func (n *node) connection() uint64 {
	if n.client.sockets == nil {
		return 0
	}
	return n.client.sockets.newest(n.address)
}

// aged notes the age that a node told to a request sent at a time, when its newest connection was that one.
func (n *node) aged(slot uint16, v voucher, sent time.Time, connection uint64) {
	if v.err == nil && v.age > 0 && connection != 0 {
		n.sound.Store(slot, &sound{connection, sent.Add(-v.age), sent})
	}
}

// giveWay gives a hold back whose call had to wait behind a restart, if others that came before it have come back to the
// queue meanwhile: what is free then goes by the order of arrivals again. The call waits on, at its place.
func (w *wait) giveWay() {
	t, s := w.ticket, w.site
	c, n := s.client, s.node()
	s.mu.Lock()
	arrival := t.arrival
	s.mu.Unlock()
	if now, ok := n.clock.steady(); arrival == 0 && ok {
		arrival = now.Add(-time.Since(w.begun)).UnixMicro() - t.headStart()
	}
	r, err := lua.Ahead.Decode(c.runFor(w.ctx, lua.Ahead, s.keys.All(), strconv.FormatInt(arrival, 10)))
	s.mu.Lock()
	if err != nil || r.Place == 0 || arrival == 0 || t.state != held {
		s.mu.Unlock()
		return
	}
	d := s.depart(t.text, t.grant.token, time.Now())
	t.arrival = arrival
	t.lapsed()
	t.state = idling
	c.ends.owe() // Close waits for it.
	defer c.ends.done(1)
	s.mu.Unlock()

	// Its place first, then the end of what it held, so that it has that place when the queue is served.
	q := s.prepare(n, w)
	a := sending()
	jobs := []job{{s.proto.End, s.keys.All(), d.args()}}
	if q != nil {
		jobs = append([]job{{s.proto.Ask, s.keys.All(), q.args}}, jobs...)
		c.stats.asks.Add(1)
	}
	c.stats.ends.Add(1)
	results := c.runAll(c.commands, n, jobs)
	if q != nil {
		asked, err := s.proto.Ask.Decode(results[0])
		s.taken(t, q, &asked, err)
	}
	ended, err := s.proto.End.Decode(results[len(results)-1])
	s.departed(d, a, &ended, err)
}
