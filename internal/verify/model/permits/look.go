package permits

import (
	"slices"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// Run queues again what is neither queued nor granted, serves the queue, and tells the state of each
// ticket.
func (r Check) Run(l *Lock, now int64) lua.Tuple {
	if now > r.NotAfter {
		return lua.Tuple{Status: lua.Late, Now: now}
	}
	stated := r.Limit
	if len(r.Tickets) == 0 {
		stated = 0
	}
	c := l.call(now, r.Client, r.Floor, !r.Uncounted, stated)
	c.open()
	c.Shown(r.Client, r.Mode)
	c.settle(false)
	states := make([]string, len(r.Tickets))
	for i, a := range r.Tickets {
		t, _ := line.Read(a.Ticket)
		switch {
		case c.holds(a.Ticket):
			states[i] = lua.StateGranted
			if l.Hash.Holds[a.Ticket].Phase == byMessage {
				states[i] = lua.StateEarlier
			}
			c.Grants = append(c.Grants, c.hold(a.Ticket))
		case l.Hash.Limit != 0 && t.Permits > l.Hash.Limit:
			states[i] = lua.StateExcess + " " + stage.Decimal(l.Hash.Limit)
			l.Dequeue(a.Ticket)
		case c.Enter(a.Ticket, a.Arrival, true, r.Heads[a.Ticket]):
			states[i] = lua.StateAgain
			c.wanted()
		default:
			states[i] = lua.StateQueued
		}
	}
	deaf := r.Mode == lua.Deaf
	if c.Suspect(r.Client) {
		c.Flags |= lua.Suspected
		deaf = true
	}
	c.advance()
	if c.Trim(r.Tickets, r.Bounds, r.Heads, states) {
		c.advance() // Behind one of them others may fit.
	}
	r.outcome(c, states, deaf)
	if len(l.Queue) == 0 {
		c.forget()
	}
	c.keep(len(l.Queue))
	c.Places(states, r.Tickets, c.Used() > 0)
	return c.reply(lua.Done, -1, c.Clients(), 0, states...)
}

// outcome says which ticket was granted, and takes those of a deaf client out of the queue (R10).
func (r Check) outcome(c *call, states []string, deaf bool) {
	left := false
	for i, a := range r.Tickets {
		if !slices.Contains([]string{lua.StateQueued, lua.StateAgain}, states[i]) {
			continue
		}
		if _, taken := c.taken[a.Ticket]; taken {
			states[i] = lua.StateGranted
		} else if deaf {
			c.Dequeue(a.Ticket)
			states[i], left = lua.StateGone, true
		}
	}
	if left {
		c.advance() // Behind one of them others may fit.
	}
}

// Run takes the permits of one hold back, tells its client, and serves the queue.
func (r Force) Run(l *Lock, now int64) lua.Tuple {
	c := l.call(now, "", r.Floor, !r.Uncounted, 0)
	size := len(l.Queue)
	c.settle(false)
	status, states := lua.Refused, []string(nil)
	if c.holds(r.Ticket) {
		c.free(r.Ticket, l.Holders[r.Ticket])
		l.Hash.Forced = r.Ticket
		l.Publish(lua.TicketClient(r.Ticket), "F "+r.Ticket+" lock")
		status, states = lua.Done, []string{r.Ticket}
	}
	c.advance()
	c.keep(size)
	return c.reply(status, -1, size, 0, states...)
}

// Run changes how many permits there are.
func (r Resize) Run(l *Lock, now int64) lua.Tuple {
	if now > r.NotAfter {
		return lua.Tuple{Status: lua.Late, Now: now}
	}
	c := l.call(now, "", r.Floor, !r.Uncounted, r.Stated)
	if !c.agrees() {
		return c.refuse(lua.Mismatch)
	}
	size, before := len(l.Queue), c.limit()
	c.settle(false)
	l.Hash.Limit, l.Hash.Stated, c.known = r.Permits, 0, true
	c.advance()
	l.Hash.Kept, c.Created = max(l.Hash.Kept, now+resizedFor), true
	c.keep(size)
	return c.reply(lua.Done, -1, size, 0, stage.Decimal(before))
}

// Run turns a hold for writing into one for reading, and lets the readers at the head in.
func (r Downgrade) Run(l *Lock, now int64) lua.Tuple {
	if now > r.NotAfter {
		return lua.Tuple{Status: lua.Late, Now: now}
	}
	c := l.call(now, lua.TicketClient(r.Ticket), r.Floor, !r.Uncounted, 0)
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
		return c.reply(lua.Refused, -1, size, 0, lua.StateExpired)
	}
	return c.reply(lua.Refused, -1, size, 0, l.Hash.Reason(r.Ticket))
}

// View is what semaphore/inspect shows of the lock, of whose holders and tickets at most so many; stated is the
// limit of one that was never used.
func (l *Lock) View(now int64, most int, stated int64) lua.View {
	v := lua.View{
		Now: now, Token: uint64(l.Hash.Token), Limit: l.Hash.Limit, Used: l.Used(), Holders: []lua.Holder{},
		Waiting: len(l.Queue), Queue: slices.Clone(l.Queue[:min(len(l.Queue), most)]), Suspects: []string{},
	}
	if v.Limit == 0 {
		v.Limit = stated
	}
	phases := map[byte]string{byMessage: "granted", byReply: "granted", held: lua.PhaseHeld, final: lua.PhaseFinal}
	for _, a := range l.ends() {
		h, known := l.Hash.Holds[a.Ticket]
		switch {
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
	return v
}
