package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func ours(b *testing.B, s *etcdtest.Server) enginetest.Locker {
	return enginetest.LockerOf(b, etcdlock.New(dial(b, s, lasting(kit.Patience)), "one"))
}

// theirs is etcd's own mutex.
func theirs(b *testing.B, s *etcdtest.Server) enginetest.Locker {
	c := admin(b, s)
	session, err := concurrency.NewSession(c, concurrency.WithTTL(20))
	require.NoError(b, err)
	b.Cleanup(func() { _ = session.Close() })
	return func() (func() error, error) {
		m := concurrency.NewMutex(session, "theirs/"+prefix(b))
		err := m.Lock(b.Context())
		return func() error { return m.Unlock(b.Context()) }, err
	}
}

// floor is what a cycle writes, without a lock.
func floor(b *testing.B, s *etcdtest.Server) enginetest.Locker {
	c := admin(b, s)
	key := "floor/" + prefix(b)
	return func() (func() error, error) {
		_, err := c.Txn(b.Context()).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, "")).Commit()
		return func() error { _, err := c.Delete(b.Context(), key); return err }, err
	}
}

func BenchmarkCycle(b *testing.B) {
	s := etcdtest.Shared(b)
	enginetest.Cycles(b, ours(b, s), theirs(b, s), floor(b, s))
}

func BenchmarkHandOff(b *testing.B) {
	s := etcdtest.Shared(b)
	of := func(maker func(*testing.B, *etcdtest.Server) enginetest.Locker) func(*testing.B) enginetest.Locker {
		return func(b *testing.B) enginetest.Locker { return maker(b, s) }
	}
	enginetest.HandOffs(b, of(ours), of(theirs))
}
