package model

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// call is one script that runs.
type call struct {
	*Mutex
	line.Call
}

func (m *Mutex) call(now int64, caller string, floor int64, counted bool) *call {
	c := &call{m, line.Begin(&m.Line, &m.Lock.Notes, now, caller, floor, counted)}
	if c.held() {
		c.Lives = m.Lock.Until + line.Spare
	}
	if h := m.Lock; h.Token == 0 && h.High == 0 && len(m.Queue) > 0 {
		c.Left = 1
	}
	return c
}

// held reports whether somebody holds; as an expired lease does until it is settled.
func (c *call) held() bool { return c.Lock.Owner != "" }

// over reports whether a lease has run out.
func (c *call) over() bool { return c.Lock.Until <= c.Now }

// stepped reports whether a lease ends later than it can.
func (c *call) stepped() bool { return c.Lock.Until-c.Now > c.Lock.lease() }

// open is the write that is accepted when memory is full: the lock key outlives the lease by a minute.
func (c *call) open() {
	if c.Lock != (Hash{}) {
		end := c.Ahead()
		if c.held() {
			end = max(c.Lock.Until, c.Lock.keeps())
		}
		end = max(end, c.Now)
		c.LockEnds = c.In(max(c.Lock.Kept, end+line.Spare) - c.Now)
	}
}

// keep lets all keys outlive the lease, two looks of the waiters and a token that is ahead, and not by much (I6).
func (c *call) keep(waiting int) { c.keepAt(waiting, false) }

// keepAt is keep, at the end of a ticket if end is set. Then only keys that live much too long make it ask how many wait.
func (c *call) keepAt(waiting int, end bool) {
	need := max(c.Now, c.Ahead())
	least := need
	idle := !c.held() && waiting == 0 && !c.Created
	if !idle {
		need = max(need, c.Watched(waiting))
		least = need
		if end {
			least = max(c.Ahead(), c.Watched(0))
		}
	}
	if c.Lock.Pending() {
		need, least = max(need, c.Lock.Previous.Keeps), max(least, c.Lock.Previous.Keeps)
	}
	most := need
	if c.held() {
		until := max(c.Lock.Until, c.Lock.rests(c.Now), c.Lock.keeps())
		need, least = max(need, until), max(least, until)
		most = max(need, c.Now+stage.Lease(c.Lock.Owner))
	}
	long := max(c.Lock.Kept, c.Lives) > most+line.MostKept
	if !long && (idle || c.Lock.Kept >= least+line.LeastKept && !c.Created) {
		return
	}
	if long {
		c.Lock.Kept = 0
	}
	c.Lives, c.Created = 0, false
	c.Lock.Kept = max(c.Lock.Kept, need+line.Spare)
	ends := c.In(c.Lock.Kept - c.Now)
	c.LockEnds, c.QueueEnds = ends, ends
	if c.Lock.Marked {
		c.SuspectsEnds = ends
	}
	c.tidy()
}

// among reports whether a token is one of those of the present hold.
func (c *call) among(token int64) bool {
	return token >= c.Lock.Token && token <= c.Lock.Token+passesOf(c.Lock.Owner)
}

// finish notes how the present hold ends. What rests has ended before.
func (c *call) finish(how string) {
	h := &c.Lock
	told := h.told()
	switch {
	case wire.Rests(h.Owner) || how == "":
	case how != wire.HowUnused:
		h.Previous = Previous{How: fmt.Sprintf("%s:%d", how, h.Token), Keeps: h.keeps()}
	case told != "":
		h.Previous.For = 0
	}
}

// free takes the lock from its owner.
func (c *call) free(how string) {
	c.finish(how)
	c.Lock.Owner = ""
}

