package barrier_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
)

func TestABarrierThatNobodyHasUsedIsNotBroken(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		v := dial(t, s, 2)
		require.False(t, v.broken(t))
		n, err := v.Waiting(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.NoError(t, v.Reset(t.Context()))
		require.Equal(t, "unset", v.inspect(t).State)
		require.Zero(t, len(s.List("KEYS", "*{*")))
	})
}

func TestInspectTellsWhoHasCome(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := dial(t, s, 3), dial(t, s, 3, headwaiter.WithLease(time.Hour))
		first := a.comes(t, t.Context(), 1)
		second := b.comes(t, t.Context(), 2)
		info := a.inspect(t)
		require.Equal(t, "open", info.State)
		require.EqualValues(t, 3, info.Limit)
		require.EqualValues(t, 2, info.Used)
		require.Len(t, info.Holders, 2)
		require.Equal(t, a.client.ID(), info.Holders[0].Client, "the lease that ends first")
		require.Equal(t, b.client.ID(), info.Holders[1].Client)
		require.Greater(t, info.Holders[1].Left, 50*time.Minute)
		require.Contains(t, info.Holders[0].Who, "test@")
		n, err := b.Waiting(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
		pass(t, first, second, b.party(t.Context()))
		require.Empty(t, a.inspect(t).Holders)
		breaks(t, a)
		require.Equal(t, "broken", b.inspect(t).State)
	})
}

func TestMessagesOfOtherGenerationsOpenAndBreakNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := dial(t, s, 2), dial(t, s, 2)
		meet(t, func(i int) view { return []view{a, b}[i] })
		present := a.inspect(t).Token
		first := a.comes(t, t.Context(), 1)
		kit.Eventually(t, "the first look", func() bool { return a.client.Stats().Checks > 0 })
		kit.Eventually(t, "its subscription", func() bool {
			return s.Do("PUBSUB", "NUMSUB", lockOf(a.Name())+":wake").([]any)[1].(int64) > 0
		})
		heard := a.client.Stats().Messages
		messages := []string{
			fmt.Sprintf("O %d", present-1), fmt.Sprintf("B %d", present-1), fmt.Sprintf("O %d", present+1),
			fmt.Sprintf("B %d", present+1), "O 0", "B 0", "O 9007199254740993", "B 9007199254740993", "O", "B x", "", "G a 1 2 3",
		}
		for range 3 {
			for _, m := range messages {
				s.Do("PUBLISH", lockOf(a.Name())+":wake", m)
				heard++
				kit.Eventually(t, "the message to be heard", func() bool { return a.client.Stats().Messages == heard })
				require.False(t, first.Returned(), "%q", m)
			}
		}
		require.Equal(t, 1, a.inspect(t).Waiting)
		require.False(t, a.broken(t))
		pass(t, first, b.party(t.Context()))
		meet(t, func(i int) view { return []view{b, a}[i] })
	})
}

// What was asked in an earlier generation changes nothing in a later one: here the requests are played again.
func TestOldRequestsOpenAndBreakNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := dial(t, s, 2), dial(t, s, 2)
		views := func(i int) view { return []view{a, b}[i] }
		for range 3 {
			first := a.comes(t, t.Context(), 1)
			old := a.inspect(t)
			pass(t, first, b.party(t.Context()))
			first = a.comes(t, t.Context(), 1)
			ticket, keys := old.Holders[0].Ticket, s.List("KEYS", lockOf(a.Name())+"*")
			require.NotEmpty(t, keys)
			replay(s, a.Name(), ticket, old.Token)
			require.False(t, first.Returned())
			require.Equal(t, 1, a.inspect(t).Waiting)
			require.False(t, a.broken(t))
			pass(t, first, b.party(t.Context()))
		}
		meet(t, views)
	})
}

func TestABrokenBarrierIsForgottenAfterItsLifetime(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		v := dial(t, s, 2, barrier.WithLifetime(time.Minute))
		breaks(t, v)
		for range 5 { // A call is a use, also one that fails.
			synctime.Pass(59 * time.Second)
			_, err := v.Await(t.Context())
			require.ErrorIs(t, err, barrier.ErrBroken)
		}
		synctime.Pass(61 * time.Second)
		require.False(t, v.broken(t))
		// One that waits keeps it, however long.
		first := v.comes(t, t.Context(), 1)
		synctime.Pass(5 * time.Minute)
		pass(t, first, v.party(t.Context()))
		synctime.Pass(15 * time.Minute)
		require.Zero(t, len(s.List("KEYS", "*{*")))
	})
}
