package reentrant_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// entries waits until the server was told that the hold was entered n times.
func entries(t testing.TB, m *reentrant.Mutex, n int64) {
	t.Helper()
	kit.Eventually(t, "the server to know of all entries", func() bool {
		info := kit.Got(m.Inspect(context.Background()))(t)
		return info.Held && info.Holder.Entries == n
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
		m, other := reentrant.New(kit.Dial(t, s), kit.Name(t)), reentrant.New(kit.Dial(t, s), kit.Name(t))
		outer := hold(t, t.Context(), m)
		waiting := kit.Joins(t, 1, other.Lock, m.Inspect)
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
		kit.PassOn(t, last, waiting)
	})
}

func TestCallsOfOneOwnerEnterOneHold(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, c, d *headwaiter.Client) {
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
			require.ErrorIs(t, kit.Err(foreign.m.TryLock(foreign.ctx)), lease.ErrBusy)
		}
		kit.Release(t, first)
		third := hold(t, mine, m)
		require.Equal(t, second.Token(), third.Token())
		kit.Release(t, second, third)
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
		stranger := kit.Joins(t, 4, other.Lock, other.Inspect)
		first := kit.Next(t, l, calls[0])
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
			leases = append(leases, kit.Got(m.Lock(outer.Context()))(t))
		}
		for _, lock := range []func(context.Context) (*lease.Lease, error){m.Lock, m.TryLock} {
			kit.Fails(t, kit.Err(lock(outer.Context())), lease.ErrTooLarge, "it was entered 65535 times")
		}
		ended, cancel := context.WithCancel(outer.Context())
		cancel()
		for _, lock := range []func(context.Context) (*lease.Lease, error){m.Lock, m.TryLock} {
			require.ErrorIs(t, kit.Err(lock(ended)), context.Canceled, "an ended context enters nothing")
		}
		require.Equal(t, waitqueue.MaxEntries, m.HoldCount(outer.Context()))
		entries(t, m, waitqueue.MaxEntries)
		require.NoError(t, outer.Context().Err())
		kit.Release(t, leases[len(leases)-1])
		leases[len(leases)-1] = hold(t, outer.Context(), m)
		require.NoError(t, kit.Err(reentrant.New(kit.Dial(t, s), m.Name()).ForceRelease(t.Context(), outer.Token())))
		require.ErrorIs(t, kit.Lost(t, outer), lease.ErrForced)
		for _, l := range leases {
			kit.Await(t, l.Context().Done(), "every lease to end")
		}
		kit.Free(t, m)
	})
}

func TestACycleIsTwoScriptsHoweverOftenItEnters(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := reentrant.New(kit.Dial(t, s), kit.Name(t))
		kit.Release(t, hold(t, t.Context(), m))
		s.ResetStats()
		const cycles = 50
		for range cycles {
			outer := hold(t, t.Context(), m)
			for range 20 {
				kit.Release(t, hold(t, outer.Context(), m))
			}
			kit.Release(t, outer)
		}
		require.Equal(t, map[string]int64{"evalsha": 2 * cycles}, kit.Scripts(s))

		// In a long hold the server is told of the number, of many changes at once.
		outer := hold(t, t.Context(), m)
		kit.Release(t, hold(t, outer.Context(), m))
		synctime.Pass(time.Second) // The server learns the script.
		s.ResetStats()
		for range 1000 {
			kit.Release(t, hold(t, outer.Context(), m))
		}
		synctime.Pass(time.Second)
		require.Equal(t, map[string]int64{"evalsha": 1}, kit.Scripts(s))
		kit.Release(t, outer)
	})
}

// Nobody has looked at the clock since the end of the lease: the client's timers are late.
func TestAReleaseAfterTheEndOfTheLeaseEndsAllEntries(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		var late kit.Stall
		c := kit.Dial(t, s, late.Option)
		m := reentrant.New(c, kit.Name(t), headwaiter.WithLease(2*time.Second))
		outer := hold(t, t.Context(), m)
		work, cancel := context.WithTimeout(outer.Context(), time.Hour)
		defer cancel()
		middle := hold(t, work, m)
		inner := hold(t, middle.Context(), m)
		done := []<-chan struct{}{outer.Context().Done(), middle.Context().Done(), work.Done()}
		late.Begin(t, c)
		synctime.Pass(3 * time.Second)
		next := hold(t, t.Context(), reentrant.New(kit.Dial(t, s), kit.Name(t)))

		require.ErrorIs(t, inner.Release(t.Context()), lease.ErrExpired)
		for _, ended := range done { // Of those whom nobody asks.
			kit.Await(t, ended, "a context of another entry to end")
		}
		require.ErrorIs(t, context.Cause(work), lease.ErrExpired)
		require.ErrorIs(t, outer.Release(t.Context()), lease.ErrExpired)
		require.ErrorIs(t, middle.Release(t.Context()), lease.ErrExpired)
		require.NoError(t, next.Context().Err())
		require.EqualValues(t, 1, c.Stats().Lost, "it is one loss")
		late.End(t)
		kit.Release(t, next)
		require.NoError(t, c.Shutdown(t.Context()), "nothing of it is left")
	})
}

func TestALostContextAsksAnewAndGetsAHigherToken(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := locks(t, kit.Dial(t, s), kit.Dial(t, s), headwaiter.WithLease(2*time.Second))
		mine := reentrant.Owner(t.Context(), "job")
		outer := hold(t, mine, m)
		inner := hold(t, outer.Context(), m)
		require.NoError(t, kit.Err(other.ForceRelease(t.Context(), outer.Token())))
		require.ErrorIs(t, kit.Lost(t, inner), lease.ErrForced)
		require.ErrorIs(t, kit.Err(m.Lock(inner.Context())), lease.ErrForced, "the context of a lost hold is over")

		// On behalf of the same owner, and from the context whose end is ignored.
		again := hold(t, mine, m)
		require.Greater(t, again.Token(), outer.Token())
		require.Equal(t, 1, m.HoldCount(mine))
		require.ErrorIs(t, inner.Release(t.Context()), lease.ErrForced)
		require.Equal(t, 1, m.HoldCount(mine), "the release of a lost entry takes no count of a later hold")
		kit.Release(t, again)
		last := hold(t, context.WithoutCancel(inner.Context()), m)
		require.Greater(t, last.Token(), again.Token())
		kit.Release(t, last)
		kit.Free(t, other)
	})
}

func TestAnEntryWhileARenewalIsUnderWayIsToldByTheNext(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		m := reentrant.New(kit.Dial(t, s, kit.Over(d)), "name", headwaiter.WithLease(time.Minute))
		look := reentrant.New(kit.Dial(t, s), "name")
		l := kit.Got(m.Lock(t.Context()))(t)
		d.Delay(200 * time.Millisecond)
		for range 3 {
			require.NoError(t, kit.Err(m.Lock(l.Context())))
			synctime.Pass(100 * time.Millisecond) // The renewal that tells of this entry takes longer.
		}
		synctime.Pass(2 * time.Second)
		require.EqualValues(t, 4, kit.Got(look.Inspect(t.Context()))(t).Holder.Entries)
	})
}
