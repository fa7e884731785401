package sim

import (
	"slices"
	"time"
)

// wanted judges that holders who ask are told that somebody waits, and that they are not where nobody does.
func (j *judge) wanted(o Object, calls []*Call) {
	for _, c := range calls {
		h := c.Hold
		if h == nil || h.Asked == 0 || c.Dead {
			continue
		}
		for _, w := range calls {
			from, by := j.toldBy(o, c, w)
			if by == 0 || min(w.End, h.End) <= by || h.Told > 0 && h.Told <= by {
				continue
			}
			if !gathers(calls, from, by) {
				j.violate("untold from %v to %v that %v\n\twaits: %v", from, by, w, c)
			}
			break
		}
		if h.Told > 0 && (!c.parts().alone() || !j.calm(h.Asked-o.Lease, h.Told)) {
			continue // Of several locks it may be another that somebody waits for.
		}
		if o.layered() && h.Told == h.Asked {
			continue // One that waited during an earlier use of the hold, and may have given up since.
		}
		if h.Told > 0 && !slices.ContainsFunc(calls, func(w *Call) bool { // One that has just given up may have been there.
			return w != c && !w.passesBy(o) && w.Begin <= h.Told && w.End+handOff+4*j.far() >= c.End
		}) {
			j.violate("told that somebody waits, and nobody does: %v", c)
		}
	}
}

// toldBy is by when a holder must have been told that a call waits, and from when on that waits while the other holds and
// wants to know it; 0 where nothing is certain of that.
func (j *judge) toldBy(o Object, c, w *Call) (from, by time.Duration) {
	if w == c || w.tries() || w.Dead {
		return 0, 0
	}
	from = max(c.Hold.Asked+j.settlingTime(c.Client), j.settled(w))
	by = from + handOff + 4*j.far()
	if j.plan.Polls {
		by += min(o.Lease/10, time.Second) // No message tells: its renewals ask.
	}
	disturbed := func(but FaultKind) bool {
		return slices.ContainsFunc(j.touches, func(t *Touch) bool {
			return t.Kind != but && (t.Object == everyone || t.Object == c.Object) && t.From <= by && t.To+aftermath >= c.End-o.Lease
		})
	}
	if !disturbed(-1) {
		return from, by
	}
	// If a message was lost, the next renewal tells, if it finds the ticket: a client that is deaf has its ticket in the
	// queue for a moment only. There is no renewal after the last before the longest hold.
	by += o.Lease/3 + handOff
	if o.MaxHold > 0 || disturbed(LoseMessages) || j.touched(w.Client, w.Object, w.Begin-aftermath, by, func(t *Touch) bool { return t.Client != everyone }) != nil {
		return 0, 0
	}
	return from, by
}

// calm reports whether there was no fault at work between two times.
func (j *judge) calm(from, to time.Duration) bool {
	return !slices.ContainsFunc(j.touches, func(t *Touch) bool { return t.From <= to && t.To+aftermath >= from })
}
