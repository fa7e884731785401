// Package reentrant is a fair lock between processes that its holder can take again.
//
// Who holds is told by a context, never by a goroutine: a Lock with the context of a lease, or with one
// derived from it, enters that hold once more, from whatever goroutine. Where contexts cannot be passed
// on, [Owner] names on whose behalf a call is made. Each entry is a lease of its own; the hold ends when the
// last of them is released.
//
// For what a lock promises see package fairlock; the queue, the hand-off and the renewal are explained in
// package waitqueue.
package reentrant

import (
	"context"
	"fmt"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A Mutex is the name of a reentrant lock, as one client sees it. It holds no state, and may be used by
// several goroutines at once.
type Mutex struct {
	queue waitqueue.Queue
}

// New names a lock. Nothing is sent; a name or an option that cannot be used is reported by the first
// call of Lock or TryLock.
func New(c *headwaiter.Client, name string, opts ...Option) *Mutex {
	return &Mutex{queue: (*waitqueue.Client)(c).Queue(lua.Reentrant, name, waitqueue.With(opts)).Nested(waitqueue.Reenters)}
}

// Owner returns a context on whose behalf several calls may enter one hold, though none has the context of
// the others' lease: a job that comes back as another request, for example. Owners are known within one
// client; the same id in another process is somebody else. An empty id names nobody.
// Package rwlock knows owners too.
func Owner(ctx context.Context, id string) context.Context { return waitqueue.WithOwner(ctx, id) }

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.queue.Name() }

// Lock waits its turn for m and returns a lease on it.
//
// With a context that comes from a lease on m, or with the [Owner] of one, it enters that hold once more: at
// once, before all who wait, with the same token, and without a word to Redis, which learns of the number of
// entries with the renewals. Otherwise calls are served in the order in which Redis saw them, across all
// clients, and an error is as of fairlock's Lock. More than 65,535 entries are an error that
// wraps [lease.ErrTooLarge].
//
// If the hold is lost, the contexts of all its leases end, and nothing is left of its count: the next
// Lock asks anew.
func (m *Mutex) Lock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.queue.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("reentrant: lock %q: %w", m.queue.Label(), err)
	}
	return l, nil
}

// TryLock returns a lease on m if ctx holds it already, or if nobody has it and nobody waits for it, and an
// error that wraps [lease.ErrBusy] otherwise.
//
// Unlike the tryLock of Java's ReentrantLock it never overtakes a waiter.
func (m *Mutex) TryLock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.queue.Try(ctx)
	if err != nil {
		return nil, fmt.Errorf("reentrant: try lock %q: %w", m.queue.Label(), err)
	}
	return l, nil
}

// Do waits for m, calls f with the context of the lease, whose token [lease.Token] tells, and releases it. It returns what f
// returned, joined with the loss if the lock was lost before f came back: then f may have run while another context held.
//
// The context that f gets ends when the lease does and also when ctx does. Do releases even if f panics.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.Lock, f)
}

// HoldCount returns how many leases there are on the hold that ctx comes from, or whose [Owner] it names: 0 if
// it holds nothing of m. It asks nobody.
func (m *Mutex) HoldCount(ctx context.Context) int { return m.queue.HoldCount(ctx, 0) }

// Inspect tells who holds m, how many times it was entered, and who waits. It takes no place in any order.
func (m *Mutex) Inspect(ctx context.Context) (lease.Info, error) {
	info, err := m.queue.Inspect(ctx)
	if err != nil {
		return info, fmt.Errorf("reentrant: inspect %q: %w", m.queue.Label(), err)
	}
	return info, nil
}

// ForceRelease takes m from its holder, however often it was entered; the contexts of all its leases end
// with the cause [lease.ErrForced].
//
// The token limits it to one hold: 0 frees any. The holder is told at once if it has held for
// 250 ms, else by its next renewal, and may act until then. [lease.ErrNotHeld]: nobody held. [lease.ErrOtherToken]: held with
// another token. [lease.ErrUnwoken]: it is free, and the waiters find that out by themselves.
func (m *Mutex) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	w, err := m.queue.ForceRelease(ctx, token)
	if err != nil {
		return w, fmt.Errorf("reentrant: force release %q: %w", m.queue.Label(), err)
	}
	return w, nil
}
