package rwlock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// What java.util.concurrent's ReentrantReadWriteLockTest holds down for a fair lock: the names in quotes are cases of
// package conformance. A thread there is a context here.
//
//	testLock, testWriteTryLock, testIsWriteLocked,
//	testMultipleReadLocks, testWriteTryLockWhen-
//	Locked, testReadTryLockWhenLocked, testTryLock-
//	WhenReadLocked, testWriteTryLockWhenReadLocked,
//	testWriteAfterReadLock, ...MultipleReadLocks      "readers hold together, a writer alone"
//	testReadTryLockBarging, testReadAfterWriteLock    "readers and writers hold in the order of the calls"
//	testReadHoldingWriteLock...(Fair),
//	testGet...HoldCount                               reenter_test.go
//	testWriteUnlock_IMSE, testReadUnlock_IMSE         "a second release says so and frees nothing"
//	test...Lock_Interruptible, ...TryLock_Timeout     "a writer that leaves lets the readers behind it in"
//	testHasQueuedThreads, testGetQueueLength,
//	testGetReadLockCount                              TestInspectTellsHoldersAndWaitersInTheirOrder of package family
//
// Left out: conditions, serialization, toString, isFair: there are none. An upgrade, which blocks for ever in Java,
// is refused; an untimed tryLock does not overtake here.

// locks are the lock of the test, as two clients see it, which may be the same.
func locks(t testing.TB, a, b *headwaiter.Client, opts ...rwlock.Option) (x, y *rwlock.RWMutex) {
	return rwlock.New(a, kit.Name(t), opts...), rwlock.New(b, kit.Name(t), opts...)
}

// read and write hold m, which must come soon.
func read(t testing.TB, ctx context.Context, m *rwlock.RWMutex) *lease.Lease {
	t.Helper()
	return kit.Lock(ctx, m.RLock).Value(t)
}

func write(t testing.TB, ctx context.Context, m *rwlock.RWMutex) *lease.Lease {
	t.Helper()
	return kit.Lock(ctx, m.Lock).Value(t)
}

// readable asserts whether a try from outside can read now.
func readable(t testing.TB, m *rwlock.RWMutex, can bool) {
	t.Helper()
	l, err := m.TryRLock(context.Background())
	if !can {
		require.ErrorIs(t, err, lease.ErrBusy)
		return
	}
	require.NoError(t, err)
	kit.Release(t, l)
}

func TestReadersAreToldWhenAWriterWaits(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := rwlock.New(kit.Dial(t, s), kit.Name(t)), rwlock.New(kit.Dial(t, s), kit.Name(t))
		var readers []*lease.Lease
		for _, m := range []*rwlock.RWMutex{a, a, b} {
			l := kit.Got(m.RLock(t.Context()))(t)
			l.Wanted()
			readers = append(readers, l)
		}
		kit.Got(b.RLock(t.Context()))(t).Unlock()
		for _, l := range readers {
			select {
			case <-l.Wanted():
				t.Fatal("told of a reader that got in")
			default:
			}
		}
		writer := kit.Lock(t.Context(), b.Lock)
		for _, l := range readers {
			kit.Await(t, l.Wanted(), "the word that a writer waits")
			l.Unlock()
		}
		l := writer.Value(t)
		reader := kit.Lock(t.Context(), a.RLock)
		kit.Await(t, l.Wanted(), "the word that a reader waits")
		kit.PassOn(t, l, reader)
	})
}

func TestWhoReadsLaterHasTheTokenOfThoseWhoReadAlready(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		x, y := locks(t, kit.Dial(t, s), kit.Dial(t, s))
		first := read(t, t.Context(), x)
		synctime.Pass(time.Second)
		second := read(t, t.Context(), y)
		require.Equal(t, first.Token(), second.Token())
		kit.Release(t, first)
		kit.Release(t, second)
	})
}

// Each reader has a lease of its own: what one cannot renew ends, and the others stand.
// Readers who hold together have one token, which does not say whose hold is meant.
func TestTheVeryReaderThatIsMeantIsReleasedByForce(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		x, y := locks(t, a, b)
		first, second := read(t, t.Context(), x), read(t, t.Context(), y)
		require.Equal(t, first.Token(), second.Token())
		require.ErrorIs(t, kit.Err(x.ForceRelease(t.Context(), first.Token())), lease.ErrInvalid)
		info := kit.Got(x.Inspect(t.Context()))(t)
		i := slices.IndexFunc(info.Holders, func(h lease.Holder) bool { return h.Client == b.ID() })
		require.NoError(t, kit.Err(x.ForceReleaseHolder(t.Context(), info.Holders[i])))
		require.ErrorIs(t, kit.Lost(t, second), lease.ErrForced)
		require.ErrorIs(t, kit.Err(x.ForceReleaseHolder(t.Context(), info.Holders[i])), lease.ErrNotHeld, "not that of somebody who came after it")
		require.NoError(t, first.Context().Err())
		kit.Release(t, first)
	})
}

