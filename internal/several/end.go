package several

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// How a call for several names ends: with one lease on all of them, or with none.

// yield gives back the names that the call holds, so that nobody waits for them meanwhile. It waits for the answers,
// but not for long, nor beyond the call's context: what is not answered then goes on in the background.
func (w *whole) yield() {
	ctx, cancel := context.WithTimeout(w.ctx, conn.AnswerTime)
	defer cancel()
	var given []*part
	for _, p := range w.parts {
		if p.lease != nil {
			given = append(given, p)
		}
	}
	_ = w.release(ctx, given) // What is not answered ends with its lease.
	for _, p := range given {
		p.giveUp()
	}
}

// leave ends the call without a lease.
func (w *whole) leave(err error) {
	w.yield()
	for _, p := range w.parts {
		if p.open {
			p.claim.Leave(err)
		}
	}
	if !errors.Is(err, lease.ErrReplicas) {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, conn.AnswerTime)
	defer cancel()
	for _, p := range w.parts {
		if p.claim != nil {
			p.claim.AwaitEnd(ctx) // So that the next call finds all names free.
		}
	}
}

// lease makes one lease of the leases of the parts.
func (w *whole) lease(waited time.Duration) *lease.Lease {
	parts := make([]*lease.Lease, len(w.parts))
	terms := lease.Terms{Name: labels(w.queues()), Parts: parts, Waited: waited}
	for i, p := range w.parts {
		parts[i] = p.lease
		terms.Token = max(terms.Token, p.lease.Token())
	}
	for _, l := range parts {
		if l.Token() < terms.Token {
			waitqueue.Below(l)
		}
	}
	terms.Until = lease.Until{Deadline: time.Now().Add(lease.MaxLease), Slept: lease.Slept()}
	stops := make([]func() bool, len(parts))
	var keeper *lease.Keeper
	terms.Release = func(ctx context.Context) error {
		for _, stop := range stops {
			stop()
		}
		return w.release(ctx, w.parts)
	}
	terms.Unlock = func() {
		for i, stop := range stops {
			stop()
			parts[i].Unlock()
		}
	}
	keeper = lease.New(w.ctx, terms)
	for i, l := range parts {
		waitqueue.Returned(l)
		stops[i] = context.AfterFunc(l.Context(), func() { w.lost(keeper, l) })
	}
	return keeper.Lease()
}

// lost ends the lease because that of a part has ended, and gives back the others.
func (w *whole) lost(keeper *lease.Keeper, one *lease.Lease) {
	keeper.Lose(context.Cause(one.Context()))
	if errors.Is(context.Cause(keeper.Lease().Context()), lease.ErrReleased) {
		return // The release has begun, which gives back the others.
	}
	for _, p := range w.parts {
		_ = p.lease.Release(retry.Over)
	}
}

// release gives back parts: the parts of a slot in one script, and the slots side by side: a node that does not answer
// holds up none of the others. It returns the first error.
func (w *whole) release(ctx context.Context, parts []*part) error {
	var errs []error
	var all sync.WaitGroup
	var slots [][]*lease.Lease
	for slot := range bySlot(parts) {
		leases := make([]*lease.Lease, len(slot))
		for i, p := range slot {
			leases[i] = p.lease
		}
		slots = append(slots, leases)
	}
	errs = make([]error, len(slots))
	for i, leases := range slots {
		if i < len(slots)-1 {
			all.Go(func() { errs[i] = w.releaseSlot(ctx, leases) })
		} else {
			errs[i] = w.releaseSlot(ctx, leases)
		}
	}
	all.Wait()
	return cmp.Or(errs...)
}

func (w *whole) releaseSlot(ctx context.Context, leases []*lease.Lease) (err error) {
	if ctx.Err() == nil && len(w.parts) > 1 {
		return waitqueue.ReleaseAll(ctx, leases)
	}
	for _, l := range leases {
		err = cmp.Or(err, l.Release(ctx))
	}
	return err
}
