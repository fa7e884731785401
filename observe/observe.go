// Package observe has what tells metrics, traces and logs what happens to locks, of whatever engine.
package observe

import (
	"context"
	"time"
)

// An Observer is told what happens to the calls and holds of a client, as it happens: for metrics, traces and logs.
//
// Observe is called by several goroutines, some of which hold the client's locks or read its connection. It must
// return soon, must not wait for anybody, and must not call the client, which would wait for itself. ctx is the context of the
// call, or what a [Tracer] made of it; where the news is of no call of this client it is context.Background(). What
// concerns one call is told in order.
//
// A panic in Observe goes no further: the client goes on as if it had returned, without a lock left taken, and reports
// the first one to Options.Log, or to the standard log where there is none. Observers that are told after the one that
// panicked miss that observation.
type Observer interface {
	Observe(ctx context.Context, o Observation)
}

// A Tracer is an Observer that has a part in the calls it is told of: it may put something into their contexts, and
// send something along with a grant. What is said of Observe holds for its methods too.
type Tracer interface {
	Observer
	// Wait returns the context with which what follows [Began] is told, up to the end of the wait. Its values are those
	// of the call, which its end does not change.
	Wait(ctx context.Context, o Observation) context.Context
	// Hold returns the context of a hold, before [Granted] is told: what it puts there, the holder finds in the
	// context of its lease. ctx has what Wait put there.
	Hold(ctx context.Context, o Observation) context.Context
	// Note returns what the grant to the next in the queue is to carry from a hold that is released, or "". ctx is what
	// Hold returned. At most [MaxNote] bytes of printable ASCII without spaces; anything else is left out.
	Note(ctx context.Context) string
}

// A RequestObserver is an Observer that is told of the requests to servers too. What is said of Observe holds for
// ObserveRequest. Without one, a client does not look at the clock for it.
type RequestObserver interface {
	Observer
	ObserveRequest(r Request)
}

// A Request is one round trip to a server that was made anyway; several scripts that went together are one. One that its
// caller gave up is not told of.
type Request struct {
	Engine string        // redis, etcd, zookeeper or postgres
	Server string        // its address; of Sentinel the master set, of etcd and ZooKeeper all addresses
	Client string        // its name, without host and process
	Took   time.Duration // until the answer; without one, for how long it was waited for, as far as is known
	Err    error         // nil if it was answered; a refusal is an answer, unless it says that the server does not serve now
}

// MaxNote is how long a note may be that a grant carries: room for the identity of a span.
const MaxNote = 128

// EventKind says what has happened.
type EventKind int

// The events of a call. Each begins with Began, and its wait ends with one of Granted, Entered, Passed and Failed. A
// hold ends with one of Released, HandedOver and Lost.
const (
	Began         EventKind = iota + 1 // a call begins
	Queued                             // it has a place in the queue: Place, Waiting
	WaitedLong                         // it has waited for longer than Options.WaitedTooLong: Place, Waited, Count as of HeldLong
	Granted                            // it holds: Token, Waited, Note, Previous
	Entered                            // it has entered a hold of its owner: Waited
	Passed                             // the event that it waited for has come: Waited
	Failed                             // it ended without: Err, Waited
	Renewed                            // the lease is longer: Margin, Lease
	RenewalFailed                      // a renewal had no answer, and is tried again: Err, Margin, Lease; Count is how many have failed since one went well
	HeldLong                           // it has held for longer than Options.HeldTooLong: Held, Who; Count is 1 the first time, and told again whenever that has doubled
	Wanted                             // the holder has asked to be told when somebody waits, and is: Token, Held
	Released                           // it gave the hold back: Held, and Err if that did not go well; of an Unlock, when that is known
	Lost                               // the hold is lost: Held, Err
	HandedOver                         // it gave the hold to whoever adopts it: Held, and Err if that is not confirmed
)

// The events of a name, which may concern other clients.
const (
	HandedOff EventKind = iota + 101 // a script of this client granted to another, by message
	Skipped                          // a script of this client dropped tickets of dead clients: Count
	Expired                          // a script of this client found leases that had run out: Count
	Woken                            // a message came: Count is how many grants were in it
	Rejoined                         // a check found a ticket unknown, and queued it again: Ticket
	Missed                           // a check found a grant whose message never came: Ticket
	Suspected                        // the server says that this client let a lease run out
	GivenBack                        // a grant came for a ticket that had ended: Ticket
	Died                             // this client ended what a dead one had left: Count is how many holds, or parties at a barrier
	Differs                          // clients of a semaphore state different numbers of permits, this client another than the newest before
)

// The events of a client, which have neither Kind nor Name.
const (
	TwoMasters EventKind = iota + 201 // two connections of this client see two masters with different data, and both grant: Err
	Replaced                          // another client has taken the identity of this one, which can lock nothing any more
)

