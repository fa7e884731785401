package barrier_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// cuts is how many replies are lost to one kind of request.
const cuts = 100

func TestAnArrivalWhoseReplyIsLostIsOneArrival(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 2), dial(t, s, 2)
		both := []view{far, near}
		meet(t, func(i int) view { return both[i] })
		for lost := 0; lost < cuts; {
			if lost%4 == 0 { // The first to come, which then asks twice more while it waits.
				p.LoseReplies(2, kit.Runs(lua.Barrier.Ask))
				first := far.party(t.Context())
				lost += 2
				kit.LostReplies(t, p.Faults, lost)
				require.Equal(t, 1, near.inspect(t).Waiting)
				pass(t, first, near.party(t.Context()))
			} else { // The last, which asks again when all have gone.
				p.LoseReplies(2, kit.Runs(lua.Barrier.Ask))
				pass(t, near.comes(t, t.Context(), 1), far.party(t.Context()))
				lost += 2
			}
		}
		replies, _ := p.Lost()
		require.Equal(t, cuts, replies)
		require.Zero(t, near.inspect(t).Waiting)
		kit.Expiring(t, s)
	})
}

// Any reply may be lost to either, and they do not wait between the rounds.
func TestRoundsWithoutAPauseOutliveLostReplies(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const rounds = 200
		p := kit.Proxy(t, s)
		a, b := on(t, kit.Dial(t, s, kit.Through(p)), 2), on(t, kit.Dial(t, s, kit.Through(p)), 2)
		n := 0
		p.LoseReplies(cuts, func(command []string) bool {
			if !kit.Runs(lua.Barrier.Ask)(command) && !kit.Runs(lua.Barrier.Check)(command) {
				return false
			}
			n++
			return n%3 == 0
		})
		run := func(v view) func() ([]int, error) {
			return func() (places []int, err error) {
				for range rounds {
					place, err := v.Await(t.Context())
					if err != nil {
						return nil, err
					}
					places = append(places, place)
				}
				return places, nil
			}
		}
		one, other := kit.Go(run(a)), kit.Go(run(b))
		places := other.Value(t)
		for i, place := range one.Value(t) {
			require.Equal(t, 1, place+places[i])
		}
		replies, _ := p.Lost()
		require.Greater(t, replies, cuts/2)
	})
}

func TestAnActionRunsOnceThoughRepliesAreLost(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		var ran atomic.Int64
		act := barrier.WithAction(func(context.Context) error { ran.Add(1); return nil })
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 2, act), dial(t, s, 2)
		for i := range 20 {
			p.LoseReplies(1+i%2, kit.Runs([]*lua.Script{lua.Barrier.Ask, lua.BarrierOpen}[i%2]))
			pass(t, near.comes(t, t.Context(), 1), far.party(t.Context()))
			require.EqualValues(t, i+1, ran.Load())
		}
		replies, _ := p.Lost()
		require.Equal(t, 30, replies)
	})
}

func TestAResetAndALeaveWhoseRepliesAreLostAreOne(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 3), dial(t, s, 3)
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			leaves := far.comes(t, ctx, 1)
			stays := near.comes(t, t.Context(), 2)
			lost, _ := p.Lost()
			p.LoseReplies(1, kit.Runs(lua.Barrier.End))
			cancel()
			require.ErrorIs(t, leaves.Err(t), context.Canceled)
			fail(t, stays)
			kit.LostReplies(t, p.Faults, lost+1)
			p.LoseReplies(2, kit.Runs(lua.BarrierReset.Script))
			require.NoError(t, far.Reset(t.Context()))
			require.False(t, near.broken(t))
		}
		// The repetitions of the leaves and the resets have broken nothing that came after them.
		before := near.inspect(t).Token
		meet(t, func(i int) view { return near })
		require.Equal(t, before+1, near.inspect(t).Token)
	})
}

func TestAResetThatIsRepeatedDoesNotBreakTheNextGeneration(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 2), dial(t, s, 2)
		rest(t, near) // Now the server knows the script, and one request is all.
		for i := range 10 {
			old := near.comes(t, t.Context(), 1)
			p.Freeze(faults.ToClient)
			reset := kit.Run(func() error { return far.Reset(t.Context()) })
			fail(t, old)
			next := near.comes(t, t.Context(), 1)
			p.Cut() // Now it is sent again.
			p.Heal()
			require.NoError(t, reset.Err(t))
			require.False(t, next.Returned(), "%d", i)
			pass(t, next, near.party(t.Context()))
		}
	})
}

func TestATripWhoseMessageIsLostIsFoundByAnyPartysCheck(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := dial(t, s, 4), dial(t, s, 4)
		views := func(i int) view { return []view{a, b}[i%2] }
		s.DropPublish(1 << 40)
		for i := range 20 {
			calls := gathers(t, views)
			synctest.Wait()
			begun := time.Now()
			if i%2 == 0 {
				pass(t, append(calls, views(3).party(t.Context()))...)
			} else {
				require.NoError(t, a.Reset(t.Context()))
				fail(t, calls...)
			}
			require.Less(t, time.Since(begun), hears)
		}
		require.Equal(t, 20, s.Dropped())
	})
}

