package fairlock_test

import (
	"testing"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// locker is the lock of a name, as a new client sees it.
func locker(b *testing.B, s redistest.Backend, name string, opts ...fairlock.Option) enginetest.Locker {
	return enginetest.LockerOf(b, fairlock.New(kit.Dial(b, s), name, opts...))
}

// What a history costs: with one in place of ours, without in place of theirs and, in the cycle, of the floor.
func BenchmarkHistory(b *testing.B) {
	s := redistest.Start(b)
	b.Run("cycle", func(b *testing.B) {
		enginetest.Cycles(b, locker(b, s, "kept", fairlock.WithHistory(100)), locker(b, s, "plain"), locker(b, s, "plain too"))
	})
	b.Run("hand-off", func(b *testing.B) {
		enginetest.HandOffs(b,
			func(b *testing.B) enginetest.Locker { return locker(b, s, "kept", fairlock.WithHistory(100)) },
			func(b *testing.B) enginetest.Locker { return locker(b, s, "plain") })
	})
}
