package fairlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// asks returns the channel of a hold, once the server knows that its holder wants to be told.
func asks(t *testing.T, s redistest.Backend, l *lease.Lease) <-chan struct{} {
	t.Helper()
	wanted := l.Wanted()
	lock, _, _ := keysOf(kit.Name(t))
	kit.Eventually(t, "the mark", func() bool { return s.Text("HGET", lock, "phase") == "wants" })
	require.False(t, kit.Closed(wanted))
	return wanted
}

func TestAHolderIsToldWhenSomebodyWaits(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		wanted := asks(t, s, l)
		_, err := waiter.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		require.True(t, inspect(t, waiter).Holder.Wants)
		c := begin(t.Context(), waiter)
		kit.Await(t, wanted, "the word that somebody waits")
		require.NoError(t, l.Context().Err())
		require.False(t, inspect(t, waiter).Holder.Wants)
		l.Unlock()
		kit.Release(t, c.Value(t))

		// And a call of the same client counts as any other.
		l = hold(t, holder)
		wanted = asks(t, s, l)
		c = begin(t.Context(), holder)
		kit.Await(t, wanted, "the word that somebody of the same client waits")
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
	})
}

// It is told as soon as a waiter would be told of a grant: by one message, no later than that is on its way.
func TestAHolderIsToldWithinAHandOff(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		kit.Release(t, l)
		l = hold(t, holder)
		c := begin(t.Context(), waiter) // It subscribes, so the next time it queues with its ask.
		synctest.Wait()
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
		l = hold(t, holder)
		wanted := asks(t, s, l)
		begun := time.Now()
		c = begin(t.Context(), waiter)
		kit.Await(t, wanted, "the word that somebody waits")
		require.Less(t, time.Since(begun), 10*time.Millisecond)
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
	})
}

func TestAHolderThatAsksLateIsToldByTheRenewalThatAsks(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		c := begin(t.Context(), waiter)
		queued(t, waiter, 1)
		s.DropPublish(1 << 40)
		begun := time.Now()
		kit.Await(t, l.Wanted(), "the word that somebody waits")
		require.Less(t, time.Since(begun), 100*time.Millisecond)
		s.DropPublish(0)
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
	})
}

func TestALostWordIsMadeUpForByTheNextRenewal(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		for _, several := range []bool{false, true} { // Holds that are renewed by a script each, or together.
			holder := kit.Dial(t, s)
			m, waiter := fairlock.New(holder, kit.Name(t)), dialMutex(t, s)
			l := hold(t, m)
			if several {
				other := hold(t, fairlock.New(holder, "another"))
				defer kit.Release(t, other)
			}
			wanted := asks(t, s, l)
			synctime.Pass(5 * time.Second) // A renewal that finds nobody.
			require.False(t, kit.Closed(wanted))
			dropped := s.Dropped()
			s.DropPublish(1)
			begun := time.Now()
			c := begin(t.Context(), waiter)
			kit.Await(t, wanted, "the word that somebody waits")
			require.Equal(t, dropped+1, s.Dropped())
			require.Less(t, time.Since(begun), lease.DefaultLease/3+100*time.Millisecond)
			kit.Release(t, l)
			kit.Release(t, c.Value(t))
		}
	})
}

// A subscription that was gone for a while may have missed the word, so the holder looks at once when it is back.
func TestAHolderThatDidNotHearForAWhileLooksAtOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		holder, waiter := fairlock.New(kit.Dial(t, s, kit.Through(p)), kit.Name(t), headwaiter.WithLease(time.Hour)), dialMutex(t, s)
		l := hold(t, holder)
		wanted := asks(t, s, l)
		p.LosePushes(1, kit.Notices(lua.MessageWanted))
		c := begin(t.Context(), waiter)
		queued(t, waiter, 1)
		kit.Eventually(t, "the word to be lost", func() bool { _, pushes := p.Lost(); return pushes == 1 })
		require.False(t, kit.Closed(wanted))
		p.Cut()
		kit.Await(t, wanted, "the word that somebody waits, long before the next renewal")
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
	})
}

func TestAThousandWaitersAreOneMessage(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := dialMutex(t, s)
		clients := []*headwaiter.Client{kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)}
		l := hold(t, holder)
		wanted := asks(t, s, l)
		synctime.Pass(time.Second)
		s.ResetStats()
		ctx, cancel := context.WithCancel(t.Context())
		var calls []*call
		for i := range 1000 {
			calls = append(calls, begin(ctx, fairlock.New(clients[i%len(clients)], kit.Name(t))))
		}
		queued(t, holder, 1000)
		kit.Await(t, wanted, "the word that somebody waits")
		require.Equal(t, int64(1), kit.Scripts(s)["publish"])
		cancel()
		for _, c := range calls {
			require.ErrorIs(t, c.Err(t), context.Canceled)
		}
		require.Equal(t, int64(1), kit.Scripts(s)["publish"])
		kit.Release(t, l)
	})
}

