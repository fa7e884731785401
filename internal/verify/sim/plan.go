package sim

import (
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// Kind is one of the primitives.
type Kind int

// The primitives.
const (
	Mutex Kind = iota
	Election
	Striped
	Several
	Redlock // on several servers
	Latch
	Barrier
	kinds
)

var kindNames = [kinds]string{"mutex", "election", "striped", "several", "redlock", "latch", "barrier"}

func (k Kind) String() string { return kindNames[k] }

// holds reports whether it is something to hold; the others are something to wait for.
func (k Kind) holds() bool { return k < Latch }

// A Plan is what is to happen in a world. It follows from its seed.
type Plan struct {
	Seed    uint64
	Only    []Kind        // if it was drawn for these alone
	Storm   int           // how many times as many faults there are as usual
	Length  time.Duration // until everything is healed
	Servers int           // one, except for Redlock
	Polls   bool          // nobody subscribes to anything
	Drift   time.Duration // by how much a server's clock gains in a second; every other one loses as much
	Apart   time.Duration // by how much the clock of each is ahead of the one before
	Clients []ClientPlan
	Objects []Object
	Actors  []ActorPlan
	Faults  []Fault // by their times
}

// A ClientPlan is one process.
type ClientPlan struct {
	Start      time.Duration
	Latency    time.Duration // one way
	GrantLease time.Duration
	Linger     time.Duration
}

// An Object is one name of one primitive.
type Object struct {
	Kind    Kind
	Lease   time.Duration
	MaxHold time.Duration // 0 for none
	Size    int64         // parties, the count of the latch, stripes, or names
	Bound   time.Duration // for how long a call holds some of several names while it waits for others
	Trusts  bool          // it believes a server that has just started
}

// parts is how many locks an object has.
func (o Object) parts() int {
	if o.Kind == Striped || o.Kind == Several {
		return int(o.Size)
	}
	return 1
}

// An ActorPlan is one goroutine that does one thing after the other with one object.
type ActorPlan struct {
	Client, Object int
	Steps          []Step
}

// Verb is what an actor does.
type Verb int

// The verbs. Which of them there are for a primitive see verbs.
const (
	Lock     Verb = iota
	Try           // the same, now or never
	Proclaim      // lead, and proclaim another value
	Each          // several names, each for itself
	TryEach       // the same, now or never
	Set           // the latch
	Down          // count it down
	Await         // the latch or the barrier
	Reset         // the barrier
	verbs
)

var verbNames = [verbs]string{
	"lock", "try", "proclaim", "each", "try each", "set", "down", "await", "reset",
}

func (v Verb) String() string { return verbNames[v] }

// A Step is one call, and what is done with what it got.
type Step struct {
	After    time.Duration // since the end of the one before
	Do       Verb
	Patience time.Duration // for how long the call waits; 0 for as long as it takes
	Cancel   bool          // it does not know that beforehand: its context is cancelled, and has no deadline
	Parts    Parts
	Priority int
	Hold     time.Duration
}

// Parts are some of the locks of an object, a bit each.
type Parts uint

// meets tells whether two have one in common. None stands for all.
func (p Parts) meets(q Parts) bool { return p == 0 || q == 0 || p&q != 0 }

// alone tells whether it is one lock.
func (p Parts) alone() bool { return p&(p-1) == 0 }

// each are the numbers of the locks.
func (p Parts) each() (numbers []int) {
	for k := range bits.Len(uint(p)) {
		if p&(1<<k) != 0 {
			numbers = append(numbers, k)
		}
	}
	return numbers
}

// A Fault is one thing that goes wrong.
type Fault struct {
	At     time.Duration
	For    time.Duration // where it lasts
	Kind   FaultKind
	Client int // where it is one of a client
	Object int // where it is one of an object
	Server int // where it is one of a server, or of a client on its way to one
	N      int // how many, which, or how much
}

// everyone stands for all clients, or all objects.
const everyone = -1

func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v with faults, %d servers %v apart, the clock of the first gains %v a second\n", p.Seed, p.Length, p.Servers, p.Apart, p.Drift)
	for i, c := range p.Clients {
		fmt.Fprintf(&b, "client %d: from %v, %v away, grant lease %v, linger %v\n", i, c.Start, c.Latency, c.GrantLease, c.Linger)
	}
	for i, o := range p.Objects {
		fmt.Fprintf(&b, "object %d: %v, lease %v, at most %v, size %d, bound %v, trusts %v\n", i, o.Kind, o.Lease, o.MaxHold, o.Size, o.Bound, o.Trusts)
	}
	for i, a := range p.Actors {
		fmt.Fprintf(&b, "actor %d of client %d on object %d:", i, a.Client, a.Object)
		for _, s := range a.Steps {
			fmt.Fprintf(&b, " %v+%v", s.After, s.Do)
			if s.Parts != 0 {
				fmt.Fprintf(&b, "%v", s.Parts.each())
			}
			if s.Priority != 0 {
				fmt.Fprintf(&b, "%+d", s.Priority)
			}
			if s.Patience > 0 {
				fmt.Fprintf(&b, "<%v", s.Patience)
				if s.Cancel {
					b.WriteString("!")
				}
			}
			if s.Hold > 0 {
				fmt.Fprintf(&b, " %v;", s.Hold)
			}
		}
		b.WriteString("\n")
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "fault %v\n", f)
	}
	return b.String()
}

func (f Fault) String() string {
	s := fmt.Sprintf("%v %v", f.At, f.Kind)
	if f.For > 0 {
		s += fmt.Sprintf(" for %v", f.For)
	}
	if f.Kind.ofClient() {
		s += fmt.Sprintf(" client %d", f.Client)
	}
	if f.Kind.ofObject() {
		s += fmt.Sprintf(" object %d", f.Object)
	}
	return s + fmt.Sprintf(" server %d n=%d", f.Server, f.N)
}
