package permits

import (
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// Run takes permits if enough are free and nobody waits, else keeps a place in the queue.
func (r Ask) Run(l *Lock, now int64) wire.Tuple {
	if now > r.NotAfter { // R7
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	t, _ := line.Read(r.Ticket)
	c := l.call(now, t.Client, r.seen(), !r.Uncounted, r.Limit, r.Born)
	ok, differs := c.states()
	if !ok {
		return c.refuse(wire.Mismatch)
	}
	if differs {
		c.Flags |= wire.Differs
	}
	_, holds := l.Hash.Holds[r.Ticket]
	tells := t.Kind == wire.Write && l.Hash.pending()
	plain := !holds && t.Permits > 0 && len(l.Queue) == 0 && !tells
	if plain && c.takes(differs) && t.Permits <= c.limit()-c.Used() {
		c.begin()
		fresh, suspects := l.Hash.Token == 0, l.SuspectsEnds
		c.take(r.Ticket, t.Permits, t.Lease, r.Phase[0], r.Who)
		if l.Hash.Kept < max(c.lasts, c.Watched(0), c.Ahead())+line.LeastKept {
			c.keep(0)
		}
		if fresh {
			l.SuspectsEnds = suspects // The mark is for the holds.
		}
		reply := c.granted(r.Ticket, 0)
		if fresh && t.Kind == wire.Write {
			l.Hash.Previous, l.Hash.Told = "", 0 // A repeated request does not say so.
		}
		return reply
	}
	if !c.known && t.Permits > r.Limit {
		l.Dequeue(r.Ticket)
		return c.refuse(wire.Excess)
	}
	c.plain = c.known && c.older() && !holds && t.Permits > 0 && !c.fading() && t.Permits <= l.Hash.Limit && !tells && r.usual(c)
	if c.plain && r.Mode == wire.Try {
		if !differs {
			return c.reply(wire.Busy, -1, len(l.Queue), 0)
		}
		c.plain = false
	}
	if c.plain && r.Bound != nil {
		oldest, full, sure := c.Known(*r.Bound, r.Ticket)
		if full {
			return c.reply(wire.Full, -1, len(l.Queue), oldest)
		}
		c.plain = sure
	}
	c.settle(c.plain)
	if c.fading() {
		l.Hash.Kept, c.Created = now+resizedFor, true
	}
	holds = c.holds(r.Ticket)
	c.Recall(r.Ticket)
	if !holds && t.Permits > l.Hash.Limit {
		l.Dequeue(r.Ticket)
	}
	c.advance()
	if r.Mode == wire.Drain {
		t.Permits = max(c.room(), 0)
	}
	if _, taken := c.taken[r.Ticket]; !holds && !taken && len(l.Queue) == 0 && t.Permits > 0 && t.Permits <= c.room() {
		c.take(r.Ticket, t.Permits, t.Lease, r.Phase[0], r.Who)
	}
	c.keep(len(l.Queue))
	return r.outcome(c, t.Permits)
}

// seen is the highest token that the client has seen.
func (r Ask) seen() int64 {
	if r.FastPath && r.Floor == 0 {
		return r.NotAfter - line.SentBy
	}
	return r.Floor
}

// usual reports whether a first ask finds nothing unusual about permits that are not enough for it, or a queue whose head
// does not fit: then it does not look whether the clock stepped back.
func (r Ask) usual(c *call) bool {
	h, size := &c.Hash, len(c.Queue)
	_, guarded := c.Holders[guard]
	if !guarded || h.Stated == 0 || r.Mode == wire.Drain || r.Arrival != 0 || r.Head != 0 || r.Mode != wire.Try && c.Rank(r.Ticket) >= 0 {
		return false
	}
	need := max(c.Watched(size+1), c.Ahead())
	all := c.ends()
	if h.Kept < need+line.LeastKept || len(all) == 0 || all[0].Arrival <= c.Now || h.Marked || h.Scan != nil || h.Mark != 0 {
		return false
	}
	if size == 0 {
		return h.Wants == ""
	}
	if c.room() <= 0 {
		return true
	}
	t, ok := line.Read(c.Queue[0].Ticket)
	hears := t.Client == c.Caller || c.Counted && !c.Blind && c.Hears[t.Client]
	first := c.Queue[0].Arrival >= max(c.Now, h.High+1)
	return ok && hears && !first && t.Permits > c.room() && t.Permits <= h.Limit
}

// outcome is what an ask answers when the queue was served.
func (r Ask) outcome(c *call, permits int64) wire.Tuple {
	if hold, ok := c.Hash.Holds[r.Ticket]; ok {
		place := int64(0)
		if r.Mode == wire.Drain {
			place = hold.Permits
		}
		return c.granted(r.Ticket, place)
	}
	switch {
	case permits > c.Hash.Limit:
		return c.refuse(wire.Excess)
	case r.Mode == wire.Try || r.Mode == wire.Drain:
		return c.reply(wire.Busy, -1, len(c.Queue), 0)
	}
	if r.Bound != nil && c.Rank(r.Ticket) < 0 {
		if oldest, full := c.Full(*r.Bound, 0); full {
			c.keep(len(c.Queue))
			return c.reply(wire.Full, -1, len(c.Queue), oldest)
		}
	}
	return r.queue(c)
}

// queue keeps a place for a client that hears and is not suspected, and tells any other its arrival.
func (r Ask) queue(c *call) wire.Tuple {
	queued, entered, arrival := c.Wait(r.Ticket, r.Mode, r.Arrival, r.Head)
	if entered && !c.plain {
		c.wanted()
	}
	place := -1
	if queued {
		place = c.Place(r.Ticket, c.Used() > 0)
	}
	waiting := len(c.Queue)
	if place >= 0 && c.Rank(r.Ticket) == 0 {
		c.advance() // It came in ahead of one that does not fit.
	}
	c.keep(waiting)
	if _, taken := c.taken[r.Ticket]; taken {
		return c.granted(r.Ticket, 0)
	}
	return c.reply(wire.Waiting, place, len(c.Queue), arrival)
}

// Run takes a ticket out of the queue, gives back what it holds, and serves the queue (R9).
func (r End) Run(l *Lock, now int64) wire.Tuple {
	client := wire.TicketClient(r.Ticket)
	c := l.call(now, client, r.Floor, !r.Uncounted, 0, 0)
	c.Note = r.Note
	hold, known := l.Hash.Holds[r.Ticket]
	freed := known && (r.Token == 0 || r.Token == hold.Token)
	size := len(l.Queue)
	if freed && size == 0 && r.Token == 0 && !r.Rests && r.How == "" && (l.Used() == hold.Permits || hold.Lease <= line.MostKept) {
		c.free(r.Ticket, now+hold.Lease)
		l.Hash.High = 0
		c.cut(hold)
		l.tidy()
		return wire.Tuple{Status: wire.Done}
	}
	left, rests := false, false
	if freed {
		c.free(r.Ticket, now+hold.Lease)
		rests = r.Rests && c.rest(r.Ticket, hold, final)
		c.finish(r.Ticket, hold, r.How)
	} else {
		spare := resting(r.Ticket)
		if other, ok := l.Hash.Holds[spare]; ok && !r.Rests && r.Token == 0 && l.Hash.Rests > now {
			c.free(spare, now+other.Lease)
		}
		if left = l.Dequeue(r.Ticket); left {
			size--
		}
		if size == 0 {
			c.forget()
		}
	}
	c.settle(freed && r.Token == 0 && !r.Rests && size > 0 && hold.Lease <= line.MostKept && r.usual(c))
	c.advance()
	c.keep(size)
	if rests {
		c.look()
	}
	if freed {
		return c.reply(wire.Done, -1, size, 0)
	}
	reason := wire.StateExpired
	if !known {
		reason = l.Hash.Reason(r.Ticket)
	}
	if !left {
		c.unconfirmed(client)
	}
	return c.reply(wire.Refused, -1, size, 0, reason)
}

// cut lets keys that were kept for a long lease live for a minute when the last hold has ended and nobody waits.
func (c *call) cut(last Hold) {
	h, need := &c.Hash, max(c.Now, c.Ahead())
	long := last.Lease > line.MostKept-line.Spare
	if c.Used() > 0 || h.Stated != h.Limit || !long && (h.Kept <= last.Since+line.MostKept || h.Kept <= need+line.MostKept) {
		return
	}
	h.Kept, c.LockEnds = 0, c.In(need+line.Spare-c.Now)
	c.HoldersEnds = c.LockEnds
	if h.Marked {
		c.SuspectsEnds = c.LockEnds
	}
}

// usual reports whether a release finds nothing unusual about a queue and wakes at most one ticket: then it does not look
// whether the clock stepped back.
func (r End) usual(c *call) bool {
	h := &c.Hash
	_, guarded := c.Holders[guard]
	if !c.Counted || !guarded || h.Mark != 0 || h.Scan != nil || h.Marked || c.Blind || c.Mute {
		return false
	}
	if all := c.ends(); len(all) > 0 && all[0].Arrival <= c.Now {
		return false
	}
	hears := func(t line.Terms) bool { return t.Client == c.Caller || c.Hears[t.Client] }
	t, ok := line.Read(c.Queue[0].Ticket)
	if !ok || t.Kind == wire.Read || t.Permits > h.Limit || !hears(t) {
		return false
	}
	need, left := max(c.Ahead(), c.Watched(len(c.Queue))), c.room()-t.Permits
	if left >= 0 {
		need = max(need, c.Now+min(t.Lease, t.Grant), min(c.Floor, c.Now+line.ForgedAhead))
	}
	if left > 0 && len(c.Queue) > 1 {
		next, ok := line.Read(c.Queue[1].Ticket)
		if !ok || next.Permits <= left || next.Permits > h.Limit || !hears(next) {
			return false
		}
	}
	return h.Kept >= need+line.LeastKept
}

// unconfirmed reports what a client was granted and has not renewed, among the holds that end next.
func (c *call) unconfirmed(client string) {
	all := c.ends()
	for _, a := range all[:min(len(all), firstHolds)] {
		phase := c.Hash.Holds[a.Ticket].Phase
		_, told := c.taken[a.Ticket]
		if wire.TicketClient(a.Ticket) == client && !told && (phase == byMessage || phase == byReply) {
			c.Grants = append(c.Grants, c.hold(a.Ticket))
		}
	}
}

// Run lets a hold last for another lease, and never revives one that has ended.
func (r Renew) Run(l *Lock, now int64) wire.Tuple {
	if now > r.NotAfter {
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	hold, known := l.Hash.Holds[r.Ticket]
	if !known || hold.Token != r.Token || l.Holders[r.Ticket] <= now {
		reason := wire.StateExpired
		if !known || l.Holders[r.Ticket] == 0 {
			reason = l.Hash.Reason(r.Ticket)
		}
		return wire.Tuple{
			Status: wire.Refused, Now: now, Token: uint64(hold.Token), Place: -1, States: []string{reason},
		}
	}
	c := l.call(now, "", 0, false, 0, 0)
	hold.Lease, hold.Phase, hold.Who, hold.Least = r.Lease*stage.Millisecond, r.Phase[0], r.Who, r.Least
	l.Hash.Holds[r.Ticket] = hold
	last := max(c.last(), now+hold.Lease)
	l.Holders[r.Ticket] = now + hold.Lease
	l.LockEnds = c.In(max(l.Hash.Kept, last+line.Spare) - now)
	l.HoldersEnds = l.LockEnds
	reply := wire.Tuple{Status: wire.Granted, Now: now, Token: uint64(hold.Token), Until: now + hold.Lease}
	if r.Stays {
		h, until := &l.Hash, hold.Since+r.Least*stage.Millisecond
		h.Rests, h.Kept = max(h.Rests, until), max(h.Kept, until+line.Spare)
		ends := c.In(max(h.Kept, last+line.Spare) - now)
		l.LockEnds, l.HoldersEnds, l.QueueEnds = ends, ends, ends
		if len(l.Suspects) > 0 {
			l.SuspectsEnds = ends
		}
		l.tidy()
		return reply
	}
	client := wire.TicketClient(r.Ticket) + " "
	switch h := &l.Hash; {
	case !r.Wants:
	case len(l.Queue) > 0:
		reply.Flags = wire.Wanted
	case len(h.Wants) >= mostWants:
		h.Wants = client
	case !strings.Contains(h.Wants, client):
		h.Wants += client
	}
	return reply
}
