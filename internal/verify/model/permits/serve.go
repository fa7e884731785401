package permits

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// call is one script that runs.
type call struct {
	*Lock
	line.Call
	stated int64 // the limit that the caller states; 0: it does not say
	born   int64 // when the caller was made; 0: it does not say
	known  bool  // there was a limit when it began
	lasts  int64
	taken  map[string]wire.Grant // all that was granted
	plain  bool                  // of an ask: nothing is unusual, so somebody waits already
	change func()                // of the limit, or of who stated it
}

func (l *Lock) call(now int64, caller string, floor int64, counted bool, stated, born int64) *call {
	return &call{
		Lock: l, Call: line.Begin(&l.Line, &l.Hash.Notes, now, caller, floor, counted),
		stated: stated, born: born, known: l.Hash.Limit != 0, taken: map[string]wire.Grant{},
	}
}

// limit is how many permits there are, or will be when the lock is made.
func (c *call) limit() int64 {
	if c.known {
		return c.Hash.Limit
	}
	return c.stated
}

// states takes in what the caller states. It reports whether it may go on: a newer client has its number counted, an older
// one goes by what counts, and one whose limit cannot change must state the same; and whether that is another number than the
// newest client before has stated.
func (c *call) states() (ok, differs bool) {
	h := &c.Hash
	made := func(born int64) int64 {
		if born > c.Now {
			return 0
		}
		return born
	}
	differs = h.Stated != 0 && c.stated != h.Stated
	switch {
	case !c.known:
		return true, false
	case c.born == 0 && h.Stated != 0:
		return !differs, false
	case c.born == 0:
		c.change = func() { h.Limit, h.Stated, h.Born = c.stated, c.stated, 0 }
	case made(c.born) > made(h.Born):
		c.change = func() {
			if differs {
				h.Limit = c.stated
			}
			h.Stated, h.Born = c.stated, c.born
		}
	}
	return true, differs
}

// older reports whether the caller can go by what the lock says, without a look at what may be news.
func (c *call) older() bool {
	if c.born == 0 {
		return c.change == nil
	}
	return c.born <= c.Hash.Born && c.Hash.Born <= c.Now
}

// takes reports whether a ticket can take permits that are free, without a look at anything else.
func (c *call) takes(differs bool) bool {
	h := &c.Hash
	if _, guarded := c.Holders[guard]; c.known != guarded || !c.known && len(c.Holders) > 0 {
		return false // A key was lost.
	}
	if !c.known {
		return h.Token == 0 && h.High == 0
	}
	newer := c.change != nil && c.born != 0 && !differs && h.Stated == h.Limit && h.Born <= c.Now && c.born <= c.Now
	return h.Stated != 0 && (c.older() || newer) && !c.fading()
}

// begin makes the lock where there is none, and notes who states its limit.
func (c *call) begin() {
	if c.change != nil {
		c.change()
	}
	if h := &c.Hash; !c.known {
		h.Limit, h.Stated, h.Born = c.stated, c.stated, c.born
		c.Holders[guard] = 0
	}
}

// room is how many permits are free; less than nothing after a lock was made smaller.
func (c *call) room() int64 { return c.Hash.Limit - c.Used() }

// last is the end of the last lease.
func (c *call) last() int64 {
	var last int64
	for _, end := range c.Holders {
		last = max(last, end)
	}
	return last
}

// open is the write that is accepted when memory is full: the lock key outlives the last lease by a minute.
func (c *call) open() {
	if len(c.Fields()) == 0 {
		return
	}
	end := c.Ahead()
	if c.Used() > 0 {
		end = c.last()
	}
	c.LockEnds = c.In(max(c.Hash.Kept, max(end, c.Now)+line.Spare) - c.Now)
}

// keep lets all keys outlive the last lease, two looks of the waiters and a token that is ahead, and not by much (I6).
func (c *call) keep(waiting int) {
	need := max(c.Now, c.Ahead())
	idle := c.Used() == 0 && waiting == 0 && !c.Created
	if !idle {
		need = max(need, c.Watched(waiting))
	}
	if c.Used() > 0 {
		need = max(need, c.lasts, c.Hash.Rests)
	}
	short := !idle && (c.Hash.Kept < need+line.LeastKept || c.Created)
	long := c.excess(need, idle)
	need = max(need, c.last())
	long = long && c.excess(need, idle)
	if !short && !long {
		return
	}
	if long {
		c.Hash.Kept = 0
	}
	c.Lives, c.Created = 0, false
	c.Hash.Kept = max(c.Hash.Kept, need+line.Spare)
	end := c.In(c.Hash.Kept - c.Now)
	c.LockEnds, c.QueueEnds, c.HoldersEnds = end, end, end
	if c.Hash.Marked {
		c.SuspectsEnds = end
	}
	c.tidy()
}

