package waitqueue

import (
	"time"

	"github.com/headwaiter/headwaiter/lua"
)

// state is where a ticket is in its life; see the package documentation.
type state int

const (
	idling state = iota
	asking
	subscribing
	waiting
	confirming
	held
	acting // at a barrier: it runs the action before the others pass
	passed // the event that it waited for has come
	ending
	ended
)

// A ticket is one waiting call. The lock of its site guards what changes.
type ticket struct {
	site  *site
	spec  lua.Ticket
	terms Terms
	phase string // of the first lease: held, or final if it is the maximum hold
	owner string // on whose behalf it asks, where a context names one

	extras   []string // what its asks, and the checks that name it, say beside what all do
	verdicts Verdicts

	text    string // spec as the queue has it
	state   state
	arrival int64 // 0 until an ask has been answered, unless its terms give one
	place   int   // at the last look; -1: unknown. Of an event: what its scripts tell there
	grant   grant // while confirming or held
	hold    *hold // once the lease is made
	told    bool  // a message, or the reply to a request of its own, brought the grant
	doubted bool  // a message says that it was released by force: a renewal must look into that at once
	err     error // why the wait is over, from outside: the client was closed
	refused error // why Redis, or the way to it, will never let it hold or end

	believed time.Time // not before that: the server may have forgotten a hold

	inflight int    // asks and checks that name the ticket and are not answered
	stop     func() // ends the action that it runs

	unanswered time.Time     // when the first request was sent that was not answered
	ghost      time.Time     // until when one that will not be answered can still run
	endAgain   bool          // something was in flight when the end was sent (R1)
	owed       bool          // the ends wait for that
	lapses     int           // grants that ran out before they were taken
	unheard    error         // why its client cannot subscribe
	last       error         // the last error of a check made for it, since one went well
	over       chan struct{} // closed when the end was acknowledged or given up

	acknowledged bool

	wake chan struct{} // something above has changed
}

// A grant as a client sees it: from when it counts here, and for how long.
type grant struct {
	token uint64
	from  time.Time // local, not after the server's grant
	lasts time.Duration
	slept time.Duration // what lease.Slept said at the time from which that was reckoned

	confirmed bool // by a renewal, which moved from
	vouched   bool // for by all that its terms want
}

// poke wakes the call that owns the ticket, which looks at the state.
func (t *ticket) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// waits reports whether the ticket is one that a check names.
func (t *ticket) waits() bool {
	return (t.state == waiting || t.state == subscribing || t.state == acting) && t.arrival != 0
}

// pass ends the wait for an event that has come. The site's lock is held.
func (t *ticket) pass() {
	if t.state != acting {
		t.state = passed
		t.poke()
	}
}

// refuse ends the wait with an error. The site's lock is held.
func (t *ticket) refuse(err error) {
	t.refused = err
	if t.stop != nil {
		t.stop()
	}
	t.poke()
}

// offer brings the notice of a grant, from a reply or a message, to a ticket that is known (R8). The site's
// lock is held.
func (t *ticket) offer(g grant) {
	switch t.state {
	case held, ending:
		// Dropped: a second notice of the same grant, or a late one of an earlier grant. Giving that back
		// would free what is held now. If it is a later grant, the next renewal finds out.
		return
	case confirming:
		if g.token <= t.grant.token {
			return
		}
	}
	t.grant = g
	t.state = held
	if g.stale() {
		t.state = confirming
	}
	t.site.client.raise(g.token)
	t.poke()
}

// stale reports whether a grant is so old, or arrived over such a gap, that the server must be asked
// whether it still holds.
func (g grant) stale() bool {
	return !g.confirmed && time.Since(g.from) > g.lasts/3
}

// over reports whether a grant has no time left.
func (g grant) over() bool {
	return !time.Now().Before(until(g.from, g.lasts, g.slept, nil).Deadline)
}

// lapsed gives the ticket another number, because a grant to it ran out: what still comes for the old one
// is given back. The next grant may last twice as long (R10). The site's lock is held.
func (t *ticket) lapsed() {
	s := t.site
	if !t.ghost.IsZero() {
		// An ask that was not answered may have taken the lock under the old number, or may do so yet.
		s.client.ends.exorcise(s, t.text, t.ghost)
	}
	delete(s.tickets, t.text)
	t.spec.Number = s.client.numbers.Add(1)
	t.spec.Grant = min(2*t.spec.Grant, t.spec.Lease)
	t.text = t.spec.String()
	s.tickets[t.text] = t
	t.grant, t.told = grant{}, false
	t.lapses++
	t.state = waiting
	if t.arrival == 0 {
		t.state = idling // It was never queued: no check knows it, so it asks again.
	}
	t.poke()
}
