package lease

import (
	"time"
)

// Info is what the server knows of one name at one moment.
type Info struct {
	Held    bool
	Holder  Holder   // who holds, if Held; where several do, the one whose lease ends first
	Holders []Holder // the first holders, at most 100, by the ends of their leases
	Token   uint64   // the last that was given; of a latch or a barrier, its generation
	Limit   int64    // permits, parties, or the count that was set; 1 for a lock; what a writer takes (2^30) for a read-write lock
	Stated  int64    // permits that the newest client of a semaphore states; a Resize changes only Limit. 0 if there is none
	Used    int64    // permits held, parties that have come, or the count that is left
	Waiting int      // how many wait
	Queue   []Waiter // the first of them, at most 100, in their order
	// Previous is how the hold before the present one ended, or the last one if nobody holds: see [Lease.Previous]. It is told of
	// locks that one holds at a time.
	Previous Ending
	// Suspects are clients that let a lease run out and have not been heard of since.
	Suspects []string
	// State is the state of a latch (unset, closed, open) or a barrier (unset, open, broken).
	State string
}

// A Waiter is a ticket as the server knows it.
type Waiter struct {
	Client string
	Ticket string
	Who    string        // name@host#pid; empty if that is not known
	Wait   time.Duration // since its arrival, less the head start of its priority
	Incarnation
}

// An Incarnation is a client with an identity (headwaiter.Options.Identity), as far as the server knows. The zero Incarnation is
// that of a client without one, or of one that nothing is known of.
type Incarnation struct {
	Identity   string
	Invocation string    // what tells the run of its program from others, if it has said that
	Taken      time.Time // when the identity was taken, by the clock of this machine; zero if that is not known
	Replaced   bool      // another client has the identity by now, or a witness has said that this one is dead
}

// A Holder is a hold as the server knows it.
type Holder struct {
	Client string // its id; on etcd as Who
	Ticket string // of the call that holds
	Who    string // name@host#pid; empty if that is not known
	Incarnation
	Permits int64
	Entries int64 // how many times it was entered, as the last renewal told it
	Token   uint64
	Since   time.Time     // when it was granted, by the clock of this machine
	Left    time.Duration // until the lease ends, unless it is renewed; negative if it has run out
	Idle    bool          // no call uses it: its client keeps it for the next one
	Final   bool          // nothing renews it: it ends when Left is over, whatever its holder does
	Wants   bool          // to be told when somebody waits ([Lease.Wanted]); of what one holds at a time, and until it was told
	// Rests: the hold is over, and nobody gets the name until Left is over (headwaiter.WithMinHold). It was released, if not
	// Expired.
	Rests, Expired bool
	// InTransit: Client has handed the hold over, and nobody has adopted it yet. It is nobody's meanwhile.
	InTransit bool
}

// A Leader is who leads, as far as the server knew when it was asked. The zero Leader is nobody.
type Leader struct {
	Value string    // what it has proclaimed last
	Token uint64    // the fencing token of its lease; 0: nobody leads
	Who   string    // its client, as name@host#pid
	Since time.Time // since when it leads, by the clock of the server; zero where the engine keeps no times (etcd)
	// Err, in the last Leader of an observation, is why there are no more. Nothing is known of the leader then.
	Err error
}
