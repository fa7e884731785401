package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// refused asserts that an acquisition fails for lack of memory, with words that say what to change.
func refused(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "OOM")
	require.ErrorContains(t, err, "raise maxmemory")
}

func TestAFullMemoryRefusesNewCallsAndServesTheOldOnes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	observer := dialMutex(t, s)
	c := crowdAt(t, s, kit.Name(t), 3*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leaver := begin(ctx, dialMutex(t, s))
	queued(t, observer, 3)
	newcomer := dialMutex(t, s)

	s.Do("CONFIG", "SET", "maxmemory", "1")
	refused(t, begin(t.Context(), newcomer).Err(t))
	_, err := fairlock.New(kit.Dial(t, s), kit.Name(t)+":free").TryLock(t.Context())
	refused(t, err)
	require.Equal(t, 3, inspect(t, observer).Waiting)

	for range 4 { // Longer than the lease: renewals work.
		until := number(t, s, c.name, "until")
		kit.Eventually(t, "a renewal", func() bool { return number(t, s, c.name, "until") > until })
	}
	require.NoError(t, c.held.Context().Err())
	cancel()
	require.ErrorIs(t, leaver.Err(t), context.Canceled)
	queued(t, observer, 2)
	kit.Release(t, c.held)
	c.emptied(t)
	info := inspect(t, observer)
	require.False(t, info.Held)
	require.Zero(t, info.Waiting)
	refused(t, begin(t.Context(), newcomer).Err(t))

	s.Do("CONFIG", "SET", "maxmemory", "0")
	kit.Free(t, newcomer)
}

func TestAWaiterThatLooksAtALockWhoseHolderDiedGetsItInAFullMemory(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	observer := dialMutex(t, s)
	p := kit.Proxy(t, s)
	l := hold(t, fairlock.New(kit.Dial(t, s, kit.Through(p)), kit.Name(t), headwaiter.WithLease(time.Second)))
	waiter := begin(t.Context(), dialMutex(t, s))
	queued(t, observer, 1)
	s.Do("CONFIG", "SET", "maxmemory", "1")
	p.Refuse()
	p.Cut()
	next := waiter.Value(t)
	require.Error(t, l.Context().Err())
	kit.Release(t, next)
	p.Heal()
	s.Do("CONFIG", "SET", "maxmemory", "0")
	kit.Free(t, observer)
}
