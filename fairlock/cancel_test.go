package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestACancelledWaiterLeavesNoTraceAndTheNextMovesUp(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder := dialMutex(t, s)
		l := hold(t, holder)
		ctx, cancel := context.WithCancel(t.Context())
		calls := make([]*call, 3)
		clients := make([]*headwaiter.Client, 3)
		for i := range calls {
			clients[i] = kit.Dial(t, s)
			mine := t.Context()
			if i == 0 {
				mine = ctx
			}
			calls[i] = begin(mine, fairlock.New(clients[i], kit.Name(t)))
			queued(t, holder, i+1)
		}
		cancel()
		require.ErrorIs(t, calls[0].Err(t), context.Canceled)
		queued(t, holder, 2)
		info := inspect(t, holder)
		require.Equal(t, clients[1].ID(), info.Queue[0].Client)
		require.Equal(t, clients[2].ID(), info.Queue[1].Client)
		kit.Release(t, l)
		l = calls[1].Value(t)
		kit.Release(t, l)
		kit.Release(t, calls[2].Value(t))
		require.Zero(t, clients[0].Stats().Messages, "nothing was to be sent to the one that left")
	})
}

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
		require.EqualError(t, err, `fairlock: lock "orders:42": waited 5s behind 2: context deadline exceeded: the order was withdrawn`)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, cause)
		var wait *lease.WaitError
		require.ErrorAs(t, err, &wait)
		require.Equal(t, 2, wait.Place)
		require.Equal(t, 5*time.Second, wait.Waited)
	})
}

// The place is not told where the end comes before the first answer.
func TestTheTextOfAWaitThatEnds(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder, waiter := fairlock.New(kit.Dial(t, s), "orders:42"), fairlock.New(kit.Dial(t, s), "orders:42")
		l := hold(t, holder)
		first := begin(t.Context(), fairlock.New(kit.Dial(t, s), "orders:42"))
		queued(t, holder, 1)

		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := begin(ctx, waiter).Err(t)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Regexp(t, `^fairlock: lock "orders:42": waited \d+(\.\d+)?m?s( behind 2)?: context deadline exceeded$`, err.Error())
		queued(t, holder, 1)

		ctx, withdraw := context.WithCancelCause(t.Context())
		c := begin(ctx, waiter)
		queued(t, holder, 2)
		cause := errors.New("no longer wanted")
		withdraw(cause)
		err = c.Err(t)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		require.Regexp(t, `^fairlock: lock "orders:42": waited \d+(\.\d+)?(µs|ms|s)( behind 2)?: context canceled: no longer wanted$`, err.Error())
		queued(t, holder, 1)
		kit.Release(t, l)
		kit.Release(t, first.Value(t))
	})
}

func TestEveryCallOfAClientKnowsItsOwnPlace(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, m := dialMutex(t, s), dialMutex(t, s)
		hold(t, holder)
		// Told by the check that follows the subscription, by later checks, and by the ask.
		for _, limit := range []time.Duration{time.Second, 5 * time.Second, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			calls := []*call{begin(ctx, m), begin(ctx, m), begin(ctx, m)}
			queued(t, holder, 3)
			var places []int
			for _, c := range calls {
				var wait *lease.WaitError
				require.ErrorAs(t, c.Err(t), &wait)
				places = append(places, wait.Place)
			}
			require.ElementsMatch(t, []int{1, 2, 3}, places)
			queued(t, holder, 0)
		}
	})
}

func TestACallWithAnEndedContextAsksNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, begin(ctx, m).Err(t), context.Canceled)
		_, err := m.TryLock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, lease.ErrBusy)
		require.Zero(t, c.Stats().Asks)
		require.Zero(t, len(s.List("KEYS", "*{*")))
	})
}

