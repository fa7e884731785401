package etcdlock_test

import (
	"context"
	"fmt"
	"math"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func two(s *etcdlock.Semaphore) func(context.Context) (*lease.Lease, error) {
	return func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 2) }
}

func some(t testing.TB, s *etcdlock.Semaphore, n int64) *kit.Call[*lease.Lease] {
	t.Helper()
	return kit.Lock(t.Context(), func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, n) })
}

func TestMorePermitsThanCanBeCountedAreRefused(t *testing.T) {
	t.Parallel()
	c := dial(t, etcdtest.Shared(t))
	for _, permits := range []int64{etcdlock.MaxPermits + 1, 1<<62 + 1, math.MaxInt64} {
		s := etcdlock.NewSemaphore(c, "one", permits)
		require.ErrorIs(t, kit.Err(s.Acquire(t.Context(), permits)), lease.ErrTooLarge)
		require.ErrorIs(t, kit.Err(s.TryAcquire(t.Context(), 1)), lease.ErrTooLarge)
	}
	kit.Release(t, some(t, etcdlock.NewSemaphore(c, "one", etcdlock.MaxPermits), etcdlock.MaxPermits).Value(t))
}

// Many calls wait for all permits: the sum of what they want is more than a number holds.
func TestASumOfPermitsThatNoNumberHoldsLetsNobodyIn(t *testing.T) {
	t.Parallel()
	const waiters = 1030
	server := etcdtest.Shared(t)
	s, root := etcdlock.NewSemaphore(dial(t, server), "one", etcdlock.MaxPermits), admin(t, server)
	l := some(t, s, etcdlock.MaxPermits).Value(t)
	for i := range waiters {
		key := fmt.Sprintf("%ssemaphore/one/stranger-%d", prefix(t), i)
		_, err := root.Put(t.Context(), key, fmt.Sprintf("%d/%d stranger", int64(etcdlock.MaxPermits), int64(etcdlock.MaxPermits)))
		require.NoError(t, err)
	}
	require.ErrorIs(t, kit.Err(s.TryAcquire(t.Context(), 1)), lease.ErrBusy)
	info := kit.Got(s.Inspect(t.Context()))(t)
	require.EqualValues(t, etcdlock.MaxPermits, info.Used)
	require.Equal(t, waiters, info.Waiting)
	ctx, cancel := context.WithCancel(t.Context())
	call := kit.Lock(ctx, func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 1) })
	kit.Waiting(t, waiters+1, s.Inspect)
	require.False(t, call.Returned())
	kit.Cancel(t, cancel, call)
	kit.Release(t, l)
}

// What somebody has put there that is no request takes no permits, and brings none.
func TestAKeyThatIsNoRequestCountsAsNothing(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	s, root := etcdlock.NewSemaphore(dial(t, server), "one", 100), admin(t, server)
	for i, text := range []string{"-1/100 a", "101/100 a", "0/100 a", "1/9223372036854775807 a", "a"} {
		require.NoError(t, kit.Err(root.Put(t.Context(), fmt.Sprintf("%ssemaphore/one/stranger-%d", prefix(t), i), text)))
	}
	l := some(t, s, 100).Value(t)
	require.ErrorIs(t, kit.Err(s.TryAcquire(t.Context(), 1)), lease.ErrBusy)
	kit.Release(t, l)
}

// Each waits for the key before the own, and hears when its ticket holds. No look for want of an event is so early.
func TestPermitsGoDownTheQueueByEvents(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	const permits, waiters = 2, 9
	var all []*etcdlock.Semaphore
	for range 3 {
		all = append(all, etcdlock.NewSemaphore(dial(t, server, lasting(kit.Patience)), "one", permits))
	}
	var calls []*kit.Call[*lease.Lease]
	for i := range permits + waiters {
		calls = append(calls, some(t, all[i%3], 1))
		kit.Eventually(t, "the call to hold or to wait", func() bool {
			info := kit.Got(all[0].Inspect(t.Context()))(t)
			return int(info.Used)+info.Waiting == i+1
		})
	}
	var last uint64
	for i, call := range calls {
		l := call.Value(t)
		require.Greater(t, l.Token(), last)
		require.True(t, l.Shared())
		last = l.Token()
		for _, later := range calls[min(i+permits, len(calls)):] {
			require.False(t, later.Returned())
		}
		kit.Release(t, l)
		if i+permits < len(calls) {
			calls[i+permits].Value(t) // Though the one before it goes on to hold.
		}
	}
	require.EqualValues(t, permits, kit.Got(all[0].Available(t.Context()))(t))
	empty(t, admin(t, server))
}

func TestAnotherNumberOfPermitsIsAMismatch(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	c := dial(t, server)
	two, three := etcdlock.NewSemaphore(c, "one", 2), etcdlock.NewSemaphore(c, "one", 3)
	l := some(t, two, 1).Value(t)
	require.ErrorIs(t, some(t, three, 1).Err(t), lease.ErrMismatch)
	require.ErrorIs(t, kit.Err(three.TryAcquire(t.Context(), 1)), lease.ErrMismatch)
	kit.Release(t, some(t, two, 1).Value(t))
	kit.Release(t, l)
	kit.Eventually(t, "the call that failed to have left", func() bool { return keys(t, admin(t, server)).Count == 0 })
	kit.Release(t, some(t, three, 3).Value(t))
}

