package model

import (
	"fmt"
	"math"

	"github.com/headwaiter/headwaiter/lua"
)

// call is one script that runs.
type call struct {
	*Mutex
	now     int64
	caller  string
	floor   int64
	counted bool
	note    string

	lives   int64 // until when renewals may have prolonged the lock's key
	created bool  // a key is new, and has no expiry yet
	flags   int64
	skipped int
	expired int
	grants  []lua.Grant
}

func (m *Mutex) call(now int64, caller string, floor int64, counted bool) *call {
	if floor > now+forgedAhead {
		floor = 0 // It would use up the numbers that tokens can have.
	}
	c := &call{Mutex: m, now: now, caller: caller, floor: floor, counted: counted}
	if c.held() {
		c.lives = m.Lock.Until + spare
	}
	return c
}

// ahead is until when the last token is ahead of the clock, but no longer than it could be without being forged.
func (c *call) ahead() int64 { return min(c.Lock.Token, c.now+forgedAhead) }

// held reports whether somebody holds; as an expired lease does until it is settled.
func (c *call) held() bool { return c.Lock.Owner != "" }

// over reports whether a lease has run out.
func (c *call) over() bool { return c.Lock.Until <= c.now }

// stepped reports whether a lease ends later than it can.
func (c *call) stepped() bool { return c.Lock.Until-c.now > c.Lock.Lease }

// open is the write that is accepted when memory is full: the lock key outlives the lease by a minute.
func (c *call) open() {
	if c.Lock != (Hash{}) {
		end := c.ahead()
		if c.held() {
			end = c.Lock.Until
		}
		end = max(end, c.now)
		c.LockEnds = c.in(float64(max(c.Lock.Kept, end+spare)-c.now) / millisecond)
	}
}

// in is a time that many milliseconds from now, rounded as PEXPIRE wants it.
func (c *call) in(ms float64) int64 {
	return c.now + int64(math.RoundToEven(ms))*millisecond
}

// keep lets all keys outlive the lease, two looks of those who wait and a token that is ahead, and not by much (I6).
func (c *call) keep(waiting int) {
	need := max(c.now, c.ahead())
	idle := !c.held() && waiting == 0 && !c.created
	if !idle {
		need = max(need, c.now+2*max(longLook, int64(waiting)*lookEach))
	}
	most := need
	if c.held() {
		need = max(need, c.Lock.Until)
		lease, _ := terms(c.Lock.Owner)
		most = max(need, c.now+lease)
	}
	long := max(c.Lock.Kept, c.lives) > most+mostKept
	if !long && (idle || c.Lock.Kept >= need+leastKept && !c.created) {
		return
	}
	if long {
		c.Lock.Kept = 0
	}
	c.lives, c.created = 0, false
	c.Lock.Kept = max(c.Lock.Kept, need+spare)
	end := c.in(float64(c.Lock.Kept-c.now) / millisecond)
	c.LockEnds, c.QueueEnds, c.SuspectsEnds = end, end, end
	c.tidy()
}

// among reports whether a token is one of those of the present hold.
func (c *call) among(token int64) bool {
	return token >= c.Lock.Token && token <= c.Lock.Token+passesOf(c.Lock.Owner)
}

// own makes a ticket the owner, with a token above every earlier one (I2).
func (c *call) own(ticket string, lease int64, phase, who string) {
	h := &c.Lock
	h.Owner, h.Phase, h.Who = ticket, phase, who
	h.Token = max(h.Token, c.floor, c.now-1) + 1
	h.Lease, h.Until, h.Since = lease, c.now+lease, c.now
}

// settle ends a lease that has run out, and cuts one that the server's clock has left behind.
func (c *call) settle() {
	h := &c.Lock
	if !c.held() {
		return
	}
	if c.stepped() {
		h.Until = c.now + h.Lease
		c.flags |= lua.Stepped
		c.open()
	}
	if !c.over() {
		return
	}
	ticket := h.Owner
	h.Owner, h.Lapsed, c.expired = "", ticket, 1
	h.Token += passesOf(ticket) // Nobody has said how many of them were used.
	if h.Phase == lua.PhaseFinal {
		return
	}
	for client, at := range c.Suspects {
		if at <= c.now-remembers {
			delete(c.Suspects, client)
		}
	}
	client := lua.TicketClient(ticket)
	c.Suspects[client] = c.now
	h.Marked, c.created = true, true
	if client == c.caller {
		c.flags |= lua.Suspected
	} else {
		c.publish(client, "S "+ticket)
	}
	if h.Phase == granted {
		c.roll()
	}
}

// roll calls the clients at the head of the queue, who are suspects from some time on unless they look.
func (c *call) roll() {
	called := map[string]bool{}
	for _, a := range c.Queue[:min(len(c.Queue), callsListed)] {
		client := lua.TicketClient(a.Ticket)
		if client == c.caller || called[client] || len(called) == callsMost {
			continue
		}
		called[client] = true
		if _, marked := c.Suspects[client]; marked {
			continue
		}
		if c.publish(client, "L "+a.Ticket) {
			c.Suspects[client] = c.now + answerTime
		}
	}
}

// A pass is a look at the heads of the queue until one is alive.
type pass struct {
	ahead  int    // tickets before the one that is alive
	silent int    // clients among them that nobody hears for
	one    string // the last of these clients
	last   int64  // arrival of the last of them
	head   *lua.Arrival
	cut    bool // nobody was alive as far as one script may look
}

