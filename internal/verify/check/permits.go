package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/judge"
)

// grip is one of several holds on a semaphore or a read-write lock.
type grip struct {
	hold    int
	permits int64
	until   time.Duration
}

// permits is a semaphore, or a read-write lock.
type permits struct {
	grips []grip // by hold
	token uint64
	group uint64 // the token of readers that others may share; 0 if there is none
	now   time.Duration
}

func (s permits) String() string {
	return fmt.Sprintf("%v, token %d, shared %d, now %v", s.grips, s.token, s.group, s.now)
}

func (s permits) Same(other State) bool {
	o := other.(permits)
	return s.token == o.token && s.group == o.group && s.now == o.now && slices.Equal(s.grips, o.grips)
}

// Semaphore is the model of a semaphore: the permits of leases that are not over never exceed the limit, each
// hold has a token above all before. The verbs are those of [Mutex], without entries.
//
// An acquire of unknown outcome keeps nobody out, as it may have left at once, so it changes nothing.
func Semaphore(limit int64) Model {
	return Model{
		Init:  func() State { return permits{} },
		Step:  func(s State, o Op) []State { return s.(permits).step(o, limit, o.Permits) },
		Bound: func(ops []Op) []Op { return bound(ops, false) },
	}
}

// RWLock is the model of a read-write lock: one writer, or readers, whose tokens may be equal where they hold together. A
// downgrade leaves a writer its token, which no reader shares, as it has written.
var RWLock = Model{
	Init: func() State { return permits{} },
	Step: func(s State, o Op) []State {
		wants := judge.Readers
		if o.Shared {
			wants = 1
		}
		return s.(permits).step(o, judge.Readers, wants)
	},
	Bound: func(ops []Op) []Op { return bound(ops, false) },
}

func (s permits) step(o Op, limit, wants int64) (next []State) {
	t, ok := o.step(s.now)
	if !ok {
		return nil
	}
	still := s
	still.now = t
	i, mine := slices.BinarySearchFunc(s.grips, o.Hold, func(g grip, hold int) int { return g.hold - hold })
	if o.Outcome != OK {
		next = append(next, still)
	}
	switch {
	case o.Outcome == Refused:
	case o.Verb == Acquire:
		if taken, ok := s.acquire(o, i, limit, wants); ok {
			next = append(next, taken)
		}
	case o.Verb == Lose && !mine:
		next = append(next, still)
	case !mine:
	case o.Verb == Lose:
		if still.now, ok = o.step(s.now, s.grips[i].until); ok {
			next = append(next, still.without(i))
		}
	case o.Verb == Release:
		next = append(next, still.without(i))
	case o.Verb == Renew:
		still.grips = slices.Clone(s.grips)
		still.grips[i].until = max(still.grips[i].until, o.Until)
		next = append(next, still)
	case o.Verb == Downgrade:
		still.grips = slices.Clone(s.grips)
		still.grips[i].permits = 1
		next = append(next, still)
	}
	return next
}

// without is the state without a grip. The last one to go ends the sharing of its token.
func (s permits) without(i int) permits {
	s.grips = slices.Delete(slices.Clone(s.grips), i, i+1)
	if len(s.grips) == 0 {
		s.group = 0
	}
	return s
}

// acquire is the state with one grip more, if there is a moment at which it fits.
func (s permits) acquire(o Op, i int, limit, wants int64) (permits, bool) {
	if o.Outcome == Unknown {
		return s, false
	}
	shares := o.Shared && o.Token == s.token && o.Token == s.group
	if o.Token <= s.token && !shares {
		return s, false
	}
	t, fits := o.step(s.now)
	for fits && s.used(t) > limit-wants {
		// Not before the next lease is over.
		next := Never
		for _, g := range s.grips {
			if g.until > t {
				next = min(next, g.until)
			}
		}
		t, fits = o.step(t, next)
	}
	if !fits || s.used(t) > limit-wants {
		return s, false
	}
	s.now, s.token = t, o.Token
	if o.Shared {
		s.group = o.Token
	} else {
		s.group = 0
	}
	s.grips = slices.Insert(slices.Clone(s.grips), i, grip{o.Hold, wants, o.Until})
	return s, true
}

// used are the permits of leases that are not over.
func (s permits) used(t time.Duration) (n int64) {
	for _, g := range s.grips {
		if g.until > t {
			n += g.permits
		}
	}
	return n
}
