package barrier

import (
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Request is one of a client of a barrier.
type Request = stage.Request[*Barrier]

// An Ask is a request of barrier/ask.
type Ask struct {
	Ticket   string
	NotAfter int64
	Arrival  int64 // generation
	Who      string
	Parties  int64
	Action   bool
	Repeated bool  // there was an unanswered attempt
	Since    int64 // the earliest time of the attempt
	Lifetime int64 // ms
	Seen     int64 // generation
}

// A Check is a request of barrier/check.
type Check struct {
	Client   string
	Mode     string
	NotAfter int64
	Tickets  []lua.Arrival // with the generations in which they arrived
}

// An End is a request of barrier/end.
type End struct {
	Ticket     string
	Generation int64 // 0: any
}

// An Open is a request of barrier/open.
type Open struct {
	Ticket     string
	Generation int64
	OK         bool
	NotAfter   int64
}

// A Reset is a request of barrier/reset.
type Reset struct{}

// A Bury is a request of barrier/bury.
type Bury struct{ Client string }

// Script returns barrier/bury.
func (Bury) Script() *lua.Script { return lua.Barrier.Bury }

// Args returns what the script gets.
func (r Bury) Args() []string { return stage.Args(r.Client, lua.GraveLasts.Milliseconds(), "0", "1") }

// Run breaks the barrier if a party of the client waits there.
func (r Bury) Run(b *Barrier, now int64) wire.Tuple {
	c := b.call(now)
	var here []string
	for _, ticket := range c.byLease() {
		if wire.TicketClient(ticket) == r.Client {
			here = append(here, ticket)
		}
	}
	if c.Generation == 0 || c.Broken || len(here) == 0 {
		return c.reply(wire.Refused, -1, 0)
	}
	c.breaks()
	return c.reply(wire.Done, -1, 0, here...)
}

// Script returns barrier/ask.
func (Ask) Script() *lua.Script { return lua.Barrier.Ask }

// Args returns what the script gets.
func (r Ask) Args() []string {
	since := ""
	if r.Repeated {
		since = stage.Decimal(r.Since)
	}
	args := stage.Args(r.Ticket, wire.Wait, r.NotAfter, r.Arrival, "0", "0", "1", wire.PhaseHeld, r.Who, r.Parties, r.Action, since, r.Lifetime)
	if r.Seen != 0 { // May be missing.
		args = append(args, stage.Decimal(r.Seen))
	}
	return args
}

// Script returns barrier/check.
func (Check) Script() *lua.Script { return lua.Barrier.Check }

// Args returns what the script gets.
func (r Check) Args() []string { return stage.Args(r.Client, r.Mode, r.NotAfter, "0", "1", r.Tickets) }

// Script returns barrier/end.
func (End) Script() *lua.Script { return lua.Barrier.End }

// Args returns what the script gets.
func (r End) Args() []string { return stage.Args(r.Ticket, r.Generation, "0", "1") }

// Script returns barrier/open.
func (Open) Script() *lua.Script { return lua.BarrierOpen }

// Args returns what the script gets.
func (r Open) Args() []string { return stage.Args(r.Ticket, r.Generation, r.OK, r.NotAfter) }

// Script returns barrier/reset.
func (Reset) Script() *lua.Script { return lua.BarrierReset.Plain() }

// Args returns what the script gets.
func (Reset) Args() []string { return nil }

func gone(ticket string) string { return "end " + ticket }

// Run lets a ticket arrive, once.
func (r Ask) Run(b *Barrier, now int64) wire.Tuple {
	if now > r.NotAfter { // R7
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	if b.Generation != 0 && b.Parties != r.Parties {
		return wire.Tuple{
			Status: wire.Mismatch, Now: now, Token: uint64(b.Generation), Place: -1,
			Waiting: int(b.Arrived), States: []string{stage.Decimal(b.Parties)},
		}
	}
	c := b.call(now)
	if here, ok := b.Arrivals[r.Ticket]; ok {
		return r.again(c, here)
	}
	if before, ok := b.Last[r.Ticket]; ok {
		fate, _ := b.fate(b.Generation - 1)
		return c.outcome(fate, before.Index, b.Generation-1)
	}
	if r.Arrival != 0 {
		fate, _ := b.fate(r.Arrival)
		return c.outcome(fate, -1, r.Arrival)
	}
	if r.Repeated {
		c.note, c.repeats = r.Ticket, ghost
	}
	switch {
	case r.lost(b, now):
		return c.reply(wire.Refused, -1, 0, wire.StateForgotten)
	case b.Broken:
		return c.reply(wire.Broken, -1, 0)
	case b.Generation != 0 && b.Arrived >= b.Parties:
		return c.reply(wire.Busy, -1, 0)
	case b.Generation == 0:
		b.Lose(Leases)
		b.Lose(Arrivals)
		b.Lose(Last)
		b.Generation, b.First, b.Parties = now, now, r.Parties
	}
	index, generation := c.arrive(r), b.Generation
	switch {
	case index > 0:
		return c.reply(wire.Waiting, index, generation)
	case r.Action:
		b.Acting = r.Ticket
		return c.reply(wire.Acting, 0, generation)
	}
	c.turn(tripped)
	return c.reply(wire.Granted, 0, generation)
}

// again answers a ticket that has arrived in the present generation.
func (r Ask) again(c *call, here Arrival) wire.Tuple {
	if fate, known := c.fate(c.Generation); !known || fate != 0 {
		return c.outcome(fate, -1, c.Generation)
	}
	c.prolong(r.Ticket)
	status := wire.Waiting
	if c.Acting == r.Ticket {
		status = wire.Acting
	}
	return c.reply(status, here.Index, c.Generation)
}

// lost reports whether the ticket may have arrived without that anything is known of it, or must not any more.
func (r Ask) lost(b *Barrier, now int64) bool {
	if b.Calls.Known(gone(r.Ticket)) || !r.Repeated && b.Calls.Known(r.Ticket) {
		return true
	}
	if !r.Repeated {
		return false
	}
	unknown := b.Horizon
	if len(b.Last) == 0 {
		unknown = b.Ended
	}
	born := b.First
	if b.Generation == 0 {
		born = now
	}
	return r.Since <= unknown || r.Seen != 0 && r.Seen < born && r.Since <= born
}

// Run lets the leases of tickets last, and tells what became of them.
func (r Check) Run(b *Barrier, now int64) wire.Tuple {
	if now > r.NotAfter {
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	c := b.call(now)
	var states []string
	for _, a := range r.Tickets {
		fate, known := b.fate(a.Arrival)
		here, came := b.Arrivals[a.Ticket]
		state := wire.StateForgotten
		switch {
		case known && fate == tripped:
			state = wire.StateGranted
		case known && fate == broken:
			state = wire.StateBroken
		case known && came:
			state = wire.StateQueued + " " + stage.Decimal(here.Index)
			c.prolong(a.Ticket)
		}
		states = append(states, state)
	}
	return c.reply(wire.Done, -1, b.Generation, states...)
}

// Run breaks the barrier if the ticket waits there.
func (r End) Run(b *Barrier, now int64) wire.Tuple {
	c := b.call(now)
	c.note, c.repeats = gone(r.Ticket), ghost
	generation := b.Generation
	_, came := b.Arrivals[r.Ticket]
	if !came {
		generation--
		_, came = b.Last[r.Ticket]
	}
	if !came || b.Generation == 0 || r.Generation != 0 && r.Generation != generation {
		return c.reply(wire.Refused, -1, 0, wire.StateForgotten)
	}
	switch fate, known := b.fate(generation); {
	case !known:
		return c.reply(wire.Refused, -1, generation, wire.StateForgotten)
	case fate == tripped:
		return c.reply(wire.Refused, -1, generation, wire.StateGranted)
	case fate == broken:
		return c.reply(wire.Refused, -1, generation, wire.StateBroken)
	}
	c.breaks()
	return c.reply(wire.Done, -1, generation)
}

// Run ends the action of the last to come.
func (r Open) Run(b *Barrier, now int64) wire.Tuple {
	if now > r.NotAfter {
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	c := b.call(now)
	fate, known := b.fate(r.Generation)
	if known && fate == 0 && b.Acting == r.Ticket {
		if r.OK {
			fate = tripped
			c.turn(tripped)
		} else {
			fate = broken
			c.breaks()
		}
	}
	return c.outcome(fate, 0, r.Generation)
}

// Run begins a new generation, unless the present one is new.
func (Reset) Run(b *Barrier, now int64) wire.Tuple {
	c := b.call(now)
	if b.Generation == 0 {
		return c.reply(wire.Done, 0, 0)
	}
	waited := int64(0)
	if !b.Broken && b.Arrived > 0 {
		waited = b.Arrived
		c.breaks()
	}
	if b.Broken {
		c.turn(broken)
	}
	return c.reply(wire.Done, waited, b.Generation)
}
