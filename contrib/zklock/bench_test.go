package zklock_test

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

func ours(b *testing.B, s *zktest.Server) enginetest.Locker {
	return enginetest.LockerOf(b, zklock.New(dial(b, s, lasting(kit.Patience)), "one"))
}

// theirs is the library's own lock.
func theirs(b *testing.B, s *zktest.Server) enginetest.Locker {
	conn := admin(b, s)
	return func() (func() error, error) {
		l := zk.NewLock(conn, "/theirs"+prefix(b), zk.WorldACL(zk.PermAll))
		return l.Unlock, l.Lock()
	}
}

// floor is what a cycle writes, without a lock.
func floor(b *testing.B, s *zktest.Server) enginetest.Locker {
	conn := admin(b, s)
	node := "/floor-" + kit.Name(b)
	return func() (func() error, error) {
		_, err := conn.Create(node, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		return func() error { return conn.Delete(node, -1) }, err
	}
}

func BenchmarkCycle(b *testing.B) {
	s := zktest.Shared(b)
	enginetest.Cycles(b, ours(b, s), theirs(b, s), floor(b, s))
}

func BenchmarkHandOff(b *testing.B) {
	s := zktest.Shared(b)
	of := func(maker func(*testing.B, *zktest.Server) enginetest.Locker) func(*testing.B) enginetest.Locker {
		return func(b *testing.B) enginetest.Locker { return maker(b, s) }
	}
	enginetest.HandOffs(b, of(ours), of(theirs))
}
