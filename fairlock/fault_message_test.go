package fairlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
)

func TestNobodyIsLostWhileConnectionsAreKilled(t *testing.T) {
	s := kit.Start(t)
	whileKilled(t, s, 15, 15, func() int {
		return int(s.Int("CLIENT", "KILL", "TYPE", "normal") + s.Int("CLIENT", "KILL", "TYPE", "pubsub"))
	})
}

// whileKilled lets four clients take turns while connections are killed three times a second: so often at least, and until
// each of the clients has held so often.
func whileKilled(t *testing.T, s *redistest.Server, rounds, turns int, kill func() int) {
	t.Helper()
	const (
		clients = 4
		pause   = 300 * time.Millisecond
	)
	observer := dialMutex(t, s)
	c := contend(t, dialMutex(t, s), dialMutex(t, s), dialMutex(t, s), dialMutex(t, s))
	killed := 0
	// The pause is part of the fault: it is how often connections are killed, where a hand-off does not take longer.
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for range rounds {
		<-ticks.C
		killed += kill()
		before := c.turns()
		kit.Eventually(t, "turns after a kill", func() bool { return c.turns() >= before+clients })
	}
	kit.Eventually(t, "everybody's turns", func() bool { return c.fewest(clients) >= turns })
	c.end(t)
	t.Logf("%d hand-offs while %d connections were killed, the longest wait was %v", c.handed, killed, c.longest)
	require.Greater(t, killed, rounds/2)
	kit.Free(t, observer)
}

// However long the answers to renewals take, a holder's deadline is never after the end of its lease at the server, and
// the hold goes on while an answer to a keep-alive and one to a renewal behind it take less than a connection may.
func TestTheDeadlineIsBeforeTheEndOfTheLeaseAtTheServer(t *testing.T) {
	for _, c := range []struct{ lease, delay time.Duration }{
		{3 * time.Second, 300 * time.Millisecond},
		{3 * time.Second, 480 * time.Millisecond},
		{10 * time.Second, 480 * time.Millisecond},
	} {
		kit.BubbleOf(t, fmt.Sprint(c.lease, " late by ", c.delay), func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			client := kit.Dial(t, s, kit.Over(d))
			l := hold(t, fairlock.New(client, kit.Name(t), headwaiter.WithLease(c.lease)))
			d.Delay(c.delay, faults.ToClient)
			for client.Stats().Renewals < 6 {
				synctime.Pass(50 * time.Millisecond) // Where both have the same clock.
				require.NoError(t, l.Context().Err())
				require.Less(t, l.Deadline().UnixMicro(), number(t, s, kit.Name(t), "until"))
			}
			d.Heal()
			kit.Release(t, l)
		})
	}
}

// cuts is how many replies are lost to one kind of request.
const cuts = 20

func TestNobodyIsLostWhileAnyReplyMayBe(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients = 4
		p, ms := kit.Proxy(t, s), make([]*fairlock.Mutex, clients)
		for i := range ms {
			ms[i] = fairlock.New(kit.Dial(t, s, kit.Through(p), longGrant), kit.Name(t))
		}
		// Every seventh, so that each kind of request has its turn.
		n := 0
		p.LoseReplies(cuts, func(command []string) bool {
			n++
			return strings.HasPrefix(command[0], "EVAL") && n%7 == 0
		})
		c := contend(t, ms...)
		kit.LostReplies(t, p.Faults, cuts)
		c.end(t)
		t.Logf("%d hand-offs, the longest wait was %v", c.handed, c.longest)
		require.Positive(t, c.fewest(clients), "somebody starves")
		kit.Free(t, dialMutex(t, s))
	})
}

// A first ask that comes late queues its ticket anew, behind those whom it was ahead of. Its client's next look
// takes it back to its place (I3).
func TestALateFirstAskCostsNoPlace(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, first, second := dialMutex(t, s), dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		a, b := joins(t, 1, first, holder), joins(t, 2, second, holder)
		_, queue, _ := keysOf(kit.Name(t))
		tickets := s.List("ZRANGE", queue, "0", "-1")
		place := s.Text("ZSCORE", queue, tickets[0])
		s.Do("ZINCRBY", queue, "1000000", tickets[0]) // As such an ask does where the ticket was skipped.
		require.Equal(t, tickets[1], s.List("ZRANGE", queue, "0", "0")[0])
		synctime.Pass(3 * time.Second) // Both have looked.
		require.Equal(t, tickets, s.List("ZRANGE", queue, "0", "-1"))
		require.Equal(t, place, s.Text("ZSCORE", queue, tickets[0]))
		l = kit.Next(t, l, a)
		require.False(t, b.Returned())
		kit.PassOn(t, l, b)
	})
}
