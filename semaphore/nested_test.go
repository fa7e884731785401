package semaphore_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

// A request that can only be served when the holds that its context comes from have ended would wait for itself.
func TestARequestBesideItsOwnHoldsThatIsTooLargeIsADeadlock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		x, y := semaphores(t, c, c, 3)
		first := take(t, x, 1)
		second := ask(first.Context(), y, 1).Value(t)
		for _, ctx := range []context.Context{second.Context(), second.Bind(t.Context())} {
			readable(t, ask(ctx, x, 2).Err(t), lease.ErrDeadlock, "2 permits of 3 are asked for beside 2")
			readable(t, x.Do(ctx, 3, nil), lease.ErrDeadlock, "3 permits of 3 are asked for beside 2")
			readable(t, ask(ctx, x, 4).Err(t), lease.ErrTooLarge, "4 permits of 3")
			_, err := x.TryAcquire(ctx, 2)
			readable(t, err, lease.ErrBusy, "")
			kit.Release(t, ask(ctx, x, 1).Value(t))
		}
		kit.Waiting(t, 0, x.Inspect)

		rest, n, err := x.Drain(second.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		readable(t, ask(rest.Context(), x, 1).Err(t), lease.ErrDeadlock, "1 permits of 3 are asked for beside 3")
		kit.Release(t, first)
		kit.Release(t, ask(rest.Context(), x, 1).Value(t)) // That one has ended, and what it had is free.
		kit.Release(t, second)
		kit.Release(t, rest)
		unused(t, x)
	})
}

// What others give back, or a Resize adds, is waited for.
func TestARequestBesideItsOwnHoldsThatFitsWaits(t *testing.T) {
	kit.Pair(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		x, y := semaphores(t, a, b, 3)
		own, other := take(t, x, 1), take(t, y, 1)
		c := ask(own.Context(), x, 2)
		kit.Waiting(t, 1, x.Inspect)
		kit.Release(t, other)
		kit.Release(t, c.Value(t))

		require.NoError(t, y.Resize(t.Context(), 4))
		other = take(t, y, 2)
		c = ask(own.Context(), x, 3)
		kit.Waiting(t, 1, x.Inspect)
		kit.Release(t, other)
		kit.Release(t, c.Value(t))
		kit.Release(t, own)
		unused(t, x)
	})
}

// Holds of another client, of another name, and of a name in another client have nothing to do with it.
func TestOnlyHoldsOfTheSameClientAndNameCount(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c, other := kit.Dial(t, s), kit.Dial(t, s)
		x, y := semaphores(t, c, other, 2)
		elsewhere := semaphore.New(c, kit.Name(t)+":other", 2)
		outer := take(t, elsewhere, 2)
		l := ask(outer.Context(), y, 1).Value(t)
		waiting := ask(context.WithoutCancel(l.Context()), x, 2)
		kit.Waiting(t, 1, x.Inspect)
		kit.Release(t, l)
		kit.Release(t, waiting.Value(t))
		kit.Release(t, outer)
	})
}
