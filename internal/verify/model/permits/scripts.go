package permits

import (
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// Run takes permits if enough are free and nobody waits, else keeps a place in the queue.
func (r Ask) Run(l *Lock, now int64) lua.Tuple {
	if now > r.NotAfter { // R7
		return lua.Tuple{Status: lua.Late, Now: now}
	}
	t, _ := read(r.Ticket)
	c := l.call(now, t.client, r.Floor, !r.Uncounted, r.Limit)
	if !c.agrees() {
		return c.refuse(lua.Mismatch)
	}
	_, guarded := l.Holders[guard]
	_, holds := l.Hash.Holds[r.Ticket]
	plain := c.known && guarded && !holds && t.permits > 0 && !c.fading()
	lasting := l.Hash.Kept >= max(now+2*longLook, min(max(l.Hash.Token, c.floor), now+forgedAhead))+leastKept
	if plain && lasting && len(l.Queue) == 0 && t.permits <= c.room() && l.Hash.Kept >= now+t.lease+leastKept {
		c.take(r.Ticket, t.permits, t.lease, r.Phase[0], r.Who)
		return c.granted(r.Ticket, 0)
	}
	if !c.known && t.permits > r.Limit {
		l.dequeue(r.Ticket)
		return c.refuse(lua.Excess)
	}
	c.settle(plain && lasting && t.permits <= l.Hash.Limit && r.usual(c))
	if c.fading() {
		l.Hash.Kept, c.created = now+resizedFor, true
	}
	holds = c.holds(r.Ticket)
	if i := l.rank(r.Ticket); i >= 0 {
		c.recall(l.Queue[i].Arrival)
	}
	if !holds && t.permits > l.Hash.Limit {
		l.dequeue(r.Ticket)
	}
	c.advance()
	if r.Mode == lua.Drain {
		t.permits = max(c.room(), 0)
	}
	if _, taken := c.taken[r.Ticket]; !holds && !taken && len(l.Queue) == 0 && t.permits > 0 && t.permits <= c.room() {
		c.take(r.Ticket, t.permits, t.lease, r.Phase[0], r.Who)
	}
	c.keep(len(l.Queue))
	return r.outcome(c, t.permits)
}

// usual reports whether a first wait finds nothing unusual about a queue whose head does not fit: then it does
// not look whether the clock stepped back.
func (r Ask) usual(c *call) bool {
	h, size := &c.Hash, len(c.Queue)
	if r.Mode != lua.Wait || r.Arrival != 0 || r.Head != 0 || size == 0 || c.rank(r.Ticket) >= 0 {
		return false
	}
	need := c.now + 2*max(longLook, int64(size+1)*lookEach)
	all := c.ends()
	if h.Kept < need+leastKept || len(all) == 0 || all[0].Arrival <= c.now || h.Marked || h.Scan != nil || h.Mark != 0 {
		return false
	}
	if c.room() <= 0 {
		return true
	}
	t, ok := read(c.Queue[0].Ticket)
	hears := t.client == c.caller || c.counted && !c.Blind && c.Hears[t.client]
	first := c.Queue[0].Arrival >= max(c.now, h.High+1)
	return ok && hears && !first && t.permits > c.room() && t.permits <= h.Limit
}

// outcome is what an ask answers when the queue was served.
func (r Ask) outcome(c *call, permits int64) lua.Tuple {
	if hold, ok := c.Hash.Holds[r.Ticket]; ok {
		place := int64(0)
		if r.Mode == lua.Drain {
			place = hold.Permits
		}
		return c.granted(r.Ticket, place)
	}
	switch {
	case permits > c.Hash.Limit:
		return c.refuse(lua.Excess)
	case r.Mode == lua.Try || r.Mode == lua.Drain:
		return c.reply(lua.Busy, -1, len(c.Queue), 0)
	}
	return r.queue(c)
}

// queue keeps a place for a client that hears and is not suspected, and tells any other its arrival.
func (r Ask) queue(c *call) lua.Tuple {
	h := &c.Hash
	arrival := r.Arrival
	if arrival == 0 {
		h.High = max(c.now, h.High+1)
		arrival = h.High - r.Head
	}
	place := -1
	if c.suspect(c.caller) {
		c.flags |= lua.Suspected
	} else if r.Mode == lua.Wait {
		c.enter(r.Ticket, arrival, r.Arrival != 0)
		place = c.place(r.Ticket)
	}
	if i := c.rank(r.Ticket); i >= 0 {
		arrival = c.Queue[i].Arrival // What was queued already keeps its arrival.
	}
	waiting := len(c.Queue)
	if place >= 0 && c.rank(r.Ticket) == 0 {
		c.advance() // It came in ahead of one that does not fit.
	}
	c.keep(waiting)
	if _, taken := c.taken[r.Ticket]; taken {
		return c.granted(r.Ticket, 0)
	}
	return c.reply(lua.Waiting, place, len(c.Queue), arrival)
}

// enter queues a ticket, and reports false if it is queued already: then an earlier arrival counts, if it was
// given before.
func (c *call) enter(ticket string, arrival int64, given bool) (entered bool) {
	c.created = c.created || len(c.Queue) == 0
	if given || c.rank(ticket) < 0 {
		entered = c.Enqueue(ticket, arrival)
	}
	c.recall(arrival)
	return entered
}

// recall lets the next pass begin at the head if the one that was cut went past an arrival.
func (c *call) recall(arrival int64) {
	if s := c.Hash.Scan; s != nil && arrival <= s.Arrival {
		c.Hash.Scan = nil
	}
}

// place is how many are ahead of a ticket, those who hold as one; -1 if it is not queued.
func (c *call) place(ticket string) int {
	rank := c.rank(ticket)
	if rank >= 0 && c.Used() > 0 {
		rank++
	}
	return rank
}

// clients is the number of clients that wait, as far as a check tells it.
func (c *call) clients() int {
	if len(c.Queue) > exactSize {
		return Estimated
	}
	return len(c.Queue)
}

// Run takes a ticket out of the queue, gives back what it holds, and serves the queue (R9).
func (r End) Run(l *Lock, now int64) lua.Tuple {
	client := lua.TicketClient(r.Ticket)
	c := l.call(now, client, r.Floor, !r.Uncounted, 0)
	c.note = r.Note
	hold, known := l.Hash.Holds[r.Ticket]
	freed := known && (r.Token == 0 || r.Token == hold.Token)
	size := len(l.Queue)
	if freed && size == 0 && r.Token == 0 && (l.Used() == hold.Permits || hold.Lease <= mostKept) {
		c.free(r.Ticket, now+hold.Lease)
		c.cut(hold)
		l.tidy()
		return lua.Tuple{Status: lua.Done}
	}
	left := false
	if freed {
		c.free(r.Ticket, now+hold.Lease)
	} else {
		if left = l.dequeue(r.Ticket); left {
			size--
		}
		if size == 0 {
			c.forget()
		}
	}
	c.settle(freed && r.Token == 0 && size > 0 && hold.Lease <= mostKept && r.usual(c))
	c.advance()
	c.keep(size)
	if freed {
		return c.reply(lua.Done, -1, size, 0)
	}
	reason := lua.StateExpired
	if !known {
		reason = l.reason(r.Ticket)
	}
	if !left {
		c.unconfirmed(client)
	}
	return c.reply(lua.Refused, -1, size, 0, reason)
}

// cut lets keys that were kept for a long lease live for a minute when the last hold has ended and nobody waits.
func (c *call) cut(last Hold) {
	h, need := &c.Hash, max(c.now, c.ahead())
	long := last.Lease > mostKept-spare
	if c.Used() > 0 || h.Stated == 0 || !long && (h.Kept <= last.Since+mostKept || h.Kept <= need+mostKept) {
		return
	}
	h.Kept, c.LockEnds = 0, c.in(float64(need+spare-c.now)/stage.Millisecond)
	c.HoldersEnds = c.LockEnds
	if h.Marked {
		c.SuspectsEnds = c.LockEnds
	}
}

// usual reports whether a release finds nothing unusual about a queue of which it wakes nobody or one: then it
// does not look whether the clock stepped back.
func (r End) usual(c *call) bool {
	h := &c.Hash
	_, guarded := c.Holders[guard]
	if !c.counted || !guarded || h.Mark != 0 || h.Scan != nil || h.Marked || c.Blind || c.Mute {
		return false
	}
	if all := c.ends(); len(all) > 0 && all[0].Arrival <= c.now {
		return false
	}
	hears := func(t terms) bool { return t.client == c.caller || c.Hears[t.client] }
	t, ok := read(c.Queue[0].Ticket)
	if !ok || t.kind == lua.Read || t.permits > h.Limit || !hears(t) {
		return false
	}
	need, left := max(c.ahead(), c.now+2*max(longLook, int64(len(c.Queue))*lookEach)), c.room()-t.permits
	if left >= 0 {
		need = max(need, c.now+min(t.lease, t.grant))
	}
	if left > 0 && len(c.Queue) > 1 {
		next, ok := read(c.Queue[1].Ticket)
		if !ok || next.permits <= left || next.permits > h.Limit || !hears(next) {
			return false
		}
	}
	return h.Kept >= need+leastKept
}

// unconfirmed reports what a client was granted and has not renewed, among the holds that end next.
func (c *call) unconfirmed(client string) {
	all := c.ends()
	for _, a := range all[:min(len(all), firstHolds)] {
		phase := c.Hash.Holds[a.Ticket].Phase
		_, told := c.taken[a.Ticket]
		if lua.TicketClient(a.Ticket) == client && !told && (phase == byMessage || phase == byReply) {
			c.grants = append(c.grants, c.hold(a.Ticket))
		}
	}
}

// reason is why a ticket does not, or no longer, hold.
func (l *Lock) reason(ticket string) string {
	switch ticket {
	case l.Hash.Forced:
		return lua.StateForced
	case l.Hash.Lapsed:
		return lua.StateExpired
	}
	return lua.StateForgotten
}

// Run lets a hold last for another lease, and never revives one that has ended.
func (r Renew) Run(l *Lock, now int64) lua.Tuple {
	if now > r.NotAfter {
		return lua.Tuple{Status: lua.Late, Now: now}
	}
	hold, known := l.Hash.Holds[r.Ticket]
	if !known || hold.Token != r.Token || l.Holders[r.Ticket] <= now {
		reason := lua.StateExpired
		if !known || l.Holders[r.Ticket] == 0 {
			reason = l.reason(r.Ticket)
		}
		return lua.Tuple{
			Status: lua.Refused, Now: now, Token: uint64(hold.Token), Place: -1, States: []string{reason},
		}
	}
	c := l.call(now, "", 0, false, 0)
	hold.Lease, hold.Phase, hold.Who = r.Lease*stage.Millisecond, r.Phase[0], r.Who
	l.Hash.Holds[r.Ticket] = hold
	l.Holders[r.Ticket] = now + hold.Lease
	l.LockEnds = c.in(float64(max(l.Hash.Kept, now+hold.Lease+spare)-now) / stage.Millisecond)
	l.HoldersEnds = l.LockEnds
	return lua.Tuple{Status: lua.Granted, Now: now, Token: uint64(hold.Token), Until: now + hold.Lease}
}
