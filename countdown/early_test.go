package countdown_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lua"
)

// early is the latch for a waiter that may be first.
func (v view) early(t testing.TB) view {
	return view{countdown.New(v.client, kit.Name(t), countdown.WithEarlyWait()), v.client}
}

func TestAWaiterThatComesBeforeTheLatchIsSetWaitsForItsOpening(t *testing.T) {
	among(t, func(t *testing.T, s redistest.Backend, views func(int) view) {
		first := views(0).early(t)
		calls := []*kit.Call[struct{}]{first.waits(t, t.Context()), views(1).early(t).waits(t, t.Context())}
		kit.Eventually(t, "the waiters to be heard of", func() bool {
			info, err := views(0).Inspect(t.Context())
			require.NoError(t, err)
			require.Equal(t, lua.StateUnset, info.State)
			require.Zero(t, info.Used)
			return info.Waiting > 0
		})
		// For all others it is not set.
		require.ErrorIs(t, views(1).Wait(t.Context()), countdown.ErrUnset)
		_, err := views(1).CountDown(t.Context())
		require.ErrorIs(t, err, countdown.ErrUnset)
		_, err = first.Count(t.Context())
		require.ErrorIs(t, err, countdown.ErrUnset)
		removed, err := views(1).Remove(t.Context())
		require.NoError(t, err)
		require.False(t, removed)

		views(1).set(t, 2)
		done, err := views(0).TrySetCount(t.Context(), 5)
		require.NoError(t, err)
		require.False(t, done, "it is closed")
		views(0).down(t, 1)
		for _, c := range calls {
			require.False(t, c.Returned())
		}
		views(1).down(t, 0)
		for _, c := range calls {
			c.Value(t)
		}
		require.NoError(t, first.Wait(t.Context()))
		kit.Expiring(t, s)
	})
}

// It is opened and set again before the waiter hears of anything.
func TestAnEarlyWaiterThatHearsNothingPassesByACheck(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		v := dial(t, s)
		c := dial(t, s).early(t).waits(t, t.Context())
		synctest.Wait()
		s.DropPublish(1)
		v.set(t, 1)
		v.down(t, 0)
		v.set(t, 7)
		require.Equal(t, 1, s.Dropped())
		require.False(t, c.Returned())
		begun := time.Now()
		c.Value(t)
		require.Less(t, time.Since(begun), hears)
	})
}

// The ask may come twice, before and after the latch is set.
func TestAnEarlyAskWhoseReplyIsLostChangesNothing(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		v := dial(t, s)
		waiter := dial(t, s, kit.Over(d)).early(t)
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

// Once the server has told it which latch it waits for, it takes no other for that.
func TestAnEarlyWaiterIsToldThatItsLatchIsGone(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, s *redistest.Embedded, v view){
		"removed once it is set": func(t *testing.T, _ *redistest.Embedded, v view) {
			v.set(t, 1)
			_, err := v.Remove(t.Context())
			require.NoError(t, err)
		},
		"lost before it is set": func(_ *testing.T, s *redistest.Embedded, _ view) { s.Do("FLUSHALL") },
	} {
		t.Run(name, func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				v := dial(t, s)
				c := dial(t, s).early(t).waits(t, t.Context())
				synctest.Wait()
				lose(t, s, v)
				require.ErrorIs(t, c.Err(t), countdown.ErrGone)
			})
		})
	}
}

func TestAnEarlyWaiterLeavesWithItsContextAndNothingStays(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		l := countdown.New(c, kit.Name(t), countdown.WithEarlyWait(), countdown.WithLifetime(time.Minute))
		// Its checks keep what it waits for. At each full minute a client says who it is.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Second)
		defer cancel()
		require.ErrorIs(t, l.Wait(ctx), context.DeadlineExceeded)
		info, err := l.Inspect(t.Context())
		require.NoError(t, err)
		require.NotZero(t, info.Token, "it was awaited")
		s.ResetStats()
		synctime.Pass(58 * time.Second)
		require.Empty(t, kit.Scripts(s), "nobody waits, so nobody looks")
		synctime.Pass(3 * time.Second)
		info, err = l.Inspect(t.Context())
		require.NoError(t, err)
		require.Zero(t, info.Token)
	})
}
