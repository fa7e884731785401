package election

import (
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Request is one of a candidate, a leader, or one who observes.
type Request = stage.Request[*Election]

// A Plain is a request that an election leaves to the fair lock.
type Plain struct{ model.Request }

// An End is a request of election/end.
type End struct{ model.End }

// A Force is a request of election/force.
type Force struct{ model.Force }

// A Proclaim is a request of election/proclaim.
type Proclaim struct {
	Ticket   string
	Token    int64
	Number   int64
	Who      string
	NotAfter int64
	Value    string
}

// A Leader is a request of election/leader.
type Leader struct{}

// A Watch is a request of election/ask.
type Watch struct {
	Seen      int64
	Uncounted bool
}

// A Look is a request of election/check.
type Look struct {
	Seen      []int64 // of each ticket
	Uncounted bool
}

// Run does what the fair lock does.
func (r Plain) Run(e *Election, now int64) wire.Tuple { return r.Request.Run(e.Mutex, now) }

// Script returns election/end.
func (End) Script() *lua.Script { return lua.Election.End }

// Run does what the fair lock does, and tells the observers.
func (r End) Run(e *Election, now int64) wire.Tuple { return e.vacant(r.End.Run(e.Mutex, now)) }

// Script returns election/force.
func (Force) Script() *lua.Script { return lua.Election.Force.Plain() }

// Run does what the fair lock does, and tells the observers.
func (r Force) Run(e *Election, now int64) wire.Tuple { return e.vacant(r.Force.Run(e.Mutex, now)) }

// A Bury is a request of election/bury.
type Bury struct{ model.Bury }

// Script returns election/bury.
func (Bury) Script() *lua.Script { return lua.Election.Bury }

// Run does what the fair lock does, and tells the observers.
func (r Bury) Run(e *Election, now int64) wire.Tuple { return e.vacant(r.Bury.Run(e.Mutex, now)) }

// Script returns election/proclaim.
func (Proclaim) Script() *lua.Script { return lua.ElectionProclaim.Script }

// Args returns what the script gets.
func (r Proclaim) Args() []string {
	return stage.Args(r.Ticket, r.Token, r.Number, r.Who, r.NotAfter, r.Value)
}

// Run keeps the value of the leader, and tells the observers.
func (r Proclaim) Run(e *Election, now int64) wire.Tuple {
	h := &e.Lock
	reply := wire.Tuple{Status: wire.Refused, Now: now, Token: uint64(h.Token), Until: h.Mark, Place: -1}
	if h.Owner != "" {
		reply.Until = h.Until
	}
	switch {
	case now > r.NotAfter: // R7
		return wire.Tuple{Status: wire.Late, Now: now}
	case h.Owner != r.Ticket || h.Token != r.Token || h.Until <= now:
		reply.States = []string{wire.StateForgotten}
		switch r.Ticket {
		case h.Owner, h.Lapsed:
			reply.States[0] = wire.StateExpired
		}
		if r.Ticket != h.Lapsed && r.Ticket != h.Owner && wire.TicketClient(r.Ticket) == h.Died {
			reply.States[0] = wire.StateDied
		}
		if r.Ticket == h.Forced && r.Ticket != h.Owner {
			reply.States[0] = wire.StateForced
		}
		return reply
	}
	reply.Status = wire.Done
	if e.Token != r.Token || e.Number < r.Number {
		e.Revision = max(e.Revision+2, now)
		e.Value, e.Token, e.Number, h.Who = r.Value, r.Token, r.Number, r.Who
		if !e.tell(e.Revision - 1) {
			reply.Flags = wire.Unwoken
		}
	}
	reply.Arrival = e.Revision
	return reply
}

// reply is what the observers get.
func (e *Election) reply(status wire.Status, now int64, uncounted bool) wire.Tuple {
	r := wire.Tuple{Status: status, Now: now, Token: uint64(e.Lock.Token), Arrival: e.generation(now)}
	switch {
	case uncounted:
	case e.Blind:
		r.Flags = wire.Uncounted
	default:
		r.Waiting = e.Ears
	}
	if e.leads(now) {
		r.Until = e.Lock.Until
	}
	return r
}

// Script returns election/leader.
func (Leader) Script() *lua.Script { return lua.ElectionLeader.Script }

// Args returns what the script gets.
func (Leader) Args() []string { return nil }

// Run tells who leads.
func (Leader) Run(e *Election, now int64) wire.Tuple {
	if !e.leads(now) {
		return e.reply(wire.Unset, now, true)
	}
	r := e.reply(wire.Done, now, true)
	r.States = []string{e.Value, e.Lock.Who, stage.Decimal(e.Lock.Since())}
	return r
}

// Script returns election/ask.
func (Watch) Script() *lua.Script { return lua.Leadership.Ask }

// Args returns what the script gets.
func (r Watch) Args() []string {
	return stage.Args("o:1:b:1:10000:2000", wire.Look, "0", "0", "0", "0", !r.Uncounted, wire.PhaseHeld, "who", r.Seen)
}

// Run tells whether there is another generation.
func (r Watch) Run(e *Election, now int64) wire.Tuple {
	if r.Seen == e.generation(now) {
		return e.reply(wire.Waiting, now, r.Uncounted)
	}
	return e.reply(wire.Granted, now, r.Uncounted)
}

// Script returns election/check.
func (Look) Script() *lua.Script { return lua.Leadership.Check }

// Args returns what the script gets.
func (r Look) Args() []string {
	args := stage.Args("o", wire.Hears, "0", "0", !r.Uncounted)
	for _, seen := range r.Seen {
		args = append(args, "o:1:b:1:10000:2000", stage.Decimal(seen))
	}
	return args
}

// Run tells of each ticket whether there is another generation.
func (r Look) Run(e *Election, now int64) wire.Tuple {
	reply := e.reply(wire.Done, now, r.Uncounted)
	for _, seen := range r.Seen {
		state := wire.StateGranted
		if seen == e.generation(now) {
			state = wire.StateQueued
		}
		reply.States = append(reply.States, state)
	}
	return reply
}
