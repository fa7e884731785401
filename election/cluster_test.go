package election_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// In a cluster the channels are sharded, and what is observed moves with its slot and outlasts its master.
func TestAnElectionInACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	const name = "cluster"
	e := election.New(a, name, headwaiter.WithLease(2*time.Second))
	other := election.New(b, name, headwaiter.WithLease(2*time.Second))
	key := lockKey(name)
	news := other.Observe(t.Context())
	require.Zero(t, next(t, news))
	round := func(value string, disturb func()) {
		t.Helper()
		l := lead(t, e, value)
		until(t, news, value, l.Token())
		c := candidate(other, value+" next")
		kit.Waiting(t, 1, e.Inspect)
		disturb()
		err := e.Proclaim(t.Context(), l, value+" again")
		if err == nil { // A master by force may have forgotten who leads, who is told then.
			until(t, news, value+" again", l.Token())
			kit.Release(t, l)
		} else {
			require.Error(t, l.Context().Err())
		}
		second := c.Value(t)
		until(t, news, value+" next", second.Token())
		kit.Release(t, second)
		require.Zero(t, next(t, news))
	}
	round("quiet", func() {})
	kit.Eventually(t, "a sharded subscription", func() bool {
		return s.MasterOf(key).Do("PUBSUB", "SHARDNUMSUB", wake(name)).([]any)[1].(int64) == 1
	})
	for i := range 3 {
		round(fmt.Sprint("moved ", i), func() {
			for _, n := range s.Masters() {
				if n != s.MasterOf(key) {
					s.MoveSlot(redistest.Slot(key), n)
					return
				}
			}
		})
	}
	for _, how := range [][]string{nil, {"FORCE"}, {"TAKEOVER"}} {
		round(fmt.Sprint("failed over ", how), func() { s.Failover(s.MasterOf(key), how...) })
	}
	require.Empty(t, s.MasterOf(key).List("PUBSUB", "CHANNELS", "*{*"), "a plain channel in a cluster")
}

// While a slot is on its way, what has one key goes on.
func TestALeaderProclaimsWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	const name = "moving"
	e, other := election.New(kit.Dial(t, s), name), election.New(kit.Dial(t, s), name)
	l := lead(t, e, "a")
	news := other.Observe(t.Context())
	until(t, news, "a", l.Token())
	key := lockKey(name)
	var to *redistest.Node
	for _, n := range s.Masters() {
		if n != s.MasterOf(key) {
			to = n
		}
	}
	move := s.BeginMove(redistest.Slot(key), to)
	move.Send(key)
	require.NoError(t, e.Proclaim(t.Context(), l, "b"))
	leads(t, e, "b", l)
	until(t, news, "b", l.Token())
	move.Finish()
	require.NoError(t, e.Proclaim(t.Context(), l, "c"))
	until(t, news, "c", l.Token())
	kit.Release(t, l)
	require.Zero(t, next(t, news))
}

func TestAnElectionOutlastsAFailoverOfSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	const name = "sentinel"
	dial := func() *election.Election {
		c, err := headwaiter.Dial(headwaiter.Options{Redis: s.Option(), Name: "test"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		return election.New(c, name, headwaiter.WithLease(2*time.Second))
	}
	e, other := dial(), dial()
	news := other.Observe(t.Context())
	last := uint64(0)
	for i := range 2 {
		value := fmt.Sprint(i)
		l := lead(t, e, value)
		require.Greater(t, l.Token(), last)
		last = l.Token()
		until(t, news, value, l.Token())
		c := candidate(other, value+" next")
		kit.Waiting(t, 1, e.Inspect)
		s.Failover()
		if err := l.Release(t.Context()); err != nil {
			t.Logf("the leader at the failover: %v", err)
		}
		second := c.Value(t)
		require.Greater(t, second.Token(), last)
		last = second.Token()
		until(t, news, value+" next", second.Token())
		kit.Release(t, second)
	}
}
