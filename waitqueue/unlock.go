package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// Unlock gives a hold back without waiting for the answer. Its release is sent in the background; there is one record of it, and no
// goroutine, until it is answered or the lease is over. An acquire request of the same client for the same name follows it (R1): it
// takes along in its own round trip what is not sent yet, and waits for the answers to what is under way.

// stick tells waiters that the server refuses the release until somebody mends the server. The caller holds act.
func (d *sender) stick() {
	d.isStuck = true
	if d.stuck != nil {
		close(d.stuck)
	}
}

// sticks returns a channel that is closed once the server refuses a release so.
func (d *sender) sticks() <-chan struct{} {
	d.entry.act.Lock()
	defer d.entry.act.Unlock()
	if d.stuck == nil {
		d.stuck = make(chan struct{})
		if d.isStuck {
			close(d.stuck)
		}
	}
	return d.stuck
}

// UnlockHold is what Unlock of a lease does, once. The lease's context has ended.
func (sh *share) UnlockHold() {
	switch c := sh.hold.ticket.entry.client; {
	case c.servers.Doubtful() && c.servers.Spawn(func() { _ = sh.ReleaseHold(context.Background()) }): // Which overtakes.
	case sh.takeOff(true).lower:
		sh.hold.lowerAlone()
	}
}

// lowerAlone does lower in the background, for as long as the hold lasts.
func (h *hold) lowerAlone() {
	e, over := h.ticket.entry, make(chan struct{})
	e.mu.Lock()
	e.lowers = append(e.lowers, over)
	e.mu.Unlock()
	e.client.servers.Spawn(func() { // Else the client was closed, and nobody asks any more.
		for late := true; late; {
			e.mu.Lock()
			until, holds := h.Lasts.Deadline, h.ticket.Held()
			e.mu.Unlock()
			if !holds || !time.Now().Before(until) {
				break
			}
			ctx, cancel := context.WithDeadline(context.Background(), until)
			err := h.lower(ctx)                   // A loss is told to the leases that are left.
			late = err != nil && ctx.Err() != nil // It was renewed meanwhile, or has ended.
			cancel()
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.lowers = slices.DeleteFunc(e.lowers, func(other chan struct{}) bool { return other == over })
		close(over)
	})
}

var errUnsettled = errors.New("an earlier release of this client has not been answered")

// endsAhead returns the releases that an acquire request takes along, and waits where some are under way.
func (w *wait) endsAhead() ([]*outItem[sender], error) {
	e := w.entry
	e.mu.Lock()
	if n := e.followsLocked(); n == 0 || n > outBatch || len(e.lowers) > 0 {
		e.mu.Unlock()
		return nil, w.afterEnds(w.ctx)
	}
	e.act.Lock() // What was decided to be sent is in the outbox then.
	ahead := w.ahead[:0]
	for _, d := range e.lock.Unlocks() {
		ahead = append(ahead, &e.sending(d).item)
	}
	taken := e.client.ends.claim(e.node(), ahead)
	e.act.Unlock()
	e.mu.Unlock()
	if taken {
		return ahead, nil
	}
	return nil, w.afterEnds(w.ctx)
}

// afterEnds waits until the releases that are under way now are answered or given up. A try does so for as long as it
// waits out errors. A call without a place fails with the error of a release that the server refuses until somebody mends
// it: its own request would be refused as well.
func (w *wait) afterEnds(ctx context.Context) error {
	type leaving struct {
		over, stuck <-chan struct{}
		hold        *core.Hold
	}
	e, mode := w.entry, w.mode
	e.mu.Lock()
	before := make([]leaving, 0, e.followsLocked())
	for _, d := range e.lock.Unlocks() {
		l := leaving{over: e.ended(callerOf(d.Call)), hold: d.Ticket.Hold}
		if w.ticket.Arrival == 0 {
			l.stuck = e.sending(d).sticks()
		}
		before = append(before, l)
	}
	for _, over := range e.lowers {
		before = append(before, leaving{over: over})
	}
	e.mu.Unlock()
	if len(before) == 0 {
		return nil
	}
	e.client.ends.hasten(e.node())
	patience := ctx
	if mode != wire.Wait {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(ctx, calls.TryTime)
		defer cancel()
	}
	for _, l := range before {
		select {
		case <-l.over:
		case <-l.stuck:
			e.mu.Lock()
			defer e.mu.Unlock()
			return l.hold.ReleaseFailure.Err
		case <-patience.Done():
			return cmp.Or(ctx.Err(), errUnsettled)
		case <-e.client.servers.Ended():
			return lease.ErrClosed
		}
	}
	return nil
}

// unsettled reports whether a release that an acquire request must follow is not answered yet.
func (e *lockEntry) unsettled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.followsLocked() > 0
}

// followsLocked is how many releases, and changes to reading, the client's acquire requests have to follow.
func (e *lockEntry) followsLocked() int { return len(e.lock.Unlocks()) + len(e.lowers) }

// takeAlong lets releases go before an acquire request.
func (q *ask) takeAlong(all []*outItem[sender]) {
	q.ahead, q.jobs = all, q.jobs[:0]
	for _, i := range all {
		q.jobs = append(q.jobs, i.Of.whole())
	}
}

// endedAhead handles the replies to the releases that were sent with an acquire request, before it.
func (w *wait) endedAhead(q *ask) {
	e := w.entry
	e.client.stats.ReleaseRequests.Add(uint64(len(q.ahead)))
	for i, one := range q.ahead {
		one.Of.answered(q.attempt, q.jobs[i].Result)
	}
	e.client.ends.count(-len(q.ahead))
	q.ahead = nil
	clear(q.jobs)
}
