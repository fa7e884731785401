// Package rwlock is a fair read-write lock between processes: many may hold it for reading, or one for
// writing.
//
// There is one queue for both. When its head can hold, so do all readers behind it up to the next writer, in one script.
// A reader that comes while a writer waits queues behind that writer: neither kind starves. The
// only exception is a call with the context of a lease on the same lock, which enters that hold again; else
// it would wait for itself.
//
// Each hold has a lease of its own, so a reader that dies costs what is left of its lease and no more. For
// what a lock promises see package fairlock; the queue, the hand-off and the renewal are explained in
// package waitqueue.
package rwlock

import (
	"context"
	"fmt"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A RWMutex is the name of a read-write lock, as one client sees it. It holds no state, and may be used by
// several goroutines at once.
type RWMutex struct {
	read, write waitqueue.Queue
}

// New names a lock. Nothing is sent; a name or an option that cannot be used is reported by the first call.
func New(c *headwaiter.Client, name string, opts ...Option) *RWMutex {
	q := (*waitqueue.Client)(c).Queue(lua.RWLock, name, waitqueue.With(opts)).Nested(waitqueue.Reenters).
		Says(nil, fmt.Sprint(wire.AllReaders))
	return &RWMutex{read: q.For(wire.Read, 1), write: q.For(wire.Write, wire.AllReaders)}
}

// Name returns the name of the lock.
func (m *RWMutex) Name() string { return m.read.Name() }

// Lock waits its turn and returns a lease for writing: nobody else holds m meanwhile.
//
// Calls are served in the order in which Redis saw them, across all clients. If ctx ends first, Lock gives up
// its place and returns an error that wraps the context's and its cause, and tells the place in the queue
// and the time waited ([lease.WaitError]).
//
// With the context of a lease for writing it enters that hold again, at once. With the context of a lease for reading it
// fails at once with [lease.ErrUpgrade].
func (m *RWMutex) Lock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.write.Acquire(ctx)
	return l, m.wrap("lock", err)
}

// TryLock returns a lease for writing if nobody holds m and nobody waits for it, and an error that wraps
// [lease.ErrBusy] otherwise: unlike Java's, it never overtakes a waiter.
func (m *RWMutex) TryLock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.write.Try(ctx)
	return l, m.wrap("try lock", err)
}

// RLock waits its turn and returns a lease for reading: others may hold m for reading too, nobody for writing.
//
// With the context of a lease of either kind on m it enters that hold again, at once, though a writer may
// wait. Where that is one for writing, the hold is one for reading from the moment at which its last lease
// for writing is released; see also [RWMutex.Downgrade].
//
// The fencing tokens of readers that hold at the same time may be equal. A reader's token is above every earlier
// writer's, also if that writer was downgraded, and below every later writer's. A reader that enters the hold of a writer
// has the writer's token.
func (m *RWMutex) RLock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.read.Acquire(ctx)
	return l, m.wrap("read lock", err)
}

// TryRLock returns a lease for reading if nobody holds m for writing and nobody waits for it, and an error that
// wraps [lease.ErrBusy] otherwise: unlike Java's, it never overtakes a writer that waits.
func (m *RWMutex) TryRLock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.read.Try(ctx)
	return l, m.wrap("try read lock", err)
}

// Downgrade turns a lease for writing into one for reading, without a moment in which another writer could
// come in between: what was written is what is read. The lease, its context and its token stay; readers at
// the head of the queue may hold at the same time. Other leases for writing on the same hold keep it exclusive until
// they are released or downgraded too.
//
// Those readers have a higher token, so that a write of this lease that comes late is stale. A guard that one of them has
// reached refuses this lease from then on, whatever it is for (see package fence).
//
// A lease that is lost is an error for which errors.Is(err, lease.ErrLost) holds, one that was released is
// [lease.ErrReleased], one of another lock [lease.ErrNotHeld], and stays as it is. After any other error the lease is one for reading, though readers may be kept out
// until Downgrade is called again or the lease is released.
func (m *RWMutex) Downgrade(ctx context.Context, l *lease.Lease) error {
	return m.wrap("downgrade", m.write.Downgrade(ctx, l))
}

// Do waits for m for writing, calls f with the context of the lease, whose token [lease.Token] tells, and releases it. It
// returns what f returned, joined with the loss if the lock was lost before f came back.
//
// The context that f gets ends when the lease does and also when ctx does. Do releases even if f panics.
func (m *RWMutex) Do(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.Lock, f)
}

// RDo is [RWMutex.Do] for reading.
func (m *RWMutex) RDo(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.RLock, f)
}

// HoldCount returns how many leases for reading and for writing there are on the hold that ctx comes from. It
// asks nobody.
func (m *RWMutex) HoldCount(ctx context.Context) (reads, writes int) {
	return m.read.HoldCount(ctx, wire.Read), m.read.HoldCount(ctx, wire.Write)
}

// Inspect tells who holds m and who waits. It takes no place in any order. In its numbers a reader has one permit, and
// a writer all of them.
func (m *RWMutex) Inspect(ctx context.Context) (lease.Info, error) {
	info, err := m.read.Inspect(ctx, fmt.Sprint(wire.AllReaders))
	return info, m.wrap("inspect", err)
}

// ForceRelease frees the hold with a token, which Inspect tells; the contexts of its leases end with the cause
// [lease.ErrForced]. A token of 0 is [lease.ErrInvalid], and one by which several read: [RWMutex.ForceReleaseHolder] frees one of
// them. The holder is told at once if it has held for 250 ms, else by its next renewal, and may
// act until then. [lease.ErrNotHeld]: nobody held with that token. [lease.ErrUnwoken]: it is free, and the waiters find that
// out by themselves.
func (m *RWMutex) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	w, err := m.read.ForceRelease(ctx, token)
	return w, m.wrap("force release", err)
}

// ForceReleaseHolder is [RWMutex.ForceRelease] of the very hold that Inspect has told of.
func (m *RWMutex) ForceReleaseHolder(ctx context.Context, h lease.Holder) (lease.Holder, error) {
	w, err := m.read.ForceReleaseHolder(ctx, h)
	return w, m.wrap("force release", err)
}

func (m *RWMutex) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rwlock: %s %q: %w", verb, m.read.Label(), err)
}
