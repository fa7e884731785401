package countdown_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
)

// hears is within which time a waiter that hears nothing finds out by its checks.
const hears = 3 * time.Second

func TestALatchThatNobodyHasSetIsAnErrorAtOnce(t *testing.T) {
	among(t, func(t *testing.T, s redistest.Backend, views func(int) view) {
		v := views(0)
		require.ErrorIs(t, v.Wait(t.Context()), countdown.ErrUnset)
		left, err := v.CountDown(t.Context())
		require.ErrorIs(t, err, countdown.ErrUnset)
		require.Zero(t, left)
		_, err = v.Count(t.Context())
		require.ErrorIs(t, err, countdown.ErrUnset)
		removed, err := v.Remove(t.Context())
		require.NoError(t, err)
		require.False(t, removed)
		for _, key := range s.List("KEYS", "headwaiter:latch:{"+v.Name()+"}*") {
			t.Errorf("%s is left of calls that changed nothing", key)
		}
	})
}

func TestAClosedLatchCannotBeSetAndAnOpenOneCan(t *testing.T) {
	among(t, func(t *testing.T, s redistest.Backend, views func(int) view) {
		views(0).set(t, 2)
		for i := range 2 {
			done, err := views(i).TrySetCount(t.Context(), 9)
			require.NoError(t, err)
			require.False(t, done)
			require.EqualValues(t, 2, views(i).left(t))
		}
		old := []*kit.Call[struct{}]{views(0).waits(t, t.Context()), views(1).waits(t, t.Context())}
		views(0).down(t, 1)
		views(1).down(t, 0)
		views(1).set(t, 1)
		for _, c := range old {
			require.NoError(t, c.Err(t))
		}
		// It is another generation: those who come now wait for its opening.
		var g gate
		next := []*kit.Call[struct{}]{kit.Run(g.wait(views(0))), kit.Run(g.wait(views(1)))}
		fresh := views(1).waits(t, t.Context())
		for _, c := range append(next, fresh) {
			require.False(t, c.Returned())
		}
		g.open(t, views(0))
		for _, c := range append(next, fresh) {
			require.NoError(t, c.Err(t))
		}
		require.Zero(t, g.early.Load())
		kit.Expiring(t, s)
	})
}

func TestAWaiterThatMissedItsOpeningPassesThoughTheLatchIsClosedAgain(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		v, other := dial(t, s), dial(t, s)
		v.set(t, 1)
		old := other.waits(t, t.Context())
		synctest.Wait()
		s.DropPublish(1)
		begun := time.Now()
		v.down(t, 0)
		v.set(t, 1)
		fresh := other.waits(t, t.Context())
		require.NoError(t, old.Err(t))
		require.Less(t, time.Since(begun), hears)
		require.Equal(t, 1, s.Dropped())
		synctest.Wait()
		require.False(t, fresh.Returned())
		v.down(t, 0)
		require.NoError(t, fresh.Err(t))
	})
}

func TestARemovedLatchIsGoneForThoseWhoWait(t *testing.T) {
	among(t, func(t *testing.T, s redistest.Backend, views func(int) view) {
		views(0).set(t, 2)
		calls := []*kit.Call[struct{}]{views(0).waits(t, t.Context()), views(1).waits(t, t.Context())}
		removed, err := views(1).Remove(t.Context())
		require.NoError(t, err)
		require.True(t, removed)
		for _, c := range calls {
			require.ErrorIs(t, c.Err(t), countdown.ErrGone)
		}
		require.ErrorIs(t, views(0).Wait(t.Context()), countdown.ErrUnset)
		removed, err = views(1).Remove(t.Context())
		require.NoError(t, err)
		require.False(t, removed)
		views(0).set(t, 1)
		views(1).down(t, 0)
		require.NoError(t, views(1).Wait(t.Context()))
		kit.Expiring(t, s)
	})
}

