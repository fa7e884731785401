package event

import (
	"cmp"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// checkBatch is how many waiters one check names.
const checkBatch = 100

// A Check is one request that names waiters.
type Check struct {
	Mode  string
	Named []*Waiter
	rest  []*Waiter
	late  bool
}

// BeginChecks begins a look at all waiters, in one or several checks.
func (e *Event) BeginChecks(sent time.Time) *Check {
	c := &Check{Mode: e.Mode()}
	for _, w := range e.waiters.All() {
		if w.Waits() {
			c.rest = append(c.rest, w)
		}
	}
	slices.SortStableFunc(c.rest, func(a, b *Waiter) int { return cmp.Compare(a.Generation, b.Generation) })
	if !e.Places {
		// Nothing of them is in the server: those that wait for the same are alike.
		c.rest = slices.CompactFunc(c.rest, func(a, b *Waiter) bool { return a.Generation == b.Generation })
	}
	e.Again = false
	e.next(c, sent)
	return c
}

// next takes the waiters of the next check.
func (e *Event) next(c *Check, sent time.Time) {
	n := min(len(c.rest), checkBatch)
	c.Named = make([]*Waiter, 0, n)
	for _, w := range c.rest[:n] {
		if w.Waits() {
			w.Send()
			e.Sent(sent)
			c.Named = append(c.Named, w)
		}
	}
	c.rest = c.rest[n:]
}

// OnCheckReply takes in the answer to a check, or its lack, and reports whether another one follows at once, which is in c then.
func (e *Event) OnCheckReply(x *core.Input, c *Check, a core.Attempt, r *wire.EventReply, errs []Errors, f *core.Failure) (more bool) {
	for i, w := range c.Named {
		e.requestDone(x, w, a, f)
		if f.Err == nil && i < len(r.States) {
			e.checked(x, w, r.States[i], r.Waiting, errs[i])
		}
	}
	if f.Err != nil {
		e.checkFailed(x, f)
		e.Checking = false
		return false
	}
	if r.Status == wire.Done && c.Mode == wire.Proven {
		e.VerificationTold()
	}
	c.late = c.late || r.Status == wire.Late
	if len(c.rest) > 0 {
		e.next(c, x.Now)
		return true
	}
	e.Failures = 0
	if e.Again || c.late || r.Has(wire.More) {
		*c = *e.BeginChecks(x.Now)
		return true
	}
	if e.anyWaits() {
		v := core.SightOf(r.Waiting, r.Now, r.Until, 0)
		for _, w := range e.waiters.All() {
			e.sees(w, &v)
		}
		e.CheckAt(x, e.NextOfEvent(x, &v))
	}
	e.Checking = false
	return false
}

// checkFailed ends the waits of all waiters after a check for which Redis has an error that no retry mends. Any other error is
// waited out.
func (e *Event) checkFailed(x *core.Input, f *core.Failure) {
	e.Last = f.Advice
	if e.Failures++; f.Mendable {
		if e.anyWaits() {
			e.CheckAt(x, x.Now.Add(x.Backoff(e.Failures-1)))
		}
		return
	}
	for _, w := range e.waiters.All() {
		if w.Waits() {
			e.refuse(x, w, e.Last)
		}
	}
}

// checked takes in what a check says of a waiter, and of those that are like it.
func (e *Event) checked(x *core.Input, w *Waiter, state string, others int, errs Errors) {
	if e.Places {
		e.seen(x, w, state, others, errs)
		return
	}
	generation := w.Generation
	for _, alike := range e.waiters.All() {
		if alike.Generation == generation {
			e.seen(x, alike, state, others, errs)
		}
	}
}

func (e *Event) seen(x *core.Input, w *Waiter, state string, others int, errs Errors) {
	if !w.Waits() {
		return
	}
	switch state {
	case wire.StateGranted:
		e.pass(x, w)
	case wire.StateBroken:
		e.refuse(x, w, errs.Broken)
	case wire.StateForgotten:
		e.refuse(x, w, errs.Forgotten)
	default:
		if w.state == subscribing {
			w.to(x, waiting)
			e.queued(x, w, others)
		}
	}
}