var events = map[EventKind]string{
	Began: "began", Queued: "queued", WaitedLong: "waited for long", Granted: "granted", Entered: "entered", Passed: "passed", Failed: "failed",
	Renewed: "renewed", RenewalFailed: "renewal failed", HeldLong: "held for long", Wanted: "wanted", Released: "released", Lost: "lost", HandedOver: "handed over",
	HandedOff: "handed off", Skipped: "skipped", Expired: "expired", Woken: "woken", Rejoined: "rejoined",
	Missed: "missed a message", Suspected: "suspected", GivenBack: "given back", Differs: "stated another number",
	TwoMasters: "saw two masters", Died: "died", Replaced: "replaced",
}

// String returns the event in a word or two.
func (k EventKind) String() string { return events[k] }

// An Observation is one thing that has happened. Fields that its event does not name are zero, except Kind, Name and, of a
// call, Ticket. The events of a hold also have its Token.
type Observation struct {
	Event  EventKind
	Kind   string // of the primitive, as in its keys: lock, semaphore, …
	Name   string
	Ticket string // of the call; it changes where a grant ran out on its way

	Token   uint64
	Place   int           // how many are ahead, the holder among them; -1 if that is not known
	Waiting int           // how many wait, or an estimate of the clients that do; 0 if that is not known
	Waited  time.Duration // since the call
	Held    time.Duration // since the grant
	Margin  time.Duration // what was left of the lease when the answer came, or failed to
	Lease   time.Duration // and how long that lease was
	Count   int
	Note    string // what the holder before had the grant carry
	Who     string // the holder, as operators see it: name@host#pid
	// Previous is how the hold before ended that its owner did not give back: expired, died, forced, stalled or forgotten. It is
	// empty of any other, and where nothing is known of it.
	Previous string
	Err      error
}

// Observers returns an observer that tells several, in their order. Nil ones are left out. The note of the first
// [Tracer] that has one is carried.
func Observers(all ...Observer) Observer {
	var list observers
	for _, o := range all {
		if o != nil {
			list = append(list, o)
		}
	}
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	for _, o := range list {
		if _, ok := o.(RequestObserver); ok {
			return requestObservers{list}
		}
	}
	return list
}

// requestObservers are several, at least one of them an observer of requests.
type requestObservers struct{ observers }

func (l requestObservers) ObserveRequest(r Request) {
	for _, each := range l.observers {
		if w, ok := each.(RequestObserver); ok {
			w.ObserveRequest(r)
		}
	}
}

type observers []Observer

func (l observers) Observe(ctx context.Context, o Observation) {
	for _, each := range l {
		each.Observe(ctx, o)
	}
}

func (l observers) Wait(ctx context.Context, o Observation) context.Context {
	for _, each := range l {
		if t, ok := each.(Tracer); ok {
			ctx = t.Wait(ctx, o)
		}
	}
	return ctx
}

func (l observers) Hold(ctx context.Context, o Observation) context.Context {
	for _, each := range l {
		if t, ok := each.(Tracer); ok {
			ctx = t.Hold(ctx, o)
		}
	}
	return ctx
}

func (l observers) Note(ctx context.Context) string {
	for _, each := range l {
		if t, ok := each.(Tracer); ok {
			if note := t.Note(ctx); note != "" {
				return note
			}
		}
	}
	return ""
}

// Stats counts what a client has done since it was made.
type Stats struct {
	AcquireRequests uint64 // scripts that asked for a lock
	ReleaseRequests uint64 // scripts that released, left or gave back
	Renewals        uint64
	Checks          uint64
	Subscribes      uint64 // channels subscribed to, again ones included
	Messages        uint64 // messages heard
	HandOffs        uint64 // grants to other clients, by message, in this client's scripts
	Granted         uint64 // holds
	Lost            uint64 // holds lost
	GivenBack       uint64 // grants that came for tickets that had ended
	Rejoined        uint64 // tickets that a check found unknown and queued again
	Missed          uint64 // grants whose message did not come
	Suspected       uint64 // times this client was told that it let a lease run out
	Skipped         uint64 // tickets of dead clients dropped in this client's scripts
	Expired         uint64 // leases of others that had run out when this client's scripts came
	Differs         uint64 // requests that stated another number of permits than the newest client before
	Late            uint64 // requests that ran after their not-after
	Stepped         uint64 // leases cut because the server's clock stepped back
	Forged          uint64 // messages that made no sense
	Died            uint64 // holds, and parties at barriers, of dead clients that this one has ended
	Replaced        uint64 // 1 if another client has taken the identity of this one
	TwoMasters      uint64 // times two connections of this client saw two masters with different data
	Refused         uint64 // steps of tickets that the package documentation does not list: not taken, and a bug
}
