package locker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/locker"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// bubble runs a case with two clients of one server.
func bubble(t *testing.T, run func(t *testing.T, s *headwaitertest.Server, a, b *headwaiter.Client)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := headwaitertest.Start(t)
		run(t, s, s.Client(t), s.Client(t))
	})
}

// panicked runs f and returns what it panicked with.
func panicked(t *testing.T, f func()) (found *locker.Error) {
	t.Helper()
	defer func() {
		t.Helper()
		what := recover()
		require.NotNil(t, what, "it did not panic")
		err, ok := what.(error)
		require.True(t, ok, "it panicked with %v", what)
		require.ErrorAs(t, err, &found)
	}()
	f()
	return nil
}

func TestOnlyOneIsInside(t *testing.T) {
	bubble(t, func(t *testing.T, _ *headwaitertest.Server, a, b *headwaiter.Client) {
		// Two goroutines share a locker, and two have one each.
		shared := locker.New(t.Context(), fairlock.New(a, "orders"))
		lockers := []sync.Locker{shared, shared,
			locker.New(t.Context(), fairlock.New(a, "orders")), locker.New(t.Context(), fairlock.New(b, "orders"))}
		var wg sync.WaitGroup
		inside, count := 0, 0 // The race detector and the counts would see a second one.
		for _, l := range lockers {
			wg.Go(func() {
				for range 10 {
					l.Lock()
					inside++
					synctime.Pass(time.Millisecond) // Everybody else is waiting by then.
					if inside == 1 {
						count++
					}
					inside--
					l.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, 40, count)
	})
}

// A condition is what of the standard library takes a Locker.
func TestAConditionWorksOnIt(t *testing.T) {
	bubble(t, func(t *testing.T, _ *headwaitertest.Server, a, b *headwaiter.Client) {
		l := locker.New(t.Context(), fairlock.New(a, "orders"))
		cond := sync.NewCond(l)
		ready := false
		done := make(chan struct{})
		go func() {
			defer close(done)
			cond.L.Lock()
			for !ready {
				cond.Wait()
			}
			cond.L.Unlock()
		}()
		synctest.Wait()
		other := locker.New(t.Context(), fairlock.New(b, "orders"))
		require.True(t, other.TryLock(), "who waits for the condition does not hold")
		other.Unlock()
		l.Lock()
		ready = true
		cond.Broadcast()
		l.Unlock()
		<-done
	})
}

func TestATryDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, _ *headwaitertest.Server, a, b *headwaiter.Client) {
		one := locker.New(t.Context(), fairlock.New(a, "orders"))
		two := locker.New(t.Context(), fairlock.New(b, "orders"))
		require.True(t, one.TryLock())
		require.False(t, one.TryLock(), "it is locked here")
		require.False(t, two.TryLock(), "it is locked elsewhere")
		one.Unlock()
		require.True(t, two.TryLock())
		two.Unlock()
	})
}

func TestLockPanicsWhenItsContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, _ *headwaitertest.Server, a, b *headwaiter.Client) {
		held := locker.New(t.Context(), fairlock.New(a, "orders"))
		held.Lock()
		err := panicked(t, locker.New(kit.Within(t, time.Second), fairlock.New(b, "orders")).Lock)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "lock", err.Op)
		require.Equal(t, "orders", err.Name)
		require.Contains(t, err.Error(), `locker: lock "orders": fairlock: lock "orders": waited 1s`)

		synctest.Wait() // It leaves the queue.
		held.Unlock()
		after := locker.New(t.Context(), fairlock.New(b, "orders"))
		require.True(t, after.TryLock(), "the call that panicked has left something held")
		after.Unlock()
	})
}

func TestAWaitInTheProcessEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, _ *headwaitertest.Server, a, _ *headwaiter.Client) {
		why := errors.New("shutting down")
		ctx, cancel := context.WithCancelCause(t.Context())
		l := locker.New(ctx, fairlock.New(a, "orders"))
		l.Lock()
		time.AfterFunc(time.Second, func() { cancel(why) })
		kit.Fails(t, panicked(t, l.Lock), context.Canceled, why)
		require.NoError(t, l.Context().Err(), "the context of New does not end a hold")
		l.Unlock()
		require.ErrorIs(t, panicked(t, l.Lock), context.Canceled)
	})
}

func TestLockPanicsWhenTheClientIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, _ *headwaitertest.Server, a, _ *headwaiter.Client) {
		require.NoError(t, a.Shutdown(t.Context()))
		l := locker.New(t.Context(), fairlock.New(a, "orders"))
		require.ErrorIs(t, panicked(t, l.Lock), lease.ErrClosed)
		require.ErrorIs(t, panicked(t, func() { l.TryLock() }), lease.ErrClosed)
		require.ErrorIs(t, panicked(t, l.Lock), lease.ErrClosed, "the first panic left it locked")
	})
}

