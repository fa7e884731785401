// Package fairlock is a mutual exclusion lock between processes that is fair: waiters get it in
// the order in which Redis saw them, and a release hands it straight to the next.
//
// A [Mutex] is a name, cheap to make and to copy around; a successful Lock returns a [lease.Lease],
// which is the hold. The queue, the hand-off and the renewal are explained in package waitqueue.
package fairlock

import (
	"context"
	"fmt"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A Mutex is the name of a lock, as one client sees it. It holds no state, and may be used by several
// goroutines at once.
type Mutex struct {
	queue  waitqueue.Queue
	cohort *waitqueue.Cohort // nil: each call has a hold of its own
}

// New names a lock. Nothing is sent; a name or an option that cannot be used is reported by the first
// call of Lock or TryLock.
func New(c *headwaiter.Client, name string, opts ...Option) *Mutex {
	q := (*waitqueue.Client)(c).Queue(lua.Fairlock, name, waitqueue.With(opts))
	passed, err := cohortOf(q, opts)
	return &Mutex{q.Refusing(err), passed}
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.queue.Name() }

// Lock waits its turn for m and returns the lease on it.
//
// Calls are served in the order in which Redis saw them, across all clients. If ctx ends first, Lock
// gives up its place and returns an error that wraps the context's and its cause, and tells the place
// in the queue and the time waited ([lease.WaitError]). The lease is renewed until it is released
// or lost; see [lease.Lease.Context].
//
// With a context that comes from a hold of the same lock, Lock fails at once with
// [lease.ErrDeadlock].
func (m *Mutex) Lock(ctx context.Context) (*lease.Lease, error) {
	acquire := m.queue.Acquire
	if m.cohort != nil {
		acquire = m.cohort.Acquire
	}
	l, err := acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("fairlock: lock %q: %w", m.queue.Label(), err)
	}
	return l, nil
}

// TryLock returns the lease on m if nobody holds it and nobody waits for it, and an error that wraps
// [lease.ErrBusy] otherwise, as a [lease.BusyError] that says who holds: it never overtakes a waiter. It leaves no trace
// when it fails.
func (m *Mutex) TryLock(ctx context.Context) (*lease.Lease, error) {
	try := m.queue.Try
	if m.cohort != nil && m.cohort.Keeps() {
		try = m.cohort.Try
	}
	l, err := try(ctx)
	if err != nil {
		return nil, fmt.Errorf("fairlock: try lock %q: %w", m.queue.Label(), err)
	}
	return l, nil
}

// Do waits for m, calls f with the context of the hold, whose token [lease.Token] tells, and releases. It returns what f
// returned, joined with the loss if the lock was lost before f came back: then f may have run while another client held.
//
// The context that f gets ends when the hold does and also when ctx does. Do releases even if f panics.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.Lock, f)
}

// Inspect tells who holds m and who waits for it. It takes no place in any order.
func (m *Mutex) Inspect(ctx context.Context) (lease.Info, error) {
	info, err := m.queue.Inspect(ctx)
	if err != nil {
		return info, fmt.Errorf("fairlock: inspect %q: %w", m.queue.Label(), err)
	}
	return info, nil
}

// ForceRelease frees m whoever holds it; the holder's context ends with the cause [lease.ErrForced].
//
// The token limits it to one hold: 0 frees any. The holder is told at once if it has held for
// 250 ms, else by its next renewal, and may act until then. [lease.ErrNotHeld]: nobody held. [lease.ErrOtherToken]: held with
// another token. [lease.ErrUnwoken]: it is free, and the waiters find that out by themselves.
func (m *Mutex) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	w, err := m.queue.ForceRelease(ctx, token)
	if err != nil {
		return w, fmt.Errorf("fairlock: force release %q: %w", m.queue.Label(), err)
	}
	return w, nil
}
