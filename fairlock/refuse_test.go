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
	"github.com/headwaiter/headwaiter/lease"
)

func TestAContextThatHoldsTheLockIsADeadlock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		name := kit.Name(t)
		m, other := fairlock.New(c, name), fairlock.New(c, name+":other")
		l := hold(t, m)
		before := state(t, s, name)
		asks := c.Stats().Asks
		child, cancel := context.WithTimeout(context.WithValue(l.Context(), key{}, "value"), time.Minute)
		defer cancel()
		for _, ctx := range []context.Context{l.Context(), child, context.WithoutCancel(child)} {
			_, err := m.Lock(ctx)
			require.ErrorIs(t, err, lease.ErrDeadlock)
			require.EqualError(t, err, `fairlock: lock "`+name+`": deadlock: this context already holds the lock`)
			_, err = fairlock.New(c, name, headwaiter.WithLease(time.Minute)).TryLock(ctx)
			require.ErrorIs(t, err, lease.ErrDeadlock)
			err = m.Do(ctx, func(context.Context) error { t.Error("f was called"); return nil })
			require.ErrorIs(t, err, lease.ErrDeadlock)
		}
		require.Equal(t, asks, c.Stats().Asks)
		require.Equal(t, before, state(t, s, name))

		inner, err := other.Lock(child)
		require.NoError(t, err, "another lock is no deadlock")
		_, err = m.TryLock(inner.Context())
		require.ErrorIs(t, err, lease.ErrDeadlock, "the outer hold is the inner's too")
		_, err = other.TryLock(inner.Context())
		require.ErrorIs(t, err, lease.ErrDeadlock)
		kit.Release(t, inner)
		kit.Release(t, l)
	})
}

func TestAContextThatHasHeldTheLockIsNoDeadlock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s)
		l := hold(t, m)
		kit.Release(t, l)
		_, err := m.Lock(l.Context())
		require.NotErrorIs(t, err, lease.ErrDeadlock)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, lease.ErrReleased)
		kit.Release(t, begin(context.WithoutCancel(l.Context()), m).Value(t))

		l = hold(t, m)
		s.Do("FLUSHALL")
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
		kit.Release(t, begin(context.WithoutCancel(l.Context()), m).Value(t))
	})
}

func TestCloseEndsWaitsAndGivesBackWhatIsHeld(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		holder, c := kit.Dial(t, s), kit.Dial(t, s)
		l := hold(t, fairlock.New(holder, name))
		own := hold(t, fairlock.New(c, name+":own"))
		calls := make([]*call, 20)
		for i := range calls {
			calls[i] = begin(t.Context(), fairlock.New(c, name))
			queued(t, fairlock.New(holder, name), i+1)
		}
		require.NoError(t, c.Close(t.Context()))
		for _, w := range calls {
			err := w.Err(t)
			require.ErrorIs(t, err, lease.ErrClosed)
			require.Regexp(t, `^fairlock: lock "`+name+`": waited .*: client closed$`, err.Error())
		}
		require.ErrorIs(t, own.Release(t.Context()), lease.ErrClientClosed)
		require.Empty(t, inspect(t, fairlock.New(holder, name)).Queue, "Close came back, and its calls are still queued")
		require.False(t, inspect(t, fairlock.New(holder, name+":own")).Held)
		require.NoError(t, l.Context().Err(), "another client's hold is none of its business")
		kit.Release(t, l)
	})
}

// Each round closes at another moment of the call.
func TestCloseLeavesNothingOfACallAtAnyMoment(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder := dialMutex(t, s)
		l := hold(t, holder)
		for i := range 40 {
			c := kit.Dial(t, s)
			w := begin(t.Context(), fairlock.New(c, kit.Name(t)))
			for range i {
				inspect(t, holder) // The time of some scripts.
			}
			require.NoError(t, c.Close(t.Context()))
			require.ErrorIs(t, w.Err(t), lease.ErrClosed)
			require.Empty(t, inspect(t, holder).Queue, "round %d: Close came back, and its call is still queued", i)
		}
		kit.Release(t, l)
	})
}

// A look whose script the server does not know is sent again, behind the end that was sent meanwhile.
func TestCloseLeavesNothingOfALookThatIsSentTwice(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	holder, other := dialMutex(t, s), fairlock.New(kit.Dial(t, s), "other")
	l := hold(t, holder)
	for i := range 100 {
		s.Do("SCRIPT", "FLUSH")
		kit.Release(t, hold(t, other)) // So that it knows all others.
		inspect(t, holder)
		c := kit.Dial(t, s)
		w := begin(t.Context(), fairlock.New(c, kit.Name(t)))
		for range i % 12 {
			inspect(t, holder) // The time of some scripts.
		}
		require.NoError(t, c.Close(t.Context()))
		require.ErrorIs(t, w.Err(t), lease.ErrClosed)
		require.Empty(t, inspect(t, holder).Queue, "round %d: Close came back, and its call is still queued", i)
	}
	kit.Release(t, l)
}

func TestCallsAfterCloseAreRefused(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t))
		require.NoError(t, c.Close(t.Context()))
		require.NoError(t, c.Close(t.Context()), "a second Close does nothing")
		s.ResetStats()
		_, err := m.Lock(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		require.EqualError(t, err, `fairlock: lock "`+kit.Name(t)+`": client closed`)
		_, err = m.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = m.Inspect(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		_, err = m.ForceRelease(t.Context(), 0)
		require.ErrorIs(t, err, lease.ErrClosed)
		require.Empty(t, s.CommandStats())
	})
}
