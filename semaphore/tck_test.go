package semaphore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// What java.util.concurrent's SemaphoreTest holds down for a fair semaphore: the names in quotes are cases of package
// conformance.
//
//	testTryAcquire, testTryAcquireN...InSameThread,
//	testAcquireReleaseInSameThread, ...N...           "permits are counted"
//	testAcquireReleaseInDifferentThreads, ...N...     "a small request does not overtake a large one",
//	                                                  "a release serves all who fit"
//	testTryAcquire_timeout, testInterruptible...      "a large request that leaves lets small ones in"
//	testHasQueuedThreads, testGetQueueLength          TestInspectTellsHoldersAndWaitersInTheirOrder of package family
//	testDrainPermits                                  TestDrainTakesWhatIsFree
//	testReducePermits                                 "more permits serve those who wait, fewer keep others out"
//	testZeroPermits, negative arguments               TestRequestsForNoPermitsAreRefusedBeforeRedis,
//	                                                  TestUnusableNumbersAreRefusedBeforeRedis of package family
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
	require.Equal(t, n, kit.Got(s.Available(context.Background()))(t))
	info := kit.Got(s.Inspect(context.Background()))(t)
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
		info := kit.Got(s.Inspect(context.Background()))(t)
		return info.Used == 0 && info.Waiting == 0 && !info.Held
	})
}

// refused asserts that a try for n permits cannot have them.
func refused(t testing.TB, s *semaphore.Semaphore, n int64) {
	t.Helper()
	require.ErrorIs(t, kit.Err(s.TryAcquire(context.Background(), n)), lease.ErrBusy)
}

// A lease is no owner: a call with its context is one more request, as the same thread's is in Java.
func TestAHoldIsNotEnteredAgain(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, _ := semaphores(t, a, b, 2)
		first := take(t, s, 1)
		second := kit.Got(s.Acquire(first.Context(), 1))(t)
		available(t, s, 0)
		require.ErrorIs(t, kit.Err(s.TryAcquire(second.Context(), 1)), lease.ErrBusy)
		kit.Release(t, first)
		require.NoError(t, second.Context().Err())
		kit.Release(t, second)
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
		kit.PassOn(t, rest, c)
		unused(t, s)
	})
}

// A resize that was not answered says that it may have been done.
func TestAResizeThatIsNotAnsweredSaysSo(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		near, far := semaphores(t, kit.Dial(t, s), kit.Dial(t, s, kit.Over(d)), 5)
		kit.Release(t, take(t, far, 1))
		d.Freeze(faults.ToServer)
		err := far.Resize(kit.Within(t, 100*time.Millisecond), 7)
		kit.Fails(t, err, context.DeadlineExceeded, lease.ErrOutcomeUnknown)
		require.Regexp(t, `^semaphore: resize ".*": `, err.Error())
		synctime.Pass(20 * time.Second)
		d.Heal()
		synctime.Pass(10 * time.Second)
		available(t, near, 5) // R7: it came too late to do anything.
		require.NoError(t, far.Resize(t.Context(), 7))
		available(t, near, 7)
		kit.Release(t, take(t, semaphore.New(kit.Dial(t, s), near.Name(), 7), 7))
	})
}

// A process that crowd.Start has started is this test binary, and ends here.
func init() { crowd.Main() }

func TestProcessesTakeTurnsAndNeverHoldMoreThanTheLimit(t *testing.T) {
	s := kit.Start(t)
	x := semaphore.New(kit.Dial(t, s), kit.Name(t), 3)
	plan := crowd.Plan{
		Addr: s.Addr(), Kind: crowd.Semaphore, Names: []string{x.Name()}, Clients: 2, Waiters: 10, Lease: 10 * time.Second, Permits: 3, N: 2,
	}
	l := take(t, x, 2)
	crowds := []*crowd.Crowd{crowd.Start(t, plan), crowd.Start(t, plan)}
	kit.Waiting(t, 40, x.Inspect)
	refused(t, x, 1)
	available(t, x, 1)
	kit.Release(t, l)
	tokens := []uint64{l.Token()}
	for _, c := range crowds {
		for _, e := range c.Await(crowd.Held, 20, kit.Patience) {
			tokens = append(tokens, e.Token)
		}
		for _, e := range c.Await(crowd.Released, 20, kit.Patience) {
			require.Empty(t, e.Error)
		}
	}
	slices.Sort(tokens)
	require.Len(t, slices.Compact(tokens), 41, "each hold has its own token")
	unused(t, x)
	available(t, x, 3)
}
