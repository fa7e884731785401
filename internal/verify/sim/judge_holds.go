package sim

import (
	"errors"
	"slices"
	"time"

	rules "github.com/headwaiter/headwaiter/internal/verify/judge"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// line is a call in a text about several.
type line struct{ *Call }

func (l line) String() string { return "\n\t" + l.Call.String() }

// callOf is the call of a hold that is judged.
func callOf(h *rules.Hold) *Call { return h.Who.(line).Call }

// seen is a call as the judge of holds wants it. What its caller believed counts, whatever its deadline says.
func (j *judge) seen(c *Call) rules.Hold {
	h := rules.Hold{Who: line{c}, Called: c.Begin, Placed: j.settled(c), Got: c.End, Nothing: c.Hold == nil, Beyond: true, Releasing: rules.Never, Lost: rules.Never}
	if h.Nothing {
		return h
	}
	h.Token, h.Permits, h.Deadline = c.Hold.Token, 1, c.Hold.Deadline
	if c.Hold.Ended {
		h.Releasing = c.Hold.End
	}
	return h
}

// holds judges that no more hold at a time than may, that they knew when they ended, and that tokens are unique and rise.
func (j *judge) holds(o Object, calls []*Call, part Parts) {
	var all, told, rising rules.Holds
	stands := func(h *rules.Hold, at time.Duration) bool { return j.excused(callOf(h), o, part, at) }
	moved := func(h *rules.Hold, at time.Duration) bool { return j.excused(callOf(h), o, callOf(h).parts(), at) }
	for _, c := range calls {
		if c.Hold == nil {
			continue
		}
		h := j.seen(c)
		all = append(all, h)
		switch {
		case !c.Hold.Ended:
			j.violate("never ended: %v", c)
		case o.Kind == Redlock && j.touched(c.Client, c.Object, c.End-o.Lease, c.Hold.End, nil) != nil:
			// The deadline of the votes that are left, when one was lost, may be over.
		default:
			told = append(told, h)
		}
		if !j.forged(c) {
			rising = append(rising, h)
		}
	}
	found := slices.Concat(all.Overlaps(1, stands), told.Late(time.Millisecond))
	if !j.turnedBack() {
		found = append(found, rising.Tokens(1, moved)...)
	}
	for _, text := range found {
		j.violate("%s", text)
	}
}

// overtaken are the calls that were overtaken though no fault explains it, and those that came after such a call had its
// place for certain, and held before it. A call for several locks may be overtaken by one
// for fewer of them, and by any when it has given some back because it waited for others. What was lost meanwhile had its
// turn.
func (j *judge) overtaken(calls []*Call) map[*Call][]*Call {
	found := map[*Call][]*Call{}
	var holds rules.Holds
	for _, c := range calls {
		h := j.seen(c)
		h.Token, h.Tried, h.Dead = 0, c.tries(), c.Dead
		holds = append(holds, h)
	}
	slack := 2*j.far() + j.unseen(0)
	for _, x := range holds.Overtaken(0) {
		a := callOf(x.Call)
		if errors.Is(a.Err, lease.ErrLost) || !a.parts().alone() && a.End-a.Begin > j.plan.Objects[a.Object].Bound/2 {
			continue
		}
		for _, h := range x.By {
			b := callOf(h)
			head := time.Duration(max(b.Step.Priority-a.Step.Priority, 0)) * waitqueue.PriorityStep
			switch {
			case b.Begin-head < j.settled(a), a.End <= b.End+slack:
			case !a.parts().alone() && a.parts() != b.parts():
			case j.touched(a.Client, a.Object, a.Begin, b.End, nil) == nil:
				found[a] = append(found[a], b)
			}
		}
	}
	return found
}
