package semaphore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// What java.util.concurrent's SemaphoreTest holds down for a fair semaphore, for calls of one client and of two;
// process_test.go has what is left between processes, and package conformance the names in quotes.
//
//	testTryAcquire, testTryAcquireN...InSameThread    "permits are counted"
//	testAcquireReleaseInSameThread, ...N...           TestPermitsAreTakenAndGivenBack
//	testAcquireReleaseInDifferentThreads, ...N...     "a small request does not overtake a large one",
//	                                                  "a release serves all who fit"
//	testTryAcquire_timeout, testInterruptible...      TestAWaitThatEndsTakesNothing
//	testHasQueuedThreads, testGetQueueLength          TestInspectTellsHoldersAndWaiters
//	testDrainPermits                                  TestDrainTakesWhatIsFree
//	testReducePermits                                 resize_test.go
//	testZeroPermits, negative arguments               input_test.go
//
// Left out: serialization, toString, isFair: there are none; and a release without an acquire, because what is
// released is a lease. That makes a semaphore of 0 permits useless until a Resize, so it is refused. An untimed
// tryAcquire does not overtake here.

// semaphores are the semaphore of the test, as two clients see it, which may be the same.
func semaphores(t testing.TB, a, b *headwaiter.Client, permits int64, opts ...semaphore.Option) (x, y *semaphore.Semaphore) {
	return semaphore.New(a, kit.Name(t), permits, opts...), semaphore.New(b, kit.Name(t), permits, opts...)
}

// ask begins to acquire n permits.
func ask(ctx context.Context, s *semaphore.Semaphore, n int64) *kit.Call[*lease.Lease] {
	return kit.Go(func() (*lease.Lease, error) { return s.Acquire(ctx, n) })
}

// take acquires n permits, which must come soon.
func take(t testing.TB, s *semaphore.Semaphore, n int64) *lease.Lease {
	t.Helper()
	return ask(context.Background(), s, n).Value(t)
}

// available asserts how many permits are free, and that the server's books are right.
func available(t testing.TB, s *semaphore.Semaphore, n int64) {
	t.Helper()
	got, err := s.Available(context.Background())
	require.NoError(t, err)
	require.Equal(t, n, got)
	info, err := s.Inspect(context.Background())
	require.NoError(t, err)
	var used int64
	for _, h := range info.Holders {
		used += h.Permits
	}
	require.Equal(t, info.Used, used)
}

// unused asserts that all permits come to be free and nobody waits.
func unused(t testing.TB, s *semaphore.Semaphore) {
	t.Helper()
	kit.Eventually(t, "all permits to be free and no queue", func() bool {
		info, err := s.Inspect(context.Background())
		require.NoError(t, err)
		return info.Used == 0 && info.Waiting == 0 && !info.Held
	})
}

// refused asserts that a try for n permits cannot have them.
func refused(t testing.TB, s *semaphore.Semaphore, n int64) {
	t.Helper()
	_, err := s.TryAcquire(context.Background(), n)
	require.ErrorIs(t, err, lease.ErrBusy)
}

func TestPermitsAreTakenAndGivenBack(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, other := semaphores(t, a, b, 3)
		var token uint64
		for n := int64(1); n <= 3; n++ {
			l := take(t, s, n)
			available(t, other, 3-n)
			require.Greater(t, l.Token(), token)
			token = l.Token()
			kit.Release(t, l)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
			available(t, other, 3)
		}
		first, second := take(t, s, 1), take(t, other, 1)
		require.Greater(t, second.Token(), first.Token(), "each hold has its own token")
		kit.Release(t, first)
		require.ErrorIs(t, first.Release(t.Context()), lease.ErrReleased, "a second release takes no other permit back")
		available(t, s, 2)
		require.NoError(t, second.Context().Err())
		kit.Release(t, second)
	})
}

// A lease is no owner: a call with its context is one more request, as the same thread's is in Java.
func TestAHoldIsNotEnteredAgain(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, _ := semaphores(t, a, b, 2)
		first := take(t, s, 1)
		second, err := s.Acquire(first.Context(), 1)
		require.NoError(t, err)
		available(t, s, 0)
		_, err = s.TryAcquire(second.Context(), 1)
		require.ErrorIs(t, err, lease.ErrBusy)
		kit.Release(t, first)
		require.NoError(t, second.Context().Err())
		kit.Release(t, second)
	})
}

func TestAWaitThatEndsTakesNothing(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, other := semaphores(t, a, b, 3)
		l := take(t, s, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := ask(ctx, other, 2).Err(t)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Regexp(t, `^semaphore: acquire ".*": waited .*: context deadline exceeded$`, err.Error())
		kit.Waiting(t, 0, s.Inspect)
		available(t, s, 1)

		why := errors.New("no longer wanted")
		stop, withdraw := context.WithCancelCause(t.Context())
		large := ask(stop, other, 3)
		kit.Waiting(t, 1, s.Inspect)
		small := ask(t.Context(), other, 1)
		kit.Waiting(t, 2, s.Inspect)
		withdraw(why)
		err = large.Err(t)
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, context.Canceled)
		kit.Release(t, small.Value(t)) // R3: it fits as soon as the head has left.
		available(t, s, 1)
		kit.Release(t, l)
		unused(t, s)
	})
}

func TestInspectTellsHoldersAndWaiters(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, other := semaphores(t, a, b, 5)
		info, err := s.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int64{5, 0, 0}, []int64{info.Limit, info.Used, int64(info.Waiting)})
		require.False(t, info.Held)
		two, three := take(t, s, 2), take(t, other, 3)
		first := ask(t.Context(), s, 4)
		kit.Waiting(t, 1, s.Inspect)
		second := ask(t.Context(), other, 1)
		kit.Waiting(t, 2, s.Inspect)
		info, err = other.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int64{5, 5}, []int64{info.Limit, info.Used})
		held := map[int64]lease.Holder{}
		for _, h := range info.Holders {
			held[h.Permits] = h
			require.Contains(t, h.Who, "test@")
			require.Positive(t, h.Left)
		}
		require.Len(t, held, 2)
		require.Equal(t, []string{a.ID(), b.ID()}, []string{held[2].Client, held[3].Client})
		require.Equal(t, []uint64{two.Token(), three.Token()}, []uint64{held[2].Token, held[3].Token})
		require.Equal(t, []string{a.ID(), b.ID()}, []string{info.Queue[0].Client, info.Queue[1].Client})
		kit.Release(t, two)
		require.False(t, first.Returned())
		kit.Release(t, three)
		kit.Release(t, first.Value(t))
		kit.Release(t, second.Value(t))
		unused(t, s)
	})
}

func TestDrainTakesWhatIsFree(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, other := semaphores(t, a, b, 7)
		all, n, err := s.Drain(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 7, n)
		available(t, other, 0)
		_, n, err = other.Drain(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		require.Zero(t, n)
		kit.Release(t, all)
		available(t, other, 7)

		two := take(t, other, 2)
		rest, n, err := s.Drain(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 5, n)
		available(t, other, 0)
		c := ask(t.Context(), other, 6)
		kit.Waiting(t, 1, s.Inspect)
		kit.Release(t, two)
		require.False(t, c.Returned())
		available(t, s, 2)
		_, _, err = s.Drain(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy, "what is free is for who waits")
		kit.Release(t, rest)
		kit.Release(t, c.Value(t))
		unused(t, s)
	})
}
