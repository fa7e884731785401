package election_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestAValueThatIsTooLargeIsRefusedBeforeAnythingIsSent(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, c := of(t, s)
		large := strings.Repeat("v", lease.MaxValue+1)
		require.ErrorIs(t, kit.Err(e.Campaign(t.Context(), large)), lease.ErrTooLarge)
		require.Zero(t, c.Stats().AcquireRequests)
		l := lead(t, e, large[1:])
		require.ErrorIs(t, e.Proclaim(t.Context(), l, large), lease.ErrTooLarge)
		leads(t, e, large[1:], l)
		kit.Release(t, l)
	})
}

func TestACampaignFromWithinTheLeadershipIsADeadlock(t *testing.T) {
	t.Parallel()
	e, _ := of(t, redistest.Mini(t))
	l := lead(t, e, "a")
	require.ErrorIs(t, kit.Err(e.Campaign(l.Context(), "b")), lease.ErrDeadlock)
	kit.Release(t, l)
}

func TestCandidatesLeadOneAfterTheOtherInTheirOrder(t *testing.T) {
	kit.Pair(t, func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client) {
		elections := []*election.Election{election.New(a, kit.Name(t)), election.New(b, kit.Name(t))}
		nobody(t, elections[0])
		l := lead(t, elections[0], "0")
		calls := make([]*kit.Call[*lease.Lease], 6)
		for i := range calls {
			calls[i] = candidate(elections[i%2], fmt.Sprint(i+1))
			kit.Waiting(t, i+1, elections[0].Inspect)
		}
		for i, c := range calls {
			leads(t, elections[i%2], fmt.Sprint(i), l)
			for _, later := range calls[i:] {
				require.False(t, later.Returned(), "two lead")
			}
			after := kit.Next(t, l, c)
			require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
			require.Greater(t, after.Token(), l.Token())
			l = after
		}
		leads(t, elections[1], "6", l)
		kit.Release(t, l)
		nobody(t, elections[0])
		nobody(t, elections[1])
		kit.Expiring(t, s)
	})
}

func TestALeaderChangesItsValueAndAnotherCannot(t *testing.T) {
	kit.Pair(t, func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client) {
		e, other := election.New(a, kit.Name(t)), election.New(b, kit.Name(t))
		l := lead(t, e, "first")
		first := kit.Got(other.Leader(t.Context()))(t)
		require.WithinDuration(t, time.UnixMicro(kit.ServerTime(s)), first.Since, kit.Patience)
		for _, value := range []string{"second", "", "\x00\xff \r\n$-1\r\n", strings.Repeat("v", lease.MaxValue)} {
			require.NoError(t, e.Proclaim(t.Context(), l, value))
			leads(t, other, value, l)
		}
		require.Equal(t, first.Since, kit.Got(other.Leader(t.Context()))(t).Since, "it is one leadership")

		elsewhere := lead(t, election.New(a, kit.Name(t)+":elsewhere"), "x")
		require.ErrorIs(t, e.Proclaim(t.Context(), elsewhere, "y"), lease.ErrNotHeld)
		require.NoError(t, elsewhere.Context().Err())
		kit.Release(t, elsewhere)

		kit.Release(t, l)
		require.ErrorIs(t, e.Proclaim(t.Context(), l, "late"), lease.ErrReleased)
		nobody(t, other)
		next := lead(t, other, "next")
		require.ErrorIs(t, e.Proclaim(t.Context(), l, "later"), lease.ErrReleased)
		leads(t, e, "next", next)
		kit.Release(t, next)
		kit.Expiring(t, s)
	})
}

func TestForcingALeaderOutLetsTheNextLead(t *testing.T) {
	kit.Pair(t, func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client) {
		e, other := election.New(a, kit.Name(t), headwaiter.WithLease(time.Second)), election.New(b, kit.Name(t))
		require.ErrorIs(t, kit.Err(e.ForceRelease(t.Context(), 0)), lease.ErrNotHeld)
		l := lead(t, e, "a")
		c := candidate(other, "b")
		kit.Waiting(t, 1, e.Inspect)
		require.Equal(t, a.ID(), kit.Got(other.ForceRelease(t.Context(), l.Token()))(t).Client)
		next := c.Value(t)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
		require.ErrorIs(t, e.Proclaim(t.Context(), l, "late"), lease.ErrForced)
		leads(t, e, "b", next)
		require.Equal(t, b.ID(), kit.Got(e.Inspect(t.Context()))(t).Holder.Client)
		kit.Release(t, next)
	})
}

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
		c := kit.Got(headwaiter.Dial(headwaiter.Options{Redis: s.Option(), Name: "test", GrantLease: kit.Patience}))(t)
		t.Cleanup(func() { _ = c.Shutdown(context.Background()) })
		return election.New(c, name, headwaiter.WithLease(5*time.Second))
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
