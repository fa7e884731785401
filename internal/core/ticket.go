package core

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/wire"
)

// A Call is what a client knows of one call that waits, for its turn or for an event. The caller sets the exported fields before
// it registers the ticket, and reads them between inputs.
type Call struct {
	Owner any // what the caller keeps of it

	Begun    time.Time
	Deadline time.Time     // of the call; zero if it has none
	Lease    time.Duration // of the first grant in a reply; of a party at a barrier, how long its place lasts

	Text       string // what Redis has it as
	Place      int    // how many are before it, at the last poll; -1: unknown
	WaitErr    error  // why the wait is over, from outside: the client was closed
	Refused    error  // why the server, or the way to it, will never let the call have what it wants
	ReleaseErr error  // what the answer to its release means, if not that all is well
	Unended    error  // why its release was given up
	Deafness   error  // why its client cannot subscribe

	Budget time.Duration // of the next acquire request, from its sending to its not-after

	tries        int       // repeats since the last answer
	inflight     int32     // acquire requests and checks that name it and are not answered
	repeats      int32     // releases that are sent once more and are not answered
	unanswered   time.Time // when the first request was sent that was not answered
	inDoubt      time.Time // until when a request that will not be answered can still run
	Clean        bool      // the last answer says that the server has nothing of the ticket
	Over         bool      // its time is, by the context of its call or the limit of a try
	answered     bool      // an acquire request or a check that names it was
	releaseAgain bool      // something was in flight when the release was sent (R1)
	owed         bool      // Close waits for the release
	acknowledged bool      // the server has answered the release
	index        int       // among the calls of the name
}

// Options are what all calls of a primitive ask for. Their tickets share them, and nobody changes them.
type Options struct {
	Permits        int64
	Vote           string
	Renewal        time.Duration // how long each renewal makes the hold last
	MaxHold        time.Duration // 0: none
	MinHold        time.Duration // 0: none
	Remember       time.Duration // for how long it is known that the hold ended without a release; 0: as long as keys live anyway
	Kind           byte
	WithoutRenewal bool
}

// A Ticket is one call that waits for a hold, as its client and Redis know it.
type Ticket struct {
	Call
	*Options

	Behalf   string // the owner on whose behalf it asks, where holds can be entered again
	Try      bool   // it does not wait for its turn
	Joint    bool   // its call has more to do before it returns: it asks for other names too, or proclaims
	Inherits bool   // what it adopts may stay taken after its end
	state    state
	placed   bool  // it was told that it has its place
	heard    bool  // a message, or the reply to a request of its own, brought the grant
	forced   bool  // a message says that it was released by force: a renewal must look into that at once
	crowded  bool  // the last acquire request for the name was told to wait when its release began
	rests    bool  // the name is to stay taken after its end; set as its end begins
	rejoined bool  // it was out of the queue once, though its client was subscribed since before that
	expiries int32 // grants that ran out before they were taken

	Limit   int    // how many may wait when it comes, until it has a place; 0: any number (I11)
	Arrival int64  // its place in the order; 0 until a reply has told, unless the call gives one
	Drained int64  // how many permits a drain has got
	Hold    *Hold  // once the call has it
	Note    string // what the grant to the next is to carry

	number  uint64
	takes   time.Duration // how long a grant by message waits for it
	grant   Grant         // while confirming or held
	release *Release

	believed time.Time // not before that: the server may have forgotten a hold

	used uint64 // the token that its release names, if not 0: the last that calls have used of its hold
}

// A Grant is ownership that was given to a ticket, as its client sees it: from when it counts here, and for how long.
type Grant struct {
	Token  uint64
	From   time.Time // local, not after the server's time from which it counts
	Lasts  time.Duration
	Slept  time.Duration // for how long the machine had been suspended by then
	Note   string        // what the holder before had it carry
	Before string        // how the hold before ended, as [wire.Grant] has it

	limit        time.Time // what its maximum hold leaves it, from the first From; zero if it has none
	confirmed    bool      // by a renewal, which moved From
	final        bool      // it was confirmed up to that limit
	acknowledged bool      // what else its call wants is there: replicas, disks, the server's age
}

// Named gives a new ticket its text.
func (t *Ticket) Named(client string, number uint64, grantLease time.Duration) {
	t.number = number
	t.takes = min(grantLease.Truncate(time.Millisecond), t.Lease)
	t.name(client)
}

// renumber is what each expiry of a grant adds to the number of a ticket: more than a client makes tickets.
const renumber = 1_000_000_000_000

func (t *Ticket) name(client string) {
	t.Text = wire.Ticket{
		Client: client, Number: t.number + renumber*uint64(t.expiries), Vote: t.Vote, Kind: t.Kind, Permits: t.Permits, Lease: t.Lease, Grant: t.takes,
	}.String()
}

// Takes is how long a grant by message waits for the ticket.
func (t *Ticket) Takes() time.Duration { return t.takes }

// Grant is what the ticket was granted last.
func (t *Ticket) Grant() Grant { return t.grant }

// Held reports whether the ticket was granted, and has not ended.
func (t *Ticket) Held() bool { return t.state == held }

// Granted reports whether the ticket was granted, perhaps so long ago that a renewal has to say whether it holds.
func (t *Ticket) Granted() bool { return t.state == held || t.state == confirming }

// MayAsk reports whether an acquire request of the ticket may be sent.
func (t *Ticket) MayAsk() bool { return t.state == idling || t.state == asking }

// Waits reports whether checks name the ticket.
func (t *Ticket) Waits() bool {
	return (t.state == waiting || t.state == subscribing) && t.Arrival != 0
}

// Acknowledgement reports whether a grant still needs something else that its call wants, as replicas: see
// [Lock.BeginConfirm].
func (t *Ticket) Acknowledgement() bool { return !t.grant.acknowledged }

// state is where a ticket is in its life; see the documentation of package waitqueue. Only [Ticket.to] changes it.
type state uint8

const (
	idling state = iota
	asking
	subscribing
	waiting
	confirming
	held
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

// steps are all that there are. A test holds the list in the documentation of package waitqueue to it.
var steps = [...]step{
	{asking, "an acquire request is sent", in(idling)},
	{idling, "of several names: asks again once its client is subscribed", in(asking)},
	{subscribing, "not queued, because its client is not subscribed", in(asking, waiting)},
	{waiting, "queued", in(asking, subscribing)},
	{held, "granted", in(idling, asking, subscribing, waiting)},
	{held, "the renewal says so, or a newer grant has come", in(confirming)},
	{confirming, "granted long ago, or its call wants more: a renewal decides", in(idling, asking, subscribing, waiting, held)},
	{waiting, "the grant ran out before it was taken", in(confirming, held)},
	{idling, "the same, without a place; or it gives way after a restart", in(confirming, held)},
	{ending, "release, loss, close, or the caller gave up", living},
	{ended, "the release was acknowledged or given up", in(ending)},
	{ended, "the server has nothing of it", in(idling, asking)},
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

// to takes the ticket to another state, and is all that does. To stay is no step.
//
// A step that is not in the table is not taken, and counted; the tests demand that there is none. It does not panic: it runs
// in a program that has done nothing wrong. A ticket that stays where it is has its timer (I5) and its lease, so it ends.
func (t *Ticket) to(x *Input, next state) {
	switch {
	case t.state == next:
	case leads[t.state].has(next):
		if t.state = next; in(waiting, confirming, held).has(next) {
			t.Limit = 0 // It has had a place, or better (I11).
		}
	default:
		x.do(Impossible, &t.Call)
	}
}