// excess reports whether the keys live for much longer than they are needed.
func (c *call) excess(need int64, idle bool) bool {
	return c.Hash.Stated != 0 && c.Hash.Stated == c.Hash.Limit && (idle && c.Hash.Kept > need+line.MostKept || c.Lives > need+line.MostKept+line.Spare)
}

// settle makes the lock or forgets what was lost with a key, cuts leases after a step of the clock, unless
// nothing unusual is to be seen, and ends those that have run out.
func (c *call) settle(usual bool) {
	h := &c.Hash
	if !h.pending() {
		c.Calm()
	}
	switch _, guarded := c.Holders[guard]; {
	case !c.known:
		clear(c.Holders)
		if c.stated != 0 {
			c.begin()
			c.Created = true
			if len(c.Queue) > 0 {
				h.High = max(h.High, 1) // The queue has outlived the hash.
			}
		}
	case !guarded:
		h.Holds, h.Group, h.Forced, h.Lapsed, h.Died, h.Looked, h.Wants, h.Rests = nil, 0, "", "", "", nil, "", 0
		c.Lock.Holders = map[string]int64{guard: 0}
		if !h.pending() {
			h.Previous, h.Told = "", 0
		}
		if h.pending() || h.Limit == wire.AllReaders {
			h.Previous = cmp.Or(h.Previous, wire.UnknownBefore)
			h.Marked = true
		}
		c.LockEnds = c.In(max(h.Kept-c.Now, line.Spare))
		c.HoldersEnds = c.LockEnds
	}
	if c.change != nil {
		c.change()
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
		if a.Arrival <= c.Now && len(over) < mostLapses {
			over = append(over, a.Ticket)
		}
	}
	if len(over) > 0 {
		c.lapse(over)
	}
	if len(over) == mostLapses {
		c.Flags |= wire.More
	}
}

// wanted tells the clients that asked for it, once, that somebody waits.
func (c *call) wanted() {
	for _, client := range strings.Fields(c.Hash.Wants) {
		c.Publish(client, fmt.Sprintf("W %d", c.Hash.Token))
	}
	c.Hash.Wants = ""
}

// fading reports whether a lock that was resized would be forgotten in less than a month.
func (c *call) fading() bool {
	return c.Hash.Limit != c.Hash.Stated && c.Hash.Kept < c.Now+resizedFor-day
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
		c.Flags |= wire.More
	}
}

// curb cuts a lease that ends later than it can, and reports whether it did.
func (c *call) curb(ticket string) bool {
	lease := c.Hash.Holds[ticket].Lease
	if c.Holders[ticket]-c.Now <= lease {
		return false
	}
	c.Holders[ticket] = c.Now + lease
	c.Flags |= wire.Stepped
	return true
}

// lapse ends holds whose leases have run out. Their clients become suspects, except those that were not to renew.
func (c *call) lapse(tickets []string) {
	told, unclaimed := map[string]bool{}, false
	for _, ticket := range tickets {
		hold := c.Hash.Holds[ticket]
		phase := hold.Phase
		unclaimed = unclaimed || phase == 'g' || phase == 'r'
		delete(c.Holders, ticket)
		delete(c.Hash.Holds, ticket)
		if !wire.Rests(ticket) {
			c.Hash.Lapsed = ticket
			c.Expired++
		}
		c.rest(ticket, hold, ranOut)
		c.finish(ticket, hold, wire.HowExpired)
		client := wire.TicketClient(ticket)
		if phase != final && !wire.Rests(ticket) && !told[client] {
			told[client] = true
			c.Doubt(ticket)
		}
	}
	if unclaimed {
		c.Roll()
	}
}

// recall notes how the last write hold ended, for the next one.
func (c *call) recall(how string) { c.Hash.Previous, c.Hash.Told, c.Hash.Marked = how, 0, true }

// finish notes how a hold has ended, if it was one for writing.
func (c *call) finish(ticket string, hold Hold, how string) {
	t, _ := line.Read(ticket)
	told := c.Hash.before(hold.Token)
	switch {
	case how == "" || t.Kind != wire.Write || hold.Permits <= 1:
	case how != wire.HowUnused:
		c.recall(fmt.Sprintf("%s:%d", how, hold.Token))
	case told != "":
		c.recall(told)
	}
}

