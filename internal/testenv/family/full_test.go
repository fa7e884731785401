package family

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

type bounded = func(c *headwaiter.Client, name string, o headwaiter.QueueOption) (locking, func(context.Context) (lease.Info, error))

// queues are all calls that a queue with a limit can refuse, and what tells how many wait.
var queues = map[string]bounded{
	"fairlock": func(c *headwaiter.Client, name string, o headwaiter.QueueOption) (locking, func(context.Context) (lease.Info, error)) {
		m := fairlock.New(c, name, o)
		return m.Lock, m.Inspect
	},
	"each": func(c *headwaiter.Client, name string, o headwaiter.QueueOption) (locking, func(context.Context) (lease.Info, error)) {
		m := fairlock.New(c, name, o)
		return func(ctx context.Context) (*lease.Lease, error) {
			got := fairlock.LockEach(ctx, m)
			return got[0].Lease, got[0].Err
		}, m.Inspect
	},
	"reentrant": func(c *headwaiter.Client, name string, o headwaiter.QueueOption) (locking, func(context.Context) (lease.Info, error)) {
		m := reentrant.New(c, name, o)
		return m.Lock, m.Inspect
	},
	"rwlock": func(c *headwaiter.Client, name string, o headwaiter.QueueOption) (locking, func(context.Context) (lease.Info, error)) {
		m := rwlock.New(c, name, o)
		return m.Lock, m.Inspect
	},
	"semaphore": func(c *headwaiter.Client, name string, o headwaiter.QueueOption) (locking, func(context.Context) (lease.Info, error)) {
		s := semaphore.New(c, name, 1, o)
		return func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 1) }, s.Inspect
	},
}

// The first call of a client that is refused does not listen yet; the second client's calls do.
func TestEveryQueueEndsAtItsLimit(t *testing.T) {
	for name, of := range queues {
		t.Run(name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				lock, inspect := of(kit.Dial(t, s), kit.Name(t), headwaiter.WithQueueLimit(1))
				late, _ := of(kit.Dial(t, s), kit.Name(t), headwaiter.WithQueueLimit(1))
				held := kit.Lock(t.Context(), lock).Value(t)
				waits := kit.Lock(t.Context(), lock)
				kit.Waiting(t, 1, inspect)
				for _, call := range []locking{late, lock, late} {
					err := kit.Lock(t.Context(), call).Err(t)
					var full *lease.QueueFullError
					require.ErrorIs(t, err, lease.ErrQueueFull)
					require.ErrorAs(t, err, &full)
					require.Equal(t, 1, full.Waiting)
				}
				kit.Waiting(t, 1, inspect)
				kit.Release(t, held)
				held = waits.Value(t)
				waits = kit.Lock(t.Context(), late) // There is room again.
				kit.Waiting(t, 1, inspect)
				kit.Release(t, held)
				kit.Release(t, waits.Value(t))
			})
		})
	}
}

// Calls that wait for each other in their client are no waiters in Redis: only their leader is.
func TestMatesOfACohortAreNoWaiters(t *testing.T) {
	s := redistest.Mini(t)
	holder := fairlock.New(kit.Dial(t, s), kit.Name(t))
	m := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithQueueLimit(1), fairlock.WithCohort(8))
	held := kit.Lock(t.Context(), holder.Lock).Value(t)
	all := []*kit.Call[*lease.Lease]{kit.Lock(t.Context(), m.Lock)}
	kit.Waiting(t, 1, holder.Inspect)
	for range 3 {
		all = append(all, kit.Lock(t.Context(), m.Lock))
	}
	other := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithQueueLimit(1))
	require.ErrorIs(t, kit.Lock(t.Context(), other.Lock).Err(t), lease.ErrQueueFull)
	kit.Release(t, held)
	for len(all) > 0 {
		kit.Eventually(t, "one of them to hold", func() bool { return slices.ContainsFunc(all, (*kit.Call[*lease.Lease]).Returned) })
		i := slices.IndexFunc(all, (*kit.Call[*lease.Lease]).Returned)
		kit.Release(t, all[i].Value(t))
		all = slices.Delete(all, i, i+1)
	}
}
