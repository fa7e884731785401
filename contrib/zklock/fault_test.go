package zklock_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

// The clients of a server that forgot have seen more than it knows, so it talks to none of them about their sessions.
func TestWhatEveryAdapterOutlives(t *testing.T) {
	own := func(t testing.TB) enginetest.Rig { return rig(t, zktest.Own(t)) }
	enginetest.Outlive(t, own, func(t testing.TB) enginetest.Rig { return rig(t, zktest.Shared(t)) }, zklock.MinLease)
}

func TestAHolderWhoseSessionExpiresIsTold(t *testing.T) {
	s := shared(t)
	r := zktest.NewRelay(t, s)
	a, b, root := dial(t, s, through(r)), dial(t, s), admin(t, s)
	m, n := zklock.New(a, "one"), zklock.New(b, "one")
	l, waits := locked(t, m), queued(t, n, 1)
	s.Expire(t, r.Session())
	next := waits.Value(t)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForgotten)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrForgotten)
	require.NoError(t, next.Context().Err(), "a release after the loss has freed what the next holds")
	kit.Release(t, next)
	kit.Release(t, locked(t, m)) // In a new session.
	empty(t, root)
}

func TestAWaitWhoseSessionExpiresQueuesAgain(t *testing.T) {
	s := shared(t)
	r := zktest.NewRelay(t, s)
	a, b, c, root := dial(t, s), dial(t, s, through(r)), dial(t, s), admin(t, s)
	m := zklock.New(a, "one")
	l := locked(t, m)
	first, second := queued(t, zklock.New(b, "one"), 1), queued(t, zklock.New(c, "one"), 2)
	before := queue(t, m)
	s.Expire(t, r.Session())
	kit.Eventually(t, "the call to be at the end of the queue", func() bool {
		now := queue(t, m)
		return len(now) == 2 && now[0] == before[1] && now[1] != before[0]
	})
	next := kit.Next(t, l, second)
	require.False(t, first.Returned())
	kit.PassOn(t, next, first)
	empty(t, root)
}

// queue is who waits.
func queue(t *testing.T, m *zklock.Mutex) []lease.Waiter {
	t.Helper()
	return kit.Got(m.Inspect(t.Context()))(t).Queue
}

// The node of a call that waits is removed by hand: with its place, but not the call.
func TestAWaitWhoseNodeIsRemovedQueuesAgain(t *testing.T) {
	s := shared(t)
	a, b, root := dial(t, s), dial(t, s), admin(t, s)
	m := zklock.New(a, "one")
	l, waits := locked(t, m), queued(t, zklock.New(b, "one"), 1)
	before := queue(t, m)[0]
	delete1(t, root, before.Ticket)
	kit.Eventually(t, "the call to be back", func() bool {
		now := queue(t, m)
		return len(now) == 1 && now[0] != before
	})
	require.False(t, waits.Returned())
	kit.PassOn(t, l, waits)
}

// The network is away for longer than the hold lasts. The holder knows before the server ends its session, which is
// when the next holds.
func TestAHolderKnowsBeforeTheNextHolds(t *testing.T) {
	s := shared(t)
	r := zktest.NewRelay(t, s)
	a, b := dial(t, s, through(r)), dial(t, s)
	m, n := zklock.New(a, "one"), zklock.New(b, "one")
	for _, away := range []func(){func() { r.Freeze() }, r.Away} {
		l, waits := locked(t, m), queued(t, n, 1)
		away()
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		require.False(t, waits.Returned())
		next := waits.Value(t)
		r.Heal()
		kit.Release(t, next)
		kit.Release(t, locked(t, m)) // In a new session.
	}
}

// A holder that has been there for a beat is told of force at once.
func TestForceIsToldAtOnce(t *testing.T) {
	t.Parallel()
	s := zktest.Own(t)
	long := 3 * kit.Patience // Its beats come too late for this test.
	m, n := zklock.New(dial(t, s), "one"), zklock.New(dial(t, s, lasting(long)), "two")
	l, other := locked(t, m), locked(t, n)
	kit.Eventually(t, "the node to be watched", func() bool { return kit.Got(s.Watches())(t) == 1 })
	info := kit.Got(m.Inspect(t.Context()))(t)
	require.Contains(t, info.Holder.Who, "test@")
	require.Equal(t, l.Token(), info.Token)
	require.ErrorIs(t, kit.Err(m.ForceRelease(t.Context(), l.Token()+1)), lease.ErrNotHeld)
	require.Equal(t, info.Holder.Ticket, kit.Got(m.ForceRelease(t.Context(), l.Token()))(t).Ticket)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrForced)
	require.ErrorIs(t, kit.Err(m.ForceRelease(t.Context(), 0)), lease.ErrNotHeld)
	// One who has not is told by the release.
	require.NoError(t, kit.Err(n.ForceRelease(t.Context(), 0)))
	require.ErrorIs(t, other.Release(t.Context()), lease.ErrForced)
}

func TestDroppedConnectionsCostNothing(t *testing.T) {
	s := shared(t)
	holders, waiters := zktest.NewRelay(t, s), zktest.NewRelay(t, s)
	m := zklock.New(dial(t, s, through(holders), lasting(kit.Patience)), "one")
	n := zklock.New(dial(t, s, through(waiters), lasting(kit.Patience)), "one")
	rig(t, s).DroppedConnectionsCostNothing(t, m, n, holders.Cut, waiters.Cut)
}

