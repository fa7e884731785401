package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Wrong returns all that is wrong with holds of a server that never forgot, except their order.
func (hs Holds) Wrong(limit int64) []string {
	return slices.Concat(hs.Overlaps(limit, nil), hs.Tokens(limit, nil), hs.Losses())
}

// Overlaps returns where the permits of holds that are certain at one moment exceed the limit: 1 of a lock, [Readers] of a
// read-write lock. It has one text for each hold with which they do.
func (hs Holds) Overlaps(limit int64, excused Excuse) (wrong []string) {
	var there []*Hold
	for _, h := range hs.in(byGot) {
		if !h.certain() {
			continue
		}
		there = slices.DeleteFunc(there, func(o *Hold) bool { return o.End() <= h.Got })
		there = append(there, h)
		var used int64
		var together []*Hold
		for _, o := range there {
			if !excused.covers(o, h.Got) {
				used, together = used+o.uses(h.Got), append(together, o)
			}
		}
		if used > limit {
			wrong = append(wrong, fmt.Sprintf("overlap: %d permits of %d are held at %v: %s", used, limit, h.Got, list(together)))
		}
	}
	return wrong
}

// Tokens returns where two holds have one token, unless both are for reading, and where a hold has a token below an
// earlier hold's. A hold is earlier if it was granted before the other's call or, where one of them excludes the other,
// was over before the other held.
func (hs Holds) Tokens(limit int64, excused Excuse) (wrong []string) {
	sorted := slices.DeleteFunc(hs.in(ByToken), func(h *Hold) bool { return h.Nothing || h.Token == 0 })
	// Of those with lower tokens, the one that was called last, and the one that held last: of all, and of those that exclude
	// all others as they begin.
	var called, held, heldAlone *Hold
	var wrote *Hold // the last that was not for reading from the start
	lower := 0
	for i, h := range sorted {
		switch {
		case i > 0 && twice(sorted[i-1], h):
			wrong = append(wrong, "token twice: "+list(sorted[i-1:i+1]))
		case wrote != nil && twice(wrote, h):
			wrong = append(wrong, "token twice: "+list([]*Hold{wrote, h}))
		}
		if !h.Shared {
			wrote = h
		}
		for ; sorted[lower].Token < h.Token; lower++ {
			low := sorted[lower]
			if called == nil || low.Called > called.Called {
				called = low
			}
			if !low.certain() || excused.covers(low, low.Got) {
				continue
			}
			if held == nil || low.Got > held.Got {
				held = low
			}
			if low.Permits >= limit && (heldAlone == nil || low.Got > heldAlone.Got) {
				heldAlone = low
			}
		}
		last := heldAlone
		if h.Permits >= limit && !h.reads() {
			last = held
		}
		switch {
		case called != nil && called.Called > h.Got:
			wrong = append(wrong, "token falls: "+list([]*Hold{h, called}))
		case last != nil && h.certain() && last.Got > h.Got && last.Got >= h.End():
			wrong = append(wrong, "token falls: "+list([]*Hold{h, last}))
		}
	}
	return wrong
}

// twice reports whether two holds have one token and must not. A writer that reads on has a token of its own.
func twice(a, b *Hold) bool {
	return a.Token == b.Token && !(a.reads() && b.reads() && (a.Shared || b.Shared))
}

// Losses returns the holds that were told lost, or refused their release, while their lease was certain.
func (hs Holds) Losses() (wrong []string) {
	for i := range hs {
		if h := &hs[i]; h.Lost < h.Deadline {
			wrong = append(wrong, fmt.Sprintf("lost at %v, certain until %v: %v", h.Lost, h.Deadline, h))
		}
	}
	return wrong
}

// Late returns the holds that went on for longer than a span after their deadline.
func (hs Holds) Late(within time.Duration) (wrong []string) {
	for i := range hs {
		h := &hs[i]
		if end := min(h.Lost, h.Releasing); end != Never && end-h.Deadline > within {
			wrong = append(wrong, fmt.Sprintf("told late, %v after its deadline: %v", end-h.Deadline, h))
		}
	}
	return wrong
}

// Overtaken is a call, and those that came later and held before it.
type Overtaken struct {
	Call *Hold
	By   []*Hold // in the order of their calls
}

// Known reports whether the order of the calls is beyond doubt: the server knew of the one that was overtaken, or that one
// never held.
func (o Overtaken) Known() bool { return o.Call.Placed > 0 || o.Call.Nothing }

func (o Overtaken) String() string {
	last := o.By[len(o.By)-1]
	return fmt.Sprintf("overtaken by %d: %v called %v after %v and held before it", len(o.By), last, last.Called-o.Call.Called, o.Call)
}

// Overtaken returns the calls that were overtaken, in the order in which they were served. A call is later than another if it
// was made when that had its place, for which a call needs the slack at the most.
func (hs Holds) Overtaken(slack time.Duration) (found []Overtaken) {
	sorted := hs.in(byGot)
	var before []*Hold // that held before the one in question, in the order of their calls
	next := 0
	for _, h := range sorted {
		for ; sorted[next].Got < h.Got; next++ {
			if s := sorted[next]; !s.Nothing {
				before = slices.Insert(before, after(before, s.Called), s)
			}
		}
		if h.Tried || h.Dead {
			continue
		}
		by := slices.Clone(before[after(before, h.placed(slack)):])
		by = slices.DeleteFunc(by, func(b *Hold) bool { return b.Token != 0 && b.Token == h.Token })
		if len(by) > 0 {
			found = append(found, Overtaken{h, by})
		}
	}
	return found
}

// after is where the calls begin that were made after a moment.
func after(calls []*Hold, at time.Duration) int {
	i, _ := slices.BinarySearchFunc(calls, at, func(h *Hold, at time.Duration) int {
		if h.Called <= at {
			return -1
		}
		return cmp.Compare(h.Called, at)
	})
	return i
}

// Proven reports whether this many overtaken calls, of all calls, prove that a lock does not keep its order. One may have
// been held up on its way, which is nobody's fault; all that pass it count as one.
func Proven(overtaken, calls int) bool { return overtaken > max(1, calls/500) }

// Jain is Jain's index of fairness: 1 if all have the same share, 1/n if one of n has all.
//
// Source: Jain, Chiu, Hawe, "A Quantitative Measure of Fairness", DEC-TR-301, 1984.
func Jain(shares []int) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}

func list(holds []*Hold) string {
	texts := make([]string, len(holds))
	for i, h := range holds {
		texts[i] = h.String()
	}
	return strings.Join(texts, ", ")
}
