package headwaitertest_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestAForcedHolderIsToldAndTheNextHolds(t *testing.T) {
	both(t, func(t *testing.T, s *headwaitertest.Server) {
		orders := fairlock.New(s.Client(t), "orders:42")
		others := fairlock.New(s.Client(t), "orders:42")
		held := lock(t, orders)
		next := queue(t, others, 1)
		s.ForceRelease("orders:42")
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
		require.Greater(t, next.Value(t).Token(), held.Token())
		require.ErrorIs(t, held.Release(context.Background()), lease.ErrForced)
		require.NoError(t, next.Value(t).Context().Err(), "the release of one that lost it freed the lock of another")
	})
}

func TestForceTellsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		held := lock(t, fairlock.New(s.Client(t), "orders"))
		synctime.Pass(250 * time.Millisecond) // Only one that listens is told at once.
		synctest.Wait()
		began := time.Now()
		s.ForceRelease("orders")
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
		require.Less(t, time.Since(began), time.Second)
	})
}

func TestAnExpiredHolderBelievesThatItHoldsUntilItsRenewal(t *testing.T) {
	both(t, func(t *testing.T, s *headwaitertest.Server) {
		orders := fairlock.New(s.Client(t), "orders", headwaiter.WithLease(10*length))
		held := lock(t, orders)
		s.Expire("orders")
		other := kit.Got(fairlock.New(s.Client(t), "orders").TryLock(context.Background()))(t)
		require.NoError(t, held.Context().Err(), "a third of its lease has not passed")
		require.Greater(t, other.Token(), held.Token(), "the token is what tells them apart")
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrExpired)
		require.NoError(t, other.Context().Err())
	})
}

func TestARestartForgetsHoldersAndKeepsWaiters(t *testing.T) {
	both(t, func(t *testing.T, s *headwaitertest.Server) {
		held := lock(t, fairlock.New(s.Client(t), "orders", headwaiter.WithLease(length)))
		next := queue(t, fairlock.New(s.Client(t), "orders"), 1)
		s.Restart()
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrForgotten)
		require.Greater(t, next.Value(t).Token(), held.Token())
	})
}

func TestAPausedHolderIsToldBeforeAnybodyElseHolds(t *testing.T) {
	both(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		orders := fairlock.New(client, "orders", headwaiter.WithLease(length))
		held := lock(t, orders)
		others := fairlock.New(s.Client(t), "orders")
		next := kit.Lock(context.Background(), func(ctx context.Context) (*lease.Lease, error) {
			l, err := others.Lock(ctx)
			if err == nil && held.Context().Err() == nil {
				t.Error("another holds while the holder was not told")
			}
			return l, err
		})
		kit.Waiting(t, 1, others.Inspect)
		s.Pause(client)
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrExpired)
		other := next.Value(t)
		require.Greater(t, other.Token(), held.Token())
		s.Resume(client)
		require.ErrorIs(t, held.Release(context.Background()), lease.ErrExpired)
		require.NoError(t, other.Context().Err())
		again := queue(t, orders, 1)
		kit.Release(t, other)
		require.Greater(t, again.Value(t).Token(), other.Token(), "after a pause it is one of them as before")
	})
}

func TestNothingOfAPausedClientReachesTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		paused, other := s.Client(t), s.Client(t)
		s.Pause(paused)
		ctx := kit.Within(t, time.Second)
		require.ErrorIs(t, kit.Err(fairlock.New(paused, "orders").Lock(ctx)), context.DeadlineExceeded)
		held := kit.Got(fairlock.New(other, "orders").TryLock(t.Context()))(t)
		kit.Release(t, held)
		s.Resume(paused)
		held = lock(t, fairlock.New(paused, "orders"))
		kit.Release(t, held)
	})
}

func TestAServerOutOfReachIsLikeAPauseOfAll(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		one, two := lock(t, fairlock.New(s.Client(t), "one")), lock(t, fairlock.New(s.Client(t), "two"))
		s.Pause()
		require.ErrorIs(t, kit.Lost(t, one), lease.ErrExpired)
		require.ErrorIs(t, kit.Lost(t, two), lease.ErrExpired)
		s.Resume()
		kit.Release(t, lock(t, fairlock.New(s.Client(t), "one")))
	})
}

