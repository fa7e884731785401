package reentrant_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// entries waits until the server was told that the hold was entered so many times.
func entries(t testing.TB, m *reentrant.Mutex, n int64) {
	t.Helper()
	kit.Eventually(t, "the server to know of all entries", func() bool {
		info, err := m.Inspect(context.Background())
		require.NoError(t, err)
		return info.Held && info.Holder.Entries == n
	})
}

func TestALeaseContextEntersAgainAndKeepsTheToken(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := reentrant.New(kit.Dial(t, s), kit.Name(t))
		other := reentrant.New(kit.Dial(t, s), kit.Name(t))
		outer := hold(t, t.Context(), m)
		entries(t, m, 1)
		waiting := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 1, other.Inspect)

		inner := hold(t, outer.Context(), m)
		require.Equal(t, outer.Token(), inner.Token())
		require.Equal(t, 2, m.HoldCount(inner.Context()))
		entries(t, other, 2)
		kit.Release(t, outer)
		require.NoError(t, inner.Context().Err())
		require.ErrorIs(t, context.Cause(outer.Context()), lease.ErrReleased)
		require.Equal(t, 1, m.HoldCount(inner.Context()))
		entries(t, other, 1)
		require.False(t, waiting.Returned())
		kit.Release(t, inner)
		kit.Release(t, waiting.Value(t))
	})
}

// What an inner call has done is progress of the hold, and when it stalls all of its leases end.
func TestProgressOfAnInnerLeaseIsThatOfTheHold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := reentrant.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithMaxStall(5*time.Second))
		outer := hold(t, t.Context(), m)
		inner := hold(t, outer.Context(), m)
		for range 5 {
			time.Sleep(4 * time.Second) // A step of the work.
			inner.Progress()
		}
		kit.Release(t, inner)
		require.NoError(t, outer.Context().Err())
		begun := time.Now()
		require.ErrorIs(t, kit.Lost(t, outer), lease.ErrStalled)
		require.InDelta(t, 5*time.Second, time.Since(begun), float64(300*time.Millisecond))
	})
}

func TestManyGoroutinesEnterAHoldAtOnce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const (
			goroutines = 32
			rounds     = 50
		)
		m := reentrant.New(kit.Dial(t, s), kit.Name(t))
		other := reentrant.New(kit.Dial(t, s), kit.Name(t))
		outer := hold(t, t.Context(), m)
		waiting := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 1, m.Inspect)
		begin, all := make(chan struct{}), make(chan *lease.Lease, goroutines+1)
		var work sync.WaitGroup
		for range goroutines {
			work.Go(func() {
				<-begin
				for i := range rounds {
					l, err := m.Lock(outer.Context())
					if err != nil || l.Token() != outer.Token() {
						t.Errorf("%v: token %d beside %d", err, l.Token(), outer.Token())
						return
					}
					if i == rounds-1 {
						all <- l
					} else if err := l.Release(context.Background()); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
		close(begin)
		kit.All(t, &work)
		require.Equal(t, goroutines+1, m.HoldCount(outer.Context()))
		entries(t, other, goroutines+1)

		// Each is released by another goroutine than the one that entered, the first somewhere in between.
		all <- nil
		leases := []*lease.Lease{outer}
		for l := range all {
			if l == nil {
				break
			}
			leases = append(leases, l)
		}
		rand.Shuffle(len(leases), func(i, j int) { leases[i], leases[j] = leases[j], leases[i] })
		last := leases[0]
		for _, l := range leases[1:] {
			work.Go(func() {
				if err := l.Release(context.Background()); err != nil {
					t.Errorf("release: %v", err)
				}
			})
		}
		kit.All(t, &work)
		require.False(t, waiting.Returned())
		require.Equal(t, 1, m.HoldCount(last.Context()))
		kit.Release(t, last)
		kit.Release(t, waiting.Value(t))
	})
}

func TestWhatComesFromALeaseContextEntersAndNothingElseDoes(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		type key struct{}
		c, d := kit.Dial(t, s), kit.Dial(t, s)
		m := reentrant.New(c, kit.Name(t))
		same, other := reentrant.New(c, kit.Name(t)), reentrant.New(c, kit.Name(t)+":other")
		outer := hold(t, context.WithValue(t.Context(), key{}, "mine"), m)
		require.Equal(t, "mine", outer.Context().Value(key{}))
		inner := hold(t, context.WithValue(outer.Context(), key{}, "changed"), same)
		require.Equal(t, "changed", inner.Context().Value(key{}))
		require.Equal(t, outer.Token(), inner.Token(), "another handle of the same name is the same lock")

		elsewhere := hold(t, inner.Context(), other)
		require.Equal(t, 1, other.HoldCount(elsewhere.Context()))
		require.Equal(t, 2, m.HoldCount(elsewhere.Context()), "a hold of another lock inside is still inside")
		deep := hold(t, elsewhere.Context(), m)
		require.Equal(t, outer.Token(), deep.Token())

		_, err := reentrant.New(d, m.Name()).TryLock(deep.Context())
		require.ErrorIs(t, err, lease.ErrBusy, "a context is nobody's with another client")
		require.Zero(t, reentrant.New(d, m.Name()).HoldCount(deep.Context()))

		kit.Release(t, inner)
		kit.Release(t, outer)
		_, err = m.Lock(outer.Context())
		require.ErrorIs(t, err, lease.ErrReleased, "that context has ended")
		again := hold(t, context.WithoutCancel(outer.Context()), m)
		require.Equal(t, deep.Token(), again.Token(), "what it came from still stands")
		kit.Release(t, deep)
		kit.Release(t, again)
		next := hold(t, context.WithoutCancel(outer.Context()), m)
		require.Greater(t, next.Token(), outer.Token(), "the hold is over: this is another")
		require.Equal(t, 1, m.HoldCount(next.Context()))
		kit.Release(t, next)
		kit.Release(t, elsewhere)
	})
}

