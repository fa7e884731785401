package reentrant_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// What java.util.concurrent's ReentrantLockTest holds down for a fair lock: the names in quotes are cases of package
// conformance. A thread there is a context here.
//
//	testLock, testGetHoldCount, testIsLocked     "a hold is entered again by its context"
//	testUnlock_IMSE                              "the last release is that of the hold, whatever the order"
//	testTryLock, testTryLockWhenLocked           "a hold is entered though others wait", "what is held is busy"
//	testTryLock_Timeout, testLockInterruptibly,
//	_Interrupted                                 "a wait ends with its deadline", "a cancelled wait gives up its place"
//	testHasQueuedThreads, testGetQueueLength,
//	testGetQueuedThreads, testHasQueuedThread    TestInspectTellsHoldersAndWaitersInTheirOrder of package family
//	fairness of all of them                      "holds are in the order of the calls"
//
// Left out: conditions (awaits, signals), serialization, toString, isFair: there are none. An untimed tryLock
// does not overtake here.

// locks are the lock of the test, as two clients see it, which may be the same.
func locks(t testing.TB, a, b *headwaiter.Client, opts ...reentrant.Option) (x, y *reentrant.Mutex) {
	return reentrant.New(a, kit.Name(t), opts...), reentrant.New(b, kit.Name(t), opts...)
}

// hold locks m, which must come soon.
func hold(t testing.TB, ctx context.Context, m *reentrant.Mutex) *lease.Lease {
	t.Helper()
	return kit.Lock(ctx, m.Lock).Value(t)
}

func TestEachEntryOfAHoldIsToldWhenSomebodyWaits(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := reentrant.New(kit.Dial(t, s), kit.Name(t)), reentrant.New(kit.Dial(t, s), kit.Name(t))
		outer := kit.Got(m.Lock(t.Context()))(t)
		inner := kit.Got(m.Lock(outer.Context()))(t)
		inner.Wanted()
		next := kit.Lock(t.Context(), other.Lock)
		kit.Await(t, inner.Wanted(), "the word to the inner one")
		kit.Await(t, outer.Wanted(), "the word to the outer one, which asks later")
		last := kit.Got(m.Lock(outer.Context()))(t)
		kit.Await(t, last.Wanted(), "the word to one that enters later")
		last.Unlock()
		inner.Unlock()
		kit.PassOn(t, outer, next)
	})
}

// TestTheBridgeToRedissonCanBeEnteredAgain: a call within the work of another used to wait for itself.
func TestTheBridgeToRedissonCanBeEnteredAgain(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, client *headwaiter.Client) {
		c := kit.Got(rueidis.NewClient(s.Option()))(t)
		t.Cleanup(c.Close)
		name := kit.Name(t)
		m := reentrant.New(client, name)
		theirs := func() int64 { return kit.Got(c.Do(t.Context(), c.B().Exists().Key(name).Build()).AsInt64())(t) }
		ctx := kit.Within(t, time.Minute)
		wanted := errors.New("the error of the work")
		err := both(ctx, m, c, func(ctx context.Context) error {
			require.NoError(t, both(ctx, m, c, func(context.Context) error {
				require.EqualValues(t, 1, theirs(), "Redisson's lock is held within both")
				return nil
			}))
			require.EqualValues(t, 1, theirs(), "the end of the inner call does not free Redisson's lock")
			return wanted
		})
		require.ErrorIs(t, err, wanted)
		require.Zero(t, theirs(), "the end of the outer call frees Redisson's lock")
	})
}

// TestTheBridgeToRedissonWaitsForAHolderThere and does not free it, though its call gives up.
func TestTheBridgeToRedissonWaitsForAHolderThere(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, client *headwaiter.Client) {
		c := kit.Got(rueidis.NewClient(s.Option()))(t)
		t.Cleanup(c.Close)
		name := kit.Name(t)
		require.NoError(t, c.Do(t.Context(), c.B().Hset().Key(name).FieldValue().FieldValue("thread", "1").Build()).Error())
		ctx := kit.Within(t, 200*time.Millisecond)
		err := both(ctx, reentrant.New(client, name), c, func(context.Context) error {
			t.Error("both ran beside a holder")
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		left := kit.Got(c.Do(t.Context(), c.B().Hget().Key(name).Field("thread").Build()).ToString())(t)
		require.Equal(t, "1", left)
	})
}