func TestUnlockPanicsWhenNotLocked(t *testing.T) {
	bubble(t, func(t *testing.T, _ *headwaitertest.Server, a, _ *headwaiter.Client) {
		l := locker.New(t.Context(), fairlock.New(a, "orders"))
		require.ErrorIs(t, panicked(t, l.Unlock), locker.ErrNotLocked)
		l.Lock()
		require.NoError(t, l.Context().Err())
		l.Unlock()
		require.ErrorIs(t, panicked(t, l.Unlock), locker.ErrNotLocked)
	})
}

func TestTheContextEndsAtALossAndUnlockPanics(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server, a, b *headwaiter.Client) {
		l := locker.New(t.Context(), fairlock.New(a, "orders"))
		l.Lock()
		ctx, first := l.Context(), l.Lease().Token()
		require.NoError(t, ctx.Err())
		s.ForceRelease("orders")
		require.ErrorIs(t, kit.Lost(t, l.Lease()), lease.ErrForced)
		require.ErrorIs(t, context.Cause(ctx), lease.ErrForced)
		other := locker.New(t.Context(), fairlock.New(b, "orders"))
		other.Lock()
		kit.Fails(t, panicked(t, l.Unlock), lease.ErrLost, lease.ErrForced)
		require.NoError(t, other.Context().Err(), "it unlocked what another holds")
		other.Unlock()

		l.Lock() // The loss is over: it can be had again.
		require.Greater(t, l.Lease().Token(), first)
		l.Unlock()
	})
}

func TestNobodyElseEntersByALockerBeforeALossWasSeen(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server, a, _ *headwaiter.Client) {
		l := locker.New(t.Context(), fairlock.New(a, "orders"))
		l.Lock()
		s.ForceRelease("orders")
		kit.Await(t, l.Context().Done(), "the loss")
		next := kit.Run(func() error { l.Lock(); return nil })
		synctest.Wait()
		require.False(t, next.Returned(), "Context and Unlock would be those of another's hold")
		require.ErrorIs(t, panicked(t, l.Unlock), lease.ErrForced)
		require.NoError(t, next.Err(t))
		require.NoError(t, l.Context().Err())
		l.Unlock()
	})
}

func TestALossIsToldToWhoWantsIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server, a, _ *headwaiter.Client) {
		var told []error
		l := locker.New(t.Context(), fairlock.New(a, "orders"), locker.WithLoss(func(err error) { told = append(told, err) }))
		l.Lock()
		require.NoError(t, l.Context().Err())
		l.Unlock()
		require.Empty(t, told)
		l.Lock()
		s.Pause(a)
		kit.Await(t, l.Context().Done(), "the loss")
		s.Resume(a)
		l.Unlock()
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0], lease.ErrExpired)
		require.ErrorAs(t, told[0], new(*locker.Error))
		require.ErrorIs(t, panicked(t, l.Unlock), locker.ErrNotLocked, "that is no loss")
	})
}

func TestAnUnlockThatNobodyConfirmsDoesNotPanic(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server, a, b *headwaiter.Client) {
		l := locker.New(t.Context(), fairlock.New(a, "orders"))
		l.Lock()
		s.Pause(a)
		began := time.Now()
		l.Unlock()
		require.LessOrEqual(t, time.Since(began), 6*time.Second)
		other := locker.New(t.Context(), fairlock.New(b, "orders"))
		other.Lock() // The lease has ended by itself.
		require.NoError(t, other.Context().Err())
		other.Unlock()
	})
}

func TestUnlockWaitsForTheServerThoughTheContextOfNewHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server, a, b *headwaiter.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		l := locker.New(ctx, fairlock.New(a, "orders"))
		l.Lock()
		cancel()
		s.Pause(a)
		time.AfterFunc(time.Second, func() { s.Resume(a) })
		l.Unlock()
		other := locker.New(t.Context(), fairlock.New(b, "orders"))
		require.True(t, other.TryLock(), "it has returned while it was held")
		other.Unlock()
	})
}

func TestWithoutAHoldTheContextHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, _ *headwaitertest.Server, a, _ *headwaiter.Client) {
		l := locker.New(t.Context(), fairlock.New(a, "orders"))
		require.ErrorIs(t, context.Cause(l.Context()), locker.ErrNotLocked)
		require.Nil(t, l.Lease())
		l.Lock()
		ctx := l.Context()
		l.Unlock()
		require.ErrorIs(t, context.Cause(ctx), lease.ErrReleased)
	})
}
