package waitqueue

import (
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// runChecks polls until another poll would find nothing at once.
func (e *lockEntry) runChecks() {
	e.mu.Lock()
	round := e.lock.BeginRound()
	e.mu.Unlock()
	for e.checkOnce(round) {
	}
	e.lookOver()
}

// checkOnce sends one check of a round, takes in the reply, and reports whether another one follows.
func (e *lockEntry) checkOnce(round *core.Round) (more bool) {
	c, n := e.client, e.node()
	a := n.Attempt(conn.AttemptTime)
	args := []string{e.id, round.Mode, a.NotAfter, c.highest(), c.servers.Counted()}
	e.mu.Lock()
	check := e.lock.BeginCheck(round, a.Sent)
	e.mu.Unlock()
	for _, t := range check.Named {
		q := ticketOf(&t.Ticket.Call).queue
		args = append(args, t.Text, bound(t.Limit).brought(t.Arrival, q.terms.headStart()))
	}
	if len(check.Named) > 0 {
		args = append(args, ticketOf(&check.Named[0].Ticket.Call).queue.extras...)
	}

	c.stats.Checks.Add(1)
	j := e.job(e.proto.Check, e.keys.All(), args)
	r, err := e.proto.Check.Decode(c.servers.Run(j.Script, j.Keys, j.Args...))
	var states []core.CheckState
	if err == nil {
		c.observeHeader(n, a, e.proto, e.name, r.Head(), r.Token)
		states = checkStates(&check, &r)
	}
	f := failure(err)
	x := e.begin()
	defer e.end(x)
	return e.lock.OnCheckReply(&x.Input, &check, attempt(&a), &r, states, &f)
}

// checkStates reads what a check says of its tickets.
func checkStates(check *core.Check, r *wire.Reply) []core.CheckState {
	states := make([]core.CheckState, 0, len(check.Named))
	for i, t := range check.Named[:min(len(check.Named), len(r.States))] {
		state, rest, _ := strings.Cut(r.States[i], " ")
		s := core.CheckState{State: state, Place: -1}
		if place, err := strconv.Atoi(rest); err == nil {
			s.Place = place
		}
		switch state {
		case wire.StateExcess:
			s.Err = excess(t.Ticket.Permits, rest)
		case wire.StateFull:
			s.Err = bound(t.Limit).fromCheck(rest, r.Now)
		}
		states = append(states, s)
	}
	return states
}

// look polls, and returns a channel that is closed when another poll would find nothing at once. The caller holds mu, in
// a turn.
func (e *lockEntry) look(x *turn) <-chan struct{} {
	e.act.Lock()
	if e.looked == nil {
		e.looked = make(chan struct{})
	}
	looked := e.looked
	e.act.Unlock()
	e.lock.Poll(&x.Input)
	return looked
}

// A client that waits for thousands of names sends the usual checks for one node that are due at one tick together, in
// few scripts.

// lookBatch is how many tickets one script looks at, at the most, which takes the server about a millisecond.
const lookBatch = 160

// A looker is a name that is looked at together with others.
type looker interface {
	at() *entry
	poll()                           // looks by itself
	beginLook() []core.Named         // the tickets to look at
	onLook(l *look, f *core.Failure) // takes in what was seen
}

func (e *lockEntry) poll() {
	x := e.begin()
	e.lock.Poll(&x.Input)
	e.end(x)
}

func (e *lockEntry) beginLook() []core.Named {
	x := e.begin()
	defer e.end(x)
	return e.lock.BeginLook(&x.Input)
}

func (e *lockEntry) onLook(l *look, f *core.Failure) {
	x := e.begin()
	e.lock.OnLookReply(&x.Input, l.named, l.places, l.check, l.now, l.until, f)
	e.end(x)
}

// A look is the look at one of several names.
type look struct {
	*entry
	of         looker
	named      []core.Named
	places     []int
	now, until int64 // server µs: of the reply, and of the end of the present lease
	check      bool  // only a check can tell
	err        error // there was no answer
}

// A glance is the look at one of its tickets.
type glance struct {
	*look
	index int
}

// looks are the usual looks of a client that are due at one moment.
type looks struct {
	client *client
	timers.Batch[looker]
}

// flush sends what was due at one moment.
func (c *client) flush() {
	c.renewals.flush()
	c.looks.flush()
}

func (k *looks) flush() {
	due := k.Take()
	if len(due) == 0 {
		return
	}
	nodes := make(map[*conn.Node][]looker, 1)
	for _, e := range due {
		n := e.at().node()
		nodes[n] = append(nodes[n], e)
	}
	for n, names := range nodes {
		if len(names) == 1 {
			names[0].poll()
			continue
		}
		k.client.servers.Spawn(func() { k.together(n, names) })
	}
}

// together looks at names of one node, in one round trip.
func (k *looks) together(n *conn.Node, names []looker) {
	c := k.client
	var looks []*look
	groups := make(map[*lua.Script][]glance, 1)
	for _, e := range names {
		l := &look{entry: e.at(), of: e, named: e.beginLook()}
		if len(l.named) == 0 {
			continue
		}
		l.places = make([]int, len(l.named))
		looks = append(looks, l)
		for i := range l.named {
			groups[l.proto.Checks] = append(groups[l.proto.Checks], glance{l, i})
		}
	}
	if len(looks) == 0 {
		return
	}
	a := n.Attempt(conn.AttemptTime)
	var jobs []conn.Job
	var parts [][]glance
	for script, group := range groups {
		for _, part := range conn.Parts(c.servers, group, lookBatch, func(g glance) uint16 { return g.slot }) {
			job := conn.Job{Script: script, Args: []string{a.NotAfter, part[0].id, c.servers.Counted()}}
			for _, g := range part {
				job.Keys = append(job.Keys, g.keys.All()...)
				job.Args = append(job.Args, g.named[g.index].Text, strconv.FormatInt(g.named[g.index].Arrival, 10))
			}
			jobs, parts = append(jobs, job), append(parts, part)
		}
	}
	c.stats.Checks.Add(uint64(len(jobs)))
	last := &jobs[len(jobs)-1]
	last.Result = c.servers.Patiently(n, jobs[:len(jobs)-1], last.Script, last.Keys, last.Args)
	for i, j := range jobs {
		now, token, seen, err := j.Script.DecodeChecks(j.Result, len(parts[i]))
		if err == nil {
			n.Clock.Observe(a, now, false)
			c.minToken.Raise(token)
		}
		for k, g := range parts[i] {
			switch {
			case err == nil && seen[k].Place >= 0:
				g.places[g.index], g.now, g.until = seen[k].Place, now, seen[k].Until
			case err == nil || conn.Answered(err):
				g.check = true // If it is refused, each is told why by its own.
			default:
				g.err = err
			}
		}
	}
	for _, l := range looks {
		f := failure(l.err)
		l.of.onLook(l, &f)
	}
}
