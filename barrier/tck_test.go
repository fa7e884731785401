package barrier_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// The behaviour that the JSR-166 TCK tests in CyclicBarrierTest, in one client, in two, and in two processes. Package
// conformance has the names in quotes.
//
//	testConstructor1 to 3, testGetParties   TestUnusableNumbersOfPartiesAreRefused (input_test.go)
//	testSingleParty                         "parties go on together, each in its place"
//	testTwoParties                          "parties go on together, each in its place", TestProcessesMeetAgainAndAgain
//	testBarrierAction                       TestAnActionRunsOnceThoughRepliesAreLost, action_test.go
//	testAwait6_BrokenBarrier                "a party that gives up breaks the barrier for all"
//	testReset_BrokenBarrier                 TestAResetBreaksTheBarrierForThoseWhoWait
//	testReset_Leakage,                      TestAResetBreaksNothingForThoseWhoComeLater
//	testReset_NoBrokenBarrier
//	testResetWithoutBreakage                TestRoundsWithResetsBetweenThem
//	testAwait1_Interrupted_BrokenBarrier,   TestAfterEachKindOfBreakAResetMendsIt
//	testAwait2_Interrupted_BrokenBarrier,
//	testAwait3_TimeoutException,
//	testAwait4_Timeout_BrokenBarrier,
//	testAwait5_Timeout_BrokenBarrier,
//	testResetAfterInterrupt,
//	testResetAfterTimeout,
//	testResetAfterCommandException
//
// It differs in what becomes of calls beyond the parties while an action runs: they wait for its end, and are
// the first of the next generation.

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
			cause := errors.New("no longer wanted")
			ctx, cancel := context.WithCancelCause(t.Context())
			c := v.comes(t, ctx, 3)
			cancel(cause)
			require.ErrorIs(t, c.Err(t), context.Canceled)
			require.ErrorIs(t, c.Err(t), cause)
			require.NotErrorIs(t, c.Err(t), barrier.ErrBroken)
		},
		"timed out": func(t *testing.T, v view) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := v.Await(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Regexp(t, `^barrier: await ".+": waited \d+(\.\d+)?(µs|ms|s): context deadline exceeded$`, err.Error())
		},
		"action": func(t *testing.T, v view) {
			third := v.comes(t, t.Context(), 3)
			_, err := v.with(t, barrier.WithAction(func(context.Context) error { return failure })).Await(t.Context())
			require.ErrorIs(t, err, failure)
			require.NotErrorIs(t, err, barrier.ErrBroken)
			fail(t, third)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			among(t, 4, func(t *testing.T, s redistest.Backend, views func(int) view) {
				long, stop := context.WithTimeout(t.Context(), kit.Patience)
				defer stop()
				for i := range 3 {
					plain, deadline := views(i).comes(t, t.Context(), 1), views(i+1).comes(t, long, 2)
					require.False(t, views(i).broken(t))
					begun := time.Now()
					last(t, views(i+1))
					fail(t, plain, deadline)
					require.Less(t, time.Since(begun), atOnce)
					for j := range 2 {
						require.True(t, views(j).broken(t))
						require.Zero(t, views(j).inspect(t).Waiting)
						fail(t, views(j).party(t.Context()))
					}
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
