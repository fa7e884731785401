package check

import (
	"fmt"
	"slices"
	"time"
)

// latch is a latch.
type latch struct {
	set     bool
	left    int64
	counted []int // who has counted down and not learned yet what is left
	now     time.Duration
}

func (s latch) String() string {
	return fmt.Sprintf("set %v, left %d, counted %v, now %v", s.set, s.left, s.counted, s.now)
}

func (s latch) Same(other State) bool {
	o := other.(latch)
	return s.set == o.set && s.left == o.left && s.now == o.now && slices.Equal(s.counted, o.counted)
}

// Latch is the model of a latch: a set that is refused found it closed; a count down takes one off, and does
// nothing where nothing is left; a wait passes only then.
//
// A count down with a Hold is the first of two steps: the caller learns later, but before it returns, what is left
// then. That may be less than what it left itself, where its answer was lost and its request repeated.
var Latch = Model{
	Init: func() State { return latch{} },
	Step: func(s State, o Op) []State { return s.(latch).step(o) },
}

func (s latch) step(o Op) (next []State) {
	t, ok := o.step(s.now)
	if !ok {
		return nil
	}
	s.now = t
	closed := s.set && s.left > 0
	if o.Outcome == Unknown {
		next = append(next, s)
	}
	done := s
	switch o.Verb {
	case Set:
		if o.Outcome == Refused {
			ok = closed
			break
		}
		ok = !closed
		done.set, done.left = true, o.Number
	case Down:
		ok = s.set
		done.left = max(s.left-1, 0)
		if o.Hold != 0 && o.Outcome == OK {
			done.counted = merged(s.counted, []int{o.Hold})
			break
		}
		ok = ok && (o.Outcome == Unknown || done.left == o.Number)
	case Left:
		done.counted, ok = without(s.counted, o.Hold)
		ok = ok && s.left == o.Number
	case Count:
		ok = s.set && s.left == o.Number
	case Wait:
		ok = s.set && s.left == 0 || o.Outcome == Unknown
	default:
		ok = false
	}
	if ok {
		next = append(next, done)
	}
	return next
}

// gate is a cyclic barrier.
type gate struct {
	came   []int         // who has come to the present generation, in order
	lapses time.Duration // when the first of their places may have run out; Never if none does
	passes []int         // who came to one that tripped, and has not passed yet
	out    []int         // who came to one that was broken, and does not know yet
	gone   []int         // who left or learned that it is broken, and comes no more
	broken bool
	now    time.Duration
}

func (s gate) String() string {
	return fmt.Sprintf("came %v, passing %v, out %v, broken %v, now %v", s.came, s.passes, s.out, s.broken, s.now)
}

func (s gate) Same(other State) bool {
	o := other.(gate)
	return s.broken == o.broken && s.lapses == o.lapses && s.now == o.now && slices.Equal(s.came, o.came) &&
		slices.Equal(s.passes, o.passes) && slices.Equal(s.out, o.out) && slices.Equal(s.gone, o.gone)
}

// Forgotten is the number of a break that says that nothing is known of the party: it may be that its
// generation tripped.
const Forgotten = 1

// Barrier is the model of a cyclic barrier of a number of parties. A call is several steps: the party comes
// (arrive), in a place that counts down from parties-1 to 0; the last one lets all pass (pass), each once. Or
// the generation is broken, by one who gives up (leave) or by a reset, and all who came learn that (break), as
// do the parties that come until a reset. Who learns it may have come before, so its arrive is unknown. The Until of an
// arrive is for how long its place lasts unless it is prolonged: from then on the generation may be broken by
// itself, and not before.
func Barrier(parties int) Model {
	return Model{
		Init: func() State { return gate{lapses: Never} },
		Step: func(s State, o Op) []State { return s.(gate).step(o, parties) },
	}
}

func (s gate) step(o Op, parties int) (next []State) {
	t, ok := o.step(s.now)
	if !ok {
		return nil
	}
	s.now = t
	if o.Outcome == Unknown {
		next = append(next, s)
	}
	done, ok := s, false
	switch o.Verb {
	case Arrive:
		index := parties - 1 - len(s.came)
		ok = !s.broken && !slices.Contains(s.gone, o.Hold) && (o.Outcome == Unknown || int(o.Number) == index)
		done.came = append(slices.Clip(s.came), o.Hold)
		if o.Until > 0 {
			done.lapses = min(s.lapses, t+o.Until)
		}
		if index == 0 {
			done.passes, done.came, done.lapses = merged(s.passes, done.came), nil, Never
		}
	case Pass:
		done.passes, ok = without(s.passes, o.Hold)
	case Break:
		if late, lapsed := o.step(s.now, s.lapses); lapsed && len(s.came) > 0 {
			// Its generation, or one that it came too late for, ran out of time.
			over := s.breaks(true)
			over.now = late
			if out, mine := without(over.out, o.Hold); mine {
				over.out = out
			}
			over.gone = merged(over.gone, []int{o.Hold})
			if !slices.Contains(over.passes, o.Hold) {
				next = append(next, over)
			}
		}
		done.out, ok = without(s.out, o.Hold)
		ok = ok || o.Number == Forgotten || s.broken && !slices.Contains(s.came, o.Hold) && !slices.Contains(s.passes, o.Hold)
		done.gone = merged(s.gone, []int{o.Hold})
	case Leave:
		// A party that has not come, or has passed, changes nothing.
		ok = true
		if slices.Contains(s.came, o.Hold) {
			done = s.breaks(true)
			done.out, _ = without(done.out, o.Hold)
		}
		done.gone = merged(s.gone, []int{o.Hold})
	case Reset:
		ok, done = true, s.breaks(false)
	}
	if ok {
		next = append(next, done)
	}
	return next
}

// breaks is the state after the end of a generation that did not trip.
func (s gate) breaks(stays bool) gate {
	s.out, s.came, s.broken, s.lapses = merged(s.out, s.came), nil, stays, Never
	return s
}

func merged(a, b []int) []int {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return all
}

func without(list []int, x int) ([]int, bool) {
	i := slices.Index(list, x)
	if i < 0 {
		return list, false
	}
	return slices.Delete(slices.Clone(list), i, i+1), true
}
