// Package renewals renews holds together: those that are due at one moment in one round trip a node, and what can be in
// few scripts. They have a connection of their own, so that they never queue behind asks.
package renewals

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
	// Batch is how many renewals go in one round trip at the most.
	Batch = 512
	// inScript is how many holds one script renews at the most, which takes the server about 0.5 ms.
	inScript = 128
)

// A Hold is one that is renewed. Its methods are called without a lock.
type Hold interface {
	// Where is the node that has the hold, and what must acknowledge its renewals.
	Where() (*conn.Node, conn.Acks)
	// Next is what the hold is to be renewed to by an attempt.
	Next(conn.Attempt) Renewal
	// Saw takes in what the answer to a renewal that was sent alone says of the name.
	Saw(*conn.Node, conn.Attempt, *wire.Reply)
	// Renewed takes in the answer to a renewal, or its lack.
	Renewed(r *Renewal, a conn.Attempt, reply *wire.Reply, err error)
}

// A Renewal is one request to let a hold last.
type Renewal struct {
	core.Renewal
	Hold  Hold
	Proto *lua.Protocol
	Keys  *lua.Keys
	Slot  uint16
	Who   string // the client, for operators

	still bool // nothing but the end of the lease changes
}

// Renewals collects the holds of a client that are due.
type Renewals struct {
	Servers *conn.Servers
	Sent    *atomic.Uint64 // counts them
	timers.Batch[Hold]
}

// Flush sends what is due, in the background: a server that does not answer holds up nobody's clock, nor what is
// at another.
func (r *Renewals) Flush() {
	due := r.Take()
	if len(due) == 0 {
		return
	}
	type alike struct {
		node *conn.Node
		acks conn.Acks
	}
	groups := make(map[alike][]Hold, 1)
	for _, h := range due {
		var as alike
		as.node, as.acks = h.Where()
		groups[as] = append(groups[as], h)
	}
	for as, due := range groups {
		for batch := range slices.Chunk(due, Batch) {
			r.Servers.Spawn(func() { r.Renew(as.node, batch, as.acks) })
		}
	}
}

// Renew renews a batch: those that can go together in few scripts, and what is left of them one by one. A renewal that
// too few replicas acknowledge counts as one that was not answered: a hold never lasts longer than the replicas know.
func (r *Renewals) Renew(n *conn.Node, batch []Hold, acks conn.Acks) {
	a := n.Attempt(conn.AttemptTime)
	room, asked := make([]Renewal, len(batch)), make([]*Renewal, len(batch))
	for i, h := range batch {
		room[i] = h.Next(a)
		asked[i] = &room[i]
	}
	r.Sent.Add(uint64(len(batch)))
	alone := asked
	if acks == (conn.Acks{}) {
		alone = r.together(n, a, asked)
	}
	if len(alone) > 0 {
		r.each(n, a, alone, acks)
	}
}

// each renews with a script for each hold.
func (r *Renewals) each(n *conn.Node, a conn.Attempt, asked []*Renewal, acks conn.Acks) {
	jobs := make([]conn.Job, len(asked))
	for i := range asked {
		jobs[i] = asked[i].Job(a)
	}
	found := r.Servers.Vouch(n, jobs, conn.Proof{Acks: acks})
	var reply wire.Reply // One for all: nobody keeps it.
	for i := range found {
		var err error
		v := &found[i]
		if reply, err = v.Reply(); err == nil {
			asked[i].Hold.Saw(n, a, &reply)
			if reply.Status == wire.Granted {
				err = v.Short()
			}
		}
		asked[i].Hold.Renewed(asked[i], a, &reply, err)
	}
}

// phase is what the end of the hold without a release will say of the client.
func (r *Renewal) phase() string {
	if r.Idle && r.Wishes {
		return wire.PhaseIdle
	}
	if r.Final {
		return wire.PhaseFinal
	}
	return wire.PhaseHeld
}

// Job is the renewal as it is sent by itself.
func (r *Renewal) Job(a conn.Attempt) conn.Job {
	args := []string{
		r.Text, strconv.FormatUint(r.Token, 10), strconv.FormatInt(r.Lasts.Milliseconds(), 10),
		r.phase(),
	}
	if r.Proto.Several() {
		who := r.Who
		if r.Least > 0 {
			who = "~" + strconv.FormatInt(r.Least.Milliseconds(), 10) + "~" + who
		}
		args = append(args, who)
	}
	args = append(args, a.NotAfter)
	if r.Entries != "" {
		args = append(args, r.Entries)
	}
	keys := r.Keys.Renewed()
	switch {
	case r.Stays && r.Proto.Several():
		keys = r.Keys.Staying()
	case r.Stays:
		keys, args = r.Keys.Staying(), append(args, strconv.FormatInt(r.Least.Milliseconds(), 10))
	case r.Wishes:
		keys = r.Keys.Wanting()
	}
	return conn.Job{Script: r.Proto.Renew, Keys: keys, Args: args}
}

// together renews several holds in one script, as to start one costs the server as much as what it does for a hold. It
// returns the rest: what is of another kind, or has more to tell, or was not renewed by such a script, which does nothing
// where anything is unusual.
func (r *Renewals) together(n *conn.Node, a conn.Attempt, asked []*Renewal) (alone []*Renewal) {
	type alike struct {
		script *lua.Script
		lasts  time.Duration
	}
	groups := make(map[alike][]*Renewal, 1)
	for _, one := range asked {
		if s := one.Proto.Renewals; s != nil && one.Entries == "" && !one.Stays && (!one.Wishes || one.Said && !one.Final) {
			group := alike{s, one.Lasts}
			groups[group] = append(groups[group], one)
		} else {
			alone = append(alone, one)
		}
	}
	var jobs []conn.Job
	var parts [][]*Renewal
	for as, group := range groups {
		for _, part := range conn.Parts(r.Servers, group, inScript, func(one *Renewal) uint16 { return one.Slot }) {
			if len(part) == 1 {
				alone = append(alone, part[0])
				continue
			}
			jobs = append(jobs, job(as.script, as.lasts, part, a))
			parts = append(parts, part)
		}
	}
	if len(jobs) == 0 {
		return alone
	}
	var reply wire.Reply // One for all: nobody keeps it.
	for i, res := range r.Servers.RunBeside(n, jobs) {
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
			one.Hold.Renewed(one, a, &reply, err)
		}
	}
	return alone
}

// job is several renewals as one script does them.
func job(s *lua.Script, lasts time.Duration, part []*Renewal, a conn.Attempt) conn.Job {
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
		keys[i] = r.Keys.Lock
		args = append(args, r.Text, strconv.FormatUint(r.Token, 10))
	}
	args[0], args[1], args[2] = a.NotAfter, strconv.FormatInt(lasts.Milliseconds(), 10), string(phases)
	return conn.Job{Script: s, Keys: keys, Args: args}
}

// outlives reports whether the key of a hold is known to live longer than a lease that begins no later than latest, in
// server µs. Then a renewal need not prolong it. That is safe: every script that sets the life of a key leaves at least a
// minute beyond the present lease, and that only ever moves later: but for a hold that its client keeps idle, of which nothing is
// known from the sending of a shorter renewal on.
func (r *Renewal) outlives(latest int64) bool {
	return latest+(r.Lasts+lua.Least).Microseconds() <= r.Kept
}
