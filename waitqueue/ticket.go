package waitqueue

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/renewals"
	"github.com/headwaiter/headwaiter/internal/terms"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A ticket is one waiting call. The lock of its site guards what changes.
type ticket struct {
	site  *site
	queue *binding // with the terms of its call
	owner string   // on whose behalf it asks, where a context names one

	text    string        // what the queue has it as
	takes   time.Duration // how long a grant by message waits for it
	bound   terms.Bound   // until it has a place, if it does not get one everywhere
	arrival int64         // 0 until an ask has been answered, unless its terms give one
	place   int           // at the last look; -1: unknown. Of an event: what its scripts tell there
	grant   grant         // while confirming or held
	hold    *hold         // once the lease is made
	err     error         // why the wait is over, from outside: the client was closed
	refused error         // why Redis, or the way to it, will never let it hold or end; or what its end meant, if not that all is well
	unended error         // why its end was not confirmed, when it has been given up
	unlock  *unlock       // its end, if nobody waits for that, until it is answered or given up

	believed time.Time // not before that: the server may have forgotten a hold

	inflight int    // asks and checks that name the ticket and are not answered
	repeats  int    // ends that are sent once more and are not answered
	stop     func() // ends the action that it runs

	unanswered time.Time     // when the first request was sent that was not answered
	ghost      time.Time     // until when one that will not be answered can still run
	lapses     int           // grants that ran out before they were taken
	deafness   error         // why its client cannot subscribe
	over       chan struct{} // closed when the end was acknowledged or given up

	// Small things, side by side: there may be many tickets.
	state        state
	answered     bool // an ask or a check that names it was
	told         bool // a message, or the reply to a request of its own, brought the grant
	doubted      bool // a message says that it was released by force: a renewal must look into that at once
	endAgain     bool // something was in flight when the end was sent (R1)
	owed         bool // the ends wait for that
	acknowledged bool // the server has answered the end
	joint        bool // its call has more to do before it returns: it asks for other names too, or proclaims
	inherits     bool // what it adopts may rest
	rests        bool // since its end has begun: what [ticket.restsLocked] said then
	rejoined     bool // it was out of the queue once, though its client has heard since before that

	wake chan struct{} // something above has changed; nil if nobody has waited for that yet

	teller *notify.Teller // nil: nobody looks
	note   string         // what the grant to the next is to carry
	used   uint64         // the token that its end names: the last that calls have used of its hold, or that of its grant, by [Below]; 0: none
}

// A grant as a client sees it: from when it counts here, and for how long.
type grant struct {
	token uint64
	from  time.Time // local, not after the server's time from which it counts: that of the grant, or of the reply to a check
	lasts time.Duration
	slept time.Duration // what lease.Slept said at the time from which that was reckoned
	note  string        // what the holder before had it carry

	confirmed bool      // by a renewal, which moved from
	limit     time.Time // what its maximum hold leaves it, from the first of from; zero if it has none
	final     bool      // it was confirmed up to that limit
	vouched   bool      // for by all that its terms want
}

// number gives the ticket a number of its own.
func (t *ticket) number() {
	q := t.queue
	t.text = lua.Ticket{
		Client: q.client.id(), Number: q.client.numbers.Add(1), Vote: q.terms.Vote, Kind: q.kind, Permits: q.permits, Lease: t.lease(), Grant: t.takes,
	}.String()
}

// lease is how long its first lease lasts.
func (t *ticket) lease() time.Duration {
	lasts, _ := t.queue.terms.First()
	return lasts
}

// phase says whether that is followed by others.
func (t *ticket) phase() string {
	_, phase := t.queue.terms.First()
	return phase
}

// waking returns the channel to wait at for a change of what was seen under the site's lock, which is held. A call
// that does not wait has none.
func (t *ticket) waking() <-chan struct{} {
	if t.wake == nil {
		t.wake = make(chan struct{}, 1)
	}
	return t.wake
}

// pokeLocked wakes the call that owns the ticket, which looks at the state.
func (t *ticket) pokeLocked() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// asksLocked reports whether an ask of the ticket may be sent.
func (t *ticket) asksLocked() bool { return t.state == idling || t.state == asking }

// passesLocked reports whether the ticket's call waits for an error to pass. One that has a place in the queue keeps it for
// as long as somebody may mend the server; one without fails, and its caller learns why.
func (t *ticket) passesLocked(err error) bool {
	return conn.Transient(err) || t.arrival != 0 && conn.Mendable(err)
}

// waits reports whether the ticket is one that a check names.
func (t *ticket) waits() bool {
	return (t.state == waiting || t.state == subscribing || t.state == acting) && t.arrival != 0
}

// passLocked ends the wait for an event that has come.
func (t *ticket) passLocked() {
	if t.state != acting {
		t.to(passed)
		t.pokeLocked()
	}
}

// refuseLocked ends the wait with an error.
func (t *ticket) refuseLocked(err error) {
	t.refused = err
	if t.stop != nil {
		t.stop()
	}
	t.pokeLocked()
}

