package waitqueue

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// renewBatch is how many renewals go in one round trip at the most.
	renewBatch = 512
	// inScript is how many holds one script renews at the most, which takes the server about 0.5 ms.
	inScript = 128
)

// A renewable is a hold as the code that renews several together sees it. Its methods are called without a lock.
type renewable interface {
	// where is the node that has the hold, and what must acknowledge its renewals.
	where() (*conn.Node, conn.Acks)
	// next is the renewal that an attempt is to send.
	next(conn.Attempt) renewal
	// observeHeader takes in what the answer to a renewal that was sent alone says of the name.
	observeHeader(*conn.Node, conn.Attempt, *wire.Reply)
	// renewed takes in the answer to a renewal, or its lack.
	renewed(r *renewal, a conn.Attempt, reply *wire.Reply, err error)
}

// A renewal is one request to let a hold last.
type renewal struct {
	core.Renewal
	of    renewable
	proto *lua.Protocol
	keys  *lua.Keys
	slot  uint16
	who   string // the client, for operators

	still bool // nothing but the end of the lease changes
}

// renewals collects the holds of a client that are due at one moment. They are renewed together: in one round trip a node,
// and what can be in few scripts. They have a connection of their own, so that they never wait for asks.
type renewals struct {
	servers *conn.Servers
	sent    *atomic.Uint64 // counts them
	timers.Batch[renewable]
}

// flush sends what is due, in the background: a server that does not answer holds up neither the timer nor another
// server's renewals.
func (r *renewals) flush() {
	due := r.Take()
	if len(due) == 0 {
		return
	}
	type alike struct {
		node *conn.Node
		acks conn.Acks
	}
	groups := make(map[alike][]renewable, 1)
	for _, h := range due {
		var as alike
		as.node, as.acks = h.where()
		groups[as] = append(groups[as], h)
	}
	for as, due := range groups {
		for batch := range slices.Chunk(due, renewBatch) {
			r.servers.Spawn(func() { r.renew(as.node, batch, as.acks) })
		}
	}
}

// renew renews a batch: the holds that can go together in few scripts, and the rest one by one. A renewal that too few
// replicas acknowledge counts as one that was not answered: a hold never lasts longer than the replicas know.
func (r *renewals) renew(n *conn.Node, batch []renewable, acks conn.Acks) {
	a := n.Attempt(conn.AttemptTime)
	room, asked := make([]renewal, len(batch)), make([]*renewal, len(batch))
	for i, h := range batch {
		room[i] = h.next(a)
		asked[i] = &room[i]
	}
	r.sent.Add(uint64(len(batch)))
	alone := asked
	if acks == (conn.Acks{}) {
		alone = r.together(n, a, asked)
	}
	if len(alone) > 0 {
		r.each(n, a, alone, acks)
	}
}

// each renews with a script for each hold.
func (r *renewals) each(n *conn.Node, a conn.Attempt, asked []*renewal, acks conn.Acks) {
	jobs := make([]conn.Job, len(asked))
	for i := range asked {
		jobs[i] = asked[i].job(a)
	}
	found := r.servers.Acknowledge(n, jobs, conn.Durability{Acks: acks})
	var reply wire.Reply // One for all: nobody keeps it.
	for i := range found {
		var err error
		v := &found[i]
		if reply, err = v.Reply(); err == nil {
			asked[i].of.observeHeader(n, a, &reply)
			if reply.Status == wire.Granted {
				err = v.Short()
			}
		}
		asked[i].of.renewed(asked[i], a, &reply, err)
	}
}

// phase returns the word that tells the server how to judge the client if the lease runs out.
func (r *renewal) phase() string {
	if r.Idle && r.Wishes {
		return wire.PhaseIdle
	}
	if r.Final {
		return wire.PhaseFinal
	}
	return wire.PhaseHeld
}