func TestAPauseShorterThanTheLeaseGoesByUnnoticed(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		held := lock(t, fairlock.New(client, "orders", headwaiter.WithLease(10*time.Second)))
		s.Pause(client)
		synctime.Pass(5 * time.Second)
		s.Resume(client)
		synctime.Pass(time.Minute)
		require.NoError(t, held.Context().Err())
		kit.Release(t, held)
	})
}

func TestAWaiterFindsTheGrantOfWhichTheMessageWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		orders, others := fairlock.New(s.Client(t), "orders"), fairlock.New(s.Client(t), "orders")
		held := lock(t, orders)
		next := queue(t, others, 1)
		synctime.Pass(time.Second) // The look that follows a subscription is over.
		s.DropMessages(1)
		began := time.Now()
		kit.Release(t, held)
		require.True(t, kit.Got(orders.Inspect(context.Background()))(t).Held, "the server handed on")
		require.False(t, next.Returned())
		second := next.Value(t)
		require.Greater(t, time.Since(began), 500*time.Millisecond, "nothing was lost")

		// One message was to be lost, not two.
		third := queue(t, orders, 1)
		synctime.Pass(5 * time.Second) // The look of a client that has handed on is over too.
		began = time.Now()
		kit.PassOn(t, second, third)
		require.Less(t, time.Since(began), 500*time.Millisecond)
	})
}

func TestMessagesAreLostAfterARestartToo(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		s.Restart()
		held := lock(t, fairlock.New(s.Client(t), "orders"))
		next := queue(t, fairlock.New(s.Client(t), "orders"), 1)
		synctime.Pass(time.Second)
		s.DropMessages(1)
		began := time.Now()
		kit.PassOn(t, held, next)
		require.Greater(t, time.Since(began), 500*time.Millisecond, "nothing was lost")
	})
}

func TestALostMessageIsFoundOutsideABubbleToo(t *testing.T) {
	t.Parallel()
	s := headwaitertest.Start(t)
	held := lock(t, fairlock.New(s.Client(t), "orders"))
	next := queue(t, fairlock.New(s.Client(t), "orders"), 1)
	s.DropMessages(1)
	kit.PassOn(t, held, next)
}

func TestALostNoticeOfForceIsFoundByTheRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		first := lock(t, fairlock.New(s.Client(t), "orders"))
		next := queue(t, fairlock.New(s.Client(t), "orders"), 1)
		kit.Release(t, first)
		held := next.Value(t) // It waited, so it hears.
		synctime.Pass(100 * time.Millisecond)
		s.DropMessages(1)
		s.ForceRelease("orders")
		synctest.Wait()
		require.NoError(t, held.Context().Err())
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
	})
}

func TestTheNewsOfAnElectionCanBeLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		observed := election.New(s.Client(t), "cron").Observe(t.Context())
		require.Empty(t, (<-observed).Value)
		synctime.Pass(time.Second) // The look that follows a subscription is over.
		s.DropMessages(1)
		began := time.Now()
		require.NoError(t, kit.Err(election.New(s.Client(t), "cron").Campaign(context.Background(), "me")))
		require.Equal(t, "me", (<-observed).Value)
		require.Greater(t, time.Since(began), 500*time.Millisecond, "nothing was lost")
	})
}

func TestDropMessagesTakesBackWhatWasNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		latch := countdown.New(s.Client(t), "parts")
		require.NoError(t, kit.Err(latch.TrySetCount(t.Context(), 1)))
		open := kit.Run(func() error { return countdown.New(s.Client(t), "parts").Wait(context.Background()) })
		kit.Waiting(t, 1, latch.Inspect)
		synctime.Pass(time.Second) // As above: what follows is not found by a look.
		s.DropMessages(5)
		s.DropMessages(0)
		began := time.Now()
		require.NoError(t, kit.Err(latch.CountDown(t.Context())))
		require.NoError(t, open.Err(t))
		require.Less(t, time.Since(began), 500*time.Millisecond)
	})
}

// lockers hold the same name in different ways.
var lockers = map[string]func(c *headwaiter.Client) (*lease.Lease, error){
	"reentrant": func(c *headwaiter.Client) (*lease.Lease, error) {
		return reentrant.New(c, "orders").Lock(context.Background())
	},
	"writer": func(c *headwaiter.Client) (*lease.Lease, error) {
		return rwlock.New(c, "orders").Lock(context.Background())
	},
	"reader": func(c *headwaiter.Client) (*lease.Lease, error) {
		return rwlock.New(c, "orders").RLock(context.Background())
	},
	"semaphore": func(c *headwaiter.Client) (*lease.Lease, error) {
		return semaphore.New(c, "orders", 3).Acquire(context.Background(), 2)
	},
	"leader": func(c *headwaiter.Client) (*lease.Lease, error) {
		return election.New(c, "orders").Campaign(context.Background(), "me")
	},
}

