package semaphore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestMorePermitsGoToThoseWhoWaitAtOnce(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, other := semaphores(t, a, b, 2)
		l := take(t, s, 2)
		calls := queue(t, s, other, 1, 2, 2, 1)
		begun := time.Now()
		require.NoError(t, s.Resize(t.Context(), 5))
		held := []*lease.Lease{l, calls[0].Value(t), calls[1].Value(t)}
		require.Less(t, time.Since(begun), time.Second, "at once, not by a check")
		pending(t, calls[2:]...)
		available(t, other, 0)
		require.NoError(t, other.Resize(t.Context(), 6))
		pending(t, calls[2:]...) // The one permit is not enough for the head.
		refused(t, s, 1)
		require.NoError(t, other.Resize(t.Context(), 8))
		for _, c := range calls[2:] {
			held = append(held, c.Value(t))
		}
		available(t, s, 0)
		for _, l := range held {
			kit.Release(t, l)
		}
		available(t, s, 8)
		unused(t, s)
	})
}

func TestFewerPermitsTakeNothingFromThoseWhoHold(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, other := semaphores(t, a, b, 6)
		held := []*lease.Lease{take(t, s, 2), take(t, other, 2), take(t, s, 2)}
		calls := queue(t, s, other, 1, 2)
		require.NoError(t, other.Resize(t.Context(), 2))
		available(t, s, -4)
		refused(t, s, 1)
		for i, want := range []int64{-2, 0} {
			kit.Release(t, held[i])
			available(t, s, want)
			pending(t, calls...)
		}
		require.NoError(t, held[2].Context().Err())
		kit.Release(t, held[2])
		first := calls[0].Value(t)
		available(t, other, 1)
		pending(t, calls[1])
		kit.Release(t, first)
		kit.Release(t, calls[1].Value(t))
		available(t, s, 2)
		unused(t, s)
	})
}

func TestWhoWaitsForMoreThanAResizeLeavesIsRefused(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		s, other := semaphores(t, a, b, 6)
		l := take(t, s, 6)
		calls := queue(t, s, other, 4, 2, 5, 6)
		require.NoError(t, s.Resize(t.Context(), 3))
		// Nothing is free, so it is their clients' looks that find out.
		err := calls[0].Err(t)
		require.ErrorIs(t, err, lease.ErrTooLarge)
		require.ErrorContains(t, err, "4 permits of 3")
		pending(t, calls[1])
		kit.Release(t, l)
		l = calls[1].Value(t)
		for i, n := range []int{5, 6} {
			err := calls[2+i].Err(t)
			require.ErrorIs(t, err, lease.ErrTooLarge)
			require.ErrorContains(t, err, fmt.Sprintf("%d permits of 3", n))
		}
		kit.Waiting(t, 0, s.Inspect)
		_, err = other.Acquire(t.Context(), 4)
		require.ErrorIs(t, err, lease.ErrTooLarge)
		kit.Release(t, l)
		available(t, other, 3)
	})
}

func TestWhoWaitsForMoreThanAResizeLeavesIsRefusedThoughItsMessageIsLost(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		p := kit.Proxy(t, s)
		x, far := semaphores(t, kit.Dial(t, s), kit.Dial(t, s, kit.Through(p)), 4, headwaiter.WithLease(time.Second))
		l := take(t, x, 4)
		large := queue(t, far, far, 3)[0]
		small := queue(t, x, x, 1)[0]
		p.LosePushes(1<<30, func(push []string) bool { return push[0] == "message" })
		require.NoError(t, x.Resize(t.Context(), 2))
		err := large.Err(t)
		require.ErrorIs(t, err, lease.ErrTooLarge)
		require.ErrorContains(t, err, "3 permits of 2")
		kit.Release(t, l)
		kit.Release(t, small.Value(t))
		unused(t, x)
	})
}

func TestAResizeIsForAllClients(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 3)
		l := take(t, x, 1)
		kit.Release(t, l)
		require.NoError(t, y.Resize(t.Context(), 9))
		available(t, x, 9)
		l = take(t, x, 9)
		kit.Release(t, l)

		// One that nobody has used is made by it.
		fresh := semaphore.New(kit.Dial(t, s), x.Name()+":fresh", 2)
		require.NoError(t, fresh.Resize(t.Context(), 5))
		kit.Release(t, take(t, fresh, 5))
		require.NoError(t, fresh.Resize(t.Context(), 5), "twice is once")
		available(t, fresh, 5)
	})
}