func (c *call) pass() pass {
	p := pass{last: never}
	if s := c.Lock.Scan; s != nil {
		p.silent, p.last, p.one = s.Silent, s.Arrival, s.One
		for p.ahead < len(c.Queue) && c.Queue[p.ahead].Arrival <= s.Arrival {
			p.ahead++
		}
	}
	counted := map[string]bool{p.one: true}
	size := 1
	for first := p.ahead; p.ahead-first < looks; size = lookBatch {
		heads := c.Queue[p.ahead:min(p.ahead+size, len(c.Queue))]
		if len(heads) == 0 {
			return p
		}
		c.mustCount(heads)
		for _, a := range heads {
			client := lua.TicketClient(a.Ticket)
			if c.alive(client) {
				p.head = &a
				return p
			}
			if !c.suspect(client) && !counted[client] {
				counted[client] = true
				p.silent, p.one = p.silent+1, client
			}
			p.ahead, p.last = p.ahead+1, a.Arrival
		}
	}
	p.cut = true
	return p
}

// suspect reports whether a client let a lease run out.
func (c *call) suspect(client string) bool {
	at, found := c.Suspects[client]
	return found && c.Lock.Marked && at <= c.now
}

// alive reports whether a client can be granted.
func (c *call) alive(client string) bool {
	switch {
	case client == c.caller:
		return true // R5
	case c.suspect(client):
		return false
	}
	return !c.counted || c.Blind || c.Hears[client] // R4
}

// mustCount notes that the server does not tell who subscribes, if that is asked for some of the heads.
func (c *call) mustCount(heads []lua.Arrival) {
	for _, a := range heads {
		client := lua.TicketClient(a.Ticket)
		if c.Blind && c.counted && client != c.caller && !c.suspect(client) {
			c.flags |= lua.Uncounted
		}
	}
}

// advance serves the queue of a lock that is free (R3).
func (c *call) advance() {
	if c.held() {
		return
	}
	p := c.pass()
	switch {
	case p.cut:
		c.remember(p)
	case p.head == nil && p.silent >= 2 && len(c.Queue) > 0 && c.spares():
	case !c.drop(p.ahead):
		c.remember(p)
	default:
		c.forget()
		if p.head != nil {
			c.grant(*p.head)
		}
	}
	c.tidy()
}

// forget clears what passes have left behind.
func (c *call) forget() {
	c.Lock.Scan, c.Lock.Mark = nil, 0
	c.tidy()
}

// remember keeps how far a pass came, and asks for another.
func (c *call) remember(p pass) {
	c.Lock.Scan = &Scan{p.silent, p.last, p.one}
	c.flags |= lua.More
}

// spares sets the mark behind which nobody is dropped for the grant lease of the first ticket, unless
// there is one already, and reports whether it stands (R6). One that ends later than it can is from before
// a step of the clock.
func (c *call) spares() bool {
	_, lasts := terms(c.Queue[0].Ticket)
	lasts = min(lasts, mostSpared)
	if c.now-c.Lock.Mark > markLasts || c.Lock.Mark-c.now > lasts {
		c.Lock.Mark = c.now + lasts
	}
	return c.now < c.Lock.Mark
}

// drop removes the first n tickets, as far as one script may, and reports whether that was all.
func (c *call) drop(n int) bool {
	now := min(n, drops)
	c.Queue = c.Queue[now:]
	c.skipped += now
	return now == n
}

// grant makes the head the owner for its grant lease and tells its client, in the reply if that is the
// caller. A grant that cannot be told is undone.
func (c *call) grant(head lua.Arrival) {
	c.dequeue(head.Ticket)
	lease, first := terms(head.Ticket)
	if lease == 0 {
		c.flags |= lua.More // Not a ticket: somebody else wrote it.
		return
	}
	c.own(head.Ticket, min(lease, first), granted, "")
	client := lua.TicketClient(head.Ticket)
	if client == c.caller {
		c.report()
		return
	}
	h := &c.Lock
	if c.publish(client, fmt.Sprintf("G %s %d %d %d", head.Ticket, h.Token, c.now, h.Until)+c.carried()) {
		c.flags |= lua.Handed
		return
	}
	h.Owner = ""
	c.Enqueue(head.Ticket, head.Arrival)
	c.created = true
	c.flags |= lua.Unwoken
}

// carried is what the message of a grant ends with.
func (c *call) carried() string {
	if c.note == "" {
		return ""
	}
	return " ~" + c.note
}

// report puts the present hold into the reply, as one of the caller's.
func (c *call) report() {
	h := &c.Lock
	c.grants = []lua.Grant{{Ticket: h.Owner, Token: uint64(h.Token), At: c.now, Until: h.Until}}
}

// reply is the long form of an answer.
func (c *call) reply(status lua.Status, place, waiting int, arrival int64, states ...string) lua.Tuple {
	until := c.Lock.Mark
	if c.held() {
		until = c.Lock.Until
	}
	return lua.Tuple{
		Status: status, Now: c.now, Token: uint64(c.Lock.Token), Until: until,
		Place: int64(place), Waiting: waiting, Arrival: arrival,
		Flags: c.flags, Skipped: c.skipped, Expired: c.expired, Grants: c.grants, States: states,
	}
}