func TestEveryKindCanBeLost(t *testing.T) {
	t.Parallel()
	for kind, take := range lockers {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *headwaitertest.Server) {
				c := s.Client(t)
				for _, way := range []struct {
					lose  func()
					cause error
				}{
					{func() { s.ForceRelease("orders") }, lease.ErrForced},
					{func() { s.Expire("orders") }, lease.ErrExpired},
					{s.Restart, lease.ErrForgotten},
				} {
					held := kit.Got(take(c))(t)
					way.lose()
					require.ErrorIs(t, kit.Lost(t, held), way.cause)
				}
			})
		})
	}
}

func TestAllWhoShareANameAreForced(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		a := kit.Got(rwlock.New(s.Client(t), "orders").RLock(t.Context()))(t)
		b := kit.Got(rwlock.New(s.Client(t), "orders").RLock(t.Context()))(t)
		s.ForceRelease("orders")
		first, second := kit.Lost(t, a), kit.Lost(t, b)
		if errors.Is(first, lease.ErrForgotten) {
			first, second = second, first
		}
		// Neither listens yet, and the server remembers one that was forced.
		require.ErrorIs(t, first, lease.ErrForced)
		require.ErrorIs(t, second, lease.ErrForgotten)
	})
}

func TestAllWhoListenAreToldThatTheyWereForced(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		a := kit.Got(rwlock.New(s.Client(t), "orders").RLock(t.Context()))(t)
		b := kit.Got(rwlock.New(s.Client(t), "orders").RLock(t.Context()))(t)
		synctime.Pass(250 * time.Millisecond)
		synctest.Wait()
		began := time.Now()
		s.ForceRelease("orders")
		require.ErrorIs(t, kit.Lost(t, a), lease.ErrForced)
		require.ErrorIs(t, kit.Lost(t, b), lease.ErrForced)
		require.Less(t, time.Since(began), time.Second)
	})
}

func TestTimePassesInABubbleAndTheLeaseIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		held := lock(t, fairlock.New(s.Client(t), "orders"))
		synctime.Pass(time.Minute)
		require.NoError(t, held.Context().Err(), "it was renewed all the time")
		kit.Release(t, held)
	})
}

// failing is a test that may fail.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}
func (f *failing) Fatalf(format string, _ ...any) {
	f.said = format
	runtime.Goexit()
}

// fails runs f with a test of its own and returns how that failed, "" if not.
func fails(t *testing.T, f func(t testing.TB)) string {
	t.Helper()
	inner := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(inner)
	}()
	<-done
	return inner.said
}

func TestWhatCannotBeLostFailsTheTest(t *testing.T) {
	t.Parallel()
	nobody := "headwaitertest: nobody holds %q"
	require.Equal(t, nobody, fails(t, func(t testing.TB) { headwaitertest.Start(t).ForceRelease("orders") }))
	require.Equal(t, nobody, fails(t, func(t testing.TB) { headwaitertest.Start(t).Expire("orders") }))
	require.Contains(t, fails(t, func(t testing.TB) {
		s, other := headwaitertest.Start(t), headwaitertest.Start(t)
		s.Pause(other.Client(t))
	}), "not made by this server")
	require.Contains(t, fails(t, func(t testing.TB) {
		headwaitertest.Start(t).Client(t, func(o *headwaiter.Options) { o.Linger = -1 })
	}), "headwaitertest: ")
}

func TestAReleaseByForceIsInTheHistory(t *testing.T) {
	both(t, func(t *testing.T, s *headwaitertest.Server) {
		c := s.Client(t)
		orders := fairlock.New(c, "orders", fairlock.WithHistory(5))
		require.NoError(t, lock(t, orders).Release(context.Background()))
		lock(t, orders)
		s.ForceRelease("orders")
		past := kit.Got(inspect.History(context.Background(), c, "orders"))(t)
		require.Len(t, past, 2)
		require.Equal(t, "forced", past[0].How)
	})
}