// job is the renewal as it is sent by itself.
func (r *renewal) job(a conn.Attempt) conn.Job {
	args := []string{
		r.Text, strconv.FormatUint(r.Token, 10), strconv.FormatInt(r.Lasts.Milliseconds(), 10),
		r.phase(),
	}
	if r.proto.Several() {
		who := r.who
		if r.Least > 0 {
			who = "~" + strconv.FormatInt(r.Least.Milliseconds(), 10) + "~" + who
		}
		args = append(args, who)
	}
	args = append(args, a.NotAfter)
	keys, last := r.keys.Renewed(), r.Entries
	if r.Stays && r.Least > 0 && !r.proto.Several() {
		last = strconv.FormatInt(r.Least.Milliseconds(), 10)
	}
	if last != "" || r.Remember > 0 && !r.proto.Several() {
		args = append(args, last)
	}
	switch {
	case r.Remember > 0:
		remember := strconv.FormatInt(r.Remember.Milliseconds(), 10)
		if r.Wishes {
			remember += "w"
		}
		keys, args = r.keys.Staying(), append(args, remember)
	case r.Stays:
		keys = r.keys.Staying()
	case r.Wishes:
		keys = r.keys.Wanting()
	}
	return conn.Job{Script: r.proto.Renew, Keys: keys, Args: args}
}

// together renews several holds in one script, because starting a script costs the server as much as renewing one hold. It
// returns the holds that need a renewal of their own: of another kind, with more to say, or skipped by the script because
// something was unusual.
func (r *renewals) together(n *conn.Node, a conn.Attempt, asked []*renewal) (alone []*renewal) {
	type alike struct {
		script *lua.Script
		lasts  time.Duration
	}
	groups := make(map[alike][]*renewal, 1)
	for _, one := range asked {
		if s := one.proto.Renewals; s != nil && one.Entries == "" && !one.Stays && one.Remember == 0 && (!one.Wishes || one.Said && !one.Final) {
			group := alike{s, one.Lasts}
			groups[group] = append(groups[group], one)
		} else {
			alone = append(alone, one)
		}
	}
	var jobs []conn.Job
	var parts [][]*renewal
	for as, group := range groups {
		for _, part := range conn.Parts(r.servers, group, inScript, func(one *renewal) uint16 { return one.slot }) {
			if len(part) == 1 {
				alone = append(alone, part[0])
				continue
			}
			jobs = append(jobs, jobOf(as.script, as.lasts, part, a))
			parts = append(parts, part)
		}
	}
	if len(jobs) == 0 {
		return alone
	}
	var reply wire.Reply // One for all: nobody keeps it.
	for i, res := range r.servers.RunBeside(n, jobs) {
		part := parts[i]
		now, ends, left, err := jobs[i].Script.DecodeRenewals(res, len(part))
		switch {
		case err == nil:
			n.Clock.Observe(a, now, false)
		case conn.Answered(err):
			alone = append(alone, part...) // Each is told why by its own.
			continue
		}
		for k, one := range part {
			if len(left) > 0 && left[0] == k {
				left = left[1:]
				alone = append(alone, one)
				continue
			}
			if err == nil && !one.still {
				one.Kept = ends + lua.Spare.Microseconds()
			}
			reply = wire.Reply{Status: wire.Granted, Now: now, Token: one.Token, Until: ends}
			one.of.renewed(one, a, &reply, err)
		}
	}
	return alone
}

// jobOf is several renewals as one script does them.
func jobOf(s *lua.Script, lasts time.Duration, part []*renewal, a conn.Attempt) conn.Job {
	keys := make([]string, len(part))
	args := make([]string, 3, 3+2*len(part))
	phases := make([]byte, len(part))
	for i, r := range part {
		r.still = !r.Final && !r.Wishes && r.outlives(a.Latest)
		switch {
		case r.Final:
			phases[i] = wire.RenewFinal
		case r.Wishes && r.Idle:
			phases[i] = wire.RenewIdle
		case r.Wishes:
			phases[i] = wire.RenewWants
		case r.still:
			phases[i] = wire.RenewStill
		default:
			phases[i] = wire.RenewHeld
		}
		keys[i] = r.keys.Lock
		args = append(args, r.Text, strconv.FormatUint(r.Token, 10))
	}
	args[0], args[1], args[2] = a.NotAfter, strconv.FormatInt(lasts.Milliseconds(), 10), string(phases)
	return conn.Job{Script: s, Keys: keys, Args: args}
}

// outlives reports whether the key of a hold is known to live longer than a lease that begins no later than latest, in
// server µs. Then a renewal need not prolong it. That is safe: every script that sets the life of a key leaves at least a
// minute beyond the present lease, and only ever moves it later. The exception is a hold that its client keeps idle:
// nothing is known once a shorter renewal was sent.
func (r *renewal) outlives(latest int64) bool {
	return latest+(r.Lasts+lua.Least).Microseconds() <= r.Kept
}
