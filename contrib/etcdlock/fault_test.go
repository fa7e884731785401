package etcdlock_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func TestWhatEveryAdapterOutlives(t *testing.T) {
	own := func(t testing.TB) enginetest.Rig { return rig(t, etcdtest.Own(t)) }
	enginetest.Outlive(t, own, func(t testing.TB) enginetest.Rig { return rig(t, etcdtest.Shared(t)) }, enginetest.Short)
}

func TestAHolderWhoseLeaseIsRevokedIsTold(t *testing.T) {
	s := shared(t)
	a, b, root := dial(t, s), dial(t, s), admin(t, s)
	m, n := etcdlock.New(a, "one"), etcdlock.New(b, "one")
	l, waits := locked(t, m), queued(t, n, 1)
	revoke(t, root, 0)
	next := waits.Value(t)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForgotten)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrForgotten)
	require.NoError(t, next.Context().Err(), "a release after the loss has freed what the next holds")
	kit.Release(t, next)
	kit.Release(t, locked(t, m)) // With a new etcd lease.
	empty(t, root)
}

func TestAWaitWhoseLeaseDiedQueuesAgain(t *testing.T) {
	s := shared(t)
	a, b, c, root := dial(t, s), dial(t, s), dial(t, s), admin(t, s)
	l := locked(t, etcdlock.New(a, "one"))
	first, second := queued(t, etcdlock.New(b, "one"), 1), queued(t, etcdlock.New(c, "one"), 2)
	revoke(t, root, 1)
	kit.Eventually(t, "the call to be at the end of the queue", func() bool {
		found := keys(t, root)
		return found.Count == 3 && found.Kvs[2].CreateRevision > int64(l.Token())+3
	})
	next := kit.Next(t, l, second)
	require.False(t, first.Returned())
	kit.PassOn(t, next, first)
	empty(t, root)
}

// The key of a call that waits is removed by hand: with its place, but not the call.
func TestAWaitWhoseKeyIsRemovedQueuesAgain(t *testing.T) {
	s := shared(t)
	a, b, root := dial(t, s), dial(t, s), admin(t, s)
	l := locked(t, etcdlock.New(a, "one"))
	waits := queued(t, etcdlock.New(b, "one"), 1)
	require.NoError(t, kit.Err(root.Delete(t.Context(), string(keys(t, root).Kvs[1].Key))))
	kit.Eventually(t, "the call to be back", func() bool { return keys(t, root).Count == 2 })
	require.False(t, waits.Returned())
	kit.PassOn(t, l, waits)
}

func TestDroppedConnectionsCostNothing(t *testing.T) {
	s := shared(t)
	var holders, waiters enginetest.Wires
	through := func(w *enginetest.Wires) func(*etcdlock.Options) {
		return func(o *etcdlock.Options) { o.Etcd, o.Lease = wired(w, s), kit.Patience }
	}
	m, n := etcdlock.New(dial(t, s, through(&holders)), "one"), etcdlock.New(dial(t, s, through(&waiters)), "one")
	rig(t, s).DroppedConnectionsCostNothing(t, m, n, holders.Reset, waiters.Reset)
}

// The connections are the caller's and stay open. A client closes before the server has confirmed its watch: Close waits
// for that, but not for long, so where the machine stands still some are left.
func TestAClientThatClosesAtOnceLeavesNoWatch(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	etcd := admin(t, s)
	// All watches share a stream, which this one keeps.
	<-etcd.Watch(clientv3.WithRequireLeader(t.Context()), "other", clientv3.WithCreatedNotify())
	const clients = 200
	for range clients {
		c := kit.Got(etcdlock.NewClient(etcd, etcdlock.Options{Prefix: prefix(t)}))(t)
		require.NoError(t, (<-etcdlock.NewElection(c, "one").Observe(t.Context())).Err)
		require.NoError(t, c.Shutdown(t.Context()))
	}
	kit.Eventually(t, "the watches to be gone", func() bool { return watches(t, s) < clients/4 })
}

// unconfirmed holds back the server's word that there is a watch, and counts these.
type unconfirmed struct {
	grpc.ClientStream
	until     <-chan struct{}
	confirmed *atomic.Int64
}

func (u unconfirmed) RecvMsg(m any) error {
	err := u.ClientStream.RecvMsg(m)
	if w, ok := m.(*pb.WatchResponse); ok && err == nil && w.Created {
		<-u.until
		u.confirmed.Add(1)
	}
	return err
}

