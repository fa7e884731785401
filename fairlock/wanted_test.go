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
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
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

// It is told as soon as a waiter would be told of a grant: by one message, no later than that is on its way.
func TestAHolderIsToldWithinAHandOff(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		kit.Release(t, l)
		l = hold(t, holder)
		c := begin(t.Context(), waiter) // It subscribes, so the next time it queues with its ask.
		synctest.Wait()
		kit.PassOn(t, l, c)
		l = hold(t, holder)
		wanted := asks(t, s, l)
		begun := time.Now()
		c = begin(t.Context(), waiter)
		kit.Await(t, wanted, "the word that somebody waits")
		require.Less(t, time.Since(begun), 10*time.Millisecond)
		kit.PassOn(t, l, c)
	})
}

func TestAHolderThatAsksLateIsToldByTheRenewalThatAsks(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		l, c := hold(t, holder), joins(t, 1, waiter, waiter)
		s.DropPublish(1 << 40)
		begun := time.Now()
		kit.Await(t, l.Wanted(), "the word that somebody waits")
		require.Less(t, time.Since(begun), 100*time.Millisecond)
		s.DropPublish(0)
		kit.PassOn(t, l, c)
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
			kit.PassOn(t, l, c)
		}
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

// Without the wish nothing is sent and nothing is stored for it.
func TestAHolderThatDoesNotAskIsNotTold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		synctime.Pass(time.Minute)
		lock, _, _ := keysOf(kit.Name(t))
		require.Equal(t, "held", s.Text("HGET", lock, "phase"))
		s.ResetStats()
		c := joins(t, 1, waiter, waiter)
		synctime.Pass(time.Second)
		require.Zero(t, kit.Scripts(s)["publish"])
		require.Equal(t, int64(1), kit.Scripts(s)["subscribe"], "the waiter")
		kit.PassOn(t, l, c)
	})
}

// A holder that has reached its last renewal is no suspect when its lease runs out, also if it wants to be told.
func TestAHolderOfTheLongestHoldIsTold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		o := &kit.Observer{}
		holder := fairlock.New(kit.Dial(t, s, kit.Observed(o)), kit.Name(t), headwaiter.WithMaxHold(5*time.Second))
		waiter, l := dialMutex(t, s), hold(t, holder)
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
		kit.Await(t, wanted, "the word that somebody waits") // The server knows nothing of this message.
		synctime.Pass(time.Millisecond)
		second := kit.Next(t, l, mate)
		require.Equal(t, l.Token()+1, second.Token())
		require.False(t, kit.Closed(second.Wanted()))
		other := begin(t.Context(), stranger)
		kit.Await(t, second.Wanted(), "the word that somebody waits")
		third := begin(t.Context(), m)
		synctime.Pass(time.Millisecond)
		last := kit.Next(t, second, third)
		kit.Await(t, last.Wanted(), "the word that somebody waits") // The stranger is there from before.
		kit.PassOn(t, last, other)
	})
}

// buried makes a client without subscriptions queue n tickets for the lock of the test, and cuts it off.
func buried(t *testing.T, s *redistest.Embedded, m *fairlock.Mutex, n int) {
	t.Helper()
	d := faults.NewDialer(t, s.Dial)
	dead := fairlock.New(kit.Dial(t, s, polling, kit.Over(d)), kit.Name(t))
	before := inspect(t, m).Waiting
	for range n {
		begin(t.Context(), dead)
	}
	queued(t, m, before+n)
	d.Away()
	t.Cleanup(d.Heal)
}

// A grant that ran out makes the server call the other clients: one that does not answer soon is passed over. A client without
// subscriptions has to look in time, however many are ahead.
func TestAWaiterThatLooksIsNotTakenForDead(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const dead, alive = 1300, 12
		holder := fairlock.New(kit.Dial(t, s, polling), kit.Name(t))
		l := hold(t, holder)
		buried(t, s, holder, 1)
		first := joins(t, 2, holder, holder)
		buried(t, s, holder, dead)
		kit.Release(t, l)
		synctime.Pass(1950 * time.Millisecond) // The grant to the dead one is about to run out.
		served := make(chan int, alive)
		var calls []*call
		var clients []*headwaiter.Client
		for i := range alive {
			c := kit.Dial(t, s, polling)
			clients = append(clients, c)
			calls = append(calls, kit.Go(func() (*lease.Lease, error) {
				l, err := fairlock.New(c, kit.Name(t)).Lock(t.Context())
				if err == nil {
					served <- i
					err = l.Release(t.Context())
				}
				return l, err
			}))
			queued(t, holder, 2+dead+i)
		}
		l = first.Value(t) // When that grant has run out.
		synctime.Pass(1200 * time.Millisecond)
		kit.Release(t, l)
		for i, c := range calls {
			c.Value(t)
			require.Equal(t, i, <-served)
			require.Zero(t, clients[i].Stats().Rejoined, "it was passed over")
		}
	})
}

// Processes that died together cost two grant leases, however many they are: the first that runs out makes the server call
// the others, and none of them answers.
func TestManyDeadWaitersAmongThoseThatLookCostTwoGrantLeases(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := fairlock.New(kit.Dial(t, s, polling), kit.Name(t))
		l := hold(t, holder)
		for range 20 {
			buried(t, s, holder, 2)
		}
		w := joins(t, 41, fairlock.New(kit.Dial(t, s, polling), kit.Name(t)), holder)
		released := time.Now()
		kit.Release(t, l)
		w.Value(t)
		require.InDelta(t, 4.7, time.Since(released).Seconds(), 0.8)
	})
}

// Where tokens are ahead of the clock, as after it was set back, they do not say when the last grant was.
func TestLooksThinOutAlsoWhereTokensAreAheadOfTheClock(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		lock, _, _ := keysOf(kit.Name(t))
		client := kit.Dial(t, s, polling)
		holder, waiter := fairlock.New(kit.Dial(t, s, polling), kit.Name(t)), fairlock.New(client, kit.Name(t))
		kit.Release(t, hold(t, holder))
		s.Do("HSET", lock, "token", fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()))
		l := hold(t, holder)
		require.Greater(t, l.Token(), uint64(time.Now().Add(time.Minute).UnixMicro()))
		w := joins(t, 1, waiter, holder)
		synctime.Pass(10 * time.Second)
		require.Less(t, client.Stats().Checks, uint64(90))
		kit.PassOn(t, l, w)
	})
}
