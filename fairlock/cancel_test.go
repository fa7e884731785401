package fairlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

func TestAWaitThatEndsTellsPlaceAndTimeAndWhy(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := fairlock.New(kit.Dial(t, s), "orders:42")
		hold(t, holder)
		begin(t.Context(), fairlock.New(kit.Dial(t, s), "orders:42"))
		queued(t, holder, 1)

		cause := errors.New("the order was withdrawn")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, cause)
		defer cancel()
		err := begin(ctx, fairlock.New(kit.Dial(t, s), "orders:42")).Err(t)
		require.EqualError(t, err, `fairlock: lock "orders:42": waited 5s, 2 ahead: context deadline exceeded: the order was withdrawn`)
		kit.Fails(t, err, context.DeadlineExceeded, cause)
		wait := kit.As[*lease.WaitError](t, err)
		require.Equal(t, 2, wait.Place)
		require.Equal(t, 5*time.Second, wait.Waited)
	})
}

func TestEveryCallOfAClientKnowsItsOwnPlace(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, m := dialMutex(t, s), dialMutex(t, s)
		hold(t, holder)
		// Told by the check that follows the subscription, by later checks, and by the ask.
		for _, limit := range []time.Duration{time.Second, 5 * time.Second, time.Second} {
			ctx := kit.Within(t, limit)
			calls := []*call{begin(ctx, m), begin(ctx, m), begin(ctx, m)}
			queued(t, holder, 3)
			var places []int
			for _, c := range calls {
				wait := kit.As[*lease.WaitError](t, c.Err(t))
				places = append(places, wait.Place)
			}
			require.ElementsMatch(t, []int{1, 2, 3}, places)
			queued(t, holder, 0)
		}
	})
}

// Whichever way the server found that the lock is held, it says who holds it.
func TestATryThatFailsSaysWhoHolds(t *testing.T) {
	kit.Two(t, func(t *testing.T, s redistest.Backend, holder, other *headwaiter.Client) {
		m := fairlock.New(holder, kit.Name(t))
		begun := time.Now()
		l := hold(t, m)
		asked := time.Now()
		tries := map[string]*fairlock.Mutex{
			"usual":     fairlock.New(other, kit.Name(t)),
			"with more": fairlock.New(other, kit.Name(t), headwaiter.WithPriority(1)),
		}
		busy := func(name string, waiting int) {
			_, err := tries[name].TryLock(t.Context())
			require.ErrorIs(t, err, lease.ErrBusy, name)
			var e *lease.BusyError
			require.ErrorAs(t, err, &e, name)
			require.Equal(t, holder.ID(), e.Client, name)
			require.Equal(t, l.Token(), e.Token, name)
			require.Equal(t, waiting, e.Waiting, name)
			const way = 2 * time.Second // that the answer was on its way, at the most
			require.WithinRange(t, e.Since, begun.Add(-way), asked.Add(way), name)
			require.Regexp(t, `busy: client \S+ holds it with token \d+ for \S+`, err.Error(), name)
		}
		for name := range tries {
			busy(name, 0)
		}
		waits := joins(t, 1, dialMutex(t, s), m)
		for name := range tries {
			busy(name, 1)
		}
		next := kit.Next(t, l, waits)
		lock, queue, _ := keysOf(kit.Name(t))
		kit.Release(t, next)
		s.Do("HSET", lock, "high", "2")
		s.Do("ZADD", queue, "1", "dead1:1:x:1:10000:300", "2", "dead2:1:x:1:10000:300")
		s.Do("PEXPIRE", queue, "60000")
		require.EqualError(t, kit.Err(m.TryLock(t.Context())), `fairlock: try lock "`+kit.Name(t)+`": busy`, "nobody holds, and others wait")
	})
}

// A try that calls the keeper says that the lock is busy, however short its own wait may be.
func TestATryThatMayWaitForLessThanItCallsIsBusy(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		_, m := kept(t, s)
		l := hold(t, m)
		require.ErrorIs(t, kit.Err(dialMutex(t, s, headwaiter.WithMaxWait(20*time.Millisecond)).TryLock(t.Context())), lease.ErrBusy)
		l.Unlock()
	})
}

// usedUp is a client on a caller's client whose one connection for subscriptions and waits is in use; free ends that.
func usedUp(t *testing.T, s *redistest.Embedded) (c *headwaiter.Client, free func()) {
	t.Helper()
	o := s.Option()
	o.BlockingPoolSize, o.PipelineMultiplex = 1, -1
	rc := kit.Got(rueidis.NewClient(o))(t)
	t.Cleanup(rc.Close)
	_, free = rc.Dedicate()
	c = kit.Got(headwaiter.New(rc, headwaiter.Options{Name: "test"}))(t)
	return c, free
}

// closes ends a client, which does not wait for a connection that its caller uses.
func closes(t *testing.T, c *headwaiter.Client) {
	t.Helper()
	end := kit.Run(func() error { return c.Shutdown(context.Background()) })
	synctime.Pass(time.Second)
	require.True(t, end.Returned())
	require.NoError(t, end.Err(t))
}

func TestAClientEndsThoughTheConnectionsOfItsCallerAreUsedUp(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, free := usedUp(t, s)
		defer free()
		l, ctx := hold(t, dialMutex(t, s)), kit.Within(t, 10*time.Second)
		kit.Fails(t, kit.Err(fairlock.New(c, kit.Name(t)).Lock(ctx)), context.DeadlineExceeded, "raise BlockingPoolSize")
		call := kit.Lock(t.Context(), fairlock.New(c, kit.Name(t)).Lock)
		synctest.Wait()
		closes(t, c)
		require.Error(t, call.Err(t))
		kit.Release(t, l)
	})
}

func TestAWaitForReplicasEndsThoughTheConnectionsOfItsCallerAreUsedUp(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, free := usedUp(t, s)
		defer free()
		ctx := kit.Within(t, 10*time.Second)
		m := fairlock.New(c, kit.Name(t), headwaiter.WithReplicas(1, time.Second))
		kit.Fails(t, kit.Err(m.Lock(ctx)), context.DeadlineExceeded, "raise BlockingPoolSize")
		call := kit.Lock(t.Context(), m.Lock)
		synctest.Wait()
		closes(t, c)
		require.Error(t, call.Err(t))
	})
}

// What comes when nobody wants it any more goes back, and what is wanted comes as soon as it is there.
func TestAConnectionThatComesLateIsUsedOrGoesBack(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, free := usedUp(t, s)
		l := hold(t, dialMutex(t, s))
		call := kit.Lock(t.Context(), fairlock.New(c, kit.Name(t)).Lock)
		synctime.Pass(10 * time.Second)
		free()
		synctime.Pass(10 * time.Second)
		heard := c.Stats().Messages
		kit.PassOn(t, l, call)
		require.Greater(t, c.Stats().Messages, heard, "the grant came by message")
		closes(t, c)
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
			require.NoError(t, c.Shutdown(t.Context()))
			require.ErrorIs(t, w.Err(t), lease.ErrClosed)
			require.Empty(t, inspect(t, holder).Queue, "round %d: Close came back, and its call is still queued", i)
		}
		kit.Release(t, l)
	})
}

// A look whose script the server does not know is sent again, after the release that was sent meanwhile.
func TestCloseLeavesNothingOfALookThatIsSentTwice(t *testing.T) {
	s := kit.Start(t)
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
		require.NoError(t, c.Shutdown(t.Context()))
		require.ErrorIs(t, w.Err(t), lease.ErrClosed)
		require.Empty(t, inspect(t, holder).Queue, "round %d: Close came back, and its call is still queued", i)
	}
	kit.Release(t, l)
}
