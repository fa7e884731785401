package zklock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestHoldsAndPlacesOutliveARestart(t *testing.T) {
	t.Parallel()
	rig(t, zktest.Own(t)).HoldsAndPlacesOutliveARestart(t)
}

// Its clients have seen more than the server that comes back knows, so it talks to none of them about their sessions.
func TestAServerThatForgotIsToldOf(t *testing.T) {
	t.Parallel()
	rig(t, zktest.Own(t)).AServerThatForgotIsToldOf(t, zklock.MinLease)
}

func TestAHolderWhoseSessionExpiresIsTold(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	r := zktest.NewRelay(t, s)
	a, b, root := dial(t, s, through(r)), dial(t, s), admin(t, s)
	m, n := zklock.New(a, "one"), zklock.New(b, "one")
	l := locked(t, m)
	waits := queued(t, n, 1)
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
	t.Parallel()
	s := zktest.Shared(t)
	r := zktest.NewRelay(t, s)
	a, b, c, root := dial(t, s), dial(t, s, through(r)), dial(t, s), admin(t, s)
	m := zklock.New(a, "one")
	l := locked(t, m)
	first := queued(t, zklock.New(b, "one"), 1)
	second := queued(t, zklock.New(c, "one"), 2)
	before := queue(t, m)
	s.Expire(t, r.Session())
	kit.Eventually(t, "the call to be at the end of the queue", func() bool {
		now := queue(t, m)
		return len(now) == 2 && now[0] == before[1] && now[1] != before[0]
	})
	kit.Release(t, l)
	next := second.Value(t)
	require.False(t, first.Returned())
	kit.Release(t, next)
	kit.Release(t, first.Value(t))
	empty(t, root)
}

// queue is who waits.
func queue(t *testing.T, m *zklock.Mutex) []lease.Waiter {
	t.Helper()
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	return info.Queue
}

// The node of a call that waits is removed by hand: with its place, but not the call.
func TestAWaitWhoseNodeIsRemovedQueuesAgain(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	a, b, root := dial(t, s), dial(t, s), admin(t, s)
	m := zklock.New(a, "one")
	l := locked(t, m)
	waits := queued(t, zklock.New(b, "one"), 1)
	before := queue(t, m)[0]
	delete1(t, root, before.Ticket)
	kit.Eventually(t, "the call to be back", func() bool {
		now := queue(t, m)
		return len(now) == 1 && now[0] != before
	})
	require.False(t, waits.Returned())
	kit.Release(t, l)
	kit.Release(t, waits.Value(t))
}

func TestAHoldEndsByTheOwnClock(t *testing.T) {
	t.Parallel()
	rig(t, zktest.Own(t)).AHoldEndsByTheOwnClock(t)
}

// The network is away for longer than the hold lasts. The holder knows before the server ends its session, which is
// when the next holds.
func TestAHolderKnowsBeforeTheNextHolds(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	r := zktest.NewRelay(t, s)
	a, b := dial(t, s, through(r)), dial(t, s)
	m, n := zklock.New(a, "one"), zklock.New(b, "one")
	for _, away := range []func(){func() { r.Freeze() }, r.Away} {
		l := locked(t, m)
		waits := queued(t, n, 1)
		away()
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		require.False(t, waits.Returned())
		next := waits.Value(t)
		r.Heal()
		kit.Release(t, next)
		kit.Release(t, locked(t, m)) // In a new session.
	}
}

func TestNobodyWaitsLongerThanTheContextForAServerThatHangs(t *testing.T) {
	t.Parallel()
	rig(t, zktest.Own(t)).NobodyWaitsLongerThanTheContext(t)
}

func TestClosingEndsThoughTheServerIsAway(t *testing.T) {
	t.Parallel()
	enginetest.ClosingEndsThoughTheServerIsAway(t, rig(t, zktest.Own(t)), rig(t, zktest.Own(t)))
}

func TestAHoldEndsAtItsLimits(t *testing.T) {
	t.Parallel()
	rig(t, zktest.Shared(t)).AHoldEndsAtItsLimits(t)
}

// A holder that has been there for a beat is told of force at once.
func TestForceIsToldAtOnce(t *testing.T) {
	t.Parallel()
	s := zktest.Own(t)
	long := 3 * kit.Patience // Its beats come too late for this test.
	m, n := zklock.New(dial(t, s), "one"), zklock.New(dial(t, s, lasting(long)), "two")
	l, other := locked(t, m), locked(t, n)
	kit.Eventually(t, "the node to be watched", func() bool {
		watches, err := s.Watches()
		require.NoError(t, err)
		return watches == 1
	})
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	require.Contains(t, info.Holder.Who, "test@")
	require.Equal(t, l.Token(), info.Token)
	_, err = m.ForceRelease(t.Context(), l.Token()+1)
	require.ErrorIs(t, err, lease.ErrNotHeld)
	freed, err := m.ForceRelease(t.Context(), l.Token())
	require.NoError(t, err)
	require.Equal(t, info.Holder.Ticket, freed.Ticket)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrForced)
	_, err = m.ForceRelease(t.Context(), 0)
	require.ErrorIs(t, err, lease.ErrNotHeld)
	// One who has not is told by the release.
	_, err = n.ForceRelease(t.Context(), 0)
	require.NoError(t, err)
	require.ErrorIs(t, other.Release(t.Context()), lease.ErrForced)
}

func TestDroppedConnectionsCostNothing(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	holders, waiters := zktest.NewRelay(t, s), zktest.NewRelay(t, s)
	m := zklock.New(dial(t, s, through(holders), lasting(kit.Patience)), "one")
	n := zklock.New(dial(t, s, through(waiters), lasting(kit.Patience)), "one")
	rig(t, s).DroppedConnectionsCostNothing(t, m, n, holders.Cut, waiters.Cut)
}

// The server that the client talks to hangs. There is another, and time to find it.
func TestAHoldOutlivesAServerThatHangs(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
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

func TestAHistoryInTroubleIsLinearizable(t *testing.T) {
	t.Parallel()
	rig(t, zktest.Own(t)).AHistoryInTrouble(t)
}
