package election_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// What who observes learns when messages, connections, leaders and servers are lost.

func TestNewsWhoseMessageIsLostAreFoundByALook(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		e, _ := of(t, s)
		other, _ := of(t, s)
		news := other.Observe(t.Context())
		require.Zero(t, next(t, news))
		synctest.Wait()
		s.DropPublish(1 << 40)
		for i := range 10 {
			begun := time.Now()
			value := fmt.Sprint(i)
			l := lead(t, e, value)
			until(t, news, value, l.Token())
			require.Less(t, time.Since(begun), looks)
			begun = time.Now()
			kit.Release(t, l)
			require.Zero(t, next(t, news))
			require.Less(t, time.Since(begun), looks)
		}
		require.Positive(t, s.Dropped())
	})
}

// The leader is gone and nobody follows: no script tells of it.
func TestTheEndOfALeaderThatDiesIsNewsWhenItsLeaseEnds(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		e := election.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t), headwaiter.WithLease(12*time.Second))
		other, c := of(t, s)
		news := other.Observe(t.Context())
		require.Zero(t, next(t, news))
		for range 3 {
			l := lead(t, e, "a")
			until(t, news, "a", l.Token())
			synctime.Pass(time.Minute) // Renewals and looks.
			require.Empty(t, news)
			checks := c.Stats().Checks
			d.Freeze(faults.ToServer)
			kit.Lost(t, l)
			lost := time.Now()
			require.Empty(t, news, "told of the end before it was")
			require.Zero(t, next(t, news))
			require.Less(t, time.Since(lost), 500*time.Millisecond)
			require.Less(t, c.Stats().Checks, checks+30, "it looks all the time")
			d.Heal()
			synctest.Wait()
		}
	})
}

func TestAnObservationOutlastsAnElectionThatIsForgotten(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		e, _ := of(t, s)
		other, c := of(t, s)
		news := other.Observe(t.Context())
		require.Zero(t, next(t, news))
		for range 3 {
			l := lead(t, e, "a")
			until(t, news, "a", l.Token())
			kit.Release(t, l)
			require.Zero(t, next(t, news))
			synctime.Pass(2 * time.Minute)
			require.Zero(t, len(s.List("KEYS", "*{*")), "what nobody needs is gone")
			require.Empty(t, news)
		}
		before := c.Stats().Checks
		synctime.Pass(time.Minute)
		require.InDelta(t, 30, float64(c.Stats().Checks-before), 10, "looks in a minute")
	})
}

func TestASubscriptionOfAnObservationIsDroppedSomeTimeAfterItsEnd(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		e, c := of(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		news := e.Observe(ctx)
		require.Zero(t, next(t, news))
		hearing(t, s, e.Name(), 1)
		cancel()
		ended(t, news)
		before := c.Stats().Checks
		synctime.Pass(time.Minute)
		hearing(t, s, e.Name(), 0)
		require.LessOrEqual(t, c.Stats().Checks, before+1, "nobody observes, nobody looks")
	})
}

func TestAServerThatIsEmptiedHasNoLeader(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) { forgets(t, s, func() { s.Do("FLUSHALL") }) })
}

// Not on an embedded server: a script in which that ends is answered with an error.
func TestAServerThatIsRestartedHasNoLeader(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	forgets(t, s, s.Restart)
}

// forgets asserts what a server that loses its state means to those who lead and observe.
func forgets(t *testing.T, s redistest.Backend, do func()) {
	e := election.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithLease(time.Second))
	other, _ := of(t, s)
	news := other.Observe(t.Context())
	require.Zero(t, next(t, news))
	var tokens []uint64
	for range 3 {
		l := lead(t, e, "a")
		until(t, news, "a", l.Token())
		tokens = append(tokens, l.Token())
		begun := time.Now()
		do()
		require.Zero(t, next(t, news))
		require.Less(t, time.Since(begun), 2*looks)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrLost)
	}
	l := lead(t, other, "b")
	tokens = append(tokens, l.Token())
	require.True(t, slices.IsSorted(tokens))
	require.Len(t, slices.Compact(tokens), 4)
	until(t, news, "b", l.Token())
	kit.Release(t, l)
}

