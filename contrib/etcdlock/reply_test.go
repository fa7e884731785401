package etcdlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

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
	t.Parallel()
	s := etcdtest.Shared(t)
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
	// And for one who waits: the place is that of the first attempt.
	held := locked(t, n)
	l.lose(txnMethod, 2, nil)
	first := queued(t, m, 1)
	second := queued(t, n, 2)
	kit.Release(t, held)
	next := first.Value(t)
	require.False(t, second.Returned())
	kit.Release(t, next)
	kit.Release(t, second.Value(t))
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
			cancel()
			require.ErrorIs(t, call.Err(t), context.Canceled)
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