// The etcd lease is lost while the watch for its notices has yet to be confirmed.
func TestALostSessionLeavesNoWatch(t *testing.T) {
	t.Parallel()
	s, confirm, confirmed := etcdtest.Own(t), make(chan struct{}), new(atomic.Int64)
	c := dial(t, s, func(o *etcdlock.Options) {
		o.Etcd.DialOptions = append(o.Etcd.DialOptions, grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc,
			conn *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			made, err := stream(ctx, desc, conn, method, opts...)
			return unconfirmed{made, confirm, confirmed}, err
		}))
	})
	m, root := etcdlock.New(c, "one"), admin(t, s)
	lost := locked(t, m)
	kit.Eventually(t, "a watch", func() bool { return watches(t, s) == 1 })
	revoke(t, root, 0)
	require.Error(t, kit.Lost(t, lost))
	l := locked(t, m)
	close(confirm)
	kit.Eventually(t, "the watch of the next session", func() bool { return confirmed.Load() == 2 })
	kit.Eventually(t, "the first to be gone", func() bool { return watches(t, s) == 1 })
	kit.Release(t, l)
}

const (
	txnMethod    = "/etcdserverpb.KV/Txn"
	deleteMethod = "/etcdserverpb.KV/DeleteRange"
	// sweep stands for a Txn of deletions alone, which are those in the background.
	sweep = "sweep"
)

// A loser loses answers: the request has its effect, and the client learns that the connection broke.
type loser struct {
	mu     sync.Mutex // guards the fields below
	method string
	left   int            // answers to lose
	hits   int            // that were lost since that was said
	seen   map[string]int // requests that came to their end, by method
	late   chan struct{}  // if not nil, the requests are carried out only when it is closed
	done   sync.WaitGroup // late requests
}

func (l *loser) lose(method string, n int, late chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.method, l.left, l.late, l.hits = method, n, late, 0
}

func (l *loser) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left == 0
}

// begun reports whether one was lost.
func (l *loser) begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hits > 0
}

// saw is how many requests of a kind there were.
func (l *loser) saw(method string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[method]
}

func (l *loser) count(method string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = make(map[string]int)
	}
	l.seen[method]++
}

func (l *loser) option(o *etcdlock.Options) {
	o.Etcd.DialOptions = append(o.Etcd.DialOptions, grpc.WithChainUnaryInterceptor(l.intercept))
}

func (l *loser) intercept(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	kind := method
	if txn, ok := request.(*pb.TxnRequest); ok && len(txn.Compare) == 0 && txn.Success[0].GetRequestDeleteRange() != nil {
		kind = sweep
	}
	defer l.count(kind)
	l.mu.Lock()
	hit, late := l.left > 0 && l.method == kind, l.late
	if hit {
		l.left--
		l.hits++
	}
	l.mu.Unlock()
	broken := status.Error(codes.Unavailable, "transport is closing")
	switch {
	case !hit:
		return invoke(ctx, method, request, answer, conn, opts...)
	case late != nil:
		l.done.Go(func() {
			<-late
			_ = invoke(context.WithoutCancel(ctx), method, request, answer, conn, opts...)
		})
		return broken
	}
	if err := invoke(ctx, method, request, answer, conn, opts...); err != nil {
		return err
	}
	return broken
}

func TestLostAnswersAreOneHold(t *testing.T) {
	s := shared(t)
	var l loser
	c, other, root := dial(t, s, l.option), dial(t, s), admin(t, s)
	m, n := etcdlock.New(c, "one"), etcdlock.New(other, "one")
	for _, lock := range []func() *kit.Call[holder]{
		func() *kit.Call[holder] { return kit.Go(func() (holder, error) { return m.Lock(t.Context()) }) },
		func() *kit.Call[holder] { return kit.Go(func() (holder, error) { return m.TryLock(t.Context()) }) },
	} {
		l.lose(txnMethod, 3, nil)
		held := lock().Value(t)
		require.True(t, l.lost())
		require.EqualValues(t, 1, keys(t, root).Count)
		require.EqualValues(t, keys(t, root).Kvs[0].CreateRevision, held.Token())
		l.lose(deleteMethod, 2, nil)
		require.NoError(t, held.Release(t.Context()), "the first request released it")
		require.True(t, l.lost())
		empty(t, root)
	}
	// And for a waiter: the first attempt counts for the place.
	held := locked(t, n)
	l.lose(txnMethod, 2, nil)
	first, second := queued(t, m, 1), queued(t, n, 2)
	next := kit.Next(t, held, first)
	require.False(t, second.Returned())
	kit.PassOn(t, next, second)
	empty(t, root)
}

// holder is what both ways of locking return.
type holder = interface {
	Token() uint64
	Release(ctx context.Context) error
}