func TestAChangeWhileAConnectionIsDownIsNoticedAtOnceAfterwards(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		e, _ := of(t, s)
		other, _ := of(t, s, kit.Through(p))
		news := other.Observe(t.Context())
		require.Zero(t, next(t, news))
		l := lead(t, e, "first")
		until(t, news, "first", l.Token())
		spans := make([]time.Duration, 5)
		for i := range spans {
			hearing(t, s, e.Name(), 1)
			p.Refuse()
			p.Cut()
			hearing(t, s, e.Name(), 0)
			value := fmt.Sprint(i)
			require.NoError(t, e.Proclaim(t.Context(), l, value))
			require.Empty(t, news)
			begun := time.Now()
			p.Heal()
			until(t, news, value, l.Token())
			spans[i] = time.Since(begun)
		}
		t.Logf("from the end of the fault to the news: %v", spans)
		require.Less(t, kit.Median(spans), time.Second)
		kit.Release(t, l)
	})
}

// A thousand proclamations while subscriptions are killed: the last that each observation has is the leader's.
func TestTheLastValueIsSeenWhateverHappensToSubscriptions(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e, _ := of(t, s)
	l := lead(t, e, "0")
	all := make([]<-chan lease.Leader, 8)
	for i := range all {
		other, _ := of(t, s)
		all[i] = other.Observe(t.Context())
	}
	hearing(t, s, e.Name(), int64(len(all)))
	const proclamations = 1000
	killed := int64(0)
	for i := range proclamations {
		if i%20 == 10 {
			killed += s.Int("CLIENT", "KILL", "TYPE", "pubsub")
		}
		require.NoError(t, e.Proclaim(t.Context(), l, fmt.Sprint(i+1)))
	}
	killed += s.Int("CLIENT", "KILL", "TYPE", "pubsub")
	begun := time.Now()
	for _, news := range all {
		until(t, news, fmt.Sprint(proclamations), l.Token())
		require.Empty(t, news)
	}
	t.Logf("%d subscriptions killed; all had the last value %v after the last", killed, time.Since(begun))
	require.Less(t, time.Since(begun), looks)
	require.Greater(t, killed, int64(len(all)))
	kit.Release(t, l)
	for _, news := range all {
		require.Zero(t, next(t, news))
	}
}

func TestResigningWorksWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e, _ := of(t, s)
	other, _ := of(t, s)
	l := lead(t, e, "a")
	c := candidate(other, "b")
	kit.Waiting(t, 1, e.Inspect)
	s.Do("CONFIG", "SET", "maxmemory", "1")
	require.ErrorContains(t, e.Proclaim(t.Context(), l, strings.Repeat("b", 1000)), "raise maxmemory")
	require.NoError(t, l.Context().Err())
	leads(t, other, "a", l)
	kit.Release(t, l)
	require.ErrorContains(t, c.Err(t), "raise maxmemory", "who cannot say that it leads does not")
	nobody(t, e)
	s.Do("CONFIG", "SET", "maxmemory", "0")
	kit.Release(t, lead(t, other, "c"))
}

func TestWhatMayNotBePublishedIsFoundAllTheSame(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	e, _ := of(t, s)
	other, _ := of(t, s)
	news := other.Observe(t.Context())
	require.Zero(t, next(t, news))
	hearing(t, s, e.Name(), 1)
	s.Do("ACL", "SETUSER", "default", "-publish")
	begun := time.Now()
	l := lead(t, e, "a")
	until(t, news, "a", l.Token())
	require.ErrorIs(t, e.Proclaim(t.Context(), l, "b"), lease.ErrUnwoken)
	until(t, news, "b", l.Token())
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrUnwoken)
	require.Zero(t, next(t, news))
	require.Less(t, time.Since(begun), 3*looks)
}
