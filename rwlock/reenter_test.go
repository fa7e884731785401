package rwlock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

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
		w := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		held := []*lease.Lease{outer}
		for i := range 5 {
			l, err := m.RLock(held[i].Context())
			require.NoError(t, err)
			held = append(held, l)
		}
		try, err := m.TryRLock(outer.Context())
		require.NoError(t, err)
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

func TestAnUpgradeIsRefusedAtOnce(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		r := read(t, t.Context(), m)
		deep := read(t, r.Context(), m)
		for _, ctx := range []context.Context{r.Context(), deep.Context(), context.WithoutCancel(deep.Context())} {
			for _, lock := range []func(context.Context) (*lease.Lease, error){m.Lock, m.TryLock} {
				_, err := lock(ctx)
				require.ErrorIs(t, err, lease.ErrUpgrade)
				require.ErrorContains(t, err, "release it first")
			}
			err := m.Do(ctx, func(context.Context) error { t.Error("f was called"); return nil })
			require.ErrorIs(t, err, lease.ErrUpgrade)
		}
		counts(t, m, r.Context(), 2, 0)
		kit.Waiting(t, 0, other.Inspect)
		kit.Release(t, deep)
		kit.Release(t, r)
		l := write(t, context.WithoutCancel(r.Context()), m)
		kit.Release(t, l)
		kit.Free(t, other)
	})
}

func TestAReadWithinAWriteOutlivesIt(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		w := write(t, t.Context(), m)
		again := write(t, w.Context(), m)
		r := read(t, again.Context(), m)
		counts(t, m, r.Context(), 1, 2)
		first := kit.Lock(t.Context(), other.RLock)
		kit.Waiting(t, 1, m.Inspect)
		writer := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 2, m.Inspect)
		kit.Release(t, w)
		require.False(t, first.Returned(), "it still holds for writing")
		kit.Release(t, again)
		counts(t, m, r.Context(), 1, 0)
		f := first.Value(t) // The reader at the head came in with the last release of a write.
		require.NoError(t, r.Context().Err())
		require.Equal(t, w.Token(), r.Token())
		require.False(t, writer.Returned())
		_, err := m.Lock(r.Context())
		require.ErrorIs(t, err, lease.ErrUpgrade, "what is left is a read")
		kit.Release(t, r)
		require.False(t, writer.Returned())
		kit.Release(t, f)
		l := writer.Value(t)
		require.Greater(t, l.Token(), f.Token())
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
		_, err := m.Lock(mine)
		require.ErrorIs(t, err, lease.ErrUpgrade)
		kit.Release(t, r)
		counts(t, m, mine, 0, 0)
		kit.Free(t, m)
	})
}

func TestManyGoroutinesReadWithinOneWrite(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s))
		w := write(t, t.Context(), m)
		waiting := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		var work sync.WaitGroup
		for i := range 16 {
			work.Go(func() {
				lock := m.RLock
				if i%4 == 0 {
					lock = m.Lock
				}
				for range 20 {
					l, err := lock(w.Context())
					if err == nil {
						err = l.Release(context.Background())
					}
					if err != nil {
						t.Errorf("enter: %v", err)
					}
				}
			})
		}
		kit.All(t, &work)
		counts(t, m, w.Context(), 0, 1)
		require.False(t, waiting.Returned())
		kit.Release(t, w)
		kit.Release(t, waiting.Value(t))
		kit.Free(t, m)
	})
}
