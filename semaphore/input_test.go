package semaphore_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

// readable asserts what an error is, and that it fits on a line and does nothing to a terminal.
func readable(t *testing.T, err, is error, contains string) {
	t.Helper()
	require.ErrorIs(t, err, is)
	require.ErrorContains(t, err, contains)
	require.Less(t, len(err.Error()), 400)
	require.Regexp(t, `^semaphore: [a-z ]+ ".*": \P{C}*$`, err.Error())
}

func TestNumbersThatNameNoPermitsAreRefusedBeforeRedis(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		s.ResetStats()
		good := semaphore.New(c, kit.Name(t), 3)
		for n, want := range map[int64]error{
			0: lease.ErrInvalid, -1: lease.ErrInvalid, math.MinInt64: lease.ErrInvalid,
			semaphore.MaxPermits + 1: lease.ErrTooLarge, math.MaxInt64: lease.ErrTooLarge,
		} {
			bad := semaphore.New(c, kit.Name(t), n)
			_, err := bad.Acquire(t.Context(), 1)
			readable(t, err, want, "a semaphore of")
			_, err = bad.TryAcquire(t.Context(), 1)
			readable(t, err, want, "a semaphore of")
			_, _, err = bad.Drain(t.Context())
			readable(t, err, want, "a semaphore of")
			_, err = bad.Available(t.Context())
			readable(t, err, want, "a semaphore of")
			_, err = bad.Inspect(t.Context())
			readable(t, err, want, "a semaphore of")
			readable(t, bad.Resize(t.Context(), 2), want, "a semaphore of")
			readable(t, good.Resize(t.Context(), n), want, "a semaphore of")
			_, err = good.Acquire(t.Context(), n)
			readable(t, err, want, "a request of")
			_, err = good.TryAcquire(t.Context(), n)
			readable(t, err, want, "a request of")
		}
		require.Empty(t, kit.Scripts(s))
		require.Zero(t, len(s.List("KEYS", "*{*")))
	})
}

func TestMoreThanThereAreIsRefusedAtOnce(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		x, y := semaphores(t, a, b, 3)
		for range 2 { // Also by a semaphore that nobody has used.
			_, err := x.Acquire(t.Context(), 4)
			readable(t, err, lease.ErrTooLarge, "4 permits of 3")
			_, err = y.TryAcquire(t.Context(), semaphore.MaxPermits)
			readable(t, err, lease.ErrTooLarge, "9007199254740991 permits of 3")
			l := take(t, x, 3)
			_, err = y.Acquire(t.Context(), 4)
			readable(t, err, lease.ErrTooLarge, "4 permits of 3")
			kit.Waiting(t, 0, x.Inspect)
			kit.Release(t, l)
		}
		available(t, x, 3)
	})
}

func TestAsManyPermitsAsCanBeCountedAreCountedExactly(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		const most = semaphore.MaxPermits
		x, y := semaphores(t, a, b, most)
		available(t, x, most)
		large := take(t, x, most-3)
		available(t, y, 3)
		one := take(t, y, 1)
		available(t, y, 2)
		refused(t, y, 3)
		calls := queue(t, x, y, 3, most)
		kit.Release(t, one)
		three := calls[0].Value(t)
		available(t, x, 0)
		pending(t, calls[1])
		kit.Release(t, three)
		kit.Release(t, large)
		all := calls[1].Value(t)
		available(t, x, 0)
		refused(t, x, 1)
		require.NoError(t, x.Resize(t.Context(), 1))
		available(t, x, 1-most)
		require.NoError(t, x.Resize(t.Context(), most))
		kit.Release(t, all)
		all, n, err := y.Drain(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, most, n)
		kit.Release(t, all)
		available(t, x, most)
	})
}

func TestAnotherLimitIsAMismatch(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		x := semaphore.New(a, kit.Name(t), 3)
		y := semaphore.New(b, kit.Name(t), 4)
		l := take(t, x, 1)
		for range 2 {
			_, err := y.Acquire(t.Context(), 1)
			readable(t, err, lease.ErrMismatch, "made with 3")
			_, err = y.TryAcquire(t.Context(), 1)
			readable(t, err, lease.ErrMismatch, "made with 3")
			_, _, err = y.Drain(t.Context())
			readable(t, err, lease.ErrMismatch, "made with 3")
			readable(t, y.Resize(t.Context(), 9), lease.ErrMismatch, "made with 3")
			info, err := y.Inspect(t.Context())
			require.NoError(t, err, "who looks may see what it is")
			require.EqualValues(t, 3, info.Limit)
			if l != nil {
				kit.Release(t, l)
				l = nil
			}
		}
		available(t, x, 3)
	})
}

func TestUnusableNamesAndTimesAreRefusedBeforeRedis(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		s.ResetStats()
		for _, bad := range []struct {
			s        *semaphore.Semaphore
			is       error
			contains string
		}{
			{semaphore.New(c, "", 1), lease.ErrInvalid, "empty"},
			{semaphore.New(c, "}x", 1), lease.ErrInvalid, "put something before it"},
			{semaphore.New(c, "a\x1b[2Jb", 1), lease.ErrInvalid, "encode"},
			{semaphore.New(c, strings.Repeat("x", lease.MaxName+1), 1), lease.ErrTooLarge, "use a hash"},
			{semaphore.New(c, "n", 1, headwaiter.WithLease(0)), lease.ErrInvalid, "must be from"},
			{semaphore.New(c, "n", 1, headwaiter.WithLease(-time.Second), semaphore.WithoutRenewal()), lease.ErrInvalid, "must be from"},
			{semaphore.New(c, "n", 1, headwaiter.WithMaxHold(-1)), lease.ErrInvalid, "maximum hold"},
			{semaphore.New(c, "n", 1, headwaiter.WithPriority(math.MaxInt)), lease.ErrTooLarge, "priority"},
		} {
			_, err := bad.s.Acquire(t.Context(), 1)
			readable(t, err, bad.is, bad.contains)
			_, err = bad.s.TryAcquire(t.Context(), 1)
			readable(t, err, bad.is, bad.contains)
			_, _, err = bad.s.Drain(t.Context())
			readable(t, err, bad.is, bad.contains)
		}
		require.Empty(t, kit.Scripts(s))
		require.Zero(t, len(s.List("KEYS", "*{*")))
	})
}
