package reentrant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// What java.util.concurrent's ReentrantLockTest holds down for a fair lock, for calls of one client and of two;
// process_test.go has what is left between processes. A thread there is a context here.
//
//	testLock, testGetHoldCount, testIsLocked     TestAHoldIsEnteredAgainAndEndsWithItsLastRelease
//	testUnlock_IMSE                              TestWhatIsReleasedCannotBeReleasedAgain
//	testTryLock, testTryLockWhenLocked           TestATryTakesAFreeLockAndEntersAHoldOfItsOwn
//	testTryLock_Timeout                          TestAWaitThatEndsChangesNothingOfTheHold
//	testLockInterruptibly, _Interrupted          the same
//	testHasQueuedThreads, testGetQueueLength,
//	testGetQueuedThreads, testHasQueuedThread    TestInspectTellsWhoWaitsInTheirOrder
//	fairness of all of them                      TestWaitersHoldInTheirOrderThoughTheHoldIsEnteredAgain
//
// Left out: conditions (awaits, signals), serialization, toString, isFair: there are none. An untimed tryLock
// does not overtake here: TestATryDoesNotOvertake.

// locks are the lock of the test, as two clients see it, which may be the same.
func locks(t testing.TB, a, b *headwaiter.Client, opts ...reentrant.Option) (x, y *reentrant.Mutex) {
	return reentrant.New(a, kit.Name(t), opts...), reentrant.New(b, kit.Name(t), opts...)
}

// hold locks m, which must come soon.
func hold(t testing.TB, ctx context.Context, m *reentrant.Mutex) *lease.Lease {
	t.Helper()
	return kit.Lock(ctx, m.Lock).Value(t)
}

// busy asserts that a call from outside the hold cannot have m.
func busy(t testing.TB, m *reentrant.Mutex) {
	t.Helper()
	_, err := m.TryLock(context.Background())
	require.ErrorIs(t, err, lease.ErrBusy)
}

func TestAHoldIsEnteredAgainAndEndsWithItsLastRelease(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		const times = 20
		require.Zero(t, m.HoldCount(t.Context()))
		ctx := t.Context()
		var leases []*lease.Lease
		for i := range times {
			l := hold(t, ctx, m)
			ctx = l.Context()
			leases = append(leases, l)
			require.Equal(t, i+1, m.HoldCount(ctx))
			require.Equal(t, leases[0].Token(), l.Token())
		}
		require.Zero(t, other.HoldCount(t.Context()), "it is not on the test's own behalf")
		for i := range times {
			busy(t, other)
			require.Equal(t, times-i, m.HoldCount(ctx))
			kit.Release(t, leases[times-1-i])
		}
		require.Zero(t, m.HoldCount(ctx))
		kit.Free(t, other)
	})
}

func TestWhatIsReleasedCannotBeReleasedAgain(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		outer := hold(t, t.Context(), m)
		inner := hold(t, outer.Context(), m)
		kit.Release(t, inner)
		require.ErrorIs(t, inner.Release(t.Context()), lease.ErrReleased)
		require.Equal(t, 1, m.HoldCount(outer.Context()), "a second release takes no other count back")
		busy(t, other)
		kit.Release(t, outer)
		next := hold(t, t.Context(), other)
		require.ErrorIs(t, outer.Release(t.Context()), lease.ErrReleased)
		require.ErrorIs(t, inner.Release(t.Context()), lease.ErrReleased)
		busy(t, m)
		kit.Release(t, next)
	})
}

func TestATryTakesAFreeLockAndEntersAHoldOfItsOwn(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		outer, err := m.TryLock(t.Context())
		require.NoError(t, err)
		busy(t, other)
		busy(t, m)
		inner, err := m.TryLock(outer.Context())
		require.NoError(t, err)
		require.Equal(t, outer.Token(), inner.Token())
		require.Equal(t, 2, m.HoldCount(inner.Context()))
		kit.Release(t, inner)
		kit.Release(t, outer)
		kit.Free(t, other)
	})
}