// offerLocked brings the notice of a grant, from a reply or a message, to a ticket that is known (R8).
func (t *ticket) offerLocked(g grant) {
	switch t.state {
	case held, ending:
		// Dropped: a second notice of the same grant, or a late one of an earlier grant. Giving that back
		// would free what is held now. If it is a later grant, the next renewal finds out, or the end is under way.
		if t.state == ending && t.hold == nil && g.token > t.grant.token {
			t.grant = g // Close waits for that end.
		}
		return
	case confirming:
		if g.token <= t.grant.token {
			return
		}
	}
	if t.queue.terms.MaxHold > 0 {
		g.limit = g.from.Add(t.queue.terms.MaxHold)
	}
	t.grant = g
	if g.stale() {
		t.to(confirming)
	} else {
		t.to(held)
	}
	t.site.client.floor.Raise(g.token)
	t.pokeLocked()
}

// stale reports whether a grant is so old, or arrived over such a gap, that the server must be asked
// whether it still holds.
func (g grant) stale() bool {
	return !g.confirmed && time.Since(g.from) > g.lasts/3
}

// over reports whether a grant has no time left, of its lease or of its maximum.
func (g grant) over() bool {
	now := time.Now()
	return !now.Before(renewals.Until(g.from, g.lasts, g.slept, nil).Deadline) || !g.limit.IsZero() && !now.Before(g.limit)
}

// lapsedLocked gives the ticket another number, because a grant to it ran out: what still comes for the old one is
// given back. The next grant may last twice as long (R10).
func (t *ticket) lapsedLocked(next state) {
	s := t.site
	if !t.ghost.IsZero() {
		// An ask that was not answered may have taken the lock under the old number, or may do so yet.
		s.endGhostLocked(t.text, t.ghost, t.inherits)
	}
	delete(s.tickets, t.text)
	t.takes = min(2*t.takes, t.lease())
	t.number()
	s.tickets[t.text] = t
	t.grant, t.told, t.rejoined = grant{}, false, false
	t.lapses++
	t.to(next)
	t.pokeLocked()
}

// mostLapses is how many grants of one call may run out on their way before the call fails.
const mostLapses = 5

// ranOutLocked lets a ticket wait on whose grant ran out before it was taken; counts says that this must not happen too
// often.
func (t *ticket) ranOutLocked(counts bool) {
	next := waiting
	if t.queue.terms.MinHold > 0 {
		t.ghost = timers.Later(t.ghost, time.Now()) // The name may rest, and nobody has had it.
	}
	if t.arrival == 0 {
		next = idling // It was never queued: no check knows it, so it asks again.
	}
	t.lapsedLocked(next)
	switch {
	case counts && t.lapses >= mostLapses:
		t.refused = fmt.Errorf("%w: a lease of %v runs out before an answer of Redis is here", lease.ErrInvalid, t.lease())
	case t.waits():
		t.site.checkAtLocked(time.Now())
	}
}

// state is where a ticket is in its life; see the package documentation. Only [ticket.to] changes it.
type state uint8

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

// states is a set of them.
type states uint16

func in(all ...state) (set states) {
	for _, st := range all {
		set |= 1 << st
	}
	return set
}

func (set states) has(st state) bool { return set&(1<<st) != 0 }

// A step leads from any of some states to another.
type step struct {
	to   state
	when string
	from states
}

// living are the states before the end.
const living = 1<<ending - 1

// steps are all that there are. A test holds the list in the package documentation to it.
var steps = [...]step{
	{asking, "an ask is sent", in(idling)},
	{idling, "one of several names: it asks again when its client hears", in(asking)},
	{subscribing, "not queued, because its client cannot hear", in(asking, waiting)},
	{waiting, "queued", in(asking, subscribing)},
	{held, "granted", in(idling, asking, subscribing, waiting)},
	{held, "the renewal says so, or a newer grant has come", in(confirming)},
	{confirming, "granted long ago, or its terms want more: a renewal decides", in(idling, asking, subscribing, waiting, held)},
	{waiting, "the grant ran out before it was taken", in(confirming, held)},
	{idling, "the same, without a place; or it gives way behind a restart", in(confirming, held)},
	{acting, "the last at a barrier, which runs the action first", in(asking)},
	{passed, "the event has come", in(asking, subscribing, waiting, acting)},
	{ending, "release, loss, close, or the caller gave up", living},
	{ended, "the end was acknowledged or given up", in(ending)},
	{ended, "the server has nothing of it", in(idling, asking, acting, passed)},
}

// leads has the states that come after each.
var leads = func() (after [ended + 1]states) {
	for _, s := range steps {
		for st := range after {
			if s.from.has(state(st)) {
				after[st] |= in(s.to)
			}
		}
	}
	return after
}()

// to takes the ticket to another state, and is all that does. To stay is no step. The site's lock is held.
//
// A step that is not in the table is not taken, and counted in [Stats]; the tests demand that there is none. It does
// not panic: it runs under locks and on the reader of a connection, in a program that has done nothing wrong. A ticket
// that stays where it is has its timer (I5) and its lease, so it ends.
func (t *ticket) to(next state) {
	switch {
	case t.state == next:
	case leads[t.state].has(next):
		if t.state = next; in(waiting, confirming, held).has(next) {
			t.bound = 0 // It has had a place, or better (I11).
		}
	default:
		t.site.client.stats.Refused.Add(1)
	}
}
