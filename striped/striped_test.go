package striped_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/striped"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// mates returns two keys of one stripe and one of another.
func mates(m *striped.Mutex) (a, b, other string) {
	a = "0"
	for i := 1; b == "" || other == ""; i++ {
		key := strconv.Itoa(i)
		if m.Stripe(key) == m.Stripe(a) {
			b = key
		} else {
			other = key
		}
	}
	return a, b, other
}

func lock(t testing.TB, m *striped.Mutex, key string) *lease.Lease {
	t.Helper()
	return kit.Go(func() (*lease.Lease, error) { return m.Lock(t.Context(), key) }).Value(t)
}

func TestKeysOfOneStripeExcludeEachOther(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, c1, c2 *headwaiter.Client) {
		name := kit.Name(t)[len("TestKeysOfOneStripeExclude"):] // Short enough for errors to show it all.
		m1, m2 := striped.New(c1, name, 0), striped.New(c2, name, 16)
		a, b, other := mates(m1)
		held := lock(t, m1, a)
		for _, key := range []string{a, b} {
			_, err := m2.TryLock(t.Context(), key)
			require.ErrorIs(t, err, lease.ErrBusy)
			require.ErrorContains(t, err, `striped: try lock "`+key+`": fairlock: try lock "`+m2.Stripe(key)+`": busy: client `)
		}
		free, err := m2.TryLock(t.Context(), other)
		require.NoError(t, err)
		waits := kit.Go(func() (*lease.Lease, error) { return m2.Lock(t.Context(), b) })
		kit.Waiting(t, 1, fairlock.New(c1, m1.Stripe(a)).Inspect)
		require.False(t, waits.Returned())
		kit.Release(t, held)
		next := waits.Value(t)
		require.Greater(t, next.Token(), held.Token())
		kit.Release(t, next)
		kit.Release(t, free)
	})
}

func TestAWaitIsBoundedByItsContext(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := striped.New(kit.Dial(t, s), "n", 4)
		held := lock(t, m, "a")
		ctx, cancel := context.WithCancelCause(t.Context())
		waits := kit.Run(func() error {
			_, err := m.Lock(ctx, "a")
			return err
		})
		kit.Waiting(t, 1, fairlock.New(kit.Dial(t, s), m.Stripe("a")).Inspect)
		cause := errors.New("enough")
		cancel(cause)
		err := waits.Err(t)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		require.Regexp(t, `^striped: lock "a": fairlock: lock "n:./4": waited .*: context canceled: enough$`, err.Error())
		_, err = striped.New(kit.Dial(t, s), "n", 4).Lock(ctx, "a") // A client that is no member yet.
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		kit.Release(t, held)
	})
}

// The caller sees two keys, and the stripe is one.
func TestAnotherKeyOfAStripeThatIsHeldIsADeadlock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := striped.New(kit.Dial(t, s), kit.Name(t), 4)
		a, b, other := mates(m)
		held := lock(t, m, a)
		for _, key := range []string{a, b} {
			_, err := m.Lock(held.Context(), key)
			require.ErrorIs(t, err, lease.ErrDeadlock)
			require.ErrorContains(t, err, `striped: lock "`+key+`"`)
			require.ErrorIs(t, m.Do(held.Context(), key, nil), lease.ErrDeadlock)
		}
		inner, err := m.Lock(held.Context(), other)
		require.NoError(t, err)
		_, err = m.Lock(inner.Context(), b)
		require.ErrorIs(t, err, lease.ErrDeadlock, "the outer one is forgotten")
		kit.Release(t, inner)
		kit.Release(t, held)
	})
}

func TestDoHoldsWhileItRuns(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := striped.New(kit.Dial(t, s), kit.Name(t), 4)
		wrong := errors.New("wrong")
		err := m.Do(t.Context(), "a", func(ctx context.Context) error {
			require.NoError(t, ctx.Err())
			_, err := m.TryLock(t.Context(), "a")
			require.ErrorIs(t, err, lease.ErrBusy)
			return wrong
		})
		require.Equal(t, wrong, err)
		require.Panics(t, func() {
			_ = m.Do(t.Context(), "a", func(context.Context) error { panic("so") })
		})
		other := fairlock.New(kit.Dial(t, s), m.Stripe("a"))
		err = m.Do(t.Context(), "a", func(ctx context.Context) error {
			info, err := other.Inspect(t.Context())
			require.NoError(t, err)
			_, err = other.ForceRelease(t.Context(), info.Token)
			require.NoError(t, err)
			return nil
		})
		require.ErrorIs(t, err, lease.ErrLost)
		require.ErrorContains(t, err, "released elsewhere by force")
	})
}

// A counter for each key, which only the lock of the key protects.
func TestManyKeysOverManyClients(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const keys, rounds = 12, 10
		counts := make([]int, keys)
		var all sync.WaitGroup
		for range 3 {
			m := striped.New(kit.Dial(t, s), kit.Name(t), 4)
			for k := range keys {
				all.Go(func() {
					for range rounds {
						err := m.Do(t.Context(), strconv.Itoa(k), func(context.Context) error {
							counts[k]++
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		kit.All(t, &all)
		for _, n := range counts {
			require.Equal(t, 3*rounds, n)
		}
	})
}

func TestAHoldCostsNoMoreThanThatOfOneLock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		kit.Release(t, lock(t, striped.New(c, kit.Name(t), 16), "a"))
		s.ResetStats()
		for i := range 10 {
			kit.Release(t, lock(t, striped.New(c, kit.Name(t), 16), strconv.Itoa(i)))
		}
		require.LessOrEqual(t, kit.Scripts(s)["evalsha"], int64(20+1), "a renewal may have come in between")
	})
}

func TestNamesThatCannotBeUsed(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		for name, want := range map[string]error{
			"": lease.ErrInvalid, "}": lease.ErrInvalid, "\n": lease.ErrInvalid, strings.Repeat("n", 510): lease.ErrTooLarge,
		} {
			_, err := striped.New(c, name, 4).Lock(t.Context(), "k")
			require.ErrorIs(t, err, want, name)
			require.ErrorContains(t, err, `striped: lock "k": `)
		}
		_, err := striped.New(c, kit.Name(t), 4, headwaiter.WithLease(0)).Lock(t.Context(), "k")
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "a lease of 0s")
		_, err = striped.New(c, kit.Name(t), 4, headwaiter.WithLease(lease.MaxLease)).TryLock(t.Context(), "k")
		require.NoError(t, err)

		// Any key will do, and errors show no more of it than they should.
		m := striped.New(c, "{tag}"+kit.Name(t), 4)
		for _, key := range []string{"", "\n\x00", "}{", strings.Repeat("k", 1<<20)} {
			held := lock(t, m, key)
			_, err := m.TryLock(t.Context(), key)
			require.ErrorIs(t, err, lease.ErrBusy)
			require.Less(t, len(err.Error()), 400)
			require.Regexp(t, `^\P{C}*$`, err.Error())
			kit.Release(t, held)
		}
	})
}
