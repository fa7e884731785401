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
		alone := slices.Contains([]Kind{Mutex, Cohort, Reentrant, Election, Striped}, o.Kind)
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

// slowest is the longest time that a client needs for what waits to have its place.
func (j *judge) slowest() (longest time.Duration) {
	for i := range j.plan.Clients {
		longest = max(longest, j.settlingTime(i))
	}
	return longest
}

// order judges that nobody overtakes who waits, unless a fault of the one that was overtaken explains it.
func (j *judge) order(calls []*Call) {
	for a, by := range j.overtaken(calls) {
		for _, b := range by {
			j.violate("overtaken:\n\t%v\n\tby %v", a, b)
		}
	}
}

// cohorts judges that nobody is overtaken by a call of its own cohort, which are those of its client with the same terms,
// and by no more calls of each other client than a hold may be passed on.
func (j *judge) cohorts(o Object, calls []*Call) {
	for a, by := range j.overtaken(calls) {
		others := make(map[int][]*Call) // By client.
		for _, b := range by {
			if o.Keep > 0 && j.uncalled(o, a, b) {
				continue
			}
			if b.Client == a.Client && b.Step.Priority == a.Step.Priority {
				j.violate("overtaken in a cohort:\n\t%v\n\tby %v", a, b)
				continue
			}
			others[b.Client] = append(others[b.Client], b)
		}
		most := o.Cohort
		if o.Keep > 0 { // After an Unlock one may come before the next call of the client.
			most = max(most, 1)
		}
		for _, passed := range others {
			if len(passed) > most {
				j.violate("overtaken by %d, more than a cohort of %d:\n\t%v\n\tby %v", len(passed), most, a, list(passed))
			}
		}
	}
}

// uncalled reports whether a call may have taken up what its client kept before that knew that another waits: in the time
// of a message, or where a fault may have cost that, for which the next renewal makes up.
func (j *judge) uncalled(o Object, a, b *Call) bool {
	if b.End <= j.settled(a)+handOff+4*j.far()+j.settlingTime(b.Client) {
		return true
	}
	return j.touched(b.Client, b.Object, max(a.Begin, b.End-o.Lease), b.End, nil) != nil
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
		if c.Hold == nil || c.tries() || c.Step.Do == Adopt {
			continue
		}
		free := j.settled(c)
		for _, d := range calls {
			switch {
			case d == c || d.Hold == nil:
			case d.End <= c.End && d.Hold.Moved: // Nobody's, for a grant lease.
				free = max(free, d.Hold.End+j.plan.Clients[d.Client].GrantLease+2*j.far())
			case d.End <= c.End:
				free = max(free, d.Hold.End)
			}
		}
		within := handOff + 4*j.far() + j.unseen(0)
		switch {
		case o.Kind == Redlock:
			within += comeTogether
		case o.Keep > 0: // Its client is to be called.
			within += handOff + 4*j.far() + j.slowest()
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
