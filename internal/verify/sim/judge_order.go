package sim

import (
	"slices"
	"time"
)

// turnedBack reports whether tokens may fall by design: the clock went back, and what was known of higher tokens
// was lost.
func (j *judge) turnedBack() bool {
	// Of a Redlock the clock of another server may have been ahead.
	return (j.any(ClockBack) || j.plan.Servers > 1 && j.any(ClockAhead)) && j.any(FlushAll, RestartEmpty, DeleteKey)
}

// forged reports whether a hold may be one that somebody forged.
func (j *judge) forged(c *Call) bool {
	return j.touched(c.Client, c.Object, c.Begin-aftermath, c.End, func(t *Touch) bool { return t.Kind == ForgeHold }) != nil
}

// given judges the tokens that the server has written for a lock.
func (j *judge) given(o Object, key string) {
	if j.turnedBack() {
		return
	}
	var last uint64
	for _, m := range j.marks {
		if m.Key != key {
			continue
		}
		// The end of a hold of several raises their tokens to the highest.
		alone := slices.Contains([]Kind{Mutex, Election, Striped}, o.Kind)
		if m.Token < last || alone && m.Token == last {
			j.violate("the server gives token %d after %d at %v", m.Token, last, m.At)
		}
		last = max(last, m.Token)
	}
}

// settled is when a call that waits has its place for certain, where nothing is wrong: it has asked, subscribed
// on a new connection, and looked.
func (j *judge) settled(c *Call) time.Duration {
	return c.Begin + j.settlingTime(c.Client)
}

// settlingTime is how long a client needs for what waits to have its place.
func (j *judge) settlingTime(client int) time.Duration {
	return 24*j.plan.Clients[client].Latency + 20*time.Millisecond
}

// order judges that nobody overtakes who waits, unless a fault of the one that was overtaken explains it.
func (j *judge) order(calls []*Call) {
	for a, by := range j.overtaken(calls) {
		for _, b := range by {
			j.violate("overtaken:\n\t%v\n\tby %v", a, b)
		}
	}
}

// gathers tells whether somebody wanted several locks between two times: he may have held this one while he waited for
// the others.
func gathers(calls []*Call, from, to time.Duration) bool {
	return slices.ContainsFunc(calls, func(c *Call) bool {
		return (!c.parts().alone() || c.Step.Do == Each) && c.Begin <= to && c.End >= from
	})
}

// handOff is how long something may be free with somebody waiting for it, where nothing is wrong.
const handOff = 30 * time.Millisecond

// unseen is how much later a client that has to look finds something out: a grant, or an event for which it has waited
// for some time. Where it hears, that is nothing.
func (j *judge) unseen(waits time.Duration) time.Duration {
	if !j.plan.Polls {
		return 0
	}
	const grant, event, share = 700 * time.Millisecond, 2500 * time.Millisecond, 3
	return max(grant, min(waits/share, event))
}

// comeTogether is how long the votes of a Redlock may be split, where nothing is wrong.
const comeTogether = 500 * time.Millisecond

// idle judges that what is free is given at once to who waits for it. It looks at what one holds at a time, when
// nobody holds it.
func (j *judge) idle(o Object, calls []*Call) {
	for _, c := range calls {
		if c.Hold == nil || c.tries() {
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
		within := handOff + 4*j.far() + j.unseen(0)
		if o.Kind == Redlock {
			within += comeTogether
		}
		if c.End <= free+within || gathers(calls, free, c.End) {
			continue
		}
		if !slices.ContainsFunc(j.touches, func(t *Touch) bool {
			return (t.Object == everyone || t.Object == c.Object) && t.From <= c.End && t.To+aftermath >= free-o.Lease
		}) {
			j.violate("idle from %v on, though somebody waits: %v", free, c)
		}
	}
}
