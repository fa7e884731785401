package semaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

// The requests are held back on their way until nobody waits for them any more.
func TestRequestsThatComeLateTakeNothing(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		near, far := semaphores(t, kit.Dial(t, s), kit.Dial(t, s, kit.Over(d)), 5)
		kit.Release(t, take(t, far, 1))
		for _, away := range []time.Duration{500 * time.Millisecond, 10 * time.Second} {
			for _, call := range []func(context.Context) error{
				func(ctx context.Context) error { _, err := far.Acquire(ctx, 3); return err },
				func(ctx context.Context) error { _, err := far.TryAcquire(ctx, 2); return err },
				func(ctx context.Context) error { _, _, err := far.Drain(ctx); return err },
			} {
				d.Freeze(faults.ToServer)
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				require.ErrorIs(t, call(ctx), context.DeadlineExceeded)
				cancel()
				synctime.Pass(away)
				d.Heal()
				synctime.Pass(10 * time.Second) // More than any of them may still run.
				available(t, near, 5)
				unused(t, near)
			}
		}
		kit.Release(t, take(t, far, 5))
	})
}

// A resize that was not answered says that it may have been done.
func TestAResizeThatIsNotAnsweredSaysSo(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		near, far := semaphores(t, kit.Dial(t, s), kit.Dial(t, s, kit.Over(d)), 5)
		kit.Release(t, take(t, far, 1))
		d.Freeze(faults.ToServer)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := far.Resize(ctx, 7)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, lease.ErrOutcomeUnknown)
		require.Regexp(t, `^semaphore: resize ".*": `, err.Error())
		synctime.Pass(20 * time.Second)
		d.Heal()
		synctime.Pass(10 * time.Second)
		available(t, near, 5) // R7: it came too late to do anything.
		require.NoError(t, far.Resize(t.Context(), 7))
		available(t, near, 7)
		kit.Release(t, take(t, semaphore.New(kit.Dial(t, s), near.Name(), 7), 7))
	})
}