func TestATryDoesNotOvertake(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		outer := hold(t, t.Context(), m)
		waiting := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		busy(t, m)
		inner, err := m.TryLock(outer.Context())
		require.NoError(t, err, "who holds enters, whoever waits")
		kit.Release(t, outer)
		busy(t, m)
		require.False(t, waiting.Returned())
		kit.Release(t, inner)
		next := waiting.Value(t)
		require.Greater(t, next.Token(), outer.Token())
		kit.Release(t, next)
	})
}

func TestAWaitThatEndsChangesNothingOfTheHold(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		outer := hold(t, t.Context(), m)
		inner := hold(t, outer.Context(), m)
		why := errors.New("no longer wanted")
		for _, c := range []struct {
			make func() (context.Context, context.CancelFunc)
			is   error
		}{
			{func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), 300*time.Millisecond)
			}, context.DeadlineExceeded},
			{func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(t.Context())
				return ctx, func() { cancel(why) }
			}, why},
		} {
			ctx, cancel := c.make()
			call := kit.Lock(ctx, other.Lock)
			if c.is == why {
				kit.Waiting(t, 1, m.Inspect)
				cancel()
			}
			err := call.Err(t)
			require.ErrorIs(t, err, c.is)
			require.Regexp(t, `^reentrant: lock ".*": waited .*: context (canceled|deadline exceeded)`, err.Error())
			kit.Waiting(t, 0, m.Inspect)
			require.Equal(t, 2, m.HoldCount(inner.Context()))
			cancel()
		}
		ended, cancel := context.WithCancel(inner.Context())
		cancel()
		for _, lock := range []func(context.Context) (*lease.Lease, error){m.Lock, m.TryLock} {
			_, err := lock(ended)
			require.ErrorIs(t, err, context.Canceled, "an ended context enters nothing")
		}
		require.Equal(t, 2, m.HoldCount(inner.Context()))
		kit.Release(t, inner)
		kit.Release(t, outer)
		kit.Free(t, other)
	})
}

func TestInspectTellsWhoWaitsInTheirOrder(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		l := hold(t, t.Context(), m)
		ctx, leave := context.WithCancel(t.Context())
		first := kit.Lock(ctx, other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		second := kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 2, m.Inspect)
		info, err := other.Inspect(t.Context())
		require.NoError(t, err)
		require.True(t, info.Held)
		require.Equal(t, a.ID(), info.Holder.Client)
		require.Equal(t, []string{b.ID(), a.ID()}, []string{info.Queue[0].Client, info.Queue[1].Client})
		leave()
		require.ErrorIs(t, first.Err(t), context.Canceled)
		kit.Waiting(t, 1, m.Inspect)
		kit.Release(t, l)
		kit.Release(t, second.Value(t))
		kit.Waiting(t, 0, m.Inspect)
	})
}

func TestWaitersHoldInTheirOrderThoughTheHoldIsEnteredAgain(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		const waiters = 6
		l := hold(t, t.Context(), m)
		calls := make([]*kit.Call[*lease.Lease], waiters)
		for i := range calls {
			lock := m.Lock
			if i%2 == 0 {
				lock = other.Lock
			}
			calls[i] = kit.Lock(t.Context(), lock)
			kit.Waiting(t, i+1, m.Inspect)
		}
		token := l.Token()
		for i, c := range calls {
			mine := m
			if i%2 == 1 { // The holder is one that asked through the other.
				mine = other
			}
			again := hold(t, l.Context(), mine)
			require.Equal(t, token, again.Token())
			kit.Release(t, l)
			for _, later := range calls[i:] {
				require.False(t, later.Returned())
			}
			kit.Release(t, again)
			l = c.Value(t)
			require.Greater(t, l.Token(), token)
			token = l.Token()
		}
		kit.Release(t, l)
		kit.Free(t, m)
	})
}
