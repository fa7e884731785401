package check

import (
	"fmt"
	"time"
)

// mutex is a lock with leases and tokens that can be entered again.
type mutex struct {
	owner int // the hold; 0 if the lock is free
	count int
	token uint64
	until time.Duration // before this nobody else can have it
	// now is the time of the latest step. Without it an operation that never returns could take the lock at
	// the end of all time, and whatever is reported of a valid lease would be excused.
	now time.Duration
}

func (s mutex) String() string {
	return fmt.Sprintf("owner %d x%d, token %d, until %v, now %v", s.owner, s.count, s.token, s.until, s.now)
}

func (s mutex) Same(other State) bool { return other == s }

// free is the state after the end of a hold. What was of it says nothing any more.
func (s mutex) free() mutex {
	s.owner, s.count, s.until = 0, 0, 0
	return s
}

// Mutex is the model of a lock with leases, tokens and entries, as [fairlock] and [reentrant] have them. It
// knows nothing of the order of the waiters; see [Fair].
//
//	acquire  the lock is free, or its lease is over; the token is above all before
//	enter    the hold has the lock; its token stays
//	renew    the hold has the lock, and no lease that is over comes back to another's harm
//	release  the hold has the lock; the last release of its entries frees it
//	lose     the lock is another's, or the lease is over; all entries are gone
//
// An acquire of unknown outcome may have taken the lock, and may have left it since: it keeps nobody out. It
// leaves the last token as it was, for every later one is above its own too.
//
// [fairlock]: https://pkg.go.dev/github.com/headwaiter/headwaiter/fairlock
// [reentrant]: https://pkg.go.dev/github.com/headwaiter/headwaiter/reentrant
var Mutex = Model{
	Init:  func() State { return mutex{} },
	Step:  func(s State, o Op) []State { return s.(mutex).step(o) },
	Bound: func(ops []Op) []Op { return bound(ops, true) },
}

func (s mutex) step(o Op) []State {
	t, ok := o.step(s.now)
	if !ok {
		return nil
	}
	mine := s.owner == o.Hold
	still := s
	still.now = t
	switch o.Verb {
	case Acquire:
		return s.acquire(o, still)
	case Enter:
		return still.either(o, mine && o.Token == s.token, func(n *mutex) { n.count++ })
	case Renew:
		return still.either(o, mine && o.Token == s.token, func(n *mutex) { n.until = max(n.until, o.Until) })
	case Release:
		return still.either(o, mine, func(n *mutex) {
			if n.count--; n.count == 0 {
				*n = n.free()
			}
		})
	case Lose:
		if !mine {
			return []State{still}
		}
		if still.now, ok = o.step(s.now, s.until); ok {
			return []State{still.free()}
		}
	}
	return nil
}

// either is what an operation leads to that is possible or not: an unknown one may also have done nothing.
func (s mutex) either(o Op, possible bool, change func(*mutex)) (next []State) {
	if o.Outcome != OK {
		next = append(next, s)
	}
	if possible && o.Outcome != Refused {
		change(&s)
		next = append(next, s)
	}
	return next
}

func (s mutex) acquire(o Op, still mutex) (next []State) {
	if o.Outcome != OK {
		next = append(next, still)
	}
	t, ok := still.now, true
	if s.owner != 0 {
		t, ok = o.step(s.now, s.until)
	}
	taken := mutex{owner: o.Hold, count: 1, token: o.Token, until: o.Until, now: t}
	switch {
	case !ok || o.Outcome == Refused:
	case o.Outcome == Unknown:
		taken.token, taken.until = s.token, t
		next = append(next, taken)
	case o.Token > s.token:
		next = append(next, taken)
	}
	return next
}
