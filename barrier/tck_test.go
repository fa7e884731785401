package barrier_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// The behaviour that the JSR-166 TCK tests in CyclicBarrierTest, in one client, in two, and in two processes:
//
//	testConstructor1 to 3, testGetParties   TestUnusableNumbersOfPartiesAreRefused (input_test.go)
//	testSingleParty                         TestASinglePartyPassesAtOnce
//	testTwoParties                          TestPartiesPassTogetherAndKnowTheirPlaces, TestProcessesMeetAgainAndAgain
//	testBarrierAction                       TestTheLastToComeRunsTheActionBeforeAnybodyPasses
//	testAwait1_Interrupted_BrokenBarrier,   TestACancelledPartyBreaksTheBarrierForAll
//	testAwait2_Interrupted_BrokenBarrier
//	testAwait3_TimeoutException,            TestAPartyThatTimesOutBreaksTheBarrierForAll
//	testAwait4_Timeout_BrokenBarrier,
//	testAwait5_Timeout_BrokenBarrier
//	testAwait6_BrokenBarrier                TestABrokenBarrierStaysBrokenUntilTheReset
//	testReset_BrokenBarrier                 TestAResetBreaksTheBarrierForThoseWhoWait
//	testReset_Leakage,                      TestAResetBreaksNothingForThoseWhoComeLater
//	testReset_NoBrokenBarrier
//	testResetWithoutBreakage                TestRoundsWithResetsBetweenThem
//	testResetAfterInterrupt,                TestAfterEachKindOfBreakAResetMendsIt
//	testResetAfterTimeout,
//	testResetAfterCommandException
//
// It differs in what becomes of calls beyond the parties while an action runs: they wait for its end, and are
// the first of the next generation.

func TestASinglePartyPassesAtOnce(t *testing.T) {
	among(t, 1, func(t *testing.T, s redistest.Backend, views func(int) view) {
		for i := range 10 {
			index, err := views(i).Await(t.Context())
			require.NoError(t, err)
			require.Zero(t, index)
			require.Zero(t, views(i).inspect(t).Waiting)
		}
	})
}

func TestPartiesPassTogetherAndKnowTheirPlaces(t *testing.T) {
	for _, parties := range []int{2, 5} {
		t.Run(strconv.Itoa(parties), func(t *testing.T) {
			among(t, parties, func(t *testing.T, s redistest.Backend, views func(int) view) {
				generation := uint64(0)
				for range 5 {
					meet(t, views)
					info := views(0).inspect(t)
					require.Zero(t, info.Waiting)
					require.Greater(t, info.Token, generation)
					generation = info.Token
				}
			})
		})
	}
}

func TestTheLastToComeRunsTheActionBeforeAnybodyPasses(t *testing.T) {
	among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
		var ran, passed atomic.Int64
		action := barrier.WithAction(func(context.Context) error {
			if passed.Load() != 3*ran.Load() {
				t.Error("somebody has passed before the action")
			}
			ran.Add(1)
			return nil
		})
		for round := range int64(5) {
			var calls []*kit.Call[int]
			for i := range 3 {
				v := views(i).with(t, action)
				calls = append(calls, kit.Go(func() (int, error) {
					index, err := v.Await(context.Background())
					passed.Add(1)
					return index, err
				}))
				if i < 2 {
					kit.Waiting(t, i+1, v.Inspect)
					require.Equal(t, round, ran.Load())
				}
			}
			pass(t, calls...)
			require.Equal(t, round+1, ran.Load())
		}
	})
}

func TestACancelledPartyBreaksTheBarrierForAll(t *testing.T) {
	among(t, 4, func(t *testing.T, s redistest.Backend, views func(int) view) {
		cause := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		timed, stop := context.WithTimeout(t.Context(), kit.Patience)
		defer stop()
		plain, deadline := views(0).comes(t, t.Context(), 1), views(1).comes(t, timed, 2)
		cancelled := views(1).comes(t, ctx, 3)
		require.False(t, views(0).broken(t))
		begun := time.Now()
		cancel(cause)
		err := cancelled.Err(t)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, barrier.ErrBroken)
		fail(t, plain, deadline)
		require.Less(t, time.Since(begun), atOnce)
		require.True(t, views(0).broken(t))
	})
}

