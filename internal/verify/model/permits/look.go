package permits

import (
	"fmt"
	"slices"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// together is a look as semaphore/checks has it, and reports whether nothing is to be done, nor news, of any of the tickets.
// The keys are prolonged for the first such ticket, and where a check does it.
func (r Check) together(l *Lock, now int64) (wire.Tuple, bool) {
	c := l.call(now, r.Client, 0, !r.Uncounted, 0, 0)
	h, size := &l.Hash, len(l.Queue)
	_, marked := l.Suspects[r.Client]
	calm := now <= r.NotAfter && r.lasts(c) && h.Scan == nil && h.Mark == 0 && !(h.Marked && marked) && line.Exact(size) && r.waits(c)
	var states []string
	for _, a := range r.Tickets {
		i := l.Rank(a.Ticket)
		_, holds := h.Holds[a.Ticket]
		t, _ := line.Read(a.Ticket)
		if !calm || holds || t.Permits > h.Limit || i < 0 || l.Queue[i].Arrival > a.Arrival || h.High <= 1 || h.High < a.Arrival {
			continue
		}
		if states == nil || h.Kept < max(c.Ahead(), c.Watched(size))+line.LeastKept {
			c.Created = true
			c.keep(size)
		}
		states = append(states, fmt.Sprint(wire.StateQueued, " ", c.Place(a.Ticket, true)))
	}
	return c.reply(wire.Done, -1, 0, 0, states...), len(states) > 0 && len(states) == len(r.Tickets)
}

// lasts reports whether there are leases, none of them over, and the last ends when it can.
func (r Check) lasts(c *call) bool {
	_, guarded := c.Holders[guard]
	all := c.ends()
	if !guarded || c.Used() == 0 || len(all) == 0 || all[0].Arrival <= c.Now {
		return false
	}
	last := all[len(all)-1]
	hold, known := c.Hash.Holds[last.Ticket]
	return known && last.Arrival-c.Now <= hold.Lease
}

// waits reports whether the head wants more than is free, and its client lives.
func (r Check) waits(c *call) bool {
	if c.room() <= 0 || len(c.Queue) == 0 {
		return true
	}
	t, ok := line.Read(c.Queue[0].Ticket)
	switch {
	case !ok || t.Permits <= c.room() || t.Permits > c.Hash.Limit:
		return false
	case t.Client == r.Client:
		return true
	}
	return !c.Hash.Marked && (!c.Counted || !c.Blind && c.Hears[t.Client])
}

// Run queues again what is neither queued nor granted, serves the queue, and tells the state of each
// ticket.
func (r Check) Run(l *Lock, now int64) wire.Tuple {
	if now > r.NotAfter {
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	if r.Together {
		if reply, ok := r.together(l, now); ok {
			return reply
		}
	}
	stated, born := r.Limit, r.Born
	if len(r.Tickets) == 0 {
		stated, born = 0, 0
	}
	c := l.call(now, r.Client, r.Floor, !r.Uncounted, stated, born)
	if stated != 0 {
		c.states()
	}
	c.open()
	marked := l.Hash.Marked
	c.Shown(r.Client, r.Mode)
	l.Hash.Marked = l.Hash.Marked || marked && l.Hash.pending()
	c.settle(false)
	states := make([]string, len(r.Tickets))
	for i, a := range r.Tickets {
		t, _ := line.Read(a.Ticket)
		switch {
		case c.holds(a.Ticket):
			states[i] = wire.StateGranted
			if l.Hash.Holds[a.Ticket].Phase == byMessage {
				states[i] = wire.StateEarlier
			}
			c.Grants = append(c.Grants, c.hold(a.Ticket))
		case l.Hash.Limit != 0 && t.Permits > l.Hash.Limit:
			states[i] = wire.StateExcess + " " + stage.Decimal(l.Hash.Limit)
			l.Dequeue(a.Ticket)
		case c.Enter(a.Ticket, a.Arrival, true, r.Heads[a.Ticket]):
			states[i] = wire.StateAgain
			c.wanted()
		default:
			states[i] = wire.StateQueued
		}
	}
	deaf := r.Mode == wire.Deaf
	if c.Suspect(r.Client) {
		c.Flags |= wire.Suspected
		deaf = true
	}
	c.advance()
	if c.Trim(r.Tickets, r.Bounds, r.Heads, states) {
		c.advance() // Tickets after one of them may fit.
	}
	r.outcome(c, states, deaf)
	if len(l.Queue) == 0 {
		c.forget()
	}
	c.keep(len(l.Queue))
	c.Places(states, r.Tickets, c.Used() > 0)
	return c.reply(wire.Done, -1, c.Clients(), 0, states...)
}

// outcome says which ticket was granted, and takes those of a deaf client out of the queue (R10).
func (r Check) outcome(c *call, states []string, deaf bool) {
	left := false
	for i, a := range r.Tickets {
		if !slices.Contains([]string{wire.StateQueued, wire.StateAgain}, states[i]) {
			continue
		}
		if _, taken := c.taken[a.Ticket]; taken {
			states[i] = wire.StateGranted
		} else if deaf {
			c.Dequeue(a.Ticket)
			states[i], left = wire.StateGone, true
		}
	}
	if left {
		c.advance() // Tickets after one of them may fit.
	}
}

// Run takes the permits of one hold back, tells its client, and serves the queue.
func (r Force) Run(l *Lock, now int64) wire.Tuple {
	c := l.call(now, "", r.Floor, !r.Uncounted, 0, 0)
	size := len(l.Queue)
	c.settle(false)
	status, states := wire.Refused, []string(nil)
	if c.holds(r.Ticket) {
		hold := l.Hash.Holds[r.Ticket]
		c.free(r.Ticket, l.Holders[r.Ticket])
		c.finish(r.Ticket, hold, wire.HowForced)
		l.Hash.Forced = r.Ticket
		l.Publish(wire.TicketClient(r.Ticket), "F "+r.Ticket+" lock")
		status, states = wire.Done, []string{r.Ticket}
	}
	c.advance()
	c.keep(size)
	return c.reply(status, -1, size, 0, states...)
}

// Run changes how many permits there are.
func (r Resize) Run(l *Lock, now int64) wire.Tuple {
	c := l.call(now, "", r.Floor, !r.Uncounted, r.Permits, 0)
	h, size, before := &l.Hash, len(l.Queue), l.Hash.Limit
	if h.Stated != 0 && h.Born == 0 {
		return c.refuse(wire.Mismatch)
	}
	stated := h.Stated
	c.settle(false)
	h.Limit, h.Stated = r.Permits, stated
	c.advance()
	if c.Created = true; h.Stated != h.Limit {
		h.Kept = max(h.Kept, now+resizedFor)
	}
	c.keep(size)
	return c.reply(wire.Done, -1, size, 0, stage.Decimal(before))
}

// Run turns a hold for writing into one for reading, and lets the readers at the head in.
func (r Downgrade) Run(l *Lock, now int64) wire.Tuple {
	if now > r.NotAfter {
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	c := l.call(now, wire.TicketClient(r.Ticket), r.Floor, !r.Uncounted, 0, 0)
	size := len(l.Queue)
	c.open()
	c.settle(false)
	known := c.holds(r.Ticket)
	hold := l.Hash.Holds[r.Ticket]
	ours := known && hold.Token == r.Token
	if ours && hold.Permits > 1 {
		hold.Permits = 1
		l.Hash.Holds[r.Ticket] = hold
	}
	c.advance()
	c.keep(size)
	switch {
	case ours:
		return c.granted(r.Ticket, 0)
	case known:
		return c.reply(wire.Refused, -1, size, 0, wire.StateExpired)
	}
	return c.reply(wire.Refused, -1, size, 0, l.Hash.Reason(r.Ticket))
}

// View is what semaphore/inspect shows of the lock, with at most that many holders and tickets; stated is the limit of
// one that was never used.
func (l *Lock) View(now int64, most int, stated int64) lua.View {
	v := lua.View{
		Now: now, Token: uint64(l.Hash.Token), Limit: l.Hash.Limit, Stated: l.Hash.Stated, Used: l.Used(), Holders: []lua.Holder{},
		Waiting: len(l.Queue), Queue: slices.Clone(l.Queue[:min(len(l.Queue), most)]), Suspects: []string{},
	}
	if v.Limit == 0 {
		v.Limit = stated
	}
	phases := map[byte]string{byMessage: "granted", byReply: "granted", held: wire.PhaseHeld, final: wire.PhaseFinal, ranOut: wire.PhaseExpired}
	for _, a := range l.ends() {
		h, known := l.Hash.Holds[a.Ticket]
		until := min(h.Since, now) + h.Least*stage.Millisecond
		switch {
		case a.Arrival <= now && h.Least > 0 && until > now:
			most++ // It is told besides.
			v.Holders = append(v.Holders, lua.Holder{
				Ticket: resting(a.Ticket), Until: until, Since: h.Since, Permits: h.Permits, Phase: wire.PhaseExpired,
				Token: uint64(h.Token), Count: 1, Who: h.Who,
			})
		case a.Arrival <= now:
			v.Used -= h.Permits
		case known && len(v.Holders) < most:
			v.Holders = append(v.Holders, lua.Holder{
				Ticket: a.Ticket, Until: a.Arrival, Since: h.Since, Permits: h.Permits, Phase: phases[h.Phase],
				Token: uint64(h.Token), Count: 1, Who: h.Who,
			})
		}
	}
	var marks []lua.Arrival
	for client, at := range l.Suspects {
		if at <= now {
			marks = append(marks, lua.Arrival{Ticket: client, Arrival: at})
		}
	}
	slices.SortFunc(marks, line.Order)
	for _, m := range marks[:min(len(marks), most)] {
		v.Suspects = append(v.Suspects, m.Ticket)
	}
	if h := &l.Hash; h.pending() || h.Previous != "" && h.Told == h.Token && v.Used > 0 {
		v.Previous = h.Previous
	}
	return v
}
