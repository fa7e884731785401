package election_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

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
		kit.Release(t, l)
		second := c.Value(t)
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
			func(token uint64) {
				_, err := other.ForceRelease(t.Context(), token)
				require.NoError(t, err)
			},
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
		require.NoError(t, c.Close(t.Context()))
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
		var leaders atomic.Int64
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
					if err == nil {
						err = l.Release(t.Context())
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		kit.All(t, &g)
		l := lead(t, elections[0], "last")
		for _, news := range all {
			until(t, news, "last", l.Token())
			require.Empty(t, news, "something came after the last")
		}
	})
}