// rest lets the permits of a hold that is over be those of a ticket that no client has, and reports whether they are to stay
// taken. The phase says how it ended.
func (c *call) rest(ticket string, hold Hold, phase byte) bool {
	until := min(hold.Since, c.Now) + hold.Least*stage.Millisecond
	if hold.Least == 0 || until <= c.Now {
		return false
	}
	hold.Lease, hold.Phase, hold.Least = hold.Least*stage.Millisecond, phase, 0
	rests := resting(ticket)
	if _, there := c.Hash.Holds[rests]; there {
		return false // Of an earlier hold of the same ticket.
	}
	c.Hash.Holds[rests], c.Lock.Holders[rests] = hold, until
	return true
}

// resting is the ticket by which permits rest after the hold of another.
func resting(ticket string) string {
	f := strings.Split(ticket, ":")
	return strings.Join([]string{f[0], f[1], string(wire.Resting), f[3], "0", "0"}, ":")
}

// holds reports whether a ticket has a hold with time left. It looks at the ticket itself, as settle may not
// have come to it.
func (c *call) holds(ticket string) bool {
	if _, ok := c.Hash.Holds[ticket]; !ok {
		return false
	}
	c.curb(ticket)
	if c.Holders[ticket] > c.Now {
		return true
	}
	c.lapse([]string{ticket})
	return false
}

// free takes the permits of a hold back, whose lease ends by then at the latest.
func (c *call) free(ticket string, ends int64) {
	c.Lives = max(c.Lives, ends+line.Spare)
	delete(c.Hash.Holds, ticket)
	delete(c.Holders, ticket)
	c.tidy()
}

// take lets a ticket hold, with a token above every earlier one (I2). Readers that hold together share a token, unless a
// client has seen a higher one.
func (c *call) take(ticket string, permits, lease int64, phase byte, who string) {
	t, _ := line.Read(ticket)
	h := &c.Hash
	fresh := h.Token == 0
	shares := t.Kind == wire.Read && c.Used() > 0 && h.Group == h.Token && c.Floor <= h.Token
	if !shares {
		c.Next()
		if t.Kind == wire.Read {
			h.Group = h.Token
		}
	}
	if h.Holds == nil {
		h.Holds = map[string]Hold{}
	}
	h.Holds[ticket] = Hold{Permits: permits, Token: h.Token, Lease: lease, Phase: phase, Since: c.Now, Who: who}
	c.Holders[ticket] = c.Now + lease
	c.lasts = max(c.lasts, c.Now+lease)
	switch {
	case fresh && t.Kind == wire.Read:
		c.recall(wire.UnknownBefore)
	case t.Kind == wire.Write && (fresh || h.pending()):
		if !h.pending() {
			h.Previous = wire.UnknownBefore
		}
		h.Told = h.Token
	}
	c.taken[ticket] = c.hold(ticket)
}

// hold is a hold as replies and messages tell it.
func (c *call) hold(ticket string) wire.Grant {
	return wire.Grant{Ticket: ticket, Token: uint64(c.Hash.Holds[ticket].Token), At: c.Now, Until: c.Holders[ticket], Before: c.Hash.before(c.Hash.Holds[ticket].Token)}
}

// until is when the next lease ends, or the mark until which permits stay free, or 0.
func (c *call) until() int64 {
	var until int64
	if all := c.ends(); len(all) > 0 {
		until = all[0].Arrival
	}
	if mark := c.Hash.Mark; mark > c.Now && (until == 0 || mark < until) {
		until = mark
	}
	return until
}

// reply is the long form of an answer.
func (c *call) reply(status wire.Status, place, waiting int, arrival int64, states ...string) wire.Tuple {
	return c.Reply(status, c.until(), place, waiting, arrival, states...)
}

// granted is the answer to a ticket that holds.
func (c *call) granted(ticket string, place int64) wire.Tuple {
	r := c.reply(wire.Granted, int(place), 0, 0)
	if before := c.hold(ticket).Before; before != "" {
		r.States = []string{wire.EndingMark + before}
	}
	r.Token, r.Until = c.hold(ticket).Token, c.Holders[ticket]
	return r
}

// refuse is the answer to one that goes by another limit, or asks for more than there is.
func (c *call) refuse(status wire.Status) wire.Tuple {
	r := c.reply(status, -1, 0, 0, stage.Decimal(c.limit()))
	r.Until = 0
	return r
}
