package countdown_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/observe"
)

// gathering is a number of clients with a number of waits each.
type gathering struct {
	views []view
	calls []*kit.Call[time.Time] // when each wait was over
}

// gather makes the waits of each of the clients, and returns when all clients hear and all are answered.
func gather(t *testing.T, s redistest.Backend, views []view, each int) gathering {
	t.Helper()
	g := gathering{views: views}
	before := s.CommandStats()["evalsha"]
	for _, v := range views {
		for range each {
			g.calls = append(g.calls, kit.Go(func() (time.Time, error) {
				err := v.Wait(t.Context())
				return time.Now(), err
			}))
		}
	}
	kit.Eventually(t, "all to be answered", func() bool {
		return s.CommandStats()["evalsha"] >= before+int64(len(g.calls))
	})
	kit.Eventually(t, "all clients to hear", func() bool {
		hearing := s.Do("PUBSUB", "NUMSUB", views[0].channel()).([]any)[1].(int64)
		return hearing == int64(len(views))
	})
	return g
}

// passed waits until all have passed, and returns when the last did.
func (g gathering) passed(t *testing.T) time.Time {
	t.Helper()
	var last time.Time
	for _, c := range g.calls {
		if at := c.Value(t); at.After(last) {
			last = at
		}
	}
	return last
}

// heard is how many messages each client has heard.
func (g gathering) heard() (all []uint64) {
	for _, v := range g.views {
		all = append(all, v.client.Stats().Messages)
	}
	return all
}

func times(n int, x uint64) (all []uint64) {
	for range n {
		all = append(all, x)
	}
	return all
}

func TestThirtyWaitsOfThreeClientsAreOneMessage(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients, each, rounds = 3, 10, 5
		views, told := make([]view, clients), &kit.Observer{}
		for i := range views {
			views[i] = dial(t, s, kit.Observed(told))
		}
		// A message that overtakes the answer to an ask is looked into: this is about those that do not.
		answered := func(rounds uint64) {
			kit.Eventually(t, "all answers to be here", func() bool {
				return len(told.Of(observe.Queued)) == int(rounds)*clients*each
			})
		}
		checks := func() (n uint64) {
			for _, v := range views {
				n += v.client.Stats().Checks
			}
			return n
		}
		v := dial(t, s)
		v.set(t, 1)
		s.ResetStats()                 // Dial has tried what there is.
		g := gather(t, s, views, each) // Now the server knows the scripts.
		require.EqualValues(t, clients, s.CommandStats()["subscribe"])
		answered(1)
		v.down(t, 0)
		g.passed(t)
		for round := range uint64(rounds) {
			v.set(t, 1)
			before := checks()
			s.ResetStats()
			g := gather(t, s, views, each)
			answered(round + 2)
			v.down(t, 0)
			g.passed(t)
			kit.Eventually(t, "one message a client", func() bool { return slices.Equal(times(clients, round+2), g.heard()) })
			got := kit.Scripts(s)
			looked := int64(checks() - before)
			require.LessOrEqual(t, looked, int64(2*clients), "looks are for what goes wrong")
			require.InDelta(t, clients*each+1+looked, got["evalsha"], 3, "one may be under way when the counting begins or ends")
			// Each look counts the subscribers, and so does each ask.
			require.LessOrEqual(t, got["pubsub|numsub"], int64(clients*each)+looked+3)
			require.EqualValues(t, 1, got["publish"])
			require.LessOrEqual(t, got["eval"], looked, "only the script of a look may be new to the server")
		}
	})
}

func TestACountAndAPassAreOneScriptAndNothingElse(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const n = 100
		v := dial(t, s)
		v.set(t, n+2)
		v.down(t, n+1)
		s.ResetStats()
		for i := range int64(n) {
			v.down(t, n-i)
		}
		require.Equal(t, map[string]int64{"evalsha": n}, kit.Scripts(s))
		v.down(t, 0)
		require.NoError(t, v.Wait(t.Context()))
		s.ResetStats()
		for range n {
			require.NoError(t, v.Wait(t.Context()))
		}
		require.Equal(t, map[string]int64{"evalsha": n}, kit.Scripts(s))
	})
}

// Not parallel: it measures milliseconds.
func TestAThousandWaitsOfFiftyClientsPassAtOnce(t *testing.T) {
	const clients, each, rounds = 50, 20, 5
	s := redistest.Start(t)
	views := make([]view, clients)
	for i := range views {
		views[i] = dial(t, s)
	}
	v := dial(t, s)
	spans := make([]time.Duration, rounds)
	for i := range spans {
		v.set(t, 1)
		g := gather(t, s, views, each)
		require.Equal(t, times(clients, uint64(i)), g.heard())
		s.ResetStats()
		begun := time.Now()
		v.down(t, 0)
		spans[i] = g.passed(t).Sub(begun)
		require.Equal(t, times(clients, uint64(i+1)), g.heard(), "one message a client")
		require.EqualValues(t, 1, kit.Scripts(s)["publish"])
	}
	t.Logf("from the last count to the last of %d waits of %d clients: %v", clients*each, clients, spans)
	require.Less(t, kit.Median(spans), 500*time.Millisecond)
}
