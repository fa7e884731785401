package line

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	roomLooks = 1280 // tickets looked at in one script to see whether there is room
	lookEach  = 500  // for how many µs a look counts that found none, for each of these tickets
	lookLeast = 50 * stage.Millisecond
	lookMost  = stage.Second
)

// A Bound is when a ticket that never had a place does not get one.
type Bound struct {
	Limit int64 // how many may wait
}

// Mode is the mode of an ask followed by its bound, if there is one.
func (b *Bound) Mode(mode string) string {
	if b == nil {
		return mode
	}
	return mode + " " + b.String()
}

func (b Bound) String() string { return stage.Decimal(b.Limit) }

// Brought are arrivals as a check tells them, with the bounds and the head starts of those that have one.
func Brought(tickets []lua.Arrival, bounds map[string]Bound, heads map[string]int64) []string {
	args := make([]string, 0, 2*len(tickets))
	for _, a := range tickets {
		text := stage.Decimal(a.Arrival)
		if b, ok := bounds[a.Ticket]; ok {
			text += ":" + b.String()
		}
		if head := heads[a.Ticket]; head != 0 {
			text += "@" + stage.Decimal(head)
		}
		args = append(args, a.Ticket, text)
	}
	return args
}

// crowded reports whether there are as many tickets as may wait.
func (c *Call) crowded(b Bound) bool { return int64(len(c.line.Queue)) >= b.Limit }

// counts reports whether an earlier look still says that at least most tickets live.
func (c *Call) counts(most int64) bool {
	l := c.notes.Looked
	return l != nil && c.Now < l.Till && l.Till-c.Now <= lookMost && int64(len(c.line.Queue))-l.Rest >= most
}

// Known reports whether a queue is known to be full for a new ticket without a look at its tickets, and whether that can be
// told; it tells since when the head had waited as far as the last look counts. So asks do where nothing is unusual.
func (c *Call) Known(b Bound, ticket string) (oldest int64, full, sure bool) {
	if len(c.line.Queue) == 0 || c.line.Rank(ticket) >= 0 || !c.crowded(b) {
		return 0, false, true
	}
	if c.counts(b.Limit) {
		return c.Now - c.notes.Looked.Waited, true, true
	}
	return 0, false, false
}

// A view is what a look at the tickets has found. It serves all tickets that a script is about.
type view struct {
	living int64
	oldest int64 // the arrival of the first that lives, if any does
	till   int64 // until when it counts for asks to come
	told   bool  // they know of it
}

// survey looks until it has seen most live tickets, and forgets the dead ones that it meets.
func (c *Call) survey(most int64) *view {
	p, living, dead := c.look(most)
	v := &view{living: int64(len(living)), till: c.Now + min(max(lookLeast, int64(p.Looked)*lookEach), lookMost)}
	if len(living) == 0 && p.Deaf() {
		return v
	}
	for _, ticket := range dead {
		c.line.Dequeue(ticket)
		c.Skipped++
	}
	if len(c.line.Queue) == 0 {
		c.Forget()
	}
	if len(living) > 0 {
		v.oldest = living[0]
	}
	return v
}

// Full reports whether there is no room for a ticket that is not in the queue (I11), with the arrival of the head. Where the script is about several tickets, largest is the largest of their limits, at least 1.
func (c *Call) Full(b Bound, largest int64) (oldest int64, full bool) {
	switch {
	case !c.crowded(b):
		return 0, false
	case c.view == nil && c.counts(b.Limit):
		return c.Now - c.notes.Looked.Waited, true
	case c.view == nil:
		c.view = c.survey(max(largest, b.Limit))
	}
	v := c.view
	if v.living < b.Limit {
		return 0, false
	}
	if !v.told {
		v.told = true
		c.notes.Looked = &Looked{Rest: int64(len(c.line.Queue)) - v.living, Till: v.till, Waited: max(c.Now-v.oldest, 0)}
	}
	return min(v.oldest, c.Now), true
}

// look finds the arrivals of the first tickets that are alive, at most as many as most says, and the dead among them.
func (c *Call) look(most int64) (p Pass, living []int64, dead []string) {
	p = Pass{last: never, counted: map[string]bool{}}
	for size := 1; p.Looked < roomLooks; size = LookBatch {
		if len(living) > 0 {
			size = min(LookBatch, int(most)-len(living)+1)
		}
		heads := c.Heads(&p, size)
		if len(heads) == 0 {
			return p, living, dead
		}
		for _, a := range heads {
			if !c.Alive(wire.TicketClient(a.Ticket)) {
				c.Dead(&p, a)
				dead = append(dead, a.Ticket)
				continue
			}
			if p.Looked > Drops && len(living) == 0 {
				return p, nil, dead
			}
			p.Past(a)
			if living = append(living, a.Arrival); int64(len(living)) == most {
				return p, living, dead
			}
		}
	}
	return p, living, dead
}

