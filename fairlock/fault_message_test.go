package fairlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/lua"
)

// pass hands a lock from its holder to the one that waits, while lose may see to it that the message does
// not come. The lease of the holder is a second, so that the waiter looks before its grant lapses.
func pass(t *testing.T, from, to *fairlock.Mutex, lose func()) {
	t.Helper()
	l := hold(t, from)
	c := begin(t.Context(), to)
	queued(t, from, 1)
	lose()
	release(t, l)
	l = c.granted(t)
	holds(t, from, l)
	release(t, l)
	free(t, from)
}

func TestAGrantWhoseMessageIsLostIsFoundByACheckAndCounted(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		p := proxy(t, s)
		holder, client := dialMutex(t, s, fairlock.WithLease(time.Second)), dial(t, s, through(p))
		waiter := fairlock.New(client, nameOf(t))
		pass(t, holder, waiter, func() { p.LosePushes(1, notices(lua.MessageGrant)) })
		_, lostPushes := p.Lost()
		require.Equal(t, 1, lostPushes)
		eventually(t, "the miss to be counted", func() bool { return client.Stats().Missed == 1 })

		// The client has replaced its subscription since, and hears again.
		before := client.Stats()
		pass(t, holder, waiter, func() {})
		pass(t, holder, waiter, func() {})
		require.EqualValues(t, 1, client.Stats().Missed)
		require.GreaterOrEqual(t, client.Stats().Messages, before.Messages+2)
	})
}

func TestAGrantWhoseMessageAndCheckAreLostIsFoundByTheNextCheck(t *testing.T) {
	each(t, func(t *testing.T, s redistest.Backend) {
		p := proxy(t, s)
		holder, waiter := dialMutex(t, s, fairlock.WithLease(time.Second)), fairlock.New(dial(t, s, through(p)), nameOf(t))
		pass(t, holder, waiter, func() {
			p.LosePushes(1, notices(lua.MessageGrant))
			p.LoseReplies(3, runs(lua.Fairlock.Check))
		})
		replies, pushes := p.Lost()
		require.Equal(t, 1, pushes)
		require.Equal(t, 3, replies)
	})
}

func TestAClientThatHearsNothingTakesItsTurnByItsChecks(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		s.DropPublish(1 << 40)
		for range 20 {
			l := hold(t, holder)
			c := begin(t.Context(), waiter)
			synctest.Wait()
			released := time.Now()
			release(t, l)
			l = c.granted(t)
			require.Less(t, time.Since(released), 4*time.Second)
			holds(t, holder, l)
			release(t, l)
			free(t, holder)
		}
		require.Positive(t, s.Dropped())
	})
}

func TestTheQueueMovesOnWhileSubscribersAreKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	observer := dialMutex(t, s)
	const (
		clients = 4
		kills   = 40
		pause   = 100 * time.Millisecond
	)
	c := contend(t, dialMutex(t, s), dialMutex(t, s), dialMutex(t, s), dialMutex(t, s))
	killed := 0
	// The pause is part of the fault: it is how often connections are killed.
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for range kills {
		<-ticks.C
		killed += int(s.Int("CLIENT", "KILL", "TYPE", "pubsub"))
	}
	c.end(t)
	t.Logf("%d hand-offs while %d subscribers were killed, the longest wait was %v", c.handed, killed, c.longest)
	require.Greater(t, killed, kills/2)
	require.Greater(t, c.handed, 200)
	require.Greater(t, c.fewest(clients), 20, "somebody starves")
	free(t, observer)
}

func TestNobodyIsLostWhileConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	observer := dialMutex(t, s)
	const (
		clients = 4
		kills   = 30
		pause   = 100 * time.Millisecond
	)
	c := contend(t, dialMutex(t, s), dialMutex(t, s), dialMutex(t, s), dialMutex(t, s))
	killed := 0
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for range kills {
		<-ticks.C
		killed += int(s.Int("CLIENT", "KILL", "TYPE", "normal"))
		killed += int(s.Int("CLIENT", "KILL", "TYPE", "pubsub"))
	}
	c.end(t)
	t.Logf("%d hand-offs while %d connections were killed, the longest wait was %v", c.handed, killed, c.longest)
	require.Greater(t, killed, kills)
	require.Greater(t, c.handed, 100)
	require.Greater(t, c.fewest(clients), 10, "somebody starves")
	free(t, observer)
}

func TestAWaiterThatCannotHearAnyMoreIsServedWithoutDelay(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := proxy(t, s)
	holder, waiter := dialMutex(t, s, fairlock.WithLease(3*time.Second)), fairlock.New(dial(t, s, through(p)), nameOf(t))
	pass(t, holder, waiter, func() {})
	l := hold(t, holder)
	until := number(t, s, nameOf(t), "until")
	eventually(t, "a renewal", func() bool { return number(t, s, nameOf(t), "until") > until })
	// Now the waiter has a subscription, and no look left from before it had.
	c := begin(t.Context(), waiter)
	queued(t, holder, 1)
	p.Refuse()
	require.EqualValues(t, 1, s.Int("CLIENT", "KILL", "TYPE", "pubsub"))
	eventually(t, "the channel to be gone", func() bool { return len(s.List("PUBSUB", "CHANNELS")) == 0 })
	released := time.Now()
	release(t, l)
	l = c.granted(t)
	// Who cannot hear looks often; else the next look would come after at least 1.5 s.
	require.Less(t, time.Since(released), time.Second)
	release(t, l)
	p.Heal()
	free(t, holder)
	pass(t, holder, waiter, func() {})
}
