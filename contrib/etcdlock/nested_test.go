package etcdlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// A request that can only be served when the hold that its context comes from has ended would wait for itself.
func TestARequestBesideItsOwnHoldThatIsTooLargeIsADeadlock(t *testing.T) {
	t.Parallel()
	c := dial(t, etcdtest.Shared(t))
	s, same := etcdlock.NewSemaphore(c, "one", 2), etcdlock.NewSemaphore(c, "one", 2)
	within := func(ctx context.Context, n int64) *kit.Call[*lease.Lease] {
		return kit.Lock(ctx, func(ctx context.Context) (*lease.Lease, error) { return same.Acquire(ctx, n) })
	}
	l := some(t, s, 1).Value(t)
	require.ErrorIs(t, within(l.Context(), 2).Err(t), lease.ErrDeadlock)
	require.ErrorIs(t, same.Do(l.Context(), 2, nil), lease.ErrDeadlock)
	_, err := same.TryAcquire(l.Context(), 2)
	require.ErrorIs(t, err, lease.ErrBusy)
	other := within(l.Context(), 1).Value(t)
	require.ErrorIs(t, within(other.Context(), 1).Err(t), lease.ErrDeadlock)
	kit.Release(t, l)
	kit.Release(t, within(other.Context(), 1).Value(t))
	kit.Release(t, other)
}
