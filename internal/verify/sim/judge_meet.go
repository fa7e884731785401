package sim

import (
	"errors"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/barrier"
)

// latch judges that nobody passes a latch that is closed, and that every call counts once. A call that failed
// may have counted.
func (j *judge) latch(calls []*Call) {
	for _, c := range calls {
		if c.Err != nil || c.Step.Do != Await && c.Step.Do != Down {
			continue
		}
		set := lastSet(calls, c)
		if set == nil || j.forgot(c) {
			continue
		}
		size, least, most := j.plan.Objects[c.Object].Size, int64(0), int64(0)
		for _, d := range calls {
			if d.Step.Do != Down {
				continue
			}
			if j.lasts(d) >= set.Begin && d.Begin <= c.End {
				most++
			}
			if d.Err == nil && (d == c || d.Begin > set.End && d.End < c.Begin) {
				least++
			}
		}
		switch left := c.Place; {
		case c.Step.Do == Await && most < size:
			j.violate("passed a closed latch: %v\n\tthough set by %v", c, set)
		case c.Step.Do == Down && size-left > most:
			j.violate("counted twice: %v\n\tafter %v", c, set)
		case c.Step.Do == Down && left > 0 && size-left < least:
			j.violate("not counted: %v\n\tafter %v", c, set)
		}
	}
}

// lasts is until when a call may have its effect: one that failed may still be under way.
func (j *judge) lasts(c *Call) time.Duration {
	switch {
	case c.Err == nil:
		return c.End
	case j.any(ClockBack):
		return forever // What is too late at the server's clock is not any more.
	case j.touched(c.Client, c.Object, c.Begin, c.End+crossing, nil) != nil:
		return c.End + aftermath
	}
	return c.End + crossing
}

// crossing is how long the request of a call that gave up may cross with its farewell: the time of a new
// connection.
const crossing = 100 * time.Millisecond

// lastSet returns the call that has set the latch last, before a wait began, if none may have meanwhile.
func lastSet(calls []*Call, w *Call) *Call {
	var last *Call
	for _, c := range calls {
		switch {
		case c.Step.Do != Set || c.Begin > w.End || c.Err == nil && c.Place == 0:
		case c.Err != nil || c.End > w.Begin:
			return nil // It may have been set in between.
		case last == nil || c.End > last.End:
			last = c
		}
	}
	return last
}

// barrier judges that a generation is for all or none, with indexes that differ. Generations are told apart by
// the fact that every party of one has come before any of it goes.
func (j *judge) barrier(i int, o Object, calls []*Call) {
	var passed []*Call
	for _, c := range calls {
		if c.Step.Do != Await {
			continue
		}
		if c.Err == nil {
			passed = append(passed, c)
			if c.Place < 0 || c.Place >= o.Size {
				j.violate("index out of range: %v", c)
			}
		}
	}
	for len(passed) > 0 {
		passed = j.generation(i, o, calls, passed)
	}
}

// generation judges the earliest generation of the calls that have passed, and returns the rest.
func (j *judge) generation(i int, o Object, calls, passed []*Call) []*Call {
	// The call that returned first saw all of its generation come; the others hear of it at once, unless a fault keeps
	// it from them.
	first := passed[0].End
	var mine, rest []*Call
	seen, certain := map[int64]*Call{}, true
	for _, c := range passed {
		touched := j.touched(c.Client, c.Object, c.Begin, c.End, nil) != nil
		if c.Begin <= first && seen[c.Place] == nil && (touched || c.End <= first+handOff+4*j.far()+j.unseen(c.End-c.Begin)) {
			certain = certain && !touched
			seen[c.Place] = c
			mine = append(mine, c)
			continue
		}
		rest = append(rest, c)
	}
	var latest time.Duration
	for _, c := range mine {
		latest = max(latest, c.Begin)
	}
	missing := o.Size - int64(len(mine))
	for _, c := range calls {
		// What left as the last one came, or died, may be of it; after a loss of the state, also who got an error, and
		// so may who could not be reached for more than a generation.
		left := c.Dead || !errors.Is(c.Err, barrier.ErrBroken) || j.forgot(c) || j.unheard(c)
		if c.Step.Do == Await && c.Err != nil && left && c.Begin <= first && j.lasts(c) >= latest {
			missing--
		}
	}
	if missing > 0 {
		j.violate("not all have passed the barrier of %d:\n\t%v", o.Size, list(mine))
	}
	if certain {
		j.acted(i, o, latest, first)
	}
	return rest
}

// unheard reports whether a party was told that the server knows nothing of it any more, after a fault of its
// client: the results of the last generation alone are kept.
func (j *judge) unheard(c *Call) bool {
	return c.unknown() && j.touched(c.Client, c.Object, c.Begin, c.End, nil) != nil
}

// unknown reports whether the server did not know any more what became of a party.
func (c *Call) unknown() bool {
	return c.Err != nil && strings.Contains(c.Err.Error(), "knows nothing of this party")
}

// acted judges that the action of a barrier has run between the last arrival and the first return.
func (j *judge) acted(i int, o Object, latest, first time.Duration) {
	if !o.acts() {
		return
	}
	for _, a := range j.actions {
		if a.object == i && a.begin >= latest && a.end <= first {
			return
		}
	}
	j.violate("object %d: no action ran between %v and %v", i, latest, first)
}
