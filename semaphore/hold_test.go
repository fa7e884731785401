package semaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestPermitsThatAreNotRenewedComeBackWhenTheirLeaseIsOver(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 3, headwaiter.WithLease(7*time.Second), semaphore.WithoutRenewal())
		begun := time.Now()
		first := take(t, x, 2)
		synctime.Pass(3 * time.Second)
		second := take(t, y, 1)
		calls := queue(t, x, y, 2, 1)
		held := calls[0].Value(t)
		require.InDelta(t, 7*time.Second, time.Since(begun), float64(200*time.Millisecond))
		require.ErrorIs(t, kit.Lost(t, first), lease.ErrMaxHold)
		require.ErrorIs(t, first.Release(t.Context()), lease.ErrLost)
		pending(t, calls[1])
		kit.Release(t, calls[1].Value(t))
		require.InDelta(t, 10*time.Second, time.Since(begun), float64(200*time.Millisecond))
		require.ErrorIs(t, kit.Lost(t, second), lease.ErrMaxHold)
		kit.Release(t, held)
		info, err := x.Inspect(t.Context())
		require.NoError(t, err)
		require.Empty(t, info.Suspects, "an end that was to come is no offence")
		available(t, x, 3)
	})
}

// A grant by message is short at first; its hold must reach its full lease all the same.
func TestAnUnrenewedHoldThatWasHandedOverLastsItsLease(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 1, headwaiter.WithLease(7*time.Second), semaphore.WithoutRenewal())
		l := take(t, x, 1)
		c := queue(t, y, y, 1)[0]
		kit.Release(t, l)
		next, begun := c.Value(t), time.Now()
		require.ErrorIs(t, kit.Lost(t, next), lease.ErrMaxHold)
		require.InDelta(t, 7*time.Second, time.Since(begun), float64(500*time.Millisecond))
		kit.Release(t, take(t, x, 1))
	})
}

func TestTheMaximumHoldIsEachHoldsOwn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 2, headwaiter.WithMaxHold(13*time.Second))
		first := take(t, x, 1)
		synctime.Pass(5 * time.Second)
		second := take(t, y, 1)
		require.ErrorIs(t, kit.Lost(t, first), lease.ErrMaxHold)
		require.NoError(t, second.Context().Err())
		kit.Release(t, take(t, y, 1))
		require.ErrorIs(t, kit.Lost(t, second), lease.ErrMaxHold)
		kit.Release(t, take(t, y, 2))
	})
}

// Both hold, and one of them cannot reach the server any more: only its permits come back, at its lease's end.
func TestOfTwoHoldersOneLosesItsPermits(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		near, far := semaphores(t, kit.Dial(t, s), kit.Dial(t, s, kit.Over(d)), 5)
		living, cut := take(t, near, 2), take(t, far, 3)
		calls := queue(t, near, near, 4, 1)
		d.Refuse()
		d.Cut()
		gone := time.Now()
		require.ErrorIs(t, kit.Lost(t, cut), lease.ErrExpired)
		require.LessOrEqual(t, time.Since(gone), lease.DefaultLease)
		pending(t, calls...)
		kit.Eventually(t, "the permits of the lost hold to be free", func() bool {
			n, err := near.Available(t.Context())
			require.NoError(t, err)
			return n == 3
		})
		require.NoError(t, living.Context().Err())
		pending(t, calls...)
		kit.Release(t, living)
		large := calls[0].Value(t)
		kit.Release(t, calls[1].Value(t))
		kit.Release(t, large)
		d.Heal()
		kit.Release(t, take(t, far, 5))
		unused(t, near)
	})
}

func TestAHoldReleasedByForceIsTold(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		x, y := semaphores(t, a, b, 3, headwaiter.WithLease(2*time.Second))
		first := take(t, x, 2)
		second := take(t, x, 1)
		c := queue(t, y, y, 2)[0]
		_, err := y.ForceRelease(t.Context(), 0)
		require.ErrorIs(t, err, lease.ErrInvalid, "several hold")
		_, err = y.ForceRelease(t.Context(), first.Token()+second.Token())
		require.ErrorIs(t, err, lease.ErrNotHeld)
		freed, err := y.ForceRelease(t.Context(), first.Token())
		require.NoError(t, err)
		require.Equal(t, a.ID(), freed.Client)
		require.Equal(t, first.Token(), freed.Token)
		kit.Release(t, c.Value(t))
		require.ErrorIs(t, kit.Lost(t, first), lease.ErrForced)
		require.NoError(t, second.Context().Err(), "the other hold of the same client stands")
		_, err = y.ForceRelease(t.Context(), first.Token())
		require.ErrorIs(t, err, lease.ErrNotHeld)
		require.Regexp(t, `^semaphore: force release ".*": not held$`, err.Error())
		kit.Release(t, second)
		unused(t, x)
		available(t, x, 3)
	})
}

func TestCloseEndsWaitsAndGivesBackAllPermits(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		x, y := semaphores(t, kit.Dial(t, s), c, 9)
		mine := take(t, x, 2)
		held := []*lease.Lease{take(t, y, 3), take(t, y, 4)}
		calls := queue(t, y, y, 5, 1, 1)
		next := queue(t, x, x, 7)[0]
		require.NoError(t, c.Close(t.Context()))
		for _, call := range calls {
			require.ErrorIs(t, call.Err(t), lease.ErrClosed)
		}
		for _, l := range held {
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrClientClosed)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrClientClosed)
		}
		kit.Release(t, next.Value(t))
		require.NoError(t, mine.Context().Err())
		kit.Waiting(t, 0, x.Inspect)
		available(t, x, 7)
		_, err := y.Acquire(t.Context(), 1)
		require.EqualError(t, err, `semaphore: acquire "`+y.Name()+`": client closed`)
		require.ErrorIs(t, y.Resize(t.Context(), 3), lease.ErrClosed)
		_, err = y.Available(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		_, _, err = y.Drain(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
		kit.Release(t, mine)
		unused(t, x)
	})
}

func TestNoKeyIsLeftAboutAMinuteAfterTheLastUse(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 3)
		l := take(t, x, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		require.ErrorIs(t, ask(ctx, y, 3).Err(t), context.DeadlineExceeded)
		kit.Waiting(t, 0, x.Inspect)
		for _, key := range s.List("KEYS", "*{*") {
			left := s.Int("PTTL", key)
			require.Positive(t, left)
			require.LessOrEqual(t, time.Duration(left)*time.Millisecond, lease.DefaultLease+61*time.Second, key)
		}
		kit.Release(t, l)
		synctime.Pass(75 * time.Second)
		require.Empty(t, s.List("KEYS", "*{*"))
	})
}
