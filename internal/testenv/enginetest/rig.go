// Package enginetest is what the tests of the adapters to other engines share in addition to the conformance kit,
// above all for etcd and ZooKeeper: what happens to an engine's own server, lines of many clients, processes that are stopped,
// and measuring.
package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// Short is a lease that a machine busy with tests keeps alive, and Long one that outlasts whatever a test does to the
// server.
const (
	Short = 4 * time.Second
	Long  = 3 * kit.Patience
)

// A Mutex is the lock of an adapter.
type Mutex interface {
	Lock(context.Context) (*lease.Lease, error)
	TryLock(context.Context) (*lease.Lease, error)
	Do(context.Context, func(context.Context) error) error
	Inspect(context.Context) (lease.Info, error)
}

// A Forcible lock can be taken away from its holder.
type Forcible interface {
	Mutex
	ForceRelease(context.Context, uint64) (lease.Holder, error)
}

// Errors are those of the conformance kit, as all locks of this project have them.
var Errors = conformance.Errors{
	Busy: lease.ErrBusy, Closed: lease.ErrClosed, Deadlock: lease.ErrDeadlock, Name: lease.ErrInvalid, TooLarge: lease.ErrTooLarge,
}

// Conforming is a lock as the conformance kit wants it: it tells who waits, and loses what is held.
type Conforming struct{ Forcible }

// Waiting is how many wait.
func (m Conforming) Waiting(ctx context.Context) (int, error) {
	info, err := m.Inspect(ctx)
	return info.Waiting, err
}

// Break takes it away from its holder.
func (m Conforming) Break(ctx context.Context) error {
	_, err := m.ForceRelease(ctx, 0)
	return err
}

// A Client makes locks.
type Client struct {
	Mutex func(name string, ends engine.Limits) Mutex
	Close func(context.Context) error
}

// A Server is the process of an engine.
type Server interface {
	Kill()
	Run() error
	Wipe() error // of all that it knew
	Freeze() error
	Thaw() error
}

// A Rig is an adapter with a server.
type Rig struct {
	Server Server
	// Dial returns a client that is closed with the test.
	Dial func(t testing.TB, lasts time.Duration) Client
	// Empty waits until nothing of the test is left at the server.
	Empty func(testing.TB)
}

// one returns the lock called one of a new client.
func (r Rig) one(t testing.TB, lasts time.Duration) Mutex {
	return r.Dial(t, lasts).Mutex("one", engine.Limits{})
}

// Locked takes what is free.
func Locked(t testing.TB, m Mutex) *lease.Lease {
	t.Helper()
	return kit.Lock(t.Context(), m.Lock).Value(t)
}

// Queued begins a call that waits as the n-th.
func Queued(t testing.TB, m Mutex, n int) *kit.Call[*lease.Lease] {
	t.Helper()
	call := kit.Lock(t.Context(), m.Lock)
	kit.Waiting(t, n, m.Inspect)
	return call
}