// A request that was given up arrives after its key was deleted: nobody waits for what it takes. It is deleted once
// more a little later, and where it comes later still, a look at the lease finds it.
func TestAGhostIsRemoved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lease time.Duration
		swept int // how often its key was deleted before it comes
	}{
		"by the second deletion": {time.Hour, 1},
		"by a look at the lease": {enginetest.Short, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := etcdtest.Shared(t)
			var l loser
			c, other, root := dial(t, s, l.option, lasting(test.lease)), dial(t, s), admin(t, s)
			m := etcdlock.New(c, "one")
			kit.Release(t, locked(t, m)) // So that there is a lease.
			late := make(chan struct{})
			l.lose(txnMethod, 1<<30, late)
			ctx, cancel := context.WithCancel(t.Context())
			call := kit.Lock(ctx, m.Lock)
			kit.Eventually(t, "the request to be lost", l.begun)
			kit.Cancel(t, cancel, call)
			l.lose(txnMethod, 0, nil)
			kit.Eventually(t, "the key to be deleted", func() bool { return l.saw(sweep) >= test.swept })
			revision := keys(t, root).Header.Revision
			close(late)
			l.done.Wait()
			require.Greater(t, keys(t, root).Header.Revision, revision, "there should be a ghost to remove")
			kit.Release(t, locked(t, etcdlock.New(other, "one")))
			empty(t, root)
		})
	}
}

// A server that has no space left takes no new calls, and says so. What is held is renewed and released, and who waits
// gets it.
func TestAServerWithoutSpace(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t, "--quota-backend-bytes", "1048576")
	a, b, root := dial(t, s), dial(t, s), admin(t, s)
	m, n := etcdlock.New(a, "one"), etcdlock.New(b, "one")
	l, waits := locked(t, m), queued(t, n, 1)
	fill(t, root)

	lock := kit.Lock(t.Context(), m.Lock).Err(t)
	_, try := m.TryLock(t.Context())
	_, free := etcdlock.New(a, "two").TryLock(t.Context())
	_, acquire := etcdlock.NewSemaphore(a, "some", 2).Acquire(t.Context(), 1)
	_, first := etcdlock.New(dial(t, s), "three").Lock(t.Context()) // A client that has no lease yet.
	for _, err := range []error{lock, try, free, acquire, first} {
		kit.Fails(t, err, rpctypes.ErrNoSpace, "database space exceeded")
	}

	certain := l.Deadline()
	kit.Eventually(t, "a renewal", func() bool { return l.Deadline().After(certain) })
	require.NoError(t, l.Release(t.Context()))
	next := waits.Value(t)
	require.NoError(t, kit.Err(m.ForceRelease(t.Context(), 0))) // There is no space for a notice.
	require.ErrorIs(t, kit.Lost(t, next), lease.ErrForced)
	require.Zero(t, keys(t, root).Count)

	relieve(t, root, s)
	kit.Release(t, locked(t, m))
	empty(t, root)
}

// fill writes until there is no space.
func fill(t *testing.T, c *clientv3.Client) {
	t.Helper()
	text := strings.Repeat("x", 1<<17)
	for range 1000 {
		if _, err := c.Put(t.Context(), "full", text); err != nil {
			require.ErrorIs(t, err, rpctypes.ErrNoSpace)
			return
		}
	}
	require.Fail(t, "there is more space than it should have")
}

// relieve makes space again, as an operator does.
func relieve(t *testing.T, c *clientv3.Client, s *etcdtest.Server) {
	t.Helper()
	gone := kit.Got(c.Delete(t.Context(), "full"))(t)
	require.NoError(t, kit.Err(c.Compact(t.Context(), gone.Header.Revision, clientv3.WithCompactPhysical())))
	require.NoError(t, kit.Err(c.Defragment(t.Context(), s.Endpoint())))
	require.NoError(t, kit.Err(c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})))
}

// What a watch would go on with after a break has been compacted meanwhile.
func TestWaitsOutliveACompaction(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	var w enginetest.Wires
	a, root := dial(t, s, lasting(kit.Patience)), admin(t, s)
	b := dial(t, s, func(o *etcdlock.Options) { o.Etcd, o.Lease = wired(&w, s), kit.Patience })
	m, n := etcdlock.New(a, "one"), etcdlock.New(b, "one")
	some := etcdlock.NewSemaphore(a, "some", 2)
	l, held := locked(t, m), kit.Lock(t.Context(), two(some)).Value(t)
	first, second := queued(t, n, 1), queued(t, n, 2)
	waits := kit.Joins(t, 1, two(etcdlock.NewSemaphore(b, "some", 2)), some.Inspect)
	news := etcdlock.NewElection(b, "lead").Observe(t.Context())
	require.Empty(t, (<-news).Who)
	var revision int64
	for range 10 {
		revision = kit.Got(root.Put(t.Context(), "elsewhere", ""))(t).Header.Revision
	}
	require.NoError(t, kit.Err(root.Compact(t.Context(), revision, clientv3.WithCompactPhysical())))
	w.Reset()
	kit.PassOn(t, l, first, second)
	kit.PassOn(t, held, waits)
	lead := kit.Got(etcdlock.NewElection(a, "lead").Campaign(t.Context(), "me"))(t)
	require.Equal(t, "me", (<-news).Value)
	kit.Release(t, lead)
}
