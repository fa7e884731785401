package countdown_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// The behaviour that the JSR-166 TCK tests in CountDownLatchTest, in one client, in two, and in two processes. Package
// conformance has the names in quotes.
//
//	testConstructor               TestACountIsPositive; 0 is refused too: a latch is made to be waited for
//	testGetCount, testCountDown   TestTheLargestCountIsExact (input_test.go), "counts of many clients are each told apart"
//	testAwait, testTimedAwait     "all wait for the last count, also those who come late",
//	                              TestProcessesPassWhenAnotherCountsDown
//	testAwait_Interruptible,      TestAWaitEndsWithItsContextAndNoOtherDoes,
//	testTimedAwait_Interruptible  TestAnEndedContextDoesNotPassAnOpenLatch
//	testAwaitTimeout              TestAWaitWithADeadlineGivesUpAtAClosedLatch
//	testToString                  TestInspectTellsStateAndCount

func TestACountIsPositive(t *testing.T) {
	among(t, func(t *testing.T, s redistest.Backend, views func(int) view) {
		for _, n := range []int64{0, -1, -1 << 63} {
			done, err := views(0).TrySetCount(t.Context(), n)
			require.False(t, done)
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, fmt.Sprint(n))
		}
		_, err := views(1).Count(t.Context())
		require.ErrorIs(t, err, countdown.ErrUnset)
	})
}

func TestAWaitEndsWithItsContextAndNoOtherDoes(t *testing.T) {
	among(t, func(t *testing.T, s redistest.Backend, views func(int) view) {
		views(0).set(t, 1)
		cause := errors.New("no longer wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		timed, stop := context.WithTimeout(ctx, kit.Patience)
		defer stop()
		plain, deadline, stays := views(0).waits(t, ctx), views(1).waits(t, timed), views(1).waits(t, t.Context())
		cancel(cause)
		for _, c := range []*kit.Call[struct{}]{plain, deadline} {
			err := c.Err(t)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, cause)
			var wait *lease.WaitError
			require.ErrorAs(t, err, &wait)
			require.Positive(t, wait.Waited)
		}
		require.False(t, stays.Returned())
		require.EqualValues(t, 1, views(0).left(t))
		views(0).down(t, 0)
		require.NoError(t, stays.Err(t))
	})
}

func TestAnEndedContextDoesNotPassAnOpenLatch(t *testing.T) {
	among(t, func(t *testing.T, s redistest.Backend, views func(int) view) {
		views(0).set(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, views(1).Wait(ctx), context.Canceled)
		_, err := views(1).CountDown(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, lease.ErrOutcomeUnknown)
		views(0).down(t, 0)
		require.ErrorIs(t, views(1).Wait(ctx), context.Canceled)
		require.NoError(t, views(1).Wait(t.Context()))
	})
}

func TestAWaitWithADeadlineGivesUpAtAClosedLatch(t *testing.T) {
	among(t, func(t *testing.T, s redistest.Backend, views func(int) view) {
		views(0).set(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := views(1).Wait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Regexp(t, `^countdown: wait ".+": waited \d+(\.\d+)?(µs|ms|s): context deadline exceeded$`, err.Error())
		require.EqualValues(t, 1, views(0).left(t))
	})
}

func TestInspectTellsStateAndCount(t *testing.T) {
	among(t, func(t *testing.T, s redistest.Backend, views func(int) view) {
		tells := func(state string, initial, left int64) lease.Info {
			info, err := views(1).Inspect(t.Context())
			require.NoError(t, err)
			require.Equal(t, state, info.State)
			require.Equal(t, initial, info.Limit)
			require.Equal(t, left, info.Used)
			require.False(t, info.Held)
			return info
		}
		tells("unset", 0, 0)
		views(0).set(t, 2)
		first := tells("closed", 2, 2).Token
		views(0).down(t, 1)
		require.Equal(t, first, tells("closed", 2, 1).Token)
		views(0).down(t, 0)
		require.Equal(t, first, tells("open", 2, 0).Token)
		views(0).set(t, 7)
		require.Greater(t, tells("closed", 7, 7).Token, first, "each setting is a generation of its own")
	})
}

func TestProcessesPassWhenAnotherCountsDown(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v := dial(t, s)
	v.set(t, 3)
	const waiters = 6
	plan := crowd.Plan{Addr: s.Addr(), Kind: crowd.Latch, Names: []string{v.Name()}, Clients: 1, Waiters: waiters}
	one, other := crowd.Start(t, plan), crowd.Start(t, plan)
	here := v.waits(t, t.Context())
	kit.Waiting(t, 3, v.Inspect)
	one.CountDown()
	require.EqualValues(t, 2, one.Await(crowd.Counted, 1, kit.Patience)[0].Token)
	v.down(t, 1)
	require.False(t, here.Returned())
	other.CountDown()
	require.Zero(t, other.Await(crowd.Counted, 1, kit.Patience)[0].Token)
	require.NoError(t, here.Err(t))
	one.Await(crowd.Passed, waiters, kit.Patience)
	other.Await(crowd.Passed, waiters, kit.Patience)
}

// What a process has counted stays counted, and nobody waits for those it leaves waiting.
func TestAKilledProcessLeavesItsCountsAndNothingElse(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v := dial(t, s)
	v.set(t, 2)
	victim := crowd.Start(t, crowd.Plan{Addr: s.Addr(), Kind: crowd.Latch, Names: []string{v.Name()}, Clients: 1, Waiters: 5})
	here := v.waits(t, t.Context())
	kit.Waiting(t, 2, v.Inspect)
	victim.CountDown()
	victim.Await(crowd.Counted, 1, kit.Patience)
	victim.Kill()
	kit.Waiting(t, 1, v.Inspect)
	require.EqualValues(t, 1, v.left(t))
	v.down(t, 0)
	require.NoError(t, here.Err(t))
}