// Trim takes out of the queue again what a check has queued for the first time, lets those in that there is room for, the
// first ones first, says of the others in the states that there is none, and reports whether there are any.
func (c *Call) Trim(tickets []lua.Arrival, bounds map[string]Bound, heads map[string]int64, states []string) (any bool) {
	largest := int64(1)
	var out []int
	for i, a := range tickets {
		if b, ok := bounds[a.Ticket]; ok && states[i] == wire.StateAgain && c.line.Dequeue(a.Ticket) {
			out, largest = append(out, i), max(largest, b.Limit)
		}
	}
	for _, i := range out {
		a := tickets[i]
		if oldest, full := c.Full(bounds[a.Ticket], largest); full {
			states[i] = wire.StateFull + " " + strconv.Itoa(len(c.line.Queue)) + " " + stage.Decimal(oldest)
			any = true
			continue
		}
		c.Enter(a.Ticket, a.Arrival, true, heads[a.Ticket])
		if v := c.view; v != nil {
			v.oldest, v.living = min(cmp.Or(v.oldest, a.Arrival), a.Arrival), v.living+1
		}
	}
	return any
}

// A room is what a script shows of a ticket with a bound that it was about.
type room struct {
	ticket        string
	bound         Bound
	full          bool // it was refused
	before, after []lua.Arrival
	gone          int    // tickets that counted as waiters, and are not in the queue any more
	looked        string // what the hash says of an earlier look
	now           int64
	alive         func(client string) bool
}

// asked judges an ask of a ticket, with its bound if it has one; took: an arrival was given.
func (r room) asked(ticket string, b *Bound, full, took bool) error {
	if b == nil {
		return nil
	}
	r.ticket, r.bound, r.full = ticket, *b, full
	if full && took {
		return fmt.Errorf("%s is refused and took an arrival", ticket)
	}
	return r.judge()
}

// checked judges what a check says of each of its tickets.
func (r room) checked(tickets []lua.Arrival, bounds map[string]Bound, states []string) error {
	full := func(state string) bool { return strings.HasPrefix(state, wire.StateFull+" ") }
	after := r.after
	for i, state := range states {
		b, bounded := bounds[tickets[i].Ticket]
		r.ticket, r.bound, r.full, r.gone = tickets[i].Ticket, b, full(state), 0
		if !bounded && r.full {
			return fmt.Errorf("%s has no bound and is refused", r.ticket)
		}
		// A deaf client's tickets were there, and tickets that were granted as it went; tickets that were let in after it were not.
		later := map[string]bool{}
		for k, other := range states {
			_, fresh := bounds[tickets[k].Ticket]
			if k != i && (other == wire.StateGone || other == wire.StateGranted && !fresh) {
				r.gone++
			}
			later[tickets[k].Ticket] = k > i && fresh && strings.HasPrefix(other, wire.StateAgain)
		}
		r.after = slices.DeleteFunc(slices.Clone(after), func(a lua.Arrival) bool { return later[a.Ticket] })
		if err := r.judge(); bounded && err != nil {
			return err
		}
	}
	return nil
}

// judge holds that against the invariant (I11), whatever the model says.
func (r room) judge() error {
	is := func(a lua.Arrival) bool { return a.Ticket == r.ticket }
	was, stays := slices.ContainsFunc(r.before, is), slices.ContainsFunc(r.after, is)
	living := int64(0)
	for _, a := range r.after {
		if !is(a) && r.alive(wire.TicketClient(a.Ticket)) {
			living++
		}
	}
	crowded := living+int64(r.gone) >= r.bound.Limit
	var rest, till, waited int64
	_, err := fmt.Sscanf(r.looked, "%d:%d:%d", &rest, &till, &waited)
	counts := err == nil && till > r.now
	switch {
	case r.full && (was || stays):
		return fmt.Errorf("%s had a place and is refused", r.ticket)
	case r.full && !crowded && !counts:
		return fmt.Errorf("%s is refused where %d wait, by %v", r.ticket, living, r.bound)
	case !r.full && !was && stays && crowded && r.gone == 0:
		return fmt.Errorf("%s is let in where %d wait, by %v", r.ticket, living, r.bound)
	}
	return nil
}
