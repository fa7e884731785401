package check

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/judge"
)

// Never is the return of a call that was not answered.
const Never = judge.Never

// A Verb is what an operation asks for.
type Verb string

// The verbs. Those of the second group are made out of the calls at a queue or a barrier, which are no single
// steps.
const (
	Acquire   Verb = "acquire"
	Enter     Verb = "enter" // a hold once more
	Renew     Verb = "renew"
	Release   Verb = "release"
	Lose      Verb = "lose" // a hold is told lost
	Downgrade Verb = "downgrade"
	Set       Verb = "set"  // a latch, or the value of a leader
	Look      Verb = "look" // who leads, with which value
	Down      Verb = "down" // count down
	Left      Verb = "left" // learn what is left, some time after counting down
	Count     Verb = "count"
	Wait      Verb = "wait" // for a latch
	Reset     Verb = "reset"

	Enqueue Verb = "enqueue" // get a ticket
	Leave   Verb = "leave"   // give up a place, in a queue or at a barrier
	Arrive  Verb = "arrive"  // at a barrier
	Pass    Verb = "pass"    // a barrier
	Break   Verb = "break"   // learn that a barrier is broken
)

// An Outcome is what a caller knows of an operation.
type Outcome int

// The outcomes.
const (
	OK Outcome = iota
	Refused
	Unknown // its return is Never
)

func (o Outcome) String() string { return [...]string{"ok", "refused", "unknown"}[o] }

// An Op is one operation on one object. The fields after Outcome are the ones that the verb needs.
type Op struct {
	Verb         Verb
	Name         string // of the object; histories are judged name by name
	Lane         int    // whose operations do not overlap, for pictures alone
	Call, Return time.Duration
	Outcome      Outcome

	Hold    int           // which hold or ticket it is about: a number of its own in the history, from 1 on
	Token   uint64        // of the hold
	Until   time.Duration // until when it is certain, unless renewed, from this operation on
	Permits int64         // that are acquired
	Shared  bool          // acquired for reading
	Ticket  int64         // place in the order of arrival; smaller is earlier
	Number  int64         // the count or value that was set, is seen or is left, or the index of a party
}

func (o Op) String() string {
	text := fmt.Sprintf("%s %s", o.Verb, o.Outcome)
	add := func(name string, value any, given bool) {
		if given {
			text += fmt.Sprintf(" %s=%v", name, value)
		}
	}
	add("hold", o.Hold, o.Hold != 0)
	add("token", o.Token, o.Token != 0)
	add("until", o.Until, o.Until != 0)
	add("permits", o.Permits, o.Permits != 0)
	add("shared", o.Shared, o.Shared)
	add("ticket", o.Ticket, o.Ticket != 0)
	add("number", o.Number, o.Number != 0)
	return text
}

// step is the earliest moment at which an operation can happen after now, and not before other moments that it
// needs; not ok if its call had returned by then.
func (o Op) step(now time.Duration, needs ...time.Duration) (t time.Duration, ok bool) {
	t = max(now, o.Call)
	for _, n := range needs {
		t = max(t, n)
	}
	return t, t <= o.Return
}

// bound is for models of holds. An acquire of unknown outcome never matters: it keeps nobody out, and what it may
// take is free, or has a lease that is over, whose loss may be told without it. A release of unknown outcome does
// not matter after the end of the lease, and where one holds at a time not after the return of a grant with a
// higher token.
func bound(ops []Op, exclusive bool) []Op {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o Op) bool { return o.Verb == Acquire && o.Outcome == Unknown })
	boundReleases(ops, exclusive)
	return ops
}

// boundReleases gives releases of unknown outcome a return after which they do not matter.
func boundReleases(ops []Op, exclusive bool) {
	own, until := map[int]uint64{}, map[int]time.Duration{}
	var grants []Op
	for _, o := range ops {
		if o.Verb == Acquire && o.Outcome == OK {
			grants = append(grants, o)
			own[o.Hold] = o.Token
		}
		if o.Verb == Acquire || o.Verb == Renew {
			until[o.Hold] = max(until[o.Hold], o.Until)
		}
	}
	byToken := earliest(grants, func(o Op) uint64 { return o.Token })
	for i := range ops {
		o := &ops[i]
		if o.Return != Never || o.Verb != Release {
			continue
		}
		o.Return = max(o.Call, until[o.Hold])
		if exclusive {
			o.Return = max(o.Call, min(o.Return, byToken(own[o.Hold]+1)))
		}
	}
}

// earliest returns a function that tells the first return of those operations whose key is at least x.
func earliest(ops []Op, key func(Op) uint64) func(x uint64) time.Duration {
	sorted := slices.SortedFunc(slices.Values(ops), func(a, b Op) int { return cmp.Compare(key(a), key(b)) })
	first := make([]time.Duration, len(sorted)+1)
	first[len(sorted)] = Never
	for i := len(sorted) - 1; i >= 0; i-- {
		first[i] = min(first[i+1], sorted[i].Return)
	}
	return func(x uint64) time.Duration {
		return first[sort.Search(len(sorted), func(i int) bool { return key(sorted[i]) >= x })]
	}
}