// The cancellation falls anywhere from before the release to after the grant was heard. Whoever wins, the
// caller has the hold or an error, and the next gets in at once.
func TestACancellationAtTheMomentOfTheGrantLosesNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder, waiter, next := dialMutex(t, s), dialMutex(t, s), dialMutex(t, s)
		var kept, given int
		span := handOffTime(t, holder, waiter)
		for i := range 300 {
			l := hold(t, holder)
			ctx, cancel := context.WithCancel(t.Context())
			c := begin(ctx, waiter)
			queued(t, holder, 1)
			n := begin(t.Context(), next)
			queued(t, holder, 2)
			timer := time.AfterFunc(rand.N(span<<(i%4)), cancel) // Up to 8 hand-offs: the machine may get slower.
			kit.Release(t, l)
			err := c.Err(t)
			timer.Stop()
			cancel()
			if err == nil {
				kept++
				require.Nil(t, c.Value(t).Context().Err(), "the context of the wait must not end the hold")
				kit.Release(t, c.Value(t))
			} else {
				given++
				require.ErrorIs(t, err, context.Canceled)
			}
			begun := time.Now()
			kit.Release(t, n.Value(t))
			require.Less(t, time.Since(begun), time.Second, "the next had to wait for a check")
			queued(t, holder, 0)
		}
		t.Logf("hand-offs of %v: %d holds, %d errors", span, kept, given)
		require.NotZero(t, kept)
		require.NotZero(t, given)
		require.False(t, inspect(t, holder).Held)
	})
}

// As after a crash between a grant and a notice that came too late for everybody.
func TestAGrantToACallThatIsOverIsGivenBack(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		m, other := fairlock.New(c, kit.Name(t)), dialMutex(t, s)
		l := hold(t, other)
		w := begin(t.Context(), m)
		queued(t, other, 1)
		kit.Release(t, l)
		kit.Release(t, w.Value(t)) // Its client hears for a while.

		lock, _, _ := keysOf(kit.Name(t))
		now, token := s.Int("HGET", lock, "token"), s.Int("HGET", lock, "token")+1
		ticket := c.ID() + ":9999:x:1:3600000:3600000"
		until := now + time.Hour.Microseconds()
		s.Do("HSET", lock, "owner", ticket, "until", fmt.Sprint(until), "token", fmt.Sprint(token), "phase", "held")
		tell := func(token int64, times uint64) {
			ends := c.Stats().Ends
			s.Do("PUBLISH", lock+":wake:"+c.ID(), fmt.Sprintf("G %s %d %d %d", ticket, now, token-now, time.Hour.Milliseconds()))
			kit.Eventually(t, "the notice to be heard", func() bool { return c.Stats().GivenBack == times })
			kit.Eventually(t, "the answer to it", func() bool { return c.Stats().Ends > ends })
		}
		tell(token-1, 1) // Of an earlier grant: this one is not meant.
		for range 10 {
			require.True(t, inspect(t, m).Held) // On the connection that the answer went on.
		}
		tell(token, 2)
		kit.Eventually(t, "the grant to be given back", func() bool { return !inspect(t, other).Held })
		require.Equal(t, uint64(token), inspect(t, other).Token)
		l = hold(t, other)
		require.Greater(t, l.Token(), uint64(token))
		tell(token, 3) // Once more, when it is about nobody, least of all about the present holder.
		require.NoError(t, c.Close(t.Context()))
		require.Equal(t, l.Token(), inspect(t, other).Token)
		require.True(t, inspect(t, other).Held)
		kit.Release(t, l)
	})
}

// handOffTime is how long a hand-off takes here.
func handOffTime(t *testing.T, a, b *fairlock.Mutex) time.Duration {
	t.Helper()
	spans := make([]time.Duration, 21)
	for i := range spans {
		l := hold(t, a)
		c := begin(t.Context(), b)
		queued(t, a, 1)
		begun := time.Now()
		kit.Release(t, l)
		l = c.Value(t)
		spans[i] = time.Since(begun)
		kit.Release(t, l)
	}
	return kit.Median(spans)
}

func TestAReleaseWithTheContextOfItsHoldIsConfirmed(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		l := hold(t, fairlock.New(kit.Dial(t, s), kit.Name(t)))
		require.NoError(t, l.Release(l.Context()))
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
	})
}
