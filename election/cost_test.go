package election_test

import (
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lua"
)

// A campaign is an ask and a proclamation, a resignation one script; one message tells of each, to whoever observes.
func TestLeadingAloneIsThreeScriptsAndTwoMessages(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const n = 50
		e, _ := of(t, s)
		l := lead(t, e, "a") // Now the server knows the scripts.
		kit.Listening(t, s, 1)
		kit.Release(t, l)
		s.ResetStats()
		for range n {
			kit.Release(t, lead(t, e, "a"))
		}
		require.Equal(t, map[string]int64{"evalsha": 3 * n, "publish": 2 * n}, kit.Scripts(s))
		l = lead(t, e, "a")
		leads(t, e, "a", l)
		s.ResetStats()
		for range n {
			require.NoError(t, e.Proclaim(t.Context(), l, "b"))
			leads(t, e, "b", l)
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * n, "publish": n}, kit.Scripts(s))
		kit.Release(t, l)
	})
}

// watching is how many observe in the tests of what that costs.
const watching = 20

// handOver lets the lead go from one to the other, so often, and returns what that took each time.
func handOver(t *testing.T, a, b *election.Election, times int) (spans []time.Duration) {
	t.Helper()
	l := lead(t, a, "first")
	for i := range times {
		to := []*election.Election{b, a}[i%2]
		c := candidate(to, "next")
		kit.Waiting(t, 1, a.Inspect)
		begun := time.Now()
		kit.Release(t, l)
		l = c.Value(t)
		spans = append(spans, time.Since(begun))
	}
	kit.Release(t, l)
	return spans
}

// What a hand-off costs the server does not depend on who observes: the grant is one message, and the news another.
func TestWhoObservesAddsOneMessageToAHandOff(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const times = 20
		a, _ := of(t, s)
		b, _ := of(t, s)
		handOver(t, a, b, 2)
		publishes := func() int64 {
			s.ResetStats()
			handOver(t, a, b, times)
			return kit.Scripts(s)["publish"]
		}
		// The first and the last are not handed on: a proclamation, and a resignation that leaves nobody.
		require.EqualValues(t, 2*times+2, publishes())
		clients := make([]*headwaiter.Client, watching)
		for i := range clients {
			clients[i] = kit.Dial(t, s)
			news := election.New(clients[i], kit.Name(t)).Observe(t.Context())
			require.Zero(t, next(t, news))
		}
		hearing(t, s, kit.Name(t), watching)
		require.EqualValues(t, 2*times+2, publishes())
		for _, c := range clients {
			require.LessOrEqual(t, c.Stats().Messages, uint64(times+2), "one message a change")
		}
	})
}

// Observing is a look and a wait for each change, and rare looks while nothing changes.
func TestAChangeCostsWhoObservesTwoRoundTrips(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const n = 20
		e, _ := of(t, s)
		other, c := of(t, s)
		l := lead(t, e, "a")
		news := other.Observe(t.Context())
		until(t, news, "a", l.Token())
		require.NoError(t, e.Proclaim(t.Context(), l, "b")) // Now the server knows the scripts.
		until(t, news, "b", l.Token())
		synctime.Pass(time.Second) // The first look is over.
		checks := c.Stats().Checks
		s.ResetStats()
		for i := range n {
			value := string(rune('c' + i))
			require.NoError(t, e.Proclaim(t.Context(), l, value))
			until(t, news, value, l.Token())
			synctest.Wait() // It waits for the next one.
		}
		looked := int64(c.Stats().Checks - checks)
		require.LessOrEqual(t, looked, int64(1))
		got := kit.Scripts(s)
		require.Equal(t, 3*n+looked, got["evalsha"])
		require.EqualValues(t, n, got["publish"])
		require.Zero(t, got["subscribe"])
		kit.Release(t, l)
	})
}

// Where many observe, not all look at the end of each lease: then their looks would cost more than the campaigns.
func TestWhereManyObserveTheyLookMoreRarely(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e, _ := of(t, s)
	l := lead(t, e, "a")
	ends := kit.Until(s, lockKey(e.Name()))
	told := func() int64 {
		return s.Do("EVAL", lua.Leadership.Check.Source, "1", lockKey(e.Name()), "c", lua.Hears, "0", "0", "1").([]any)[3].(int64)
	}
	listen := func(n int) {
		for range n {
			conn, err := net.Dial("tcp", s.Addr())
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			_, err = fmt.Fprintf(conn, "SUBSCRIBE %s\r\n", wake(e.Name()))
			require.NoError(t, err)
		}
	}
	listen(200)
	hearing(t, s, e.Name(), 200)
	require.GreaterOrEqual(t, told(), ends)
	listen(1)
	hearing(t, s, e.Name(), 201)
	require.Zero(t, told())
	kit.Release(t, l)
}

// Not parallel: it measures milliseconds.
func TestHandingOnTakesMillisecondsWhoeverObserves(t *testing.T) {
	const times = 51
	s := redistest.Start(t)
	a, _ := of(t, s)
	b, _ := of(t, s)
	alone := kit.Median(handOver(t, a, b, times))
	for range watching {
		news := election.New(kit.Dial(t, s), kit.Name(t)).Observe(t.Context())
		require.Zero(t, next(t, news))
	}
	hearing(t, s, kit.Name(t), watching)
	watched := kit.Median(handOver(t, a, b, times))
	t.Logf("from a resignation to the next leader: median %v, with %d who observe %v", alone, watching, watched)
	require.Less(t, alone, 100*time.Millisecond)
	require.Less(t, watched, 100*time.Millisecond)
}
