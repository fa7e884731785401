package zklock_test

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

// rig is what the tests that are shared with other engines need.
func rig(t testing.TB, s *zktest.Server) enginetest.Rig {
	return enginetest.Rig{
		Server: s,
		Dial: func(t testing.TB, lasts time.Duration) enginetest.Client {
			c := dial(t, s, lasting(lasts))
			return enginetest.Client{Close: c.Close, Mutex: func(name string, ends engine.Limits) enginetest.Mutex {
				return zklock.New(c, name, zklock.WithMaxHold(ends.Hold), zklock.WithMaxStall(ends.Stall))
			}}
		},
		Empty: func(t testing.TB) { empty(t, admin(t, s)) },
	}
}

// dial returns a client that is closed with the test, with nodes of the test's own.
func dial(t testing.TB, s *zktest.Server, changes ...func(*zklock.Options)) *zklock.Client {
	t.Helper()
	o := zklock.Options{Servers: []string{s.Address()}, Prefix: prefix(t), Name: "test", Lease: enginetest.Short}
	for _, change := range changes {
		change(&o)
	}
	c, err := zklock.Dial(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx) // The server may be gone; a test that wants to know closes by itself.
	})
	return c
}

func lasting(d time.Duration) func(*zklock.Options) {
	return func(o *zklock.Options) { o.Lease = d }
}

// through leads a client to the server of a relay.
func through(r *zktest.Relay) func(*zklock.Options) {
	return func(o *zklock.Options) { o.Servers = []string{r.Addr()} }
}

func prefix(t testing.TB) string { return "/" + kit.Name(t) }

// one is where the nodes of the lock called one are.
func one(t testing.TB) string { return prefix(t) + "/mutex/one" }

// silent logs nothing.
type silent struct{}

func (silent) Printf(string, ...any) {}

// admin is the library's own connection, to look at what is there and to take it away.
func admin(t testing.TB, s *zktest.Server) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect([]string{s.Address()}, kit.Patience, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range events {
		}
	}()
	t.Cleanup(func() { conn.Close(); <-ended })
	return conn
}

// nodes are those in line for the lock called one, in no order.
func nodes(t testing.TB, root *zk.Conn) []string {
	t.Helper()
	names, _, err := root.Children(one(t))
	if err == zk.ErrNoNode {
		return nil
	}
	require.NoError(t, err)
	return names
}

// delete1 removes the node of a ticket.
func delete1(t testing.TB, root *zk.Conn, ticket string) {
	t.Helper()
	require.NoError(t, root.Delete(path.Join(one(t), ticket), -1))
}

// empty waits until no node of the test is left, not even that of the name.
func empty(t testing.TB, root *zk.Conn) {
	t.Helper()
	kit.Eventually(t, "all nodes to be gone", func() bool {
		there, _, err := root.Exists(prefix(t))
		require.NoError(t, err)
		return !there
	})
}

var (
	locked = enginetest.Locked
	queued = enginetest.Queued
)