func TestAResizeTakesNobodyDownWhateverNumberTheyState(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		three, five, four := semaphore.New(c, kit.Name(t), 3), semaphore.New(c, kit.Name(t), 5), semaphore.New(c, kit.Name(t), 4)
		l := take(t, three, 1)
		_, err := five.Acquire(t.Context(), 1)
		require.ErrorIs(t, err, lease.ErrMismatch, "nobody has resized it")
		require.ErrorContains(t, err, "made with 3")
		limit := int64(3)
		use := func() {
			for _, x := range []*semaphore.Semaphore{three, five, four} {
				available(t, x, limit-1)
				kit.Release(t, take(t, x, limit-1))
				rest, n, err := x.Drain(t.Context())
				require.NoError(t, err)
				require.Equal(t, limit-1, n)
				waits := queue(t, x, x, 1)[0]
				kit.Release(t, rest)
				kit.Release(t, waits.Value(t))
				_, err = x.Acquire(t.Context(), limit+1)
				require.ErrorIs(t, err, lease.ErrTooLarge)
			}
		}
		for i, by := range []*semaphore.Semaphore{three, five, four, three} {
			limit = []int64{5, 8, 2, 3}[i]
			require.NoError(t, by.Resize(t.Context(), limit))
			use()
		}
		kit.Release(t, l)
		available(t, four, 3)
	})
}

// What holds is lost, what was set is not.
func TestAResizeOutlivesTheLossOfItsHolders(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		x := semaphore.New(kit.Dial(t, s), kit.Name(t), 3)
		require.NoError(t, x.Resize(t.Context(), 5))
		l := take(t, x, 5)
		s.Do("DEL", keyOf(x.Name())+":holders")
		other := semaphore.New(kit.Dial(t, s), x.Name(), 4)
		kit.Release(t, take(t, other, 5))
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
		available(t, x, 5)
	})
}

func TestAResizeOutlivesAMonthAndASemaphoreAMinute(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		// An idle client asks every second whether its connections live, so there is none while time passes.
		with := func(permits int64, do func(x *semaphore.Semaphore)) {
			c := kit.Dial(t, s)
			do(semaphore.New(c, kit.Name(t), permits))
			require.NoError(t, c.Close(t.Context()))
		}
		with(3, func(x *semaphore.Semaphore) { kit.Release(t, take(t, x, 3)) })
		synctime.Pass(75 * time.Second)
		require.Empty(t, s.List("KEYS", "*{*"))
		with(2, func(x *semaphore.Semaphore) { kit.Release(t, take(t, x, 2)) }) // Another number: it was forgotten.
		synctime.Pass(75 * time.Second)

		with(3, func(x *semaphore.Semaphore) {
			require.NoError(t, x.Resize(t.Context(), 5))
			kit.Release(t, take(t, x, 5))
		})
		synctime.Pass(29 * 24 * time.Hour)
		with(3, func(x *semaphore.Semaphore) {
			available(t, x, 5)
			kit.Release(t, take(t, x, 5))
		})
		synctime.Pass(28 * 24 * time.Hour)
		with(2, func(x *semaphore.Semaphore) {
			available(t, x, 5)
			kit.Release(t, take(t, x, 1))
		})
		synctime.Pass(28 * 24 * time.Hour)
		with(4, func(x *semaphore.Semaphore) { available(t, x, 5) })
		synctime.Pass(31 * 24 * time.Hour)
		require.Empty(t, s.List("KEYS", "*{*"))
	})
}

func TestResizesWhileOthersTakeTurns(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 4)
		ctx, stop := context.WithCancel(t.Context())
		resizes := kit.Run(func() error {
			for i := int64(0); ctx.Err() == nil; i++ {
				if err := x.Resize(context.Background(), 4+i%5); err != nil {
					return err
				}
			}
			return x.Resize(context.Background(), 4)
		})
		var calls []*kit.Call[struct{}]
		for i := range 8 {
			calls = append(calls, kit.Run(func() error {
				for range 12 {
					l, err := []*semaphore.Semaphore{x, y}[i%2].Acquire(context.Background(), int64(1+i%4))
					if err != nil {
						return err
					}
					if err := l.Release(context.Background()); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		for _, c := range calls {
			c.Value(t)
		}
		stop()
		resizes.Value(t)
		unused(t, x)
		available(t, y, 4)
	})
}