// Of a latch that is not the one that was seen nobody knows whether that was opened.
func TestAWaiterThatMissedTheRemovalDoesNotPassAnotherLatch(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		v, other := dial(t, s), dial(t, s)
		v.set(t, 1)
		c := other.waits(t, t.Context())
		synctest.Wait()
		s.DropPublish(2)
		begun := time.Now()
		_, err := v.Remove(t.Context())
		require.NoError(t, err)
		synctime.Pass(time.Millisecond) // A latch is known by the µs in which it was set.
		v.set(t, 1)
		v.down(t, 0)
		require.Equal(t, 2, s.Dropped())
		require.ErrorIs(t, c.Err(t), countdown.ErrGone)
		require.Less(t, time.Since(begun), hears)
		require.NoError(t, other.Wait(t.Context()), "who comes new finds it open")
	})
}

func TestALatchOutlivesItsLastUseByItsLifetime(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		l := countdown.New(c, kit.Name(t), countdown.WithLifetime(time.Minute))
		set := func() {
			done, err := l.TrySetCount(t.Context(), 1)
			require.NoError(t, err)
			require.True(t, done)
		}
		set()
		wait := kit.Run(func() error { return l.Wait(t.Context()) })
		synctime.Pass(5 * time.Minute) // The waiter's looks keep it.
		require.False(t, wait.Returned())
		_, err := l.CountDown(t.Context())
		require.NoError(t, err)
		require.NoError(t, wait.Err(t))
		// Also an open one is there for those who come late.
		for range 10 {
			synctime.Pass(59 * time.Second)
			require.NoError(t, l.Wait(t.Context()))
		}
		synctime.Pass(61 * time.Second)
		require.ErrorIs(t, l.Wait(t.Context()), countdown.ErrUnset)
		set()
		synctime.Pass(61 * time.Second)
		_, err = l.CountDown(t.Context())
		require.ErrorIs(t, err, countdown.ErrUnset)
		synctime.Pass(7 * time.Minute)
		require.Zero(t, len(s.List("KEYS", "*{*")), "ids of requests are forgotten too")
	})
}

// An attempt may be under way for a minute when its call gives up.
func TestARequestIsRememberedForAsLongAsItMayComeAgain(t *testing.T) {
	for _, limit := range []time.Duration{5 * time.Second, time.Hour} {
		t.Run(limit.String(), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				v := dial(t, s)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				_, err := v.TrySetCount(ctx, 5)
				require.NoError(t, err)
				_, err = v.CountDown(ctx)
				require.NoError(t, err)
				require.NoError(t, v.client.Close(t.Context()))
				_, calls := keysOf(v.Name())
				known := min(limit, 5*time.Minute) + time.Minute // A call gives up after five minutes.
				synctime.Pass(known - time.Second)
				require.EqualValues(t, 2, s.Int("ZCARD", calls))
				synctime.Pass(2 * time.Second)
				require.Zero(t, s.Int("EXISTS", calls))
			})
		})
	}
}

func TestMessagesOfOtherGenerationsOpenNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		v, other := dial(t, s), dial(t, s)
		v.set(t, 1)
		info, err := v.Inspect(t.Context())
		require.NoError(t, err)
		old := info.Token
		v.down(t, 0)
		v.set(t, 1)
		var g gate
		call := kit.Run(g.wait(other))
		kit.Waiting(t, 1, v.Inspect)
		kit.Eventually(t, "the first look", func() bool { return other.client.Stats().Checks > 0 })
		lock, _ := keysOf(v.Name())
		messages := []string{
			fmt.Sprintf("O %d", old), fmt.Sprintf("B %d", old), fmt.Sprintf("O %d", old+2), fmt.Sprintf("B %d", old+2),
			"O 0", "O 1", "O 9007199254740993", "B 9007199254740993", "O", "O x", "O -1", "", "X", "G a 1 2 3",
		}
		for i, m := range messages {
			s.Do("PUBLISH", lock+":wake", m)
			kit.Eventually(t, "the message to be heard", func() bool { return other.client.Stats().Messages == uint64(i+1) })
			require.False(t, call.Returned(), "%q", m)
		}
		require.EqualValues(t, 1, v.left(t))
		late := kit.Run(g.wait(other)) // After news of a generation that is not there yet.
		kit.Eventually(t, "another ask", func() bool { return other.client.Stats().Asks >= 2 })
		require.False(t, call.Returned() || late.Returned())
		g.open(t, v)
		require.NoError(t, call.Err(t))
		require.NoError(t, late.Err(t))
		require.Zero(t, g.early.Load())
	})
}