func TestAPartyThatTimesOutBreaksTheBarrierForAll(t *testing.T) {
	among(t, 4, func(t *testing.T, s redistest.Backend, views func(int) view) {
		long, stop := context.WithTimeout(t.Context(), kit.Patience)
		defer stop()
		plain, deadline := views(0).comes(t, t.Context(), 1), views(1).comes(t, long, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := views(1).Await(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Regexp(t, `^barrier: await ".+": waited \d+(\.\d+)?(µs|ms|s): context deadline exceeded$`, err.Error())
		fail(t, plain, deadline)
		require.Less(t, time.Since(begun), atOnce)
		require.True(t, views(1).broken(t))
	})
}

func TestABrokenBarrierStaysBrokenUntilTheReset(t *testing.T) {
	among(t, 2, func(t *testing.T, s redistest.Backend, views func(int) view) {
		breaks(t, views(0))
		for i := range 4 {
			_, err := views(i).Await(t.Context())
			require.ErrorIs(t, err, barrier.ErrBroken)
			require.True(t, views(i).broken(t))
			require.Zero(t, views(i).inspect(t).Waiting)
		}
		require.NoError(t, views(1).Reset(t.Context()))
		require.False(t, views(0).broken(t))
	})
}

// breaks breaks a barrier by a party that comes and goes.
func breaks(t testing.TB, v view) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := v.comes(t, ctx, 1)
	cancel()
	require.ErrorIs(t, c.Err(t), context.Canceled)
	kit.Eventually(t, "the barrier to be broken", func() bool { return v.broken(t) })
}

func TestAResetBreaksTheBarrierForThoseWhoWait(t *testing.T) {
	among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
		for i := range 10 {
			calls := gathers(t, views)
			require.NoError(t, views(i).Reset(t.Context()))
			require.False(t, views(i).broken(t), "the next generation is not broken")
			fail(t, calls...)
			require.Zero(t, views(i).inspect(t).Waiting)
		}
	})
}

func TestAResetBreaksNothingForThoseWhoComeLater(t *testing.T) {
	among(t, 2, func(t *testing.T, s redistest.Backend, views func(int) view) {
		for i := range 5 {
			before := views(0).inspect(t).Token
			require.NoError(t, views(i).Reset(t.Context()))
			require.False(t, views(i).broken(t))
			require.Equal(t, before, views(0).inspect(t).Token, "there was nothing to begin anew")
			meet(t, views)
		}
	})
}

func TestRoundsWithResetsBetweenThem(t *testing.T) {
	among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
		for i := range 4 {
			meet(t, views)
			if i%2 == 0 {
				gone := gathers(t, views)
				require.NoError(t, views(1).Reset(t.Context()))
				fail(t, gone...)
			}
		}
	})
}

func TestAfterEachKindOfBreakAResetMendsIt(t *testing.T) {
	failure := errors.New("the action has failed")
	for kind, last := range map[string]func(t *testing.T, v view){
		"cancelled": func(t *testing.T, v view) {
			ctx, cancel := context.WithCancel(t.Context())
			c := v.comes(t, ctx, 2)
			cancel()
			require.ErrorIs(t, c.Err(t), context.Canceled)
		},
		"timed out": func(t *testing.T, v view) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := v.Await(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		},
		"action": func(t *testing.T, v view) {
			second := v.comes(t, t.Context(), 2)
			_, err := v.with(t, barrier.WithAction(func(context.Context) error { return failure })).Await(t.Context())
			require.ErrorIs(t, err, failure)
			require.NotErrorIs(t, err, barrier.ErrBroken)
			fail(t, second)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
				for i := range 3 {
					first := views(i).comes(t, t.Context(), 1)
					last(t, views(i+1))
					fail(t, first)
					require.True(t, views(i).broken(t))
					require.NoError(t, views(i+1).Reset(t.Context()))
					meet(t, views)
				}
			})
		})
	}
}

func TestProcessesMeetAgainAndAgain(t *testing.T) {
	t.Parallel()
	const rounds = 50
	s := redistest.Start(t)
	v := dial(t, s, 3)
	plan := crowd.Plan{
		Addr: s.Addr(), Kind: crowd.Barrier, Names: []string{v.Name()}, Clients: 1, Waiters: 1,
		N: 3, Entries: rounds - 1, Lease: 10 * time.Second,
	}
	all := []*crowd.Crowd{crowd.Start(t, plan), crowd.Start(t, plan)}
	mine := make([]int, rounds)
	for i := range mine {
		mine[i] = v.party(t.Context()).Value(t)
	}
	one, other := all[0].Await(crowd.Passed, rounds, kit.Patience), all[1].Await(crowd.Passed, rounds, kit.Patience)
	for i, index := range mine {
		require.ElementsMatch(t, []uint64{0, 1, 2}, []uint64{uint64(index), one[i].Token, other[i].Token}, "round %d", i)
	}
	require.Zero(t, v.inspect(t).Waiting)
}
