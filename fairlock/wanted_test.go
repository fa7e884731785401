package fairlock_test

import (
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
