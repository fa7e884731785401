package barrier

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A call is one request while it is served.
type call struct {
	*Barrier
	now     int64
	flags   int64
	expired int
	message string
	note    string // under which the request is to be known
	repeats int64  // ms for which it is
}

// call begins with what time has done.
func (b *Barrier) call(now int64) *call {
	c := &call{Barrier: b, now: now}
	c.settle()
	return c
}

// settle breaks the present generation where a lease has run out, or where it is not certain who has arrived.
func (c *call) settle() {
	if c.Generation == 0 || c.Broken {
		return
	}
	if !c.certain() {
		c.breaks()
		return
	}
	tickets := c.byLease()
	if len(tickets) == 0 {
		return
	}
	if newest := tickets[len(tickets)-1]; c.Leases[newest]-c.now > stage.Lease(newest) {
		c.flags |= wire.Stepped
		for ticket, until := range c.Leases {
			c.Leases[ticket] = min(until, c.now+stage.Lease(ticket))
		}
	}
	if c.expired = c.late(c.now); c.expired > 0 {
		c.breaks()
	}
}

// breaks breaks the present generation.
func (c *call) breaks() {
	c.Lose(Leases)
	c.Acting, c.Broken = "", true
	c.message = fmt.Sprintf("%c %d", wire.MessageBroken, c.Generation)
}

// turn ends the present generation and begins the next.
func (c *call) turn(outcome byte) {
	if outcome == tripped {
		c.message = fmt.Sprintf("%c %d", wire.MessageOpen, c.Generation)
	}
	c.Lose(Leases)
	c.Last, c.Arrivals = c.Arrivals, map[string]Arrival{}
	c.ends[Last], c.ends[Arrivals] = c.ends[Arrivals], 0
	c.Past = string(outcome) + c.Past
	c.Past = c.Past[:min(len(c.Past), outcomes)]
	c.Horizon, c.Ended = c.Ended, c.now
	c.Generation++
	c.Arrived, c.Broken, c.Acting = 0, false, ""
}

// arrive takes a ticket into the present generation, and returns its index.
func (c *call) arrive(r Ask) int64 {
	c.Arrived++
	c.Lifetime = r.Lifetime
	index := c.Parties - c.Arrived
	c.Arrivals[r.Ticket] = Arrival{Index: index, Since: c.now, Who: r.Who}
	c.prolong(r.Ticket)
	return index
}

func (c *call) prolong(ticket string) { c.Leases[ticket] = c.now + stage.Lease(ticket) }

// reply ends the call.
func (c *call) reply(status wire.Status, place int64, arrival int64, states ...string) wire.Tuple {
	r := wire.Tuple{
		Status: status, Now: c.now, Token: uint64(c.Generation), Place: place, Arrival: arrival,
		Expired: c.expired, States: states,
	}
	if c.Generation != 0 {
		life := c.Lifetime * stage.Millisecond
		if tickets := c.byLease(); len(tickets) > 0 && !c.Broken {
			r.Waiting, r.Until = int(c.Arrived), c.Leases[tickets[0]]
			life = max(life, stage.Ceil(c.Leases[tickets[len(tickets)-1]]-c.now)+spare)
		}
		for key, there := range [...]bool{true, len(c.Leases) > 0, len(c.Arrivals) > 0, len(c.Last) > 0} {
			c.ends[key] = 0
			if there {
				c.ends[key] = c.now + life
			}
		}
	}
	if c.note != "" {
		c.Calls.Note(c.note, c.repeats, c.now)
	}
	if c.message != "" {
		c.flags |= c.Publish(c.message)
	}
	r.Flags = c.flags
	return r
}

// outcome ends a call about a ticket whose generation is over or not known.
func (c *call) outcome(fate byte, index, generation int64) wire.Tuple {
	switch fate {
	case tripped:
		return c.reply(wire.Granted, index, generation)
	case broken:
		return c.reply(wire.Broken, -1, generation)
	}
	return c.reply(wire.Refused, -1, 0, wire.StateForgotten)
}
