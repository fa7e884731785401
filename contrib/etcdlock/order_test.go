package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func TestThirtyTwoClientsHoldInOrder(t *testing.T) {
	t.Parallel()
	rig(t, etcdtest.Shared(t)).ClientsHoldInOrder(t)
}

func TestNothingStaysAfterAThousandCyclesWithCancels(t *testing.T) {
	t.Parallel()
	s := etcdtest.Own(t)
	r, root := rig(t, s), admin(t, s)
	a, b := r.Dial(t, kit.Patience), r.Dial(t, kit.Patience)
	r.CyclesWithCancels(t, a, b)
	kit.Eventually(t, "each client to have one watch", func() bool { return watches(t, s) == 2 })
	leases, err := root.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 2, "each client has one etcd lease")
	require.NoError(t, a.Close(t.Context()))
	require.NoError(t, b.Close(t.Context()))
	kit.Eventually(t, "all watches to be gone", func() bool { return watches(t, s) == 0 })
	leases, err = root.Leases(t.Context())
	require.NoError(t, err)
	require.Empty(t, leases.Leases, "the etcd lease of a client that is closed is still there")
}

func TestAWaiterThatLeavesFromTheMiddleLetsNobodyIn(t *testing.T) {
	t.Parallel()
	rig(t, etcdtest.Shared(t)).AWaiterThatLeavesFromTheMiddleLetsNobodyIn(t)
}

// Connections that put all keys below a name of their own, as several teams on one cluster have them.
func TestConnectionsWithANamespace(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	etcd, root := admin(t, s), admin(t, s)
	space := prefix(t) + "space/"
	etcd.KV = namespace.NewKV(etcd.KV, space)
	etcd.Watcher = namespace.NewWatcher(etcd.Watcher, space)
	etcd.Lease = namespace.NewLease(etcd.Lease, space)
	o := etcdlock.Options{Lease: kit.Patience}
	a, err := etcdlock.NewClient(etcd, o)
	require.NoError(t, err)
	b, err := etcdlock.NewClient(etcd, o)
	require.NoError(t, err)
	m := etcdlock.New(a, "one")
	l := locked(t, m)
	require.Contains(t, string(keys(t, root).Kvs[0].Key), space+etcdlock.DefaultPrefix+"mutex/one/")
	waits := queued(t, etcdlock.New(b, "one"), 1)
	kit.Release(t, l)
	kit.Release(t, waits.Value(t))
	empty(t, root)
	require.NoError(t, a.Close(t.Context()))
	require.NoError(t, b.Close(t.Context()))
	_, err = etcd.Get(t.Context(), "any")
	require.NoError(t, err, "the connections are the caller's")
}

// What a name has had costs etcd time until its next compaction.
func TestKeysAreUsedAgain(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	m, root := etcdlock.New(dial(t, s, lasting(kit.Patience)), "one"), admin(t, s)
	l := locked(t, m)
	first := string(keys(t, root).Kvs[0].Key)
	for range 20 {
		kit.Release(t, l)
		l = locked(t, m)
		require.Equal(t, first, string(keys(t, root).Kvs[0].Key))
	}
	kit.Release(t, l)
}