// The server that the client talks to hangs. There is another, and time to find it.
func TestAHoldOutlivesAServerThatHangs(t *testing.T) {
	s := shared(t)
	ways := []*zktest.Relay{zktest.NewRelay(t, s), zktest.NewRelay(t, s)}
	m := zklock.New(dial(t, s, lasting(2*enginetest.Short), func(o *zklock.Options) {
		o.Servers = []string{ways[0].Addr(), ways[1].Addr()}
	}), "one")
	l := locked(t, m)
	used, other := ways[0], ways[1]
	if used.Connections() == 0 {
		used, other = other, used
	}
	used.Freeze()
	kit.Eventually(t, "the client to be with the other server", func() bool { return other.Connections() == 1 })
	kit.Eventually(t, "a beat", func() bool { return other.Count(zktest.Sync) > 1 })
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
}

// The library waits for a second for the answer to its farewell, or longer. Of some attempts one must be quicker, on
// whatever machine.
func TestCloseEndsWithItsContextThoughTheServerIsSilent(t *testing.T) {
	s := zktest.Shared(t)
	for name, prepare := range map[string]func(t *testing.T, m *zklock.Mutex, r *zktest.Relay){
		"before there is a session": func(t *testing.T, m *zklock.Mutex, r *zktest.Relay) {
			r.Freeze()
			call := kit.Lock(t.Context(), m.Lock)
			kit.Eventually(t, "a connection", func() bool { return r.Connections() > 0 })
			t.Cleanup(func() { require.Error(t, call.Err(t)) })
		},
		"in a session": func(t *testing.T, m *zklock.Mutex, r *zktest.Relay) {
			locked(t, m)
			r.Freeze()
		},
		"between two connections": func(t *testing.T, m *zklock.Mutex, r *zktest.Relay) {
			locked(t, m)
			r.Freeze()
			r.Cut()
			kit.Eventually(t, "another connection", func() bool { return r.Connections() > 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			const attempts, limit = 5, 50 * time.Millisecond
			best := time.Hour
			for range attempts {
				r := zktest.NewRelay(t, s)
				c := dial(t, s, through(r), lasting(kit.Patience))
				prepare(t, zklock.New(c, rand.Text()), r)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				begun := time.Now()
				_ = c.Shutdown(ctx)
				best = min(best, time.Since(begun))
				cancel()
			}
			require.Less(t, best, time.Second)
		})
	}
}

func TestLostAnswersAreOneHold(t *testing.T) {
	s := shared(t)
	r := zktest.NewRelay(t, s)
	long := lasting(kit.Patience)
	m, n, root := zklock.New(dial(t, s, through(r), long), "one"), zklock.New(dial(t, s, long), "one"), admin(t, s)
	for _, lock := range []func(context.Context) (*lease.Lease, error){m.Lock, m.TryLock} {
		r.Lose(zktest.Create, 1)
		syncs := r.Count(zktest.Sync)
		held := kit.Lock(t.Context(), lock).Value(t)
		require.Equal(t, 1, r.Lost())
		require.Len(t, nodes(t, root), 1)
		require.Greater(t, r.Count(zktest.Sync), syncs, "at a server that lags the node is not to be seen yet")
		require.Equal(t, kit.Got(n.Inspect(t.Context()))(t).Token, held.Token())
		r.Lose(zktest.Delete, 1)
		require.NoError(t, held.Release(t.Context()), "the first request released it")
		require.Equal(t, 1, r.Lost())
		require.Empty(t, nodes(t, root))
	}
	// And for a waiter: the first attempt counts for the place, and no watch is lost.
	for _, opcode := range []int32{zktest.Create, zktest.GetChildren, zktest.GetData} {
		held := locked(t, n)
		r.Lose(opcode, 2)
		first := kit.Lock(t.Context(), m.Lock)
		kit.Eventually(t, "an answer to be lost", func() bool { return r.Lost() > 0 })
		kit.Waiting(t, 1, n.Inspect)
		second := queued(t, n, 2)
		r.Lose(opcode, 0)
		next := kit.Next(t, held, first)
		require.False(t, second.Returned())
		kit.PassOn(t, next, second)
	}
	empty(t, root)
}

// A call gives up while nobody knows whether its node was made. It was.
func TestANodeWhoseAnswerWasLostIsRemovedWhenItsCallHasGone(t *testing.T) {
	s := shared(t)
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
	kit.Cancel(t, cancel, call)
	require.Len(t, nodes(t, root), 2, "there should be a node to remove")
	r.Heal()
	kit.Waiting(t, 0, n.Inspect)
	kit.Release(t, held)
	kit.Release(t, locked(t, m)) // In the same session: it was not for its end that the node went.
	empty(t, root)
}

// A release that cannot be sent says so, and is done later.
func TestAReleaseThatIsGivenUpIsDoneInTheEnd(t *testing.T) {
	s := shared(t)
	r := zktest.NewRelay(t, s)
	long := lasting(kit.Patience)
	m, n := zklock.New(dial(t, s, through(r), long), "one"), zklock.New(dial(t, s, long), "one")
	l, waits := locked(t, m), queued(t, n, 1)
	r.Away()
	ctx, cancel := context.WithCancel(t.Context())
	release := kit.Run(func() error { return l.Release(ctx) })
	cancel()
	kit.Fails(t, release.Err(t), lease.ErrUnconfirmed, context.Canceled)
	require.False(t, waits.Returned())
	r.Heal()
	kit.Release(t, waits.Value(t))
	kit.Release(t, locked(t, m))
}