// A call with another number fails, and its key goes some time later. Until then who comes after it waits.
func TestWhoFailedForItsNumberKeepsNobodyOutForGood(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	two, etcd := etcdlock.NewSemaphore(dial(t, server), "one", 2), admin(t, server)
	l := some(t, two, 1).Value(t)
	failed := path.Dir(string(keys(t, etcd).Kvs[0].Key)) + "/failed"
	require.NoError(t, kit.Err(etcd.Put(t.Context(), failed, "1/3 somebody else")))
	waits := some(t, two, 1)
	kit.Eventually(t, "it stands after the key that has yet to go", func() bool { return keys(t, etcd).Count == 3 })
	require.ErrorIs(t, kit.Err(two.TryAcquire(t.Context(), 1)), lease.ErrBusy)
	require.False(t, waits.Returned())
	require.NoError(t, kit.Err(etcd.Delete(t.Context(), failed)))
	kit.Release(t, waits.Value(t))
	kit.Release(t, l)
}

func TestALostAnswerTakesPermitsOnce(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	var lost loser
	s := etcdlock.NewSemaphore(dial(t, server, lost.option), "one", 4)
	for _, take := range []func(context.Context, int64) (*lease.Lease, error){s.Acquire, s.TryAcquire} {
		lost.lose(txnMethod, 2, nil)
		l := kit.Got(take(t.Context(), 2))(t)
		require.True(t, lost.lost())
		require.EqualValues(t, 2, kit.Got(s.Available(t.Context()))(t))
		kit.Release(t, l)
	}
	empty(t, admin(t, server))
}

// The answer that a call stands in line is lost, and when it asks again it holds. The waiter after it hears of that too,
// long before it would look by itself.
func TestWhoHoldsBehindALostAnswerTellsTheNext(t *testing.T) {
	t.Parallel()
	server := etcdtest.Own(t)
	var lost loser
	long := lasting(time.Hour)
	first := etcdlock.NewSemaphore(dial(t, server, long), "one", 2)
	second := etcdlock.NewSemaphore(dial(t, server, long, lost.option), "one", 2)
	root := admin(t, server)
	l := some(t, first, 2).Value(t)
	lost.lose(txnMethod, 1<<30, nil)
	unsure := some(t, second, 1)
	kit.Eventually(t, "the call to stand in line", func() bool { return keys(t, root).Count == 2 })
	waits := some(t, first, 1)
	// Each client has one watch for its notices.
	kit.Eventually(t, "the next to watch it", func() bool { return watches(t, server) == 3 })
	kit.Release(t, l)
	lost.lose(txnMethod, 0, nil)
	held := unsure.Value(t)
	kit.Release(t, waits.Value(t))
	kit.Release(t, held)
	empty(t, root)
}

// Whatever a semaphore asks for, no answer has more keys than decide: one more than there are permits. And a release
// lets one call look, however many wait.
func TestALookDoesNotReadTheQueue(t *testing.T) {
	t.Parallel()
	server := etcdtest.Shared(t)
	const permits, waiters = 2, 40
	var sizes answers
	s := etcdlock.NewSemaphore(dial(t, server, sizes.option, lasting(time.Hour)), "one", permits)
	held := []*lease.Lease{some(t, s, 1).Value(t), some(t, s, 1).Value(t)}
	var calls []*kit.Call[*lease.Lease]
	root := admin(t, server)
	for i := range waiters {
		calls = append(calls, some(t, s, 1))
		kit.Eventually(t, "the call to wait", func() bool { return keys(t, root).Count == int64(permits+i+1) })
	}
	require.ErrorIs(t, kit.Err(s.TryAcquire(t.Context(), 1)), lease.ErrBusy)
	require.LessOrEqual(t, sizes.most.Load(), int64(permits+1))
	require.NotZero(t, sizes.most.Load())

	kit.Eventually(t, "all calls to watch", func() bool { return sizes.quiet() })
	for i := range calls {
		before := sizes.count.Load()
		kit.Release(t, held[i])
		held = append(held, calls[i].Value(t))
		kit.Eventually(t, "the next to have looked", func() bool { return sizes.quiet() })
		// A release; a look of who gets it, and its word to the next; who looks once more before and after its watch.
		require.LessOrEqual(t, sizes.count.Load()-before, int64(8))
	}
	require.LessOrEqual(t, sizes.most.Load(), int64(permits+1))
	for _, l := range held[waiters:] {
		kit.Release(t, l)
	}
	empty(t, root)
}

// answers are how large those to a client are.
type answers struct {
	most  atomic.Int64 // keys of a range
	count atomic.Int64
	last  atomic.Int64 // what count was at the glance before
	same  atomic.Int64 // for how many glances
}

func (a *answers) option(o *etcdlock.Options) {
	o.Etcd.DialOptions = append(o.Etcd.DialOptions, grpc.WithChainUnaryInterceptor(a.intercept))
}

// quiet reports whether nothing was asked for some glances.
func (a *answers) quiet() bool {
	if n := a.count.Load(); a.last.Swap(n) != n {
		a.same.Store(0)
	}
	return a.same.Add(1) > 5
}

func (a *answers) intercept(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, request, answer, conn, opts...)
	a.count.Add(1)
	switch answer := answer.(type) {
	case *pb.RangeResponse:
		a.seen(answer)
	case *pb.TxnResponse:
		for _, r := range answer.Responses {
			a.seen(r.GetResponseRange())
		}
	}
	return err
}

func (a *answers) seen(r *pb.RangeResponse) {
	n := int64(len(r.GetKvs()))
	for most := a.most.Load(); n > most && !a.most.CompareAndSwap(most, n); most = a.most.Load() {
	}
}
