package fairlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
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
	kit.Release(t, l)
	l = c.Value(t)
	holds(t, from, l)
	kit.Release(t, l)
	kit.Free(t, from)
}

func TestAGrantWhoseMessageIsLostIsFoundByACheckAndCounted(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		holder, client := dialMutex(t, s, headwaiter.WithLease(time.Second)), kit.Dial(t, s, kit.Through(p))
		waiter := fairlock.New(client, kit.Name(t))
		pass(t, holder, waiter, func() { p.LosePushes(1, kit.Notices(lua.MessageGrant)) })
		_, lostPushes := p.Lost()
		require.Equal(t, 1, lostPushes)
		kit.Eventually(t, "the miss to be counted", func() bool { return client.Stats().Missed == 1 })

		// The client has replaced its subscription since, and hears again.
		before := client.Stats()
		pass(t, holder, waiter, func() {})
		pass(t, holder, waiter, func() {})
		require.EqualValues(t, 1, client.Stats().Missed)
		require.GreaterOrEqual(t, client.Stats().Messages, before.Messages+2)
	})
}

func TestAGrantWhoseMessageAndCheckAreLostIsFoundByTheNextCheck(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		holder, waiter := dialMutex(t, s, headwaiter.WithLease(time.Second)), fairlock.New(kit.Dial(t, s, kit.Through(p)), kit.Name(t))
		pass(t, holder, waiter, func() {
			p.LosePushes(1, kit.Notices(lua.MessageGrant))
			p.LoseReplies(3, kit.Runs(lua.Fairlock.Check))
		})
		replies, pushes := p.Lost()
		require.Equal(t, 1, pushes)
		require.Equal(t, 3, replies)
	})
}

func TestAClientThatHearsNothingTakesItsTurnByItsChecks(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		s.DropPublish(1 << 40)
		for range 20 {
			l := hold(t, holder)
			c := begin(t.Context(), waiter)
			synctest.Wait()
			released := time.Now()
			kit.Release(t, l)
			l = c.Value(t)
			require.Less(t, time.Since(released), 4*time.Second)
			holds(t, holder, l)
			kit.Release(t, l)
			kit.Free(t, holder)
		}
		require.Positive(t, s.Dropped())
	})
}

func TestTheQueueMovesOnWhileSubscribersAreKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	whileKilled(t, s, 40, 50, func() int { return int(s.Int("CLIENT", "KILL", "TYPE", "pubsub")) })
}

func TestNobodyIsLostWhileConnectionsAreKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	whileKilled(t, s, 30, 25, func() int {
		return int(s.Int("CLIENT", "KILL", "TYPE", "normal") + s.Int("CLIENT", "KILL", "TYPE", "pubsub"))
	})
}

// whileKilled lets four clients take turns while connections are killed ten times a second: so often at least, and until
// each of the clients has held so often.
func whileKilled(t *testing.T, s *redistest.Server, rounds, turns int, kill func() int) {
	t.Helper()
	const (
		clients = 4
		pause   = 100 * time.Millisecond
	)
	observer := dialMutex(t, s)
	c := contend(t, dialMutex(t, s), dialMutex(t, s), dialMutex(t, s), dialMutex(t, s))
	killed, round := 0, 0
	// The pause is part of the fault: it is how often connections are killed.
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	kit.Eventually(t, "everybody's turns between the kills", func() bool {
		<-ticks.C
		killed += kill()
		round++
		return round >= rounds && c.fewest(clients) >= turns
	})
	c.end(t)
	t.Logf("%d hand-offs while %d connections were killed, the longest wait was %v", c.handed, killed, c.longest)
	require.Greater(t, killed, rounds/2)
	kit.Free(t, observer)
}

func TestAWaiterThatCannotHearAnyMoreIsServedWithoutDelay(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := kit.Proxy(t, s)
	holder, waiter := dialMutex(t, s, headwaiter.WithLease(3*time.Second)), fairlock.New(kit.Dial(t, s, kit.Through(p)), kit.Name(t))
	pass(t, holder, waiter, func() {})
	l := hold(t, holder)
	until := number(t, s, kit.Name(t), "until")
	kit.Eventually(t, "a renewal", func() bool { return number(t, s, kit.Name(t), "until") > until })
	// Now the waiter has a subscription, and no look left from before it had.
	c := begin(t.Context(), waiter)
	queued(t, holder, 1)
	p.Refuse()
	require.EqualValues(t, 2, s.Int("CLIENT", "KILL", "TYPE", "pubsub"), "the holder listens too")
	kit.Eventually(t, "the channel to be gone", func() bool { return len(s.List("PUBSUB", "CHANNELS", "*{*")) == 0 })
	released := time.Now()
	kit.Release(t, l)
	l = c.Value(t)
	// Who cannot hear looks often; else the next look would come after at least 1.5 s.
	require.Less(t, time.Since(released), time.Second)
	kit.Release(t, l)
	p.Heal()
	kit.Free(t, holder)
	pass(t, holder, waiter, func() {})
}
