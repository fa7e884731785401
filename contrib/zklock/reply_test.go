package zklock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestLostAnswersAreOneHold(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	r := zktest.NewRelay(t, s)
	long := lasting(kit.Patience)
	m, n, root := zklock.New(dial(t, s, through(r), long), "one"), zklock.New(dial(t, s, long), "one"), admin(t, s)
	for _, lock := range []func(context.Context) (*lease.Lease, error){m.Lock, m.TryLock} {
		r.Lose(zktest.Create, 1)
		syncs := r.Count(zktest.Sync)
		held := kit.Lock(t.Context(), lock).Value(t)
		require.Equal(t, 1, r.Lost())
		require.Len(t, nodes(t, root), 1)
		require.Greater(t, r.Count(zktest.Sync), syncs, "at a server that is behind the node is not to be seen yet")
		info, err := n.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, info.Token, held.Token())
		r.Lose(zktest.Delete, 1)
		require.NoError(t, held.Release(t.Context()), "the first request released it")
		require.Equal(t, 1, r.Lost())
		require.Empty(t, nodes(t, root))
	}
	// And for one who waits: the place is that of the first attempt, and no watch is lost.
	for _, opcode := range []int32{zktest.Create, zktest.GetChildren, zktest.GetData} {
		held := locked(t, n)
		r.Lose(opcode, 2)
		first := kit.Lock(t.Context(), m.Lock)
		kit.Eventually(t, "an answer to be lost", func() bool { return r.Lost() > 0 })
		kit.Waiting(t, 1, n.Inspect)
		second := queued(t, n, 2)
		r.Lose(opcode, 0)
		kit.Release(t, held)
		next := first.Value(t)
		require.False(t, second.Returned())
		kit.Release(t, next)
		kit.Release(t, second.Value(t))
	}
	empty(t, root)
}

// A call gives up while nobody knows whether its node was made. It was.
func TestANodeWhoseAnswerWasLostIsRemovedWhenItsCallHasGone(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	r := zktest.NewRelay(t, s)
	long := lasting(kit.Patience)
	m, n, root := zklock.New(dial(t, s, through(r), long), "one"), zklock.New(dial(t, s, long), "one"), admin(t, s)
	kit.Release(t, locked(t, m)) // So that there is a session.
	held := locked(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	r.Lose(zktest.Create, 1)
	call := kit.Lock(ctx, m.Lock)
	kit.Eventually(t, "the answer to be lost", func() bool { return r.Lost() == 1 })
	r.Away()
	cancel()
	require.ErrorIs(t, call.Err(t), context.Canceled)
	require.Len(t, nodes(t, root), 2, "there should be a node to remove")
	r.Heal()
	kit.Waiting(t, 0, n.Inspect)
	kit.Release(t, held)
	kit.Release(t, locked(t, m)) // In the same session: it was not for its end that the node went.
	empty(t, root)
}

// A release that cannot be sent says so, and is done later.
func TestAReleaseThatIsGivenUpIsDoneInTheEnd(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	r := zktest.NewRelay(t, s)
	long := lasting(kit.Patience)
	m, n := zklock.New(dial(t, s, through(r), long), "one"), zklock.New(dial(t, s, long), "one")
	l := locked(t, m)
	waits := queued(t, n, 1)
	r.Away()
	ctx, cancel := context.WithCancel(t.Context())
	release := kit.Run(func() error { return l.Release(ctx) })
	cancel()
	err := release.Err(t)
	require.ErrorIs(t, err, lease.ErrUnconfirmed)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, waits.Returned())
	r.Heal()
	kit.Release(t, waits.Value(t))
	kit.Release(t, locked(t, m))
}
