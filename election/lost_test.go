package election_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
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

// A thousand proclamations while subscriptions are killed: the last that each observation has is the leader's.
func TestTheLastValueIsSeenWhateverHappensToSubscriptions(t *testing.T) {
	s := kit.Start(t)
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
	require.Greater(t, killed, int64(len(all)))
	kit.Release(t, l)
	for _, news := range all {
		require.Zero(t, next(t, news))
	}
}

func TestResigningWorksWhenMemoryIsFull(t *testing.T) {
	s := kit.Start(t)
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
	s := kit.Start(t)
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

func TestAnObservationTellsThePresentAndThenEachChange(t *testing.T) {
	kit.Pair(t, func(t *testing.T, s redistest.Backend, a, b *headwaiter.Client) {
		e, other := election.New(a, kit.Name(t)), election.New(b, kit.Name(t))
		news := other.Observe(t.Context())
		require.Zero(t, next(t, news), "nobody leads")
		l := lead(t, e, "first")
		got := next(t, news)
		require.Equal(t, "first", got.Value)
		require.Equal(t, l.Token(), got.Token)
		late := other.Observe(t.Context())
		require.Equal(t, got, next(t, late), "the present one")
		for i := range 5 {
			value := fmt.Sprint(i)
			require.NoError(t, e.Proclaim(t.Context(), l, value))
			require.Equal(t, value, next(t, news).Value)
			require.Equal(t, value, next(t, late).Value)
		}
		c := candidate(other, "second")
		kit.Waiting(t, 1, e.Inspect)
		second := kit.Next(t, l, c)
		until(t, news, "second", second.Token())
		until(t, late, "second", second.Token())
		hearing(t, s, e.Name(), 1)
		begun := time.Now()
		kit.Release(t, second)
		require.Zero(t, next(t, news), "nobody leads")
		require.Zero(t, next(t, late))
		t.Logf("from a resignation to the news: %v", time.Since(begun))
		require.Empty(t, news)
		kit.Expiring(t, s)
	})
}

func TestNewsOfNobodyComeByMessage(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		e, _ := of(t, s)
		other, _ := of(t, s)
		news := other.Observe(t.Context())
		require.Zero(t, next(t, news))
		for _, end := range []func(uint64){
			func(uint64) {},
			func(token uint64) { require.NoError(t, kit.Err(other.ForceRelease(t.Context(), token))) },
		} {
			synctest.Wait()
			l := lead(t, e, "a")
			require.Equal(t, "a", next(t, news).Value)
			synctest.Wait()
			begun := time.Now()
			end(l.Token())
			_ = l.Release(t.Context())
			require.Zero(t, next(t, news))
			require.Less(t, time.Since(begun), 100*time.Millisecond, "found by a look")
		}
	})
}

func TestASlowReceiverGetsTheLastOfWhatItHasMissed(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, c := of(t, s)
		l := lead(t, e, "0")
		news := e.Observe(t.Context())
		hearing(t, s, e.Name(), 1)
		for i := range 50 {
			require.NoError(t, e.Proclaim(t.Context(), l, fmt.Sprint(i+1)))
		}
		kit.Eventually(t, "the messages", func() bool { return c.Stats().Messages >= 50 })
		until(t, news, "50", l.Token())
		kit.Release(t, l)
		require.Zero(t, next(t, news))
	})
}

func TestAnObservationEndsWithItsContextOrItsClient(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, c := of(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		news := e.Observe(ctx)
		require.Zero(t, next(t, news))
		cancel()
		require.Zero(t, ended(t, news), "no error")
		require.Zero(t, ended(t, e.Observe(ctx)), "the context has ended before")

		stays, started := e.Observe(t.Context()), e.Observe(t.Context())
		require.Zero(t, next(t, stays))
		require.NoError(t, c.Shutdown(t.Context()))
		for _, news := range []<-chan lease.Leader{stays, started, e.Observe(t.Context())} {
			require.ErrorIs(t, ended(t, news).Err, lease.ErrClosed)
		}
		kit.Eventually(t, "the subscription to be gone", func() bool { return len(s.List("PUBSUB", "CHANNELS", lockKey(e.Name())+"*")) == 0 })
	})
}

func TestAnObservationTellsOfAnErrorThatNoRetryMends(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, _ := of(t, s)
		news := e.Observe(t.Context())
		require.Zero(t, next(t, news))
		s.Do("SET", lockKey(e.Name()), "x")
		require.ErrorContains(t, ended(t, news).Err, "WRONGTYPE")
		require.ErrorContains(t, ended(t, e.Observe(t.Context())).Err, `election: observe "`)
	})
}

// Whatever others publish on the channel, it is no more than a reason to look.
func TestForgedMessagesTellNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		e, _ := of(t, s)
		other, c := of(t, s)
		l := lead(t, e, "true")
		news := other.Observe(t.Context())
		require.Equal(t, "true", next(t, news).Value)
		hearing(t, s, e.Name(), 1)
		for _, m := range []string{"O 1", "O 0", "O 9007199254740991", "B 9007199254740991", "B 1", "O x", "", "L x", "E x", "F x", "G a 1 2 3", "S x"} {
			before := c.Stats().Messages
			kit.Eventually(t, fmt.Sprintf("%q to be heard", m), func() bool {
				s.Do("PUBLISH", wake(e.Name()), m) // Again, in case the connection is just being replaced.
				return c.Stats().Messages > before
			})
		}
		require.NoError(t, e.Proclaim(t.Context(), l, "new"))
		require.Equal(t, "new", next(t, news).Value, "and nothing before it")
		kit.Release(t, l)
		require.Zero(t, next(t, news))
	})
}

// Many observe, many lead in turn, and the last value is everybody's last.
func TestAllWhoObserveEndWithTheLastValue(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients, each, terms = 5, 4, 6
		var elections []*election.Election
		var all []<-chan lease.Leader
		for range clients {
			e, _ := of(t, s)
			elections = append(elections, e)
			for range each {
				all = append(all, e.Observe(t.Context()))
			}
		}
		var g sync.WaitGroup
		var leaders, turns atomic.Int64
		for i, e := range elections {
			g.Go(func() {
				for term := range terms {
					l, err := e.Campaign(t.Context(), fmt.Sprint(i, term))
					if n := leaders.Add(1); n != 1 {
						t.Errorf("%d lead", n)
					}
					if err == nil {
						err = e.Proclaim(t.Context(), l, "again")
					}
					leaders.Add(-1)
					turns.Add(1)
					if err == nil {
						err = l.Release(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		kit.AllMoving(t, &g, turns.Load)
		l := lead(t, elections[0], "last")
		for _, news := range all {
			until(t, news, "last", l.Token())
			require.Empty(t, news, "something came after the last")
		}
	})
}
