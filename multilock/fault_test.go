package multilock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/faults"
	"github.com/headwaiter/headwaiter/internal/kit"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// holds reports whether anybody holds a name.
func holds(t *testing.T, c *waitqueue.Client, name string) bool {
	t.Helper()
	info, err := fairlock.New(c, name).Inspect(context.Background())
	require.NoError(t, err)
	return info.Held
}

// A grant that must be confirmed first is one all the same.
func TestATryOverASlowNetworkHasWhatItWasGranted(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		c, other := kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s)
		all := names(t, 2)
		m := multilock.New(c, all, multilock.WithLease(2400*time.Millisecond))
		d.Delay(900*time.Millisecond, faults.ToClient) // More than a third of the lease.
		l, err := m.TryLock(t.Context())
		d.Heal()
		require.NoError(t, err)
		require.True(t, holds(t, other, all[1]))
		kit.Release(t, l)
		free(t, other, all)
	})
}

func TestATryThatWaitsForReplicasHasWhatItWasGranted(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1)
	c, other := kit.Dial(t, s), kit.Dial(t, s)
	all := names(t, 2)
	with := func(replicas int) *multilock.Lock {
		return multilock.New(c, all, multilock.With(waitqueue.WithReplicas(replicas, 100*time.Millisecond)))
	}
	l, err := with(1).TryLock(t.Context())
	require.NoError(t, err)
	kit.Release(t, l)
	_, err = with(2).TryLock(t.Context())
	require.ErrorIs(t, err, waitqueue.ErrReplicas)
	free(t, other, all)
}

func TestACallThatEndsBeforeItsGrantsAreConfirmedLeavesNothing(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const way = 900 * time.Millisecond // More than a third of the lease.
		other := kit.Dial(t, s)
		for i := range 8 {
			d := faults.NewDialer(t, s.Dial)
			c := kit.Dial(t, s, kit.Over(d))
			all := names(t, 2)
			d.Delay(way, faults.ToClient)
			ctx, cancel := context.WithTimeout(t.Context(), way+time.Duration(5+40*i)*time.Millisecond)
			_, err := multilock.New(c, all, multilock.WithLease(2400*time.Millisecond)).Lock(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			d.Heal()
			time.Sleep(500 * time.Millisecond) // Less than what is left of the lease.
			for _, name := range all {
				require.False(t, holds(t, other, name), i)
			}
		}
	})
}

// The client closes while the call listens, or asks.
func TestAClientThatClosesEndsACallOnItsWay(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		other := kit.Dial(t, s)
		all := names(t, 2)
		for after := time.Millisecond; after < 300*time.Millisecond; after += 10 * time.Millisecond {
			held, err := fairlock.New(other, all[1]).Lock(t.Context())
			require.NoError(t, err)
			d := faults.NewDialer(t, s.Dial)
			c := kit.Dial(t, s, kit.Over(d))
			d.Delay(40 * time.Millisecond)
			call := kit.Lock(t.Context(), multilock.New(c, all).Lock)
			time.Sleep(after)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			require.NoError(t, c.Close(ctx), after)
			cancel()
			require.ErrorIs(t, call.Err(t), waitqueue.ErrClosed)
			kit.Release(t, held)
			for _, name := range all {
				require.False(t, holds(t, other, name), after)
			}
		}
	})
}
