// Package wire has the requests, replies and messages of the protocol as plain values: what scripts are told, what they
// answer, and what they publish. It sends and decodes nothing; package lua does.
package wire

import (
	"strings"
	"time"
)

// Status of a reply.
type Status int64

// The numbers are those of lib/base.lua.
const (
	Granted Status = 1 // the ticket holds
	Waiting Status = 2 // it does not, and waits if it asked to
	Busy    Status = 3 // a try that failed
	Late    Status = 4 // the request ran after its not-after, and changed nothing
	Done    Status = 5
	Refused Status = 6 // not the owner; States[0] says why

	Excess   Status = 7  // it asks for more permits than there are; States[0] is the limit
	Mismatch Status = 8  // it states another limit or number of parties; States[0] is the one that counts
	Unset    Status = 9  // the latch has no count
	Broken   Status = 10 // the barrier is broken
	Acting   Status = 11 // all parties are here, and this one runs the action before it opens
	MoreKeys Status = 12 // UNUSUAL in the scripts: nothing was done, the request has to come with all keys
	Full     Status = 13 // there is no room in the queue for one with a bound
)

// Flags of a reply. The numbers are those of lib/base.lua and lib/hold.lua.
const (
	More      = 1   // the work was cut at its bound: look again at once
	Suspected = 2   // the calling client let a lease run out
	Stepped   = 4   // the server's clock stepped back, and a lease was cut to its length
	Handed    = 8   // granted to another client by message
	Unwoken   = 16  // PUBLISH was refused: the head must look by itself
	Uncounted = 32  // PUBSUB NUMSUB was refused: nobody is skipped
	Wanted    = 64  // somebody waits for what the ticket holds
	Differs   = 128 // clients state different numbers of permits
)

// What States says of a ticket, or for which reason it was refused.
const (
	StateQueued    = "queued"
	StateAgain     = "again" // it was unknown, and is queued again
	StateGranted   = "granted"
	StateEarlier   = "earlier" // granted before the check came
	StateGone      = "gone"
	StateExpired   = "expired"
	StateForced    = "forced"
	StateForgotten = "forgotten"
	StateDied      = "died"   // its client was buried
	StateExcess    = "excess" // it asks for more than the limit, followed by it
	StateBroken    = "broken"
	StateFull      = "full" // there is no room for it: followed by how many wait, and the arrival of the head
)

// What an inspection says of a latch that nobody has set, or of a barrier that nobody has used.
const StateUnset = "unset"

// A Grant says that a ticket holds, until a time of the server in µs.
type Grant struct {
	Ticket string
	Token  uint64
	At     int64  // server µs from which it counts: when it was granted if a message tells, when the reply was made if a reply does
	Until  int64  // server µs
	Before string // how the hold before ended, as "how:token"; empty if it was released
}

// EndingMark is what precedes "how:token" in replies and messages: how the hold before ended that was not released, and its
// token.
const EndingMark = "!"

// How a hold ended that was not released.
const (
	HowExpired = "expired"
	HowDied    = "died"
	HowForced  = "forced"
	HowStalled = "stalled"
	HowHanded  = "handed"
	HowUnused  = "unused" // no call had it: what it was told is told to the next
	// UnknownBefore is what is known of the hold before the first of a lock.
	UnknownBefore = "unknown:0"
)

// Before is how the hold before the one that the reply grants ended, as "how:token"; empty if it was released.
func (t *Tuple) Before() string {
	for _, state := range t.States {
		if before, ok := strings.CutPrefix(state, EndingMark); ok {
			return before
		}
	}
	return ""
}

// A Tuple is a reply as it comes: twelve words. The scripts of a queue give them the meanings of their names here, and
// other scripts other meanings. Only the kinds of reply below know these; the models of the scripts
// write tuples too.
type Tuple struct {
	Status  Status
	Now     int64
	Token   uint64
	Until   int64
	Place   int64
	Waiting int
	Arrival int64
	Flags   int64
	Skipped int
	Expired int
	Grants  []Grant
	States  []string
}

// Has reports whether the reply carries the flag.
func (t *Tuple) Has(flag int64) bool { return t.Flags&flag != 0 }

// Complete adds to a reply of one time what follows from the ticket that it is about: when its hold ends, or a grant as
// long as its own to the next.
func (t *Tuple) Complete(hold, grant time.Duration) {
	switch {
	case t.Until != 0 || t.Now == 0 || t.Token == 0:
	case t.Status == Granted:
		t.Until = t.Now + hold.Microseconds()
	case t.Status == Done && t.Has(Handed):
		t.Until = t.Now + grant.Microseconds()
	}
}

// A Glance is what a look at several tickets says of one.
type Glance struct {
	Place int   // in the queue; -1: only a check of its own tells
	Until int64 // server µs: the end of the present lease
}

// A Head is what the replies of all kinds say.
type Head struct {
	Status  Status
	Now     int64 // server µs
	Flags   int64
	Skipped int      // waiters of clients that do not live
	Expired int      // leases that ran out
	States  []string // of the tickets, or why the request was refused
}

// Has reports whether the reply carries the flag.
func (h *Head) Has(flag int64) bool { return h.Flags&flag != 0 }

// Head is what a reply of any kind says.
func (t *Tuple) Head() Head {
	return Head{t.Status, t.Now, t.Flags, t.Skipped, t.Expired, t.States}
}

// A Reply is the answer of a script that serves a queue. A field that a script has nothing to say about is zero.
type Reply struct {
	Status  Status
	Now     int64  // server µs
	Token   uint64 // the last that the lock has given
	Until   int64  // server µs: the end of the present lease, or of the mark until which the lock stays free
	Place   int64  // how many are ahead, the holder among them; -1: not queued
	Waiting int    // tickets, or an estimate of the clients, that wait
	Arrival int64  // with which the ticket waits
	Flags   int64
	Skipped int
	Expired int
	Grants  []Grant // to tickets of the calling client
	States  []string
}

// Complete adds what follows from the ticket: see [Tuple.Complete].
func (r *Reply) Complete(hold, grant time.Duration) { (*Tuple)(r).Complete(hold, grant) }

// Before is how the hold before the one that the reply grants ended: see [Tuple.Before].
func (r *Reply) Before() string { return (*Tuple)(r).Before() }

// Has reports whether the reply carries the flag.
func (r *Reply) Has(flag int64) bool { return r.Flags&flag != 0 }

// Head is what a reply of any kind says.
func (r *Reply) Head() Head { return (*Tuple)(r).Head() }

// Owner is the ticket that holds, if a try that failed was told; "" if not.
func (r *Reply) Owner() string {
	if r.Status != Busy || len(r.States) == 0 {
		return ""
	}
	return r.States[0]
}

// Drained is how many permits a drain got that was granted: it has no place in the queue, and says that instead.
func (r *Reply) Drained() int64 { return r.Place }

// An EventReply is the answer of a script to waiters for an event: the next generation of a latch, of a barrier,
// or of who leads.
type EventReply struct {
	Head
	Generation int64 // the present one
	Awaited    int64 // the generation that the ticket waits for, or knows
	Index      int   // of a barrier: how many were still to come when the ticket came
	Until      int64 // server µs: when to look again at the latest; 0 if nothing says when
	Waiting    int   // clients, or an estimate of them, that wait
}