func TestCallsOfOneOwnerEnterOneHold(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c, d := kit.Dial(t, s), kit.Dial(t, s)
		m, other := reentrant.New(c, kit.Name(t)), reentrant.New(d, kit.Name(t))
		mine := reentrant.Owner(t.Context(), "job 1")
		first := hold(t, mine, m)
		second := hold(t, reentrant.Owner(context.Background(), "job 1"), m)
		require.Equal(t, first.Token(), second.Token())
		require.Equal(t, 2, m.HoldCount(mine))
		require.Zero(t, m.HoldCount(reentrant.Owner(t.Context(), "job 2")))
		for _, foreign := range []struct {
			ctx context.Context
			m   *reentrant.Mutex
		}{
			{reentrant.Owner(t.Context(), "job 2"), m},
			{t.Context(), m},
			{reentrant.Owner(t.Context(), ""), m},
			{mine, other}, // The same name with another client is somebody else.
		} {
			_, err := foreign.m.TryLock(foreign.ctx)
			require.ErrorIs(t, err, lease.ErrBusy)
		}
		kit.Release(t, first)
		third := hold(t, mine, m)
		require.Equal(t, second.Token(), third.Token())
		kit.Release(t, second)
		kit.Release(t, third)
		require.Zero(t, m.HoldCount(mine))
		kit.Free(t, other)
		next := hold(t, mine, m)
		require.Greater(t, next.Token(), third.Token())
		kit.Release(t, next)
	})
}

func TestAWaitingCallEntersWhenItsOwnerGetsTheHold(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		mine := reentrant.Owner(t.Context(), "job")
		l := hold(t, t.Context(), other)
		var calls []*kit.Call[*lease.Lease]
		for i := range 3 {
			calls = append(calls, kit.Lock(mine, m.Lock))
			kit.Waiting(t, i+1, other.Inspect)
		}
		stranger := kit.Lock(t.Context(), other.Lock)
		kit.Waiting(t, 4, other.Inspect)
		kit.Release(t, l)
		first := calls[0].Value(t)
		for _, c := range calls[1:] {
			require.Equal(t, first.Token(), c.Value(t).Token())
		}
		require.Equal(t, 3, m.HoldCount(mine))
		kit.Waiting(t, 1, other.Inspect) // The tickets of those that entered are gone.
		require.False(t, stranger.Returned())
		for _, c := range calls {
			kit.Release(t, c.Value(t))
		}
		kit.Release(t, stranger.Value(t))
		kit.Free(t, other)
	})
}

// In a bubble, as to enter is a matter of the client alone.
func TestMoreEntriesThanTheLimitAreRefused(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := reentrant.New(kit.Dial(t, s), kit.Name(t))
		outer := hold(t, t.Context(), m)
		leases := make([]*lease.Lease, 0, waitqueue.MaxEntries)
		for range waitqueue.MaxEntries - 1 {
			l, err := m.Lock(outer.Context())
			require.NoError(t, err)
			leases = append(leases, l)
		}
		for _, lock := range []func(context.Context) (*lease.Lease, error){m.Lock, m.TryLock} {
			_, err := lock(outer.Context())
			require.ErrorIs(t, err, lease.ErrTooLarge)
			require.ErrorContains(t, err, "it was entered 65535 times")
		}
		require.Equal(t, waitqueue.MaxEntries, m.HoldCount(outer.Context()))
		entries(t, m, waitqueue.MaxEntries)
		require.NoError(t, outer.Context().Err())
		kit.Release(t, leases[len(leases)-1])
		leases[len(leases)-1] = hold(t, outer.Context(), m)
		_, err := reentrant.New(kit.Dial(t, s), m.Name()).ForceRelease(t.Context(), outer.Token())
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, outer), lease.ErrForced)
		for _, l := range leases {
			kit.Await(t, l.Context().Done(), "every lease to end")
		}
		kit.Free(t, m)
	})
}

func TestDoEntersAHoldAndTakesItsCountBack(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		m, other := locks(t, a, b)
		mine := errors.New("mine")
		err := m.Do(t.Context(), func(ctx context.Context) error {
			require.Equal(t, 1, m.HoldCount(ctx))
			require.PanicsWithValue(t, "oops", func() {
				_ = m.Do(ctx, func(ctx context.Context) error {
					require.Equal(t, 2, m.HoldCount(ctx))
					panic("oops")
				})
			})
			require.Equal(t, 1, m.HoldCount(ctx))
			require.Equal(t, mine, m.Do(ctx, func(context.Context) error { return mine }))
			busy(t, other)
			return m.Do(ctx, func(context.Context) error {
				_, err := other.ForceRelease(t.Context(), 0)
				require.NoError(t, err)
				return mine
			})
		})
		require.ErrorIs(t, err, mine)
		require.ErrorContains(t, err, `lease lost: `+m.Name()+`: released elsewhere by force`)
		kit.Free(t, other)
	})
}