func TestAReaderThatIsCutOffLosesItsHoldAlone(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		near, far := locks(t, kit.Dial(t, s), kit.Dial(t, s, kit.Over(d)))
		living, cut := read(t, t.Context(), near), read(t, t.Context(), far)
		writer := kit.Joins(t, 1, near.Lock, near.Inspect)
		d.Away()
		require.ErrorIs(t, kit.Lost(t, cut), lease.ErrExpired)
		synctime.Pass(lease.DefaultLease)
		require.NoError(t, living.Context().Err())
		require.False(t, writer.Returned())
		released := time.Now()
		w := kit.Next(t, living, writer)
		require.Less(t, time.Since(released), time.Second)
		kit.Release(t, w)
		d.Heal()
		kit.Release(t, read(t, t.Context(), far))
		kit.Free(t, near)
	})
}

// counts asserts how often the hold of a context was entered.
func counts(t testing.TB, m *rwlock.RWMutex, ctx context.Context, reads, writes int) {
	t.Helper()
	r, w := m.HoldCount(ctx)
	require.Equal(t, []int{reads, writes}, []int{r, w})
}

func TestAReaderReadsAgainThoughAWriterWaits(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		counts(t, m, t.Context(), 0, 0)
		outer := read(t, t.Context(), m)
		w := kit.Joins(t, 1, other.Lock, m.Inspect)
		held := []*lease.Lease{outer}
		for i := range 5 {
			held = append(held, kit.Got(m.RLock(held[i].Context()))(t))
		}
		try := kit.Got(m.TryRLock(outer.Context()))(t)
		held = append(held, try)
		counts(t, m, try.Context(), 7, 0)
		readable(t, m, false)
		for i, l := range held {
			require.False(t, w.Returned())
			counts(t, m, held[len(held)-1].Context(), 7-i, 0)
			kit.Release(t, l) // The outer one first.
		}
		kit.Release(t, w.Value(t))
		kit.Free(t, m)
	})
}

func TestAReadWithinAWriteOutlivesIt(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		w := write(t, t.Context(), m)
		again := write(t, w.Context(), m)
		r := read(t, again.Context(), m)
		counts(t, m, r.Context(), 1, 2)
		first, writer := kit.Joins(t, 1, other.RLock, m.Inspect), kit.Joins(t, 2, other.Lock, m.Inspect)
		kit.Release(t, w)
		require.False(t, first.Returned(), "it still holds for writing")
		kit.Release(t, again)
		counts(t, m, r.Context(), 1, 0)
		f := first.Value(t) // The reader at the head came in with the last release of a write.
		require.NoError(t, r.Context().Err())
		require.Equal(t, w.Token(), r.Token())
		require.False(t, writer.Returned())
		require.ErrorIs(t, kit.Err(m.Lock(r.Context())), lease.ErrUpgrade, "what is left is a read")
		kit.Release(t, r)
		require.False(t, writer.Returned())
		l := kit.Next(t, f, writer)
		kit.Release(t, l)
		kit.Free(t, m)
	})
}

// Two reads of one owner that were granted at once are two holds. What ends one leaves the owner the other.
func TestAnOwnerWithTwoReadsKeepsTheOther(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s))
		mine := waitqueue.WithOwner(t.Context(), "job")
		for range 4 {
			w := write(t, t.Context(), other)
			calls := []*kit.Call[*lease.Lease]{kit.Lock(mine, m.RLock), kit.Lock(mine, m.RLock)}
			kit.Waiting(t, 2, m.Inspect)
			kit.Release(t, w)
			first, second := calls[0].Value(t), calls[1].Value(t)
			for _, l := range []*lease.Lease{first, second} {
				require.ErrorIs(t, kit.Lock(mine, m.Lock).Err(t), lease.ErrUpgrade)
				kit.Release(t, l)
			}
		}
		kit.Free(t, other)
	})
}

func TestAHoldOfOneOwnerIsEnteredByBothKinds(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := rwlock.New(kit.Dial(t, s), kit.Name(t))
		mine := waitqueue.WithOwner(t.Context(), "job")
		w := write(t, mine, m)
		r := read(t, mine, m)
		counts(t, m, mine, 1, 1)
		kit.Release(t, w)
		require.ErrorIs(t, kit.Err(m.Lock(mine)), lease.ErrUpgrade)
		kit.Release(t, r)
		counts(t, m, mine, 0, 0)
		kit.Free(t, m)
	})
}

func TestAReadersCycleIsTwoScriptsAndNothingElse(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s), headwaiter.WithLease(time.Minute)) // Nothing is renewed.
		kit.Release(t, read(t, t.Context(), m))
		w := write(t, t.Context(), m)
		kit.Listening(t, s, 1)
		kit.Release(t, w)
		beside := read(t, t.Context(), other)
		kit.Listening(t, s, 2)
		s.ResetStats()
		const cycles = 50
		for range cycles {
			kit.Release(t, read(t, t.Context(), m))
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * cycles}, kit.Scripts(s))
		kit.Release(t, beside)
		s.ResetStats()
		for range cycles {
			kit.Release(t, write(t, t.Context(), m))
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * cycles}, kit.Scripts(s))
	})
}