// own makes a ticket the owner, with a token above every earlier one (I2).
func (c *call) own(ticket string, lease int64, phase string) {
	h := &c.Lock
	told := h.Pending()
	if h.Token == 0 {
		h.Previous, told = Previous{How: wire.UnknownBefore}, true
	}
	h.Owner, h.Phase, h.Plain, h.Wants, h.Idle = ticket, phase, false, false, false
	if h.Token == 0 {
		h.High = max(h.High, c.Left)
	}
	if h.High == 0 && lease > line.MostKept-line.Spare {
		h.High = 1
	}
	c.Next()
	h.Until = c.Now + lease
	if h.Token != c.Now {
		h.Began = [2]int64{h.Token, c.Now}
	}
	if told {
		h.Previous.For = h.Token
	}
}

// wanted tells the holder that asked for it, once, that somebody waits.
func (c *call) wanted() {
	if h := &c.Lock; c.held() && h.Wants {
		h.Wants, h.Idle = false, false
		c.Publish(wire.TicketClient(h.Owner), fmt.Sprintf("W %d", h.Token))
	}
}

// past notes that the hold ends, before it does.
func (c *call) past(until int64, how string) {
	if c.History == 0 || how == "moved" && lua.InTransit(c.Lock.Owner) {
		return
	}
	entry := fmt.Sprintf("%d %d %d %s %s", c.Lock.Token, c.Lock.Since(), until, how, c.Lock.Owner)
	c.Past = append([]string{entry}, c.Past...)
	c.Past, c.PastEnds = c.Past[:min(len(c.Past), c.History)], c.Now+pastLasts
}

// settle ends a lease that has run out, and cuts one that lasts too long because the clock stepped back.
func (c *call) settle() {
	h := &c.Lock
	if !c.held() {
		return
	}
	if c.stepped() {
		h.Until, h.Plain = c.Now+h.lease(), false
		c.Flags |= wire.Stepped
		c.open()
	}
	if !c.over() {
		return
	}
	ticket, phase := h.Owner, h.Phase
	if wire.Rests(ticket) {
		h.Owner = ""
		return
	}
	c.past(h.Until, "expired")
	if !c.rest(wire.HowExpired) {
		c.free(wire.HowExpired)
	}
	h.Lapsed, c.Expired = ticket, 1
	h.Token += passesOf(ticket) // Nobody has said how many of them were used.
	if phase == wire.PhaseFinal {
		return
	}
	c.Doubt(ticket)
	if phase == granted {
		c.Roll()
	}
}

// raise lifts the last token, and reports whether it was lower.
func (c *call) raise(to int64) bool {
	below := c.Lock.Token < to
	if below {
		c.Lock.Token = to
	}
	return below
}

// stay lets the name be taken for so long from the grant, or for as long as an earlier holder wanted; and the keys live for so
// long after the lease, if the hold is not released.
func (c *call) stay(least, keeps int64) {
	h := &c.Lock
	if least > 0 || h.rests(c.Now) > 0 {
		until := h.rests(c.Now)
		if least > 0 {
			until = max(until, min(h.Since(), c.Now)+least)
		}
		h.Rests, h.Least, h.Stayed = until, max(h.least(), least), h.Token
	}
	if keeps > 0 {
		h.Keeps = [2]int64{h.Token, h.Until + keeps}
	}
	h.High = max(h.High, 1)
	c.Created = true
	c.keep(len(c.Queue))
}

// rest lets the name be taken by a ticket that nobody has, if it is to stay so for some time.
func (c *call) rest(how string) bool {
	h := &c.Lock
	until := h.rests(c.Now)
	if until <= c.Now {
		return false
	}
	c.finish(how)
	ms := h.Least / millisecond
	h.Owner = fmt.Sprintf("%s1:%d:%d", resting(h.Owner), ms, ms)
	h.Until, h.Phase, h.Plain, h.Wants, h.Idle = until, wire.PhaseFinal, false, false, false
	h.Rests, h.Least, h.Stayed = 0, 0, 0
	return true
}

