package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// What java.util.concurrent's ReentrantReadWriteLockTest holds down for a fair lock, for calls of one client and of
// two; process_test.go has what is left between processes, and package conformance the names in quotes. A thread
// there is a context here.
//
//	testLock, testWriteTryLock, testIsWriteLocked,
//	testMultipleReadLocks, testWriteTryLockWhen-
//	Locked, testReadTryLockWhenLocked, testTryLock-
//	WhenReadLocked, testWriteTryLockWhenReadLocked,
//	testWriteAfterReadLock, ...MultipleReadLocks      "readers hold together, a writer alone"
//	testReadTryLockBarging                            "readers and writers hold in the order of the calls"
//	testReadAfterWriteLock                            TestAllReadersUpToTheNextWriterHold
//	testReadHoldingWriteLock...(Fair)                 TestAWriterMayReadToo, reenter_test.go
//	testGet...HoldCount                               reenter_test.go
//	testWriteUnlock_IMSE, testReadUnlock_IMSE         TestWhatIsReleasedCannotBeReleasedAgain
//	test...Lock_Interruptible, ...TryLock_Timeout     TestAWaitThatEndsChangesNothing
//	testHasQueuedThreads, testGetQueueLength,
//	testGetReadLockCount                              TestInspectTellsHoldersAndWaiters
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

// readable and writable assert whether a try from outside can read or write now.
func readable(t testing.TB, m *rwlock.RWMutex, can bool) {
	t.Helper()
	tried(t, m.TryRLock, can)
}

func writable(t testing.TB, m *rwlock.RWMutex, can bool) {
	t.Helper()
	tried(t, m.TryLock, can)
}

func tried(t testing.TB, try func(context.Context) (*lease.Lease, error), can bool) {
	t.Helper()
	l, err := try(context.Background())
	if !can {
		require.ErrorIs(t, err, lease.ErrBusy)
		return
	}
	require.NoError(t, err)
	kit.Release(t, l)
}

// Each group of readers holds together, each writer alone, all in the order of their arrival.
func TestAllReadersUpToTheNextWriterHold(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		l := write(t, t.Context(), m)
		kinds := "rrrwrrwwrr"
		calls := make([]*kit.Call[*lease.Lease], len(kinds))
		for i, k := range kinds {
			x := []*rwlock.RWMutex{m, other}[i%2]
			lock := x.RLock
			if k == 'w' {
				lock = x.Lock
			}
			calls[i] = kit.Lock(t.Context(), lock)
			kit.Waiting(t, i+1, m.Inspect)
		}
		kit.Release(t, l)
		token := l.Token()
		for i := 0; i < len(kinds); {
			end := i + 1
			for kinds[i] == 'r' && end < len(kinds) && kinds[end] == 'r' {
				end++
			}
			for _, c := range calls[i:end] {
				require.Greater(t, c.Value(t).Token(), token)
			}
			for _, c := range calls[end:] {
				require.False(t, c.Returned())
			}
			kit.Waiting(t, len(kinds)-end, m.Inspect)
			token = calls[i].Value(t).Token()
			for _, c := range calls[i:end] {
				require.Equal(t, token, c.Value(t).Token())
				kit.Release(t, c.Value(t))
			}
			i = end
		}
		kit.Free(t, m)
	})
}

func TestAWriterMayReadToo(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		w := write(t, t.Context(), m)
		queued := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		for range 3 {
			r, err := m.RLock(w.Context())
			require.NoError(t, err)
			kit.Release(t, r)
			r, err = m.TryRLock(w.Context())
			require.NoError(t, err)
			require.Equal(t, w.Token(), r.Token())
			kit.Release(t, r)
			again, err := m.Lock(w.Context())
			require.NoError(t, err)
			kit.Release(t, again)
		}
		require.False(t, queued.Returned())
		kit.Release(t, w)
		kit.Release(t, queued.Value(t))
		kit.Free(t, m)
	})
}

func TestWhatIsReleasedCannotBeReleasedAgain(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		first, second := read(t, t.Context(), m), read(t, t.Context(), other)
		kit.Release(t, first)
		require.ErrorIs(t, first.Release(t.Context()), lease.ErrReleased)
		writable(t, m, false)
		kit.Release(t, second)
		w := write(t, t.Context(), m)
		require.ErrorIs(t, second.Release(t.Context()), lease.ErrReleased)
		readable(t, other, false)
		kit.Release(t, w)
		require.ErrorIs(t, w.Release(t.Context()), lease.ErrReleased)
		kit.Free(t, m)
	})
}

func TestAWaitThatEndsChangesNothing(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		r := read(t, t.Context(), m)
		short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err := kit.Lock(short, other.Lock).Err(t)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Regexp(t, `^rwlock: lock ".*": waited .*: context deadline exceeded$`, err.Error())
		kit.Waiting(t, 0, m.Inspect)

		why := errors.New("no longer wanted")
		stop, withdraw := context.WithCancelCause(t.Context())
		w := kit.Lock(stop, other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		behind := kit.Lock(t.Context(), m.RLock)
		kit.Waiting(t, 2, m.Inspect)
		withdraw(why)
		require.ErrorIs(t, w.Err(t), why)
		kit.Release(t, behind.Value(t)) // R3: only the writer had kept it out.
		kit.Release(t, r)
		l := write(t, t.Context(), m)
		short, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err = kit.Lock(short, other.RLock).Err(t)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Regexp(t, `^rwlock: read lock `, err.Error())
		require.NoError(t, l.Context().Err())
		kit.Release(t, l)
		kit.Free(t, m)
	})
}

func TestInspectTellsHoldersAndWaiters(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		info, err := m.Inspect(t.Context())
		require.NoError(t, err)
		require.False(t, info.Held)
		held := []*lease.Lease{read(t, t.Context(), m), read(t, t.Context(), other)}
		w := kit.Lock(t.Context(), m.Lock)
		kit.Waiting(t, 1, m.Inspect)
		r := kit.Lock(t.Context(), other.RLock)
		kit.Waiting(t, 2, m.Inspect)
		info, err = other.Inspect(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, info.Used)
		require.EqualValues(t, []int64{1, 1}, []int64{info.Holders[0].Permits, info.Holders[1].Permits})
		require.ElementsMatch(t, []string{a.ID(), b.ID()}, []string{info.Holders[0].Client, info.Holders[1].Client})
		require.Equal(t, []string{a.ID(), b.ID()}, []string{info.Queue[0].Client, info.Queue[1].Client})
		for _, l := range held {
			kit.Release(t, l)
		}
		l := w.Value(t)
		info, err = other.Inspect(t.Context())
		require.NoError(t, err)
		require.Len(t, info.Holders, 1)
		require.Equal(t, info.Limit, info.Holder.Permits, "a writer has all there is")
		kit.Release(t, l)
		kit.Release(t, r.Value(t))
		kit.Free(t, m)
	})
}
