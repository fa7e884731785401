package etcdlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// A server that has no space left takes no new calls, and says so. What is held is renewed and released, and who waits
// gets it.
func TestAServerWithoutSpace(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t, "--quota-backend-bytes", "1048576")
	a, b, root := dial(t, s), dial(t, s), admin(t, s)
	m, n := etcdlock.New(a, "one"), etcdlock.New(b, "one")
	l := locked(t, m)
	waits := queued(t, n, 1)
	fill(t, root)

	lock := kit.Lock(t.Context(), m.Lock).Err(t)
	_, try := m.TryLock(t.Context())
	_, free := etcdlock.New(a, "two").TryLock(t.Context())
	_, acquire := etcdlock.NewSemaphore(a, "some", 2).Acquire(t.Context(), 1)
	_, first := etcdlock.New(dial(t, s), "three").Lock(t.Context()) // A client that has no lease yet.
	for _, err := range []error{lock, try, free, acquire, first} {
		require.ErrorIs(t, err, rpctypes.ErrNoSpace)
		require.ErrorContains(t, err, "database space exceeded")
	}

	certain := l.Deadline()
	kit.Eventually(t, "a renewal", func() bool { return l.Deadline().After(certain) })
	require.NoError(t, l.Release(t.Context()))
	next := waits.Value(t)
	_, err := m.ForceRelease(t.Context(), 0) // There is no space for a notice.
	require.NoError(t, err)
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
	gone, err := c.Delete(t.Context(), "full")
	require.NoError(t, err)
	_, err = c.Compact(t.Context(), gone.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	_, err = c.Defragment(t.Context(), s.Endpoint())
	require.NoError(t, err)
	_, err = c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	require.NoError(t, err)
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
	waits := kit.Lock(t.Context(), two(etcdlock.NewSemaphore(b, "some", 2)))
	kit.Waiting(t, 1, some.Inspect)
	news := etcdlock.NewElection(b, "lead").Observe(t.Context())
	require.Empty(t, (<-news).Who)
	var revision int64
	for range 10 {
		put, err := root.Put(t.Context(), "elsewhere", "")
		require.NoError(t, err)
		revision = put.Header.Revision
	}
	_, err := root.Compact(t.Context(), revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	w.Reset()
	kit.Release(t, l)
	kit.Release(t, first.Value(t))
	kit.Release(t, second.Value(t))
	kit.Release(t, held)
	kit.Release(t, waits.Value(t))
	lead, err := etcdlock.NewElection(a, "lead").Campaign(t.Context(), "me")
	require.NoError(t, err)
	require.Equal(t, "me", (<-news).Value)
	kit.Release(t, lead)
}