func TestATripReachesASubscriberThatWasKilled(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := dial(t, s, 2), dial(t, s, 2)
	subscribers := func() int64 { return s.Do("PUBSUB", "NUMSUB", lockOf(a.Name())+":wake").([]any)[1].(int64) }
	for range 10 {
		first := a.comes(t, t.Context(), 1)
		kit.Eventually(t, "its subscription", func() bool { return subscribers() > 0 })
		require.Positive(t, s.Int("CLIENT", "KILL", "TYPE", "pubsub"))
		begun := time.Now()
		pass(t, first, b.party(t.Context()))
		require.Less(t, time.Since(begun), time.Second)
	}
}

func TestATripDuringAnOutageIsNoticedAtOnceAfterwards(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 3), dial(t, s, 3)
		views := func(i int) view { return []view{far, far, near}[i] }
		spans := make([]time.Duration, 5)
		for i := range spans {
			calls := gathers(t, views)
			p.Refuse()
			p.Cut()
			last := near.party(t.Context())
			require.Zero(t, last.Value(t))
			require.False(t, calls[0].Returned() || calls[1].Returned())
			begun := time.Now()
			p.Heal()
			pass(t, append(calls, last)...)
			spans[i] = time.Since(begun)
		}
		t.Logf("from the end of the fault to the pass: %v", spans)
		require.Less(t, kit.Median(spans), time.Second)
	})
}

func TestAnOutageLongerThanTheLeaseBreaksTheBarrierForAll(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		lasts := headwaiter.WithLease(time.Second)
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 3, lasts), dial(t, s, 3, lasts)
		cut := far.comes(t, t.Context(), 1)
		stays := near.comes(t, t.Context(), 2)
		p.Refuse()
		p.Cut()
		fail(t, stays)
		require.False(t, cut.Returned())
		p.Heal()
		fail(t, cut)
	})
}

func TestAServerThatForgetsBreaksTheBarrierForAll(t *testing.T) {
	for fault, do := range map[string]func(redistest.Backend){
		"flush":   func(s redistest.Backend) { s.Do("FLUSHALL") },
		"restart": func(s redistest.Backend) { s.Restart() },
	} {
		t.Run(fault, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				a, b := dial(t, s, 4), dial(t, s, 4)
				views := func(i int) view { return []view{a, b}[i%2] }
				calls := gathers(t, views)
				begun := time.Now()
				do(s)
				fail(t, calls...)
				require.Less(t, time.Since(begun), 2*hears)
				rest(t, b)
				meet(t, views)
			})
		})
	}
}

// The generation of a new life is another one: who has come to the old one does not pass with it.
func TestAGenerationAfterAFlushPassesWithoutThoseOfTheOldOne(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := dial(t, s, 3), dial(t, s, 3)
		views := func(i int) view { return []view{a, b}[i%2] }
		calls := gathers(t, views)
		s.Do("FLUSHALL")
		fresh := b.comes(t, t.Context(), 1)
		fail(t, calls...)
		require.False(t, fresh.Returned())
		second := a.comes(t, t.Context(), 2)
		pass(t, fresh, second, a.party(t.Context()))
	})
}

// keysLost are the keys of a barrier that a case deletes while parties wait.
var keysLost = []string{"", ":leases", ":arrivals", ":last", ":calls"}

func TestAnyKeyMayBeLostAndNobodyPassesAlone(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		for _, ending := range keysLost {
			c, d := kit.Dial(t, s), kit.Dial(t, s)
			name := kit.Name(t) + ending
			a, b := barrier.New(c, name, 3), barrier.New(d, name, 3)
			calls := []*kit.Call[int]{}
			for i, v := range []*barrier.Barrier{a, b} {
				calls = append(calls, kit.Go(func() (int, error) { return v.Await(t.Context()) }))
				kit.Waiting(t, i+1, a.Inspect)
			}
			s.Do("DEL", lockOf(name)+ending)
			last := kit.Go(func() (int, error) { return a.Await(t.Context()) })
			if slices.Contains([]string{":last", ":calls"}, ending) {
				pass(t, append(calls, last)...)
				continue
			}
			fail(t, calls...)
			if ending != "" {
				fail(t, last)
			} else {
				kit.Waiting(t, 1, a.Inspect) // The first of a barrier that nobody has seen.
				require.NoError(t, a.Reset(t.Context()))
				fail(t, last)
			}
			kit.Expiring(t, s)
		}
	})
}

func TestClosingAClientBreaksTheBarrierAtOnceAndLeavesNothing(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := dial(t, s, 4), dial(t, s, 4)
		mine := []*kit.Call[int]{a.comes(t, t.Context(), 1), a.comes(t, t.Context(), 2)}
		stays := b.comes(t, t.Context(), 3)
		begun := time.Now()
		require.NoError(t, a.client.Close(t.Context()))
		for _, c := range mine {
			require.ErrorIs(t, c.Err(t), lease.ErrClosed)
			require.NotErrorIs(t, c.Err(t), barrier.ErrBroken)
		}
		fail(t, stays)
		require.Less(t, time.Since(begun), time.Second)
		require.Zero(t, b.inspect(t).Waiting)
		_, err := a.Await(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		require.ErrorIs(t, a.Reset(t.Context()), lease.ErrClosed)
		require.NoError(t, b.client.Close(t.Context()))
		kit.Eventually(t, "the subscriptions to be gone", func() bool {
			return len(s.List("PUBSUB", "CHANNELS", fmt.Sprintf("%s*", lockOf(a.Name())))) == 0
		})
		kit.Expiring(t, s)
	})
}
