package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// HoldsAndPlacesOutliveARestart has the server come back with what it knew.
func (r Rig) HoldsAndPlacesOutliveARestart(t *testing.T) {
	m, n := r.one(t, Long), r.one(t, Long)
	l := Locked(t, m)
	second := Queued(t, n, 1)
	third := Queued(t, m, 2)
	r.Server.Kill()
	require.NoError(t, r.Server.Run())
	kit.Waiting(t, 2, n.Inspect)
	require.NoError(t, l.Context().Err())
	require.NoError(t, l.Release(t.Context()))
	next := second.Value(t)
	require.Greater(t, next.Token(), l.Token())
	require.False(t, third.Returned())
	kit.Release(t, next)
	kit.Release(t, third.Value(t))
}

// AServerThatForgotIsToldOf has the server come back without what it knew.
func (r Rig) AServerThatForgotIsToldOf(t *testing.T, lasts time.Duration) {
	m, n := r.one(t, lasts), r.one(t, lasts)
	l := Locked(t, m)
	waits := Queued(t, n, 1)
	r.Server.Kill()
	require.NoError(t, r.Server.Wipe())
	require.NoError(t, r.Server.Run())
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
	kit.Release(t, waits.Value(t))
	kit.Release(t, Locked(t, m))
}

// AHoldEndsByTheOwnClock has the server hang: the holder's time is over though nobody tells it, and who waits stays.
func (r Rig) AHoldEndsByTheOwnClock(t *testing.T) {
	m, n := r.one(t, Short), r.one(t, Short)
	l := Locked(t, m)
	waits := Queued(t, n, 1)
	require.NoError(t, r.Server.Freeze())
	frozen := time.Now() // Nothing is sent later that is answered.
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
	require.Less(t, l.Deadline().Sub(frozen), Short, "the server may have given it less")
	require.False(t, waits.Returned())
	begun := time.Now()
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrExpired)
	require.Less(t, time.Since(begun), time.Second, "nobody waits for the release of what was lost")
	require.NoError(t, r.Server.Thaw())
	next := waits.Value(t)
	require.Greater(t, next.Token(), l.Token())
	kit.Release(t, next)
	r.Empty(t)
}

// NobodyWaitsLongerThanTheContext has the server hang before it is asked.
func (r Rig) NobodyWaitsLongerThanTheContext(t *testing.T) {
	m := r.one(t, Short)
	kit.Release(t, Locked(t, m))
	require.NoError(t, r.Server.Freeze())
	for _, lock := range []func(context.Context) (*lease.Lease, error){m.Lock, m.TryLock} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begun := time.Now()
		_, err := lock(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(begun), 2*time.Second)
	}
	require.NoError(t, r.Server.Thaw())
	// What was asked for may come in the end. It goes again.
	kit.Release(t, Locked(t, m))
	r.Empty(t)
}

// ClosingEndsThoughTheServerIsAway has the server of each rig die while its clients hold and wait, and ask when
// it is gone. The first Close has a limit, the second has none.
func ClosingEndsThoughTheServerIsAway(t *testing.T, limited, unlimited Rig) {
	for r, limit := range map[*Rig]time.Duration{&limited: 3 * time.Second, &unlimited: Short + 5*time.Second} {
		c, other := r.Dial(t, Short), r.Dial(t, Short)
		l := Locked(t, c.Mutex("one", engine.Limits{}))
		Locked(t, other.Mutex("two", engine.Limits{}))
		waits := Queued(t, c.Mutex("two", engine.Limits{}), 1)
		r.Server.Kill()
		tries := kit.Lock(t.Context(), c.Mutex("three", engine.Limits{}).TryLock)
		looks := kit.Run(func() error {
			_, err := c.Mutex("two", engine.Limits{}).Inspect(t.Context())
			return err
		})
		time.Sleep(100 * time.Millisecond) // Both are on their way by then, as a rule; nothing shows it.
		ctx := t.Context()
		if r == &limited {
			var cancel func()
			ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
		}
		begun := time.Now()
		closing := kit.Run(func() error { return c.Close(ctx) })
		require.ErrorIs(t, waits.Err(t), lease.ErrClosed)
		require.ErrorIs(t, tries.Err(t), lease.ErrClosed)
		require.ErrorIs(t, looks.Err(t), lease.ErrClosed)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrClientClosed)
		require.Error(t, closing.Err(t))
		require.Less(t, time.Since(begun), limit)
		require.NoError(t, c.Close(t.Context()))
	}
}

// AHoldEndsAtItsLimits lets the next one in then: at its maximum, and where nobody calls Progress.
func (r Rig) AHoldEndsAtItsLimits(t *testing.T) {
	const stall = 300 * time.Millisecond
	for want, ends := range map[error]engine.Limits{
		lease.ErrMaxHold: {Hold: 200 * time.Millisecond, Stall: time.Hour},
		lease.ErrStalled: {Hold: time.Hour, Stall: stall},
	} {
		begun := time.Now()
		l := Locked(t, r.Dial(t, Short).Mutex("one", ends))
		waits := kit.Lock(t.Context(), r.one(t, Short).Lock)
		if want == lease.ErrStalled {
			kit.Eventually(t, "some progress to be made", func() bool {
				l.Progress()
				return time.Since(begun) > 3*stall/2 || l.Context().Err() != nil
			})
		}
		require.ErrorIs(t, kit.Lost(t, l), want)
		if want == lease.ErrStalled {
			require.Greater(t, time.Since(begun), 3*stall/2, "progress sets the clock back")
		}
		kit.Release(t, waits.Value(t))
		require.ErrorIs(t, l.Release(t.Context()), want)
	}
}

// DroppedConnectionsCostNothing breaks the connections of a holder and of who waits for it: that costs neither holds nor
// places, and with the next connection all goes on.
func (r Rig) DroppedConnectionsCostNothing(t *testing.T, holder, waiter Mutex, cutHolder, cutWaiter func()) {
	for range 5 {
		l := Locked(t, holder)
		first := Queued(t, waiter, 1)
		second := Queued(t, waiter, 2)
		cutHolder()
		cutWaiter()
		require.NoError(t, l.Release(t.Context()))
		cutWaiter()
		next := first.Value(t)
		require.Greater(t, next.Token(), l.Token())
		require.False(t, second.Returned())
		kit.Release(t, next)
		kit.Release(t, second.Value(t))
	}
	r.Empty(t)
}
