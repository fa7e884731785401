package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

// judge reads a history when everything is over, and notes what was not as promised.
type judge struct {
	*history
	plan Plan
}

const (
	// aftermath is how long a fault may still be felt after its end: connections are made again, echoes
	// waited for, tickets queued again.
	aftermath = 8 * time.Second
	// lateness is how much later than its patience a call may return: a connection that does not answer is
	// waited for so long, and cut.
	lateness = 300 * time.Millisecond
)

// judgeAll judges a history that is over.
func judgeAll(h *history, p Plan) {
	j := &judge{h, p}
	for i, o := range p.Objects {
		calls := j.of(i)
		for _, c := range calls {
			j.returned(c, o)
		}
		switch o.Kind {
		case Latch:
			j.latch(calls)
		case Barrier:
			j.barrier(i, o, calls)
		default:
			for part := range o.parts() {
				j.lock(o, having(calls, 1<<part), 1<<part)
				if o.Kind != Redlock { // Whose servers each have tokens of their own.
					j.given(o, o.lock(i, part))
				}
			}
			j.losses(o, calls)
		}
		if o.Kind == Election {
			j.election(i, calls)
		}
	}
}

// lock judges what one lock of an object was held by.
func (j *judge) lock(o Object, calls []*Call, part Parts) {
	j.holds(o, calls, part)
	if o.Kind != Redlock { // Its calls that come within half a round trip have any order.
		j.order(calls)
	}
	j.idle(o, calls)
	if o.Kind != Redlock {
		j.told(o, calls, part)
	}
}

// having are the calls that are for a lock of their object.
func having(calls []*Call, part Parts) (found []*Call) {
	for _, c := range calls {
		if c.parts().meets(part) {
			found = append(found, c)
		}
	}
	return found
}

// of returns the calls of an object, in the order of their returns.
func (j *judge) of(object int) []*Call {
	var found []*Call
	for _, c := range j.calls {
		if c.Object == object && c.Returned {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b *Call) int { return int(a.End - b.End) })
	return found
}

// touched returns a fault that may have been felt by a client at an object between two times.
func (j *judge) touched(client, object int, from, to time.Duration, is func(*Touch) bool) *Touch {
	for _, t := range j.touches {
		switch {
		case t.Client != everyone && t.Client != client, t.Object != everyone && t.Object != object:
		case t.From > to || t.To+aftermath < from:
		case is == nil || is(t):
			return t
		}
	}
	return nil
}

// any reports whether a fault of one of the kinds was there at all.
func (h *history) any(kinds ...FaultKind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.touches, func(t *Touch) bool { return slices.Contains(kinds, t.Kind) })
}

// returned judges how a call ended.
func (j *judge) returned(c *Call, o Object) {
	late := lateness
	if o.Kind == Barrier && o.acts() {
		late += o.Lease // The party that runs the action tells the server how it ended, for the sake of the others.
	}
	if p := c.Step.Patience; p > 0 && !c.Dead && c.End > c.Begin+p+late {
		j.violate("impatient: %v: its patience was %v", c, p)
	}
	if c.Err == nil || c.Dead && (errors.Is(c.Err, lease.ErrClosed) || c.Step.Patience > 0) {
		return
	}
	touched := j.touched(c.Client, c.Object, c.Begin, c.End, nil) != nil
	var ok bool
	switch {
	case errors.Is(c.Err, redlock.ErrNoQuorum):
		ok = touched && !j.enough(c.Begin-o.Lease, c.End) && (!c.Final || c.End < j.healed+slack) || j.cold(c)
	case c.Final && o.Kind != Latch:
		ok = c.unknown() && j.any(ClockBack)
	case errors.Is(c.Err, lease.ErrOutcomeUnknown):
		ok = touched || c.Step.Patience > 0
	case errors.Is(c.Err, context.Canceled):
		ok = c.Step.Cancel
	case errors.Is(c.Err, context.DeadlineExceeded):
		// What does not wait, and the word that an action is done, have limits of their own.
		ok = c.Step.Patience > 0 || touched && (c.tries() || c.Step.Do == Await)
	case errors.Is(c.Err, lease.ErrBusy):
		ok = c.tries()
	case errors.Is(c.Err, lease.ErrLost):
		// It was lost before anybody heard of it: ahead of a proclamation, or while others were waited for.
		ok = (c.Step.Do == Each || c.Step.Do == TryEach || o.Kind == Election) && (touched || o.MaxHold > 0)
	case strings.Contains(c.Err.Error(), "READONLY"):
		ok = j.touched(c.Client, c.Object, c.Begin-aftermath, c.End, func(t *Touch) bool { return t.Kind == ReadOnly }) != nil
	case errors.Is(c.Err, lease.ErrInvalid):
		ok = touched
	case errors.Is(c.Err, countdown.ErrUnset):
		ok = j.forgot(c) || c.Begin == 0
	case errors.Is(c.Err, countdown.ErrGone):
		ok = j.forgot(c)
	case errors.Is(c.Err, barrier.ErrBroken):
		ok = true // The barrier's own judge knows more.
	case c.Dead:
		ok = true
	default:
		// What does not wait may give up on a server that cannot be reached.
		ok = touched && !slices.Contains([]Verb{Lock, Proclaim, Each}, c.Step.Do)
	}
	if !ok {
		j.violate("error: %v", c)
	}
}

