package countdown_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// hears is within which time a waiter that hears nothing finds out by its checks.
const hears = 3 * time.Second

func TestARemovedLatchIsGoneForThoseWhoWait(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		told := &kit.Observer{}
		observed := func(o *headwaiter.Options) { o.Observer = told }
		v, other := dial(t, s, observed), dial(t, s, observed)
		v.set(t, 2)
		calls := []*kit.Call[struct{}]{v.waits(t, t.Context()), v.waits(t, t.Context()), other.waits(t, t.Context())}
		// One that the server has not seen yet would find no latch.
		kit.Eventually(t, "the waits to be answered", func() bool { return len(told.Of(observe.Queued)) == len(calls) })
		require.True(t, kit.Got(other.Remove(t.Context()))(t))
		for _, c := range calls {
			require.ErrorIs(t, c.Err(t), countdown.ErrGone)
		}
		require.ErrorIs(t, v.Wait(t.Context()), countdown.ErrUnset)
		require.False(t, kit.Got(other.Remove(t.Context()))(t))
		v.set(t, 1)
		other.down(t, 0)
		require.NoError(t, other.Wait(t.Context()))
		kit.Expiring(t, s)
	})
}

func TestALatchOutlivesItsLastUseByItsLifetime(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		l := countdown.New(c, kit.Name(t), countdown.WithLifetime(time.Minute))
		set := func() { require.True(t, kit.Got(l.TrySetCount(t.Context(), 1))(t)) }
		set()
		wait := kit.Run(func() error { return l.Wait(t.Context()) })
		synctime.Pass(5 * time.Minute) // The waiter's looks keep it.
		require.False(t, wait.Returned())
		require.NoError(t, kit.Err(l.CountDown(t.Context())))
		require.NoError(t, wait.Err(t))
		// Also an open one is there for late waiters.
		for range 10 {
			synctime.Pass(59 * time.Second)
			require.NoError(t, l.Wait(t.Context()))
		}
		synctime.Pass(61 * time.Second)
		require.ErrorIs(t, l.Wait(t.Context()), countdown.ErrUnset)
		set()
		synctime.Pass(61 * time.Second)
		require.ErrorIs(t, kit.Err(l.CountDown(t.Context())), countdown.ErrUnset)
		synctime.Pass(7 * time.Minute)
		require.Zero(t, len(s.List("KEYS", "*{*")), "ids of requests are forgotten too")
	})
}

// An attempt may be under way for a minute when its call gives up.
func TestARequestIsRememberedForAsLongAsItMayComeAgain(t *testing.T) {
	for _, limit := range []time.Duration{5 * time.Second, time.Hour} {
		kit.BubbleOf(t, limit.String(), func(t *testing.T, s *redistest.Embedded) {
			v, ctx := dial(t, s), kit.Within(t, limit)
			require.NoError(t, kit.Err(v.TrySetCount(ctx, 5)))
			require.NoError(t, kit.Err(v.CountDown(ctx)))
			require.NoError(t, v.client.Shutdown(t.Context()))
			requests := lua.RequestsKey(keyOf(v.Name()), v.client.ID())
			known := min(limit, 5*time.Minute) + time.Minute // A call gives up after five minutes.
			synctime.Pass(known - time.Second)
			require.EqualValues(t, 1, s.Int("EXISTS", requests))
			synctime.Pass(2 * time.Second)
			require.Zero(t, s.Int("EXISTS", requests))
		})
	}
}

// early is the latch for a waiter that may be first.
func (v view) early(t testing.TB) view {
	return view{countdown.New(v.client, kit.Name(t), countdown.WithEarlyWait()), v.client}
}

func TestAWaiterThatComesBeforeTheLatchIsSetWaitsForItsOpening(t *testing.T) {
	kit.Pair(t, func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client) {
		v, other := on(t, a), on(t, b)
		first := v.early(t)
		calls := []*kit.Call[struct{}]{first.waits(t, t.Context()), other.early(t).waits(t, t.Context())}
		kit.Eventually(t, "the waiters to be heard of", func() bool {
			info := kit.Got(v.Inspect(t.Context()))(t)
			require.Equal(t, wire.StateUnset, info.State)
			require.Zero(t, info.Used)
			return info.Waiting > 0
		})
		// For all others it is not set.
		require.ErrorIs(t, other.Wait(t.Context()), countdown.ErrUnset)
		require.ErrorIs(t, kit.Err(other.CountDown(t.Context())), countdown.ErrUnset)
		require.ErrorIs(t, kit.Err(first.Count(t.Context())), countdown.ErrUnset)
		require.False(t, kit.Got(other.Remove(t.Context()))(t))

		other.set(t, 2)
		require.False(t, kit.Got(v.TrySetCount(t.Context(), 5))(t), "it is closed")
		v.down(t, 1)
		for _, c := range calls {
			require.False(t, c.Returned())
		}
		other.down(t, 0)
		passed(t, calls...)
		require.NoError(t, first.Wait(t.Context()))
		kit.Expiring(t, s)
	})
}

// The ask may come twice, before and after the latch is set.
func TestAnEarlyAskWhoseReplyIsLostChangesNothing(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		v, waiter := dial(t, s), dial(t, s, kit.Over(d)).early(t)
		d.LoseReplies(1, kit.Runs(lua.Countdown.Ask))
		c := waiter.waits(t, t.Context())
		kit.LostReplies(t, d.Faults, 1)
		v.set(t, 1)
		synctime.Pass(time.Minute)
		require.False(t, c.Returned())
		v.down(t, 0)
		c.Value(t)
	})
}

func TestAnEarlyWaiterLeavesWithItsContextAndNothingStays(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		l := countdown.New(c, kit.Name(t), countdown.WithEarlyWait(), countdown.WithLifetime(time.Minute))
		// Its checks keep what it waits for. At each full minute a client says who it is.
		require.ErrorIs(t, l.Wait(kit.Within(t, 5*time.Minute+time.Second)), context.DeadlineExceeded)
		info := kit.Got(l.Inspect(t.Context()))(t)
		require.NotZero(t, info.Token, "it was awaited")
		s.ResetStats()
		synctime.Pass(58 * time.Second)
		require.Empty(t, kit.Scripts(s), "nobody waits, so nobody looks")
		synctime.Pass(3 * time.Second)
		info = kit.Got(l.Inspect(t.Context()))(t)
		require.Zero(t, info.Token)
	})
}
