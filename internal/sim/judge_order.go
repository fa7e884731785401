package sim

import (
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/waitqueue"
)

// tokens judges that tokens are unique and rise. Readers may share theirs.
func (j *judge) tokens(o Object, calls []*Call) {
	if j.turnedBack() {
		return
	}
	var holds []*Call
	for _, c := range calls {
		if c.Hold != nil && !j.forged(c) {
			holds = append(holds, c)
		}
	}
	for i, a := range holds {
		for _, b := range holds[i+1:] {
			shared := o.Kind == RWLock && (!writes(o.Kind, a.Step.Do) || a.Hold.Lowered > 0) && !writes(o.Kind, b.Step.Do)
			if o.Kind == RWLock && b.Hold.Lowered > 0 && !writes(o.Kind, a.Step.Do) {
				shared = true
			}
			x, y := a.Hold.Token, b.Hold.Token
			// Whoever began to hold later has the higher token where only one holds at a time, unless the server had
			// given his hold away; elsewhere where the later call came after the earlier one had returned.
			alone := o.Kind != Semaphore && !shared && !j.excused(b, o, b.End)
			ordered := a.End < b.Begin || alone && a.Hold.End <= b.End
			switch {
			case x == y && !shared:
				j.violate("token twice:\n\t%v\n\t%v", a, b)
			case x > y && ordered:
				j.violate("token falls:\n\t%v\n\t%v", a, b)
			}
		}
	}
}

// turnedBack reports whether tokens may fall by design: the clock went back, and what was known of higher tokens
// was lost.
func (j *judge) turnedBack() bool {
	return j.any(ClockBack) && j.any(FlushAll, RestartEmpty, DeleteKey)
}

// forged reports whether a hold may be one that somebody forged.
func (j *judge) forged(c *Call) bool {
	return j.touched(c.Client, c.Object, c.Begin-aftermath, c.End, func(t *Touch) bool { return t.Kind == ForgeHold }) != nil
}

// given judges the tokens that the server has written.
func (j *judge) given(i int, o Object) {
	if !o.Kind.holds() || j.turnedBack() {
		return
	}
	var last uint64
	for _, m := range j.marks {
		if m.Key != lock(i, o) {
			continue
		}
		alone := o.Kind == Mutex || o.Kind == Reentrant
		if m.Token < last || alone && m.Token == last {
			j.violate("the server gives token %d after %d at %v", m.Token, last, m.At)
		}
		last = max(last, m.Token)
	}
}

// settled is when a call that waits has its place for certain, where nothing is wrong: it has asked, subscribed
// on a new connection, and looked.
func (j *judge) settled(c *Call) time.Duration {
	return c.Begin + 24*j.plan.Clients[c.Client].Latency + 20*time.Millisecond
}

// order judges that nobody overtakes who waits, unless a fault of the one that was overtaken explains it.
func (j *judge) order(calls []*Call) {
	slack := 2 * j.far()
	for _, a := range calls {
		if a.Step.Do == Try || a.Step.Do == TryRead || a.Step.Do == Drain || a.Dead {
			continue
		}
		for _, b := range calls {
			head := time.Duration(max(b.Step.Priority-a.Step.Priority, 0)) * waitqueue.PriorityStep
			if b.Hold == nil || b.Begin-head < j.settled(a) || a.End <= b.End+slack {
				continue
			}
			if j.touched(a.Client, a.Object, a.Begin, b.End, nil) == nil {
				j.violate("overtaken:\n\t%v\n\tby %v", a, b)
			}
		}
	}
}

// handOff is how long something may be free with somebody waiting for it, where nothing is wrong.
const handOff = 30 * time.Millisecond

// idle judges that what is free is given at once to who waits for it. It looks at what one holds at a time, when
// nobody holds it.
func (j *judge) idle(o Object, calls []*Call) {
	for _, c := range calls {
		if c.Hold == nil || c.Step.Do == Try || c.Step.Do == TryRead || c.Step.Do == Drain {
			continue
		}
		free := j.settled(c)
		for _, d := range calls {
			switch {
			case d == c || d.Hold == nil:
			case d.End <= c.End:
				free = max(free, d.Hold.End)
			}
		}
		if c.End <= free+handOff+4*j.far() {
			continue
		}
		if !slices.ContainsFunc(j.touches, func(t *Touch) bool {
			return (t.Object == everyone || t.Object == c.Object) && t.From <= c.End && t.To+aftermath >= free-o.Lease
		}) {
			j.violate("idle from %v on, though somebody waits: %v", free, c)
		}
	}
}
