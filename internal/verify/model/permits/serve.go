package permits

import (
	"maps"
	"math"
	"slices"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// call is one script that runs.
type call struct {
	*Lock
	now     int64
	caller  string
	floor   int64
	counted bool
	note    string
	stated  int64 // the limit that the caller goes by; 0: it does not say
	known   bool  // there was a limit when it began

	lives   int64 // until when renewals of what was freed may have prolonged keys
	created bool  // a key is new, and has no expiry yet
	lasts   int64
	flags   int64
	skipped int
	expired int
	grants  []lua.Grant
	taken   map[string]lua.Grant // all that was granted
}

func (l *Lock) call(now int64, caller string, floor int64, counted bool, stated int64) *call {
	if floor > now+forgedAhead {
		floor = 0 // It would use up the numbers that tokens can have.
	}
	return &call{
		Lock: l, now: now, caller: caller, floor: floor, counted: counted, stated: stated, known: l.Hash.Limit != 0,
		taken: map[string]lua.Grant{},
	}
}

// limit is how many permits there are, or will be when the lock is made.
func (c *call) limit() int64 {
	if c.known {
		return c.Hash.Limit
	}
	return c.stated
}

// agrees reports whether the caller states the limit with which the lock was made; once resized, any will do.
func (c *call) agrees() bool {
	return c.Hash.Stated == 0 || c.stated == c.Hash.Stated
}

// room is how many permits are free; less than nothing after a lock was made smaller.
func (c *call) room() int64 { return c.Hash.Limit - c.Used() }

// in is a time that many milliseconds from now, rounded as PEXPIRE wants it.
func (c *call) in(ms float64) int64 {
	return c.now + int64(math.RoundToEven(ms))*stage.Millisecond
}

// last is the end of the last lease.
func (c *call) last() int64 {
	var last int64
	for _, end := range c.Holders {
		last = max(last, end)
	}
	return last
}

// ahead is until when the last token is ahead of the clock, but no longer than it could be without being forged.
func (c *call) ahead() int64 { return min(c.Hash.Token, c.now+forgedAhead) }

// open is the write that is accepted when memory is full: the lock key outlives the last lease by a minute.
func (c *call) open() {
	if len(c.Fields()) == 0 {
		return
	}
	end := c.ahead()
	if c.Used() > 0 {
		end = c.last()
	}
	c.LockEnds = c.in(float64(max(c.Hash.Kept, max(end, c.now)+spare)-c.now) / stage.Millisecond)
}

// keep lets all keys outlive the last lease, two looks of those who wait and a token that is ahead, and not by much (I6).
func (c *call) keep(waiting int) {
	need := max(c.now, c.ahead())
	idle := c.Used() == 0 && waiting == 0 && !c.created
	if !idle {
		need = max(need, c.now+2*max(longLook, int64(waiting)*lookEach))
	}
	if c.Used() > 0 {
		need = max(need, c.lasts)
	}
	short := !idle && (c.Hash.Kept < need+leastKept || c.created)
	long := c.excess(need, idle)
	need = max(need, c.last())
	long = long && c.excess(need, idle)
	if !short && !long {
		return
	}
	if long {
		c.Hash.Kept = 0
	}
	c.lives, c.created = 0, false
	c.Hash.Kept = max(c.Hash.Kept, need+spare)
	end := c.in(float64(c.Hash.Kept-c.now) / stage.Millisecond)
	c.LockEnds, c.QueueEnds, c.SuspectsEnds, c.HoldersEnds = end, end, end, end
	c.tidy()
}

// excess reports whether the keys live for much longer than they are needed.
func (c *call) excess(need int64, idle bool) bool {
	return c.Hash.Stated != 0 && (idle && c.Hash.Kept > need+mostKept || c.lives > need+mostKept+spare)
}

// settle makes the lock or forgets what was lost with a key, cuts leases after a step of the clock, unless
// nothing unusual is to be seen, and ends those that have run out.
func (c *call) settle(usual bool) {
	h := &c.Hash
	switch _, guarded := c.Holders[guard]; {
	case !c.known:
		clear(c.Holders)
		if c.stated != 0 {
			h.Limit, h.Stated, c.created = c.stated, c.stated, true
			c.Holders[guard] = 0
		}
	case !guarded:
		h.Holds, h.Group, h.Forced, h.Lapsed = nil, 0, "", ""
		c.Lock.Holders = map[string]int64{guard: 0}
		c.LockEnds = c.in(float64(max(h.Kept-c.now, spare)) / stage.Millisecond)
		c.HoldersEnds = c.LockEnds
	}
	c.tidy()
	if c.Used() == 0 {
		return
	}
	if !usual {
		c.unwind()
	}
	var over []string
	for _, a := range c.ends() {
		if a.Arrival <= c.now && len(over) < mostLapses {
			over = append(over, a.Ticket)
		}
	}
	if len(over) > 0 {
		c.lapse(over)
	}
	if len(over) == mostLapses {
		c.flags |= lua.More
	}
}

// fading reports whether a lock that was resized would be forgotten in less than a month.
func (c *call) fading() bool {
	return c.Hash.Limit != 0 && c.Hash.Stated == 0 && c.Hash.Kept < c.now+resizedFor-day
}

// unwind cuts the leases that end last, as long as they end later than they can: the clock stepped back.
func (c *call) unwind() {
	all := c.ends()
	slices.Reverse(all)
	if len(all) == 0 || !c.curb(all[0].Ticket) {
		return
	}
	all = c.ends() // What was cut is not the last any more, if there are others.
	slices.Reverse(all)
	for i, a := range all {
		if i == mostLapses {
			break
		}
		if !c.curb(a.Ticket) {
			return
		}
	}
	if len(all) >= mostLapses {
		c.flags |= lua.More
	}
}

// curb cuts a lease that ends later than it can, and reports whether it did.
func (c *call) curb(ticket string) bool {
	lease := c.Hash.Holds[ticket].Lease
	if c.Holders[ticket]-c.now <= lease {
		return false
	}
	c.Holders[ticket] = c.now + lease
	c.flags |= lua.Stepped
	return true
}

// lapse ends holds whose leases have run out. Their clients are suspects, but for those that were not to renew.
func (c *call) lapse(tickets []string) {
	told, unclaimed := map[string]bool{}, false
	for _, ticket := range tickets {
		phase := c.Hash.Holds[ticket].Phase
		unclaimed = unclaimed || phase == 'g' || phase == 'r'
		delete(c.Holders, ticket)
		delete(c.Hash.Holds, ticket)
		c.Hash.Lapsed = ticket
		client := lua.TicketClient(ticket)
		if phase != final && !told[client] {
			told[client] = true
			c.mark(ticket)
		}
	}
	c.expired += len(tickets)
	if unclaimed {
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

// mark makes the client of a ticket a suspect, and tells it.
func (c *call) mark(ticket string) {
	maps.DeleteFunc(c.Suspects, func(_ string, at int64) bool { return at <= c.now-remembers })
	client := lua.TicketClient(ticket)
	c.Suspects[client] = c.now
	c.Hash.Marked, c.created = true, true
	if client == c.caller {
		c.flags |= lua.Suspected
	} else {
		c.publish(client, "S "+ticket)
	}
}

// holds reports whether a ticket has a hold with time left. It looks at the ticket itself, as settle may not
// have come to it.
func (c *call) holds(ticket string) bool {
	if _, ok := c.Hash.Holds[ticket]; !ok {
		return false
	}
	c.curb(ticket)
	if c.Holders[ticket] > c.now {
		return true
	}
	c.lapse([]string{ticket})
	return false
}

// free takes the permits of a hold back, whose lease ends by then at the latest.
func (c *call) free(ticket string, ends int64) {
	c.lives = max(c.lives, ends+spare)
	delete(c.Hash.Holds, ticket)
	delete(c.Holders, ticket)
	c.tidy()
}

// take lets a ticket hold, with a token above every earlier one (I2); but readers share that of the readers
// beside whom they hold, unless their clients have seen a higher one.
func (c *call) take(ticket string, permits, lease int64, phase byte, who string) {
	t, _ := read(ticket)
	h := &c.Hash
	shares := t.kind == lua.Read && c.Used() > 0 && h.Group == h.Token && c.floor <= h.Token
	if !shares {
		h.Token = max(h.Token, c.floor, c.now-1) + 1
		if t.kind == lua.Read {
			h.Group = h.Token
		}
	}
	if h.Holds == nil {
		h.Holds = map[string]Hold{}
	}
	h.Holds[ticket] = Hold{permits, h.Token, lease, phase, c.now, who}
	c.Holders[ticket] = c.now + lease
	c.lasts = max(c.lasts, c.now+lease)
	c.taken[ticket] = c.hold(ticket)
}

// hold is a hold as replies and messages tell it.
func (c *call) hold(ticket string) lua.Grant {
	return lua.Grant{Ticket: ticket, Token: uint64(c.Hash.Holds[ticket].Token), At: c.now, Until: c.Holders[ticket]}
}

// until is when the next lease ends, or the mark behind which permits stay free, or 0.
func (c *call) until() int64 {
	var until int64
	if all := c.ends(); len(all) > 0 {
		until = all[0].Arrival
	}
	if mark := c.Hash.Mark; mark > c.now && (until == 0 || mark < until) {
		until = mark
	}
	return until
}

// reply is the long form of an answer.
func (c *call) reply(status lua.Status, place, waiting int, arrival int64, states ...string) lua.Tuple {
	return lua.Tuple{
		Status: status, Now: c.now, Token: uint64(c.Hash.Token), Until: c.until(),
		Place: int64(place), Waiting: waiting, Arrival: arrival,
		Flags: c.flags, Skipped: c.skipped, Expired: c.expired, Grants: c.grants, States: states,
	}
}

// granted is the answer to a ticket that holds.
func (c *call) granted(ticket string, place int64) lua.Tuple {
	r := c.reply(lua.Granted, int(place), 0, 0)
	r.Token, r.Until = c.hold(ticket).Token, c.Holders[ticket]
	return r
}

// refuse is the answer to one that goes by another limit, or asks for more than there is.
func (c *call) refuse(status lua.Status) lua.Tuple {
	r := c.reply(status, -1, 0, 0, stage.Decimal(c.limit()))
	r.Until = 0
	return r
}