// resting is how the ticket begins by which a name rests after the hold of another.
func resting(ticket string) string {
	f := strings.Split(ticket, ":")
	return f[0] + ":" + f[1] + ":" + string(wire.Resting) + ":"
}

// look tells the head to look.
func (c *call) look() {
	if len(c.Queue) > 0 {
		head := c.Queue[0].Ticket
		c.Publish(wire.TicketClient(head), "L "+head)
	}
}

// pass looks at the heads of the queue until one is alive, or for as long as one script may, which cuts it.
func (c *call) pass() (p line.Pass, head *lua.Arrival, cut bool) {
	p = c.Resume()
	size := 1
	for first := p.Looked; p.Looked-first < line.Looks; size = line.LookBatch {
		heads := c.Heads(&p, size)
		if len(heads) == 0 {
			return p, nil, false
		}
		for _, a := range heads {
			if c.Alive(wire.TicketClient(a.Ticket)) {
				return p, &a, false
			}
			c.Dead(&p, a)
		}
	}
	return p, nil, true
}

// advance serves the queue of a lock that is free (R3).
func (c *call) advance() {
	if c.held() {
		return
	}
	p, head, cut := c.pass()
	switch {
	case cut:
		c.Remember(&p)
	case head == nil && p.Deaf() && c.Spares():
	case !c.Drop(&p):
		c.Remember(&p)
	default:
		c.forget()
		if head != nil {
			c.grant(*head)
		}
	}
	c.tidy()
}

// forget clears what passes have stored.
func (c *call) forget() {
	c.Forget()
	c.tidy()
}

// grant makes the head the owner for its grant lease and tells its client, in the reply if that is the
// caller. A grant that cannot be told is undone.
func (c *call) grant(head lua.Arrival) {
	c.Dequeue(head.Ticket)
	t, _ := line.Read(head.Ticket)
	if t.Lease == 0 {
		c.Flags |= wire.More // Not a ticket: somebody else wrote it.
		return
	}
	c.own(head.Ticket, min(t.Lease, t.Grant), granted)
	client := wire.TicketClient(head.Ticket)
	if client == c.Caller {
		c.report()
		return
	}
	h := &c.Lock
	if c.Publish(client, fmt.Sprintf("G %s %d %d %d", head.Ticket, c.Now, h.Token-c.Now, (h.Until-c.Now)/stage.Millisecond)+c.carried()) {
		c.Flags |= wire.Handed
		return
	}
	c.free(wire.HowUnused)
	c.Enqueue(head.Ticket, head.Arrival)
	c.Created = true
	c.Flags |= wire.Unwoken
}

// carried is what the message of a grant ends with.
func (c *call) carried() string {
	if told := c.Lock.told(); told != "" {
		return " ~!" + told
	}
	if c.Note == "" {
		return ""
	}
	return " ~" + c.Note
}

// report puts the present hold into the reply, as one of the caller's.
func (c *call) report() {
	h := &c.Lock
	c.Grants = []wire.Grant{{Ticket: h.Owner, Token: uint64(h.Token), At: c.Now, Until: h.Until, Before: h.told()}}
}

// reply is the long form of an answer.
func (c *call) reply(status wire.Status, place, waiting int, arrival int64, states ...string) wire.Tuple {
	until := c.Lock.Mark
	if c.held() {
		until = c.Lock.Until
	}
	return c.Reply(status, until, place, waiting, arrival, states...)
}

// holds is the answer to the ticket that holds.
func (c *call) holds() wire.Tuple {
	var states []string
	if told := c.Lock.told(); told != "" {
		states = append(states, wire.EndingMark+told)
	}
	return c.reply(wire.Granted, 0, 0, 0, states...)
}

// busy is the answer to a try: who holds, if anybody does.
func (c *call) busy() wire.Tuple {
	var owner []string
	if c.held() {
		owner = []string{c.Lock.Owner}
	}
	return c.reply(wire.Busy, -1, len(c.Queue), 0, owner...)
}
