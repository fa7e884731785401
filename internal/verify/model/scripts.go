package model

import (
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Request is what a client asks of the server.
type Request = stage.Request[*Mutex]

// An Ask is a request of fairlock/ask.
type Ask struct {
	Ticket    string
	Mode      string
	NotAfter  int64
	Arrival   int64
	Head      int64
	Floor     int64
	Uncounted bool
	Phase     string
	Bound     *line.Bound // of a ticket that never had a place, if it has one

	FastPath bool // without all keys, if that will do
	Busy     bool // and without thinking that the lock is free
}

// An End is a request of fairlock/end.
type End struct {
	Ticket    string
	Token     int64 // 0: any
	Floor     int64
	Uncounted bool
	Note      string
	Rests     bool   // it was used: the name stays taken for as long as its renewal has said
	How       string // how the hold ended, if it was not released

	FastPath bool  // without all keys, if that will do
	Above    int64 // and with this token of its hold, from which the floor is told
}

// A Renew is a request of fairlock/renew.
type Renew struct {
	Ticket   string
	Token    int64
	Lease    int64 // ms
	Phase    string
	NotAfter int64

	// Still: one of several, by a client that knows that the key outlives it, and of a hold whose lease and phase are
	// what they were.
	Still bool
	// Wants: with the key of the queue, by a holder that wants to be told when somebody waits. Marked: one of several, by
	// a client that was not told since.
	Wants, Marked bool

	// What a reentrant hold tells of how often it was entered; nothing where Count is 0.
	Revision, Count int64
	// For how many ms from its grant the name is to stay taken; 0: not longer than it is held. And for how many after the lease
	// the keys are to live if it is not released.
	Least, Keeps int64
}

// A Check is a request of fairlock/check.
type Check struct {
	Client    string
	Mode      string
	NotAfter  int64
	Floor     int64
	Uncounted bool
	Tickets   []lua.Arrival
	Bounds    map[string]line.Bound // of those that never had a place
	Heads     map[string]int64      // µs, of those that have a head start

	Together bool // with those of other names, if there is no news
}

// A Force is a request of fairlock/force.
type Force struct {
	Token     int64
	Floor     int64
	Uncounted bool
}

// Script returns fairlock/ask.
func (Ask) Script() *lua.Script { return lua.Fairlock.Ask }

// Args returns what the script gets.
func (r Ask) Args() []string {
	args := stage.Args(r.Ticket, r.Bound.Mode(r.Mode), r.NotAfter, r.Floor, r.Arrival, r.Head, !r.Uncounted, r.Phase)
	if r.FastPath && r.Floor == 0 {
		args[3] = "" // Left out there, and here too.
	}
	return args
}

// Script returns fairlock/end.
func (End) Script() *lua.Script { return lua.Fairlock.End }

// Args returns what the script gets.
func (r End) Args() []string {
	args := stage.Args(r.Ticket, r.Floor, r.Token, !r.Uncounted)
	switch {
	case r.Rests && r.How != "":
		args = append(args, r.Note, wire.EndRests, r.How)
	case r.How != "":
		args = append(args, r.Note, "", r.How)
	case r.Rests:
		args = append(args, r.Note, wire.EndRests)
	case r.Note != "":
		args = append(args, r.Note)
	}
	return args
}

// Script returns fairlock/renew.
func (Renew) Script() *lua.Script { return lua.Fairlock.Renew }

// Args returns what the script gets.
func (r Renew) Args() []string {
	args := stage.Args(r.Ticket, r.Token, r.Lease, r.Phase, r.NotAfter)
	switch {
	case r.Least > 0:
		args = append(args, stage.Decimal(r.Least))
	case r.Count > 0:
		args = append(args, stage.Decimal(r.Revision)+":"+stage.Decimal(r.Count))
	case r.Keeps > 0:
		args = append(args, "")
	}
	if r.Keeps > 0 {
		args = append(args, stage.Decimal(r.Keeps))
		if r.Wants {
			args[6] += "w"
		}
	}
	return args
}

// Script returns fairlock/check.
func (Check) Script() *lua.Script { return lua.Fairlock.Check }

// Args returns what the script gets.
func (r Check) Args() []string {
	return stage.Args(r.Client, r.Mode, r.NotAfter, r.Floor, !r.Uncounted, line.Brought(r.Tickets, r.Bounds, r.Heads))
}

// Script returns fairlock/force.
func (Force) Script() *lua.Script { return lua.Fairlock.Force.Plain() }

// Args returns what the script gets.
func (r Force) Args() []string { return stage.Args(r.Token, r.Floor, !r.Uncounted) }

// Run takes the lock if it is free and nobody waits, else keeps a place in the queue.
func (r Ask) Run(m *Mutex, now int64) wire.Tuple {
	if now > r.NotAfter { // R7
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	lease := stage.Lease(r.Ticket)
	c := m.call(now, wire.TicketClient(r.Ticket), r.seen(), !r.Uncounted)
	if !c.held() && len(m.Queue) == 0 && !m.Lock.Pending() {
		return r.atOnce(c, lease)
	}
	marked := c.Calm()
	if m.Lock.Owner == r.Ticket && !c.over() && !c.stepped() {
		return c.holds()
	}
	usual := c.held() && !c.over() && !c.stepped() && !marked && m.Lock.Scan == nil && r.Arrival == 0 && r.Head == 0
	if !c.held() || c.over() || c.stepped() {
		c.serve(r.Ticket)
		if !c.held() && len(m.Queue) == 0 {
			c.own(r.Ticket, lease, r.Phase)
		}
		c.keep(len(m.Queue))
		if m.Lock.Owner == r.Ticket {
			return c.holds()
		}
	}
	if r.Mode == wire.Try {
		return c.busy()
	}
	if oldest, full := r.full(c, usual); full {
		c.keep(len(m.Queue))
		return c.reply(wire.Full, -1, len(m.Queue), oldest)
	}
	return r.queue(c)
}

// full reports whether there is no room for a ticket with a bound, and when the head came. Where nothing is unusual, what an
// earlier look has found counts for a while.
func (r Ask) full(c *call, usual bool) (oldest int64, full bool) {
	if r.Bound == nil || c.Rank(r.Ticket) >= 0 {
		return 0, false
	}
	if usual {
		if oldest, full, sure := c.Known(*r.Bound, r.Ticket); sure {
			return oldest, full
		}
	}
	return c.Full(*r.Bound, 0)
}

// atOnce grants where nobody holds and nobody waits.
func (r Ask) atOnce(c *call, lease int64) wire.Tuple {
	h := &c.Lock
	var before []string
	if h.Token == 0 {
		before = []string{wire.EndingMark + wire.UnknownBefore}
	}
	c.own(r.Ticket, lease, r.Phase)
	if before != nil {
		h.Previous = Previous{} // A repeated request does not say so.
	}
	h.Plain = h.Token == c.Now && h.Phase == wire.PhaseHeld
	need := max(h.Until, c.Ahead())
	short, long := h.Kept < need+line.LeastKept, h.Kept > need+line.MostKept
	if short || long {
		h.Kept = need + line.Spare
		c.LockEnds = c.In(h.Kept - c.Now)
	}
	if long && len(c.Suspects) > 0 {
		c.SuspectsEnds = c.LockEnds
	}
	return wire.Tuple{Status: wire.Granted, Now: c.Now, Token: uint64(h.Token), Until: h.Until, States: before}
}

// serve serves the queue for an ask, whose ticket may be in it.
func (c *call) serve(ticket string) {
	c.settle()
	c.Recall(ticket)
	c.advance()
}

// queue keeps a place for a client that hears and is not suspected, and tells any other its arrival.
func (r Ask) queue(c *call) wire.Tuple {
	queued, entered, arrival := c.Wait(r.Ticket, r.Mode, r.Arrival, r.Head)
	if entered {
		c.wanted()
	}
	place := -1
	if queued {
		place = c.Place(r.Ticket, c.held())
	}
	c.keep(len(c.Queue))
	return c.reply(wire.Waiting, place, len(c.Queue), arrival)
}

// Run takes a ticket out of the queue, frees what it holds, and serves the queue (R9).
func (r End) Run(m *Mutex, now int64) wire.Tuple {
	c := m.call(now, wire.TicketClient(r.Ticket), r.Floor, !r.Uncounted)
	c.Note = r.Note
	owns := m.Lock.Owner == r.Ticket && (r.Token == 0 || c.among(r.Token))
	if owns && len(m.Queue) == 0 && r.Token == 0 && !r.Rests && r.How == "" {
		defer c.Calm()
		return r.atOnce(c, 0)
	}
	c.Calm()
	return r.leave(c, owns, 0)
}

// atOnce frees where nobody waits. The last token is raised to the lowest that is allowed.
func (r End) atOnce(c *call, lowest int64) wire.Tuple {
	h := &c.Lock
	lease, usual := h.lease(), h.High == 0 && !h.Marked
	c.past(c.Now, "released")
	h.Owner, h.High = "", 0
	long := lease > line.MostKept-line.Spare || h.Kept > h.Until-lease+line.MostKept
	if raised := c.raise(lowest); raised || long && !usual {
		// What was kept for many waiters or a long lease need not be any longer.
		h.Kept, c.LockEnds = 0, c.In(max(c.Now, c.Ahead())+line.Spare-c.Now)
		if h.Marked {
			c.SuspectsEnds = c.LockEnds
		}
		c.tidy()
	}
	return wire.Tuple{Status: wire.Done}
}

// leave ends a ticket and serves the queue. The last token of what was held is raised to the lowest that is allowed.
func (r End) leave(c *call, owns bool, lowest int64) wire.Tuple {
	status := wire.Done
	var states []string
	size := len(c.Queue)
	rests := false
	if owns {
		how := "released"
		if r.How != "" && r.How != wire.HowUnused {
			how = r.How
		}
		c.past(c.Now, how)
		if rests = r.Rests && c.rest(r.How); !rests {
			c.free(r.How)
		}
		if r.Token == c.Lock.Token && c.raise(c.Floor) {
			c.Created = true
		}
		c.Lock.Token = max(c.Lock.Token, r.Token)
	} else {
		status = wire.Refused
		if c.Dequeue(r.Ticket) {
			size--
		}
		if !r.Rests && r.Token == 0 && c.held() && strings.HasPrefix(c.Lock.Owner, resting(r.Ticket)) {
			c.Lock.Owner = "" // Nobody has used it.
		}
		if size == 0 {
			c.forget()
		}
	}
	over := rests || !c.held() || c.over() || c.stepped()
	if over {
		c.settle()
		c.advance()
	}
	if owns && c.raise(lowest) {
		c.Created = true // The key has to outlive that token.
	}
	if over {
		c.keepAt(size, true)
	}
	if status == wire.Refused {
		states = []string{c.reason(r.Ticket)}
		if c.held() && c.Lock.Phase == granted && wire.TicketClient(c.Lock.Owner) == c.Caller {
			c.report()
		}
	}
	if rests {
		c.look()
	}
	return c.reply(status, -1, 0, 0, states...)
}

// reason is why a ticket is not, or no longer, the owner.
func (m *Mutex) reason(ticket string) string {
	if ticket == m.Lock.Owner {
		return wire.StateExpired
	}
	return m.Lock.Reason(ticket)
}

// Run lets a hold last for another lease, and never revives one that has ended.
func (r Renew) Run(m *Mutex, now int64) wire.Tuple {
	if now > r.NotAfter {
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	c := m.call(now, "", 0, false)
	h := &m.Lock
	if h.Owner != r.Ticket || h.Token != r.Token || c.over() {
		return c.reply(wire.Refused, -1, 0, 0, m.reason(r.Ticket))
	}
	if r.Still && !h.Plain && h.phase() == wire.PhaseHeld {
		h.Until = now + r.Lease*millisecond
		return c.reply(wire.Granted, 0, 0, 0)
	}
	h.Until, h.Plain = now+r.Lease*millisecond, false
	wanted := r.Wants && len(m.Queue) > 0 && !(r.Marked && h.Wants)
	if wanted {
		c.Flags |= wire.Wanted
	}
	h.Phase, h.Wants = r.Phase, r.Wants && !wanted
	if h.Idle = h.Wants && r.Phase == wire.PhaseIdle; r.Phase == wire.PhaseIdle {
		h.Phase = wire.PhaseHeld
	}
	if r.Least > 0 || r.Keeps > 0 {
		c.open()
		c.stay(r.Least*millisecond, r.Keeps*millisecond)
	}
	if e := h.Entries; r.Least == 0 && r.Count > 0 && (e == nil || e.Token != r.Token || e.Revision < r.Revision) {
		h.Entries = &Entries{r.Token, r.Revision, r.Count}
	}
	c.open()
	return c.reply(wire.Granted, 0, 0, 0)
}

// Run queues again what is neither queued nor granted, serves the queue, and tells the state of each
// ticket.
func (r Check) Run(m *Mutex, now int64) wire.Tuple {
	if now > r.NotAfter {
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	if r.Together {
		if reply, ok := r.together(m, now); ok {
			return reply
		}
	}
	c := m.call(now, r.Client, r.Floor, !r.Uncounted)
	c.Calm()
	c.open()
	c.Shown(r.Client, r.Mode)
	c.settle()
	deaf := r.Mode == wire.Deaf
	if c.Suspect(r.Client) {
		c.Flags |= wire.Suspected
		deaf = true
	}
	states := make([]string, len(r.Tickets))
	for i, a := range r.Tickets {
		switch {
		case m.Lock.Owner == a.Ticket:
			states[i] = wire.StateEarlier
			c.report()
		case c.Enter(a.Ticket, a.Arrival, true, r.Heads[a.Ticket]):
			states[i] = wire.StateAgain
			c.wanted()
		default:
			states[i] = wire.StateQueued
		}
	}
	c.advance()
	c.Trim(r.Tickets, r.Bounds, r.Heads, states)
	r.outcome(c, states, deaf)
	if len(m.Queue) == 0 {
		c.forget()
	}
	c.keep(len(m.Queue))
	c.Places(states, r.Tickets, c.held())
	return c.reply(wire.Done, -1, c.Clients(), 0, states...)
}

// outcome says which ticket was granted, and takes those of a deaf client out of the queue (R10).
func (r Check) outcome(c *call, states []string, deaf bool) {
	for i, a := range r.Tickets {
		switch {
		case slices.ContainsFunc(c.Grants, func(g wire.Grant) bool { return g.Ticket == a.Ticket }):
			if states[i] != wire.StateEarlier {
				states[i] = wire.StateGranted
			}
		case deaf && !strings.HasPrefix(states[i], wire.StateFull):
			c.Dequeue(a.Ticket)
			states[i] = wire.StateGone
		}
	}
}

// Run takes the lock from its holder, tells it, and serves the queue.
func (r Force) Run(m *Mutex, now int64) wire.Tuple {
	c := m.call(now, "", r.Floor, !r.Uncounted)
	c.Calm()
	h := &m.Lock
	size := len(m.Queue)
	c.settle()
	if !c.held() || r.Token != 0 && !c.among(r.Token) {
		var other []string
		if c.held() {
			other = []string{h.Owner}
		}
		c.advance()
		c.keep(size)
		return c.reply(wire.Refused, -1, size, 0, other...)
	}
	ticket := h.Owner
	c.past(c.Now, "forced")
	c.free(wire.HowForced)
	h.Forced = ticket
	h.Token += passesOf(ticket)
	c.Publish(wire.TicketClient(ticket), "F "+ticket+" lock")
	c.advance()
	c.keep(size)
	return c.reply(wire.Done, -1, size, 0, ticket)
}
