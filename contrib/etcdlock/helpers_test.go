package etcdlock_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// quiet is no log: clients speak of each connection that breaks.
var quiet = zap.NewNop()

// rig is what the tests that are shared with other engines need.
func rig(t testing.TB, s *etcdtest.Server) enginetest.Rig {
	return enginetest.Rig{
		Server: s,
		Dial: func(t testing.TB, lasts time.Duration) enginetest.Client {
			c := dial(t, s, lasting(lasts))
			return enginetest.Client{Close: c.Close, Mutex: func(name string, ends engine.Limits) enginetest.Mutex {
				return etcdlock.New(c, name, etcdlock.WithMaxHold(ends.Hold), etcdlock.WithMaxStall(ends.Stall))
			}}
		},
		Empty: func(t testing.TB) { empty(t, admin(t, s)) },
	}
}

// wired leads a client to a server by wires that can be cut.
func wired(w *enginetest.Wires, s *etcdtest.Server) clientv3.Config {
	connect := func(ctx context.Context, address string) (net.Conn, error) { return w.Connect(ctx, "tcp", address) }
	return clientv3.Config{
		Endpoints: []string{s.Endpoint()}, Logger: quiet, DialOptions: []grpc.DialOption{grpc.WithContextDialer(connect)},
	}
}

// dial returns a client that is closed with the test, with keys of the test's own.
func dial(t testing.TB, s *etcdtest.Server, changes ...func(*etcdlock.Options)) *etcdlock.Client {
	t.Helper()
	o := etcdlock.Options{
		Etcd:   clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: quiet},
		Prefix: prefix(t), Name: "test", Lease: enginetest.Short,
	}
	for _, change := range changes {
		change(&o)
	}
	c, err := etcdlock.Dial(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx) // The server may be gone; a test that wants to know closes by itself.
	})
	return c
}

func lasting(d time.Duration) func(*etcdlock.Options) {
	return func(o *etcdlock.Options) { o.Lease = d }
}

func prefix(t testing.TB) string { return kit.Name(t) + "/" }

// admin is etcd's own client, to look at what is there and to take it away.
func admin(t testing.TB, s *etcdtest.Server) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// keys are those of the test, by their creation.
func keys(t testing.TB, c *clientv3.Client) *clientv3.GetResponse {
	t.Helper()
	found, err := c.Get(t.Context(), prefix(t), clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	return found
}

// revoke ends the etcd lease of the client whose key is at a place in the line.
func revoke(t testing.TB, c *clientv3.Client, place int) {
	t.Helper()
	_, err := c.Revoke(t.Context(), clientv3.LeaseID(keys(t, c).Kvs[place].Lease))
	require.NoError(t, err)
}

// empty waits until no key of the test is left.
func empty(t testing.TB, c *clientv3.Client) {
	t.Helper()
	kit.Eventually(t, "all keys to be gone", func() bool { return keys(t, c).Count == 0 })
}

// watches is how many watches a server has.
func watches(t *testing.T, s *etcdtest.Server) int {
	t.Helper()
	n, err := s.Metric("etcd_debugging_mvcc_watcher_total")
	require.NoError(t, err)
	return int(n)
}

var (
	locked = enginetest.Locked
	queued = enginetest.Queued
)
