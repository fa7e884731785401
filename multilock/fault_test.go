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

// The server stops while some of the names are held and others are waited for.
func TestACallEndsWithItsContextWhereNobodyAnswers(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		c, other := kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s)
		all := names(t, 2)
		_, err := fairlock.New(other, all[1]).Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		m := multilock.New(c, all, multilock.WithLease(20*time.Second), multilock.WithBound(time.Minute))
		call := kit.Lock(ctx, m.Lock)
		time.Sleep(400 * time.Millisecond)
		began := time.Now()
		d.Freeze()
		require.ErrorIs(t, call.Err(t), context.DeadlineExceeded)
		require.Less(t, time.Since(began), time.Second)
		d.Heal()
	})
}

// What is given back after the bound is asked for again with the head start that it had.
func TestAPlaceThatIsComeBackToKeepsItsPriority(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		many, other, next := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
		all := names(t, 2)
		priority := waitqueue.WithPriority(5)
		held, err := fairlock.New(other, all[1]).Lock(t.Context())
		require.NoError(t, err)
		call := kit.Lock(t.Context(), multilock.New(many, all, multilock.WithBound(50*time.Millisecond), multilock.With(priority)).Lock)
		kit.Waiting(t, 1, fairlock.New(other, all[1]).Inspect)
		first, err := fairlock.New(other, all[0], priority).Lock(t.Context()) // After the bound.
		require.NoError(t, err)
		second := kit.Lock(t.Context(), fairlock.New(next, all[0], priority).Lock)
		kit.Waiting(t, 1, fairlock.New(other, all[0]).Inspect)
		kit.Release(t, held)
		kit.Waiting(t, 2, fairlock.New(other, all[0]).Inspect) // It comes back.
		info, err := fairlock.New(other, all[0]).Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, many.ID(), info.Queue[0].Client, "it was overtaken")
		kit.Release(t, first)
		kit.Release(t, call.Value(t))
		kit.Release(t, second.Value(t))
	})
}
