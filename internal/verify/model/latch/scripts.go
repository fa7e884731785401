package latch

import (
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Request is one of a client of a latch.
type Request = stage.Request[*Latch]

// An Ask is a request of countdown/ask.
type Ask struct {
	Ticket    string
	Mode      string
	NotAfter  int64
	Seen      int64 // generation
	Uncounted bool
	Early     int64 // ms for which a latch that is not set is awaited; 0: it is not
}

// A Check is a request of countdown/check.
type Check struct {
	Client    string
	Mode      string
	NotAfter  int64
	Uncounted bool
	Tickets   []lua.Arrival // with the generations that they have seen
}

// A Set is a request of countdown/set.
type Set struct {
	Count    int64
	Lifetime int64 // ms
}

// A Down is a request of countdown/down.
type Down struct{}

// A Remove is a request of countdown/remove.
type Remove struct{ Generation int64 }

// Script returns countdown/ask.
func (Ask) Script() *lua.Script { return lua.Countdown.Ask }

// Args returns what the script gets.
func (r Ask) Args() []string {
	args := stage.Args(r.Ticket, r.Mode, r.NotAfter, r.Seen, "0", "0", !r.Uncounted, wire.PhaseHeld, "who")
	if r.Early != 0 {
		args = append(args, stage.Decimal(r.Early))
	}
	return args
}

// Script returns countdown/check.
func (Check) Script() *lua.Script { return lua.Countdown.Check }

// Args returns what the script gets.
func (r Check) Args() []string {
	return stage.Args(r.Client, r.Mode, r.NotAfter, "0", !r.Uncounted, r.Tickets)
}

// Script returns countdown/set.
func (Set) Script() *lua.Script { return lua.LatchSet.Plain() }

// Args returns what the script gets.
func (r Set) Args() []string { return stage.Args(r.Count, r.Lifetime) }

// Script returns countdown/down.
func (Down) Script() *lua.Script { return lua.LatchDown.Plain() }

// Args returns what the script gets.
func (Down) Args() []string { return nil }

// Script returns countdown/remove.
func (Remove) Script() *lua.Script { return lua.LatchRemove.Plain() }

// Args returns what the script gets.
func (r Remove) Args() []string { return stage.Args(r.Generation) }

// Run tells whether the latch is open to one who has seen a generation of it.
func (r Ask) Run(l *Latch, now int64) wire.Tuple {
	if now > r.NotAfter { // R7
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	passes, known := l.passes(r.Seen)
	if !known && r.Seen == 0 && r.Early != 0 {
		if l.Generation == 0 {
			l.Generation, l.First, l.Lifetime = now, now, r.Early
		}
		known = true
	}
	l.used(now)
	reply := l.reply(wire.Waiting, now)
	switch {
	case !known && r.Seen == 0:
		reply.Status = wire.Unset
		return reply
	case !known:
		reply.Status, reply.States = wire.Refused, []string{wire.StateForgotten}
		return reply
	case passes:
		reply.Status, reply.Place, reply.Arrival = wire.Granted, 0, l.Generation
		return reply
	case r.Mode == wire.Try:
		reply.Status = wire.Busy
	}
	reply.Place, reply.Arrival = l.Count, l.Generation
	reply.Waiting, reply.Flags = l.hearing(r.Uncounted)
	return reply
}

// Run tells of each ticket whether it may pass.
func (r Check) Run(l *Latch, now int64) wire.Tuple {
	if now > r.NotAfter {
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	l.used(now)
	reply := l.reply(wire.Done, now)
	reply.Place, reply.Arrival = l.Count, l.Generation
	reply.Waiting, reply.Flags = l.hearing(r.Uncounted)
	for _, a := range r.Tickets {
		state := wire.StateQueued + " " + stage.Decimal(l.Count)
		if passes, known := l.passes(a.Arrival); !known {
			state = wire.StateForgotten
		} else if passes {
			state = wire.StateGranted
		}
		reply.States = append(reply.States, state)
	}
	return reply
}

// Run closes the latch unless it is closed.
func (r Set) Run(l *Latch, now int64) wire.Tuple {
	status := wire.Done
	switch {
	case l.Initial == 0:
		if l.Generation == 0 {
			l.Generation, l.First = now, now
		}
		l.Count, l.Initial, l.Lifetime = r.Count, r.Count, r.Lifetime
	case l.Count > 0:
		status = wire.Refused
	default:
		l.Generation++
		l.Count, l.Initial, l.Lifetime = r.Count, r.Count, r.Lifetime
	}
	l.used(now)
	reply := l.reply(status, now)
	reply.Place, reply.Arrival = l.Count, l.Generation
	return reply
}

// Run counts down.
func (Down) Run(l *Latch, now int64) wire.Tuple {
	if l.Initial == 0 {
		return l.reply(wire.Unset, now)
	}
	l.used(now)
	counted := l.Count > 0
	if counted {
		l.Count--
	}
	reply := l.reply(wire.Done, now)
	reply.Place, reply.Arrival = l.Count, l.Generation
	if counted && l.Count == 0 {
		reply.Flags = l.publish(wire.MessageOpen, l.Generation)
	}
	return reply
}

// Run deletes the latch.
func (r Remove) Run(l *Latch, now int64) wire.Tuple {
	reply := l.reply(wire.Refused, now)
	if l.Generation == 0 || r.Generation != 0 && r.Generation != l.Generation {
		return reply
	}
	reply.Status, reply.Place, reply.Arrival = wire.Done, l.Count, l.Generation
	reply.Flags = l.publish(wire.MessageBroken, l.Generation)
	l.Lose()
	return reply
}
