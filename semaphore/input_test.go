package semaphore_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// readable asserts what an error is, and that it fits on a line and does nothing to a terminal.
func readable(t *testing.T, err, is error, contains string) {
	t.Helper()
	kit.Fails(t, err, is, contains)
	require.Less(t, len(err.Error()), 400)
	require.Regexp(t, `^semaphore: [a-z ]+ ".*": \P{C}*$`, err.Error())
}

func TestRequestsForNoPermitsAreRefusedBeforeRedis(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		s.ResetStats()
		x := semaphore.New(c, kit.Name(t), 3)
		for n, want := range map[int64]error{
			0: lease.ErrInvalid, -1: lease.ErrInvalid, math.MinInt64: lease.ErrInvalid,
			semaphore.MaxPermits + 1: lease.ErrTooLarge, math.MaxInt64: lease.ErrTooLarge,
		} {
			readable(t, x.Resize(t.Context(), n), want, "a semaphore of")
			readable(t, kit.Err(x.Acquire(t.Context(), n)), want, "a request of")
			readable(t, kit.Err(x.TryAcquire(t.Context(), n)), want, "a request of")
		}
		require.Empty(t, kit.Scripts(s))
		require.Zero(t, len(s.List("KEYS", "*{*")))
	})
}

func TestMoreThanThereAreIsRefusedAtOnce(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		x, y := semaphores(t, a, b, 3)
		for range 2 { // Also by a semaphore that nobody has used.
			readable(t, kit.Err(x.Acquire(t.Context(), 4)), lease.ErrTooLarge, "4 permits of 3")
			readable(t, kit.Err(y.TryAcquire(t.Context(), semaphore.MaxPermits)), lease.ErrTooLarge, "9007199254740991 permits of 3")
			l := take(t, x, 3)
			readable(t, kit.Err(y.Acquire(t.Context(), 4)), lease.ErrTooLarge, "4 permits of 3")
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
		three := kit.Next(t, one, calls[0])
		available(t, x, 0)
		pending(t, calls[1])
		kit.Release(t, three, large)
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

// queue begins calls one after the other, by two clients in turn.
func queue(t testing.TB, a, b *semaphore.Semaphore, wants ...int64) []*kit.Call[*lease.Lease] {
	t.Helper()
	calls := make([]*kit.Call[*lease.Lease], len(wants))
	info := kit.Got(a.Inspect(context.Background()))(t)
	for i, n := range wants {
		calls[i] = ask(context.Background(), []*semaphore.Semaphore{a, b}[i%2], n)
		kit.Waiting(t, info.Waiting+i+1, a.Inspect)
	}
	return calls
}

// pending asserts that none of the calls has returned.
func pending(t testing.TB, calls ...*kit.Call[*lease.Lease]) {
	t.Helper()
	for i, c := range calls {
		require.False(t, c.Returned(), "call %d", i)
	}
}

// A request that can only be served when the holds that its context comes from have ended would wait for itself.
func TestARequestBesideItsOwnHoldsThatIsTooLargeIsADeadlock(t *testing.T) {
	kit.One(t, func(t *testing.T, _ redistest.Backend, c *headwaiter.Client) {
		x, y := semaphores(t, c, c, 3)
		first := take(t, x, 1)
		second := ask(first.Context(), y, 1).Value(t)
		for _, ctx := range []context.Context{second.Context(), second.Bind(t.Context())} {
			readable(t, ask(ctx, x, 2).Err(t), lease.ErrDeadlock, "2 permits of 3 are asked for in addition to 2")
			readable(t, x.Do(ctx, 3, nil), lease.ErrDeadlock, "3 permits of 3 are asked for in addition to 2")
			readable(t, ask(ctx, x, 4).Err(t), lease.ErrTooLarge, "4 permits of 3")
			readable(t, kit.Err(x.TryAcquire(ctx, 2)), lease.ErrBusy, "")
			kit.Release(t, ask(ctx, x, 1).Value(t))
		}
		kit.Waiting(t, 0, x.Inspect)

		rest, n, err := x.Drain(second.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		readable(t, ask(rest.Context(), x, 1).Err(t), lease.ErrDeadlock, "1 permits of 3 are asked for in addition to 3")
		kit.Release(t, first)
		kit.Release(t, ask(rest.Context(), x, 1).Value(t)) // That one has ended, and what it had is free.
		kit.Release(t, second, rest)
		unused(t, x)
	})
}

func TestPermitsAreKnownToRequestsFromWithinHoweverTheyWereGot(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		x := semaphore.New(kit.Dial(t, s), kit.Name(t), 2)
		for how, get := range map[string]func(ctx context.Context) (*lease.Lease, error){
			"Acquire":    func(ctx context.Context) (*lease.Lease, error) { return x.Acquire(ctx, 1) },
			"TryAcquire": func(ctx context.Context) (*lease.Lease, error) { return x.TryAcquire(ctx, 1) },
			"Drain": func(ctx context.Context) (*lease.Lease, error) {
				l, _, err := x.Drain(ctx)
				return l, err
			},
		} {
			l, err := get(t.Context())
			require.NoError(t, err, how)
			ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
			_, err = x.Acquire(ctx, 2)
			cancel()
			require.ErrorIs(t, err, lease.ErrDeadlock, how)
			kit.Release(t, l)
		}
	})
}

// What others give back, or a Resize adds, is waited for.
func TestARequestBesideItsOwnHoldsThatFitsWaits(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		x, y := semaphores(t, a, b, 3)
		own, other := take(t, x, 1), take(t, y, 1)
		c := ask(own.Context(), x, 2)
		kit.Waiting(t, 1, x.Inspect)
		kit.PassOn(t, other, c)

		require.NoError(t, y.Resize(t.Context(), 4))
		other = take(t, y, 2)
		c = ask(own.Context(), x, 3)
		kit.Waiting(t, 1, x.Inspect)
		kit.PassOn(t, other, c)
		kit.Release(t, own)
		unused(t, x)
	})
}

