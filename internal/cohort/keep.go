package cohort

import (
	"container/ring"
	"context"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A hold that is released without a mate can be kept for the next call of the client, until its client knows that somebody
// waits for it in the queue (I14), it was not taken up for some time, or others are kept that were used since.

const (
	// reserved is how many tokens a hold may come to that is kept: then it is given back, and asked for again. Of one whose
	// client dies they are taken for used, which is 65 ms from its grant on.
	reserved = 1 << 16
	// mostKept is how many holds a client keeps that no call uses.
	mostKept = 1000
)

// Keeps reports whether holds are kept.
func (q *Queue) Keeps() bool { return q.keep > 0 }

// Try returns a hold if it can be had at once, and an error that wraps [lease.ErrBusy] otherwise; see [retry.Calling].
func (q *Queue) Try(ctx context.Context) (*lease.Lease, error) {
	return retry.Calling(ctx, q.try, q.Acquire)
}

func (q *Queue) try(ctx context.Context) (*lease.Lease, error) {
	all, err := q.cohorts()
	if err != nil {
		return nil, err
	}
	if l, err := q.again(ctx, all); l != nil || err != nil {
		return l, err
	}
	claim, err := q.queue.Claim(ctx, true)
	if err != nil {
		return nil, err
	}
	m := &mate{claim: claim}
	co, leads, err := all.find(q)
	switch {
	case err != nil:
		return nil, claim.GiveUp(err)
	case !leads:
		return nil, claim.GiveUp(lease.ErrBusy) // Another call of the client has it, or is about to.
	}
	return co.lead(m)
}

// again returns a hold that is kept, if there is one.
func (q *Queue) again(ctx context.Context, all *cohorts) (*lease.Lease, error) {
	if q.keep == 0 {
		return nil, nil
	}
	caller, err := q.queue.Caller(ctx)
	if err != nil {
		return nil, err
	}
	all.mu.Lock()
	co := all.open[q.key()]
	all.mu.Unlock()
	if co == nil {
		return nil, nil
	}
	return co.takeUp(&caller), nil
}

// takeUp returns the lease of a call on the hold that is kept; nil if there is none, or it is over, and given back.
func (co *cohort) takeUp(caller *waitqueue.Claim) (l *lease.Lease) {
	co.mu.Lock()
	h, idle := co.hold, co.idle
	if idle && h.Pass(caller, false) {
		co.takenUpLocked()
		l = co.lendLocked(h)
	}
	co.mu.Unlock()
	if idle && l == nil {
		co.giveBack(h)
	}
	return l
}

// takenUpLocked notes that the hold is not idle any more.
func (co *cohort) takenUpLocked() {
	co.idle = false
	all := co.of
	all.mu.Lock()
	defer all.mu.Unlock()
	if co.rests {
		co.rouseLocked()
	}
}

// rouseLocked takes the cohort out of those whose holds are idle: a release looks at none that is in use.
func (co *cohort) rouseLocked() {
	co.place.Prev().Unlink(1)
	co.rests = false
	co.of.rest--
}

// restLocked notes that the hold is idle, and returns the cohort whose hold is one too many.
func (co *cohort) restLocked() (last *cohort) {
	co.idle, co.keeper, co.wants = true, nil, false
	all := co.of
	all.mu.Lock()
	defer all.mu.Unlock()
	if co.place == nil {
		co.place = &ring.Ring{Value: co}
	}
	all.resting.Prev().Link(co.place)
	co.rests = true
	if all.rest++; all.rest <= mostKept {
		return nil
	}
	last = all.resting.Next().Value.(*cohort)
	last.rouseLocked()
	return last
}

// giveBack gives a hold back, or any if it is nil, that is kept and that no call has.
func (co *cohort) giveBack(h *waitqueue.Hold) {
	co.mu.Lock()
	if !co.idle || h != nil && co.hold != h {
		co.mu.Unlock()
		return
	}
	h = co.hold
	co.takenUpLocked()
	next := co.overLocked()
	co.mu.Unlock()
	_ = h.Release(retry.Over, nil, nil)
	if next != nil {
		close(next.called)
	}
}