// tries reports whether a call does not wait.
func (c *Call) tries() bool {
	return slices.Contains([]Verb{Try, TryEach}, c.Step.Do)
}

// forgot reports whether the server may have lost an object before a call returned.
func (j *judge) forgot(c *Call) bool {
	return slices.ContainsFunc(j.touches, func(t *Touch) bool {
		return t.Frees && t.From <= c.End && (t.Object == everyone || t.Object == c.Object)
	})
}

// forgotten reports whether the server lost everything while a call held, and nothing else was wrong. A release that is
// not answered succeeds when the lease is over.
func (j *judge) forgotten(c *Call) bool {
	return slices.ContainsFunc(j.touches, func(t *Touch) bool {
		return t.Kind == FlushAll && c.End < t.From && t.To <= c.Hold.End &&
			j.touched(c.Client, c.Object, t.From, c.Hold.End+releaseTime, func(u *Touch) bool { return u != t }) == nil
	})
}

// excused reports whether at a moment a hold may stand that the server does not know of, or not any more: it was
// there when a fault made the server give it away, and its owner need not know yet.
func (j *judge) excused(c *Call, o Object, part Parts, at time.Duration) bool {
	return slices.ContainsFunc(j.touches, func(t *Touch) bool {
		if !t.Frees || !t.Parts.meets(part) || t.Object != everyone && t.Object != c.Object || t.From > at {
			return false
		}
		if o.Kind == Redlock && t.Single && t.Spare && j.alone(t, t.From-o.Lease, at) {
			return false
		}
		// No hold outlasts its lease after the fault, as no renewal is confirmed.
		return c.Begin <= t.To && at <= max(t.To, c.End)+o.Lease+o.Lease/100
	})
}

// far is the longest way there and back, of all clients.
func (j *judge) far() time.Duration {
	var far time.Duration
	for _, c := range j.plan.Clients {
		far = max(far, 2*c.Latency)
	}
	return far
}

func list(calls []*Call) string {
	var lines []string
	for _, c := range calls {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "\n\t")
}

// told judges that a holder is told by his next renewal that the server has forgotten what he holds, where nothing
// else is wrong.
func (j *judge) told(o Object, calls []*Call, part Parts) {
	if o.MaxHold > 0 {
		return // The last renewal may have been.
	}
	for _, t := range j.touches {
		if !t.Frees || !t.Parts.meets(part) || t.Kind != FlushAll && t.Kind != DeleteKey || t.Object != everyone && len(calls) > 0 && t.Object != calls[0].Object {
			continue
		}
		by := t.To + o.Lease/3 + handOff + 4*j.far()
		for _, c := range calls {
			if c.Hold == nil || c.End > t.From || c.Hold.End <= by || c.Dead {
				continue
			}
			other := j.touched(c.Client, c.Object, t.From-o.Lease, by, func(u *Touch) bool { return u != t })
			if other == nil {
				j.violate("told late of %v: %v", t, c)
			}
		}
	}
}

// losses judges that nobody lost a hold without a fault, and how releases ended.
func (j *judge) losses(o Object, calls []*Call) {
	for _, c := range calls {
		h := c.Hold
		if h == nil {
			continue
		}
		touched := c.Dead || j.touched(c.Client, c.Object, c.End-o.Lease, h.End+releaseTime, func(t *Touch) bool {
			return o.Lease < time.Second || !t.Kind.mild() || !h.lost()
		}) != nil
		if o.Kind == Redlock && o.Lease >= time.Second && !c.Dead {
			touched = touched && !j.enough(c.End-o.Lease, h.End+releaseTime)
		}
		if h.Over != nil && !c.Dead {
			j.violate("returned though it was over, %v: %v", h.Over, c)
		}
		held, since := h.End-c.End, h.End-c.End
		if o.Kind == Several { // What is taken with others may be held since the call began.
			since = h.End - c.Begin
		}
		if o.MaxHold > 0 && held > o.MaxHold {
			j.violate("held for longer than the maximum: %v", c)
		}
		switch err := h.ReleaseErr; {
		case touched:
		case errors.Is(h.Cause, lease.ErrMaxHold) && (since > o.MaxHold*9/10-6*j.far() ||
			j.touched(c.Client, c.Object, c.Begin, h.End, nil) != nil): // It counts from the grant, which came late.
		case h.lost():
			j.violate("lost without a fault: %v", c)
		case err != nil:
			j.violate("release: %v", c)
		}
		if h.ReleaseErr == nil && !h.Unlocked && o.Kind != Redlock && j.forgotten(c) {
			j.violate("released though the server had forgotten it: %v", c)
		}
		if err := h.ReleaseErr; err != nil && !errors.Is(err, lease.ErrLost) && !errors.Is(err, lease.ErrUnconfirmed) {
			j.violate("release: %v", c)
		}
	}
}