// Holds of another client, of another name, and of a name in another client have nothing to do with it.
func TestOnlyHoldsOfTheSameClientAndNameCount(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, c, other *headwaiter.Client) {
		x, y := semaphores(t, c, other, 2)
		elsewhere := semaphore.New(c, kit.Name(t)+":other", 2)
		outer := take(t, elsewhere, 2)
		l := ask(outer.Context(), y, 1).Value(t)
		waiting := ask(context.WithoutCancel(l.Context()), x, 2)
		kit.Waiting(t, 1, x.Inspect)
		kit.PassOn(t, l, waiting)
		kit.Release(t, outer)
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

func TestAHoldReleasedByForceIsTold(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		x, y := semaphores(t, a, b, 3, headwaiter.WithLease(2*time.Second))
		first, second := take(t, x, 2), take(t, x, 1)
		c := queue(t, y, y, 2)[0]
		require.ErrorIs(t, kit.Err(y.ForceRelease(t.Context(), 0)), lease.ErrInvalid, "several hold")
		require.ErrorIs(t, kit.Err(y.ForceRelease(t.Context(), first.Token()+second.Token())), lease.ErrNotHeld)
		freed := kit.Got(y.ForceRelease(t.Context(), first.Token()))(t)
		require.Equal(t, a.ID(), freed.Client)
		require.Equal(t, first.Token(), freed.Token)
		kit.Release(t, c.Value(t))
		require.ErrorIs(t, kit.Lost(t, first), lease.ErrForced)
		require.NoError(t, second.Context().Err(), "the other hold of the same client stands")
		_, err := y.ForceRelease(t.Context(), first.Token())
		require.ErrorIs(t, err, lease.ErrNotHeld)
		require.Regexp(t, `^semaphore: force release ".*": not held$`, err.Error())
		kit.Release(t, second)
		unused(t, x)
		available(t, x, 3)
	})
}

// Whichever of the holds ends last, and whether somebody waits.
func TestKeysAreNotKeptForALeaseThatIsOver(t *testing.T) {
	for name, waits := range map[string]bool{"nobody waits": false, "somebody waits": true} {
		kit.EachOf(t, name, func(t *testing.T, s redistest.Backend) {
			c := kit.Dial(t, s)
			short := semaphore.New(c, kit.Name(t), 2)
			var held []*lease.Lease
			for _, m := range []*semaphore.Semaphore{semaphore.New(c, kit.Name(t), 2, headwaiter.WithLease(24*time.Hour)), short} {
				held = append(held, kit.Got(m.Acquire(t.Context(), 1))(t))
			}
			require.Greater(t, kit.Lives(t, s, lua.Semaphore.Keys("headwaiter", kit.Name(t))), 23*time.Hour)
			if waits {
				next := kit.Go(func() (*lease.Lease, error) { return short.Acquire(t.Context(), 1) })
				kit.Waiting(t, 1, short.Inspect)
				held[0] = kit.Next(t, held[0], next)
				require.Less(t, kit.Lives(t, s, lua.Semaphore.Keys("headwaiter", kit.Name(t))), 3*time.Minute)
			}
			kit.Release(t, held...)
			require.Less(t, kit.Lives(t, s, lua.Semaphore.Keys("headwaiter", kit.Name(t))), 2*time.Minute)
		})
	}
}

// What a release hands on is above all that its client has seen, and the keys live for that token: the next is above it.
func TestKeysLiveForATokenThatWasHandedOn(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, s *redistest.Embedded, a, b *headwaiter.Client) {
		x, y := semaphores(t, a, b, 1)
		l := take(t, x, 1)
		next := ask(t.Context(), y, 1)
		kit.Waiting(t, 1, x.Inspect)
		waitqueue.Above((*waitqueue.Client)(a), uint64(kit.ServerTime(s)+time.Hour.Microseconds()))
		kit.Release(t, l)
		require.NoError(t, a.Shutdown(t.Context())) // It does not look after what it has handed on.
		n := next.Value(t)
		kit.Release(t, n)
		require.NoError(t, b.Shutdown(t.Context()))
		synctime.Pass(3 * time.Minute)
		l = kit.Got(semaphore.New(kit.Dial(t, s), kit.Name(t), 1).TryAcquire(t.Context(), 1))(t)
		require.Greater(t, l.Token(), n.Token())
		kit.Release(t, l)
	})
}