// While a slot moves, a renewal that names a key which is not there is refused. Here the key is of another type.
func TestTheWishIsNotWorthTheHold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		l := hold(t, dialMutex(t, s))
		_, queue, _ := keysOf(kit.Name(t))
		s.Do("SET", queue, "somebody else's")
		wanted := l.Wanted()
		synctime.Pass(time.Minute)
		require.NoError(t, context.Cause(l.Context()))
		s.Do("DEL", queue)
		synctime.Pass(2 * time.Second)
		lock, _, _ := keysOf(kit.Name(t))
		require.Equal(t, "wants", s.Text("HGET", lock, "phase"))
		require.False(t, kit.Closed(wanted))
		kit.Release(t, l)
	})
}

// Without the wish nothing is sent and nothing is stored for it.
func TestAHolderThatDoesNotAskIsNotTold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		synctime.Pass(time.Minute)
		lock, _, _ := keysOf(kit.Name(t))
		require.Equal(t, "held", s.Text("HGET", lock, "phase"))
		s.ResetStats()
		c := begin(t.Context(), waiter)
		queued(t, waiter, 1)
		synctime.Pass(time.Second)
		require.Zero(t, kit.Scripts(s)["publish"])
		require.Equal(t, int64(1), kit.Scripts(s)["subscribe"], "the waiter")
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
	})
}

// The word about one hold is not taken for the next of the same client.
func TestALateWordIsNotForALaterHold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t))
		first := hold(t, m)
		wanted := asks(t, s, first)
		kit.Release(t, first)
		second := hold(t, m)
		later := asks(t, s, second)
		lock, _, _ := keysOf(kit.Name(t))
		s.Do("PUBLISH", lock+":wake:"+c.ID(), fmt.Sprintf("W %d", first.Token()))
		synctest.Wait()
		require.False(t, kit.Closed(later))
		s.Do("PUBLISH", lock+":wake:"+c.ID(), fmt.Sprintf("W %d", second.Token()))
		synctest.Wait()
		require.True(t, kit.Closed(later))
		require.False(t, kit.Closed(wanted), "it had ended")
		kit.Release(t, second)
	})
}

// A holder that has reached its last renewal is no suspect when its lease runs out, also if it wants to be told.
func TestAHolderOfTheLongestHoldIsTold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		holder := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t), headwaiter.WithMaxHold(5*time.Second))
		waiter := dialMutex(t, s)
		l := hold(t, holder)
		wanted := l.Wanted()
		lock, _, _ := keysOf(kit.Name(t))
		synctime.Pass(time.Second)
		require.Equal(t, "final wants", s.Text("HGET", lock, "phase"))
		c := begin(t.Context(), waiter)
		kit.Await(t, wanted, "the word that somebody waits")
		synctest.Wait()
		require.Equal(t, "final", s.Text("HGET", lock, "phase"))
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrMaxHold)
		kit.Release(t, c.Value(t))
		require.Len(t, o.Of(observe.Wanted), 1)
		require.Equal(t, l.Token(), o.Of(observe.Wanted)[0].Token)
		require.Empty(t, o.Of(observe.Suspected))
	})
}

func TestACallOfACohortIsToldOfMatesAndOfStrangers(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, stranger := dialMutex(t, s, fairlock.WithCohort(8)), dialMutex(t, s)
		l := hold(t, m)
		wanted := asks(t, s, l)
		mate := begin(t.Context(), m)
		kit.Await(t, wanted, "the word that somebody waits") // Of which the server knows nothing.
		synctime.Pass(time.Millisecond)
		kit.Release(t, l)
		second := mate.Value(t)
		require.Equal(t, l.Token()+1, second.Token())
		require.False(t, kit.Closed(second.Wanted()))
		other := begin(t.Context(), stranger)
		kit.Await(t, second.Wanted(), "the word that somebody waits")
		third := begin(t.Context(), m)
		synctime.Pass(time.Millisecond)
		kit.Release(t, second)
		last := third.Value(t)
		kit.Await(t, last.Wanted(), "the word that somebody waits") // The stranger is there from before.
		kit.Release(t, last)
		kit.Release(t, other.Value(t))
	})
}
