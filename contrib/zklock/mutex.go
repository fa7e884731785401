package zklock

import (
	"context"

	"github.com/headwaiter/headwaiter/lease"
)

// A Mutex is the name of a lock, as one client sees it. It holds no state, and may be used by several goroutines at
// once: they exclude each other.
type Mutex struct{ line line }

// New names a lock. Nothing is sent; a name or an option that cannot be used is reported by the first call.
func New(c *Client, name string, opts ...Option) *Mutex {
	return &Mutex{c.line("mutex", name, opts)}
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.line.Name }

// Lock waits its turn for m and returns the lease on it.
//
// Calls are served in the order in which the leader numbered their nodes, across all clients. If ctx ends first, Lock
// gives up its place and returns an error that wraps the context's and its cause ([lease.WaitError]). A call whose
// session expires while it waits goes on at the end of the queue. The lease is kept until it is released or lost; see
// [lease.Lease.Context]. Its Token is the zxid with which the node was created.
//
// With a context that comes from a hold of the same lock, Lock fails at once with [lease.ErrDeadlock].
func (m *Mutex) Lock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.lock(ctx, false)
	return l, m.line.Failed("lock", err)
}

// TryLock returns the lease on m if nobody holds it and nobody waits for it, and an error that wraps
// [lease.ErrBusy] otherwise: it never overtakes a waiter. It leaves no trace when it fails. Of several tries at
// once on what is free one succeeds.
func (m *Mutex) TryLock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.lock(ctx, true)
	return l, m.line.Failed("try lock", err)
}

func (m *Mutex) lock(ctx context.Context, try bool) (*lease.Lease, error) {
	if m.line.Own(ctx) {
		return nil, lease.ErrDeadlock
	}
	return m.line.acquire(ctx, try)
}

// Do waits for m, calls f with the context of the hold, whose token [lease.Token] tells, and releases. It returns what f
// returned, joined with the loss if the lock was lost before f came back: then f may have run while another client held.
//
// The context that f gets ends when the hold does and also when ctx does. Do releases even if f panics.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.Lock, f)
}
