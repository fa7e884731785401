package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func TestHoldsAndPlacesOutliveARestart(t *testing.T) {
	t.Parallel()
	rig(t, etcdtest.Own(t)).HoldsAndPlacesOutliveARestart(t)
}

func TestAServerThatForgotIsToldOf(t *testing.T) {
	t.Parallel()
	rig(t, etcdtest.Own(t)).AServerThatForgotIsToldOf(t, enginetest.Short)
}

func TestAHolderWhoseLeaseIsRevokedIsTold(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	a, b, root := dial(t, s), dial(t, s), admin(t, s)
	m, n := etcdlock.New(a, "one"), etcdlock.New(b, "one")
	l := locked(t, m)
	waits := queued(t, n, 1)
	revoke(t, root, 0)
	next := waits.Value(t)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForgotten)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrForgotten)
	require.NoError(t, next.Context().Err(), "a release after the loss has freed what the next holds")
	kit.Release(t, next)
	kit.Release(t, locked(t, m)) // With a new etcd lease.
	empty(t, root)
}

func TestAWaitWhoseLeaseDiedQueuesAgain(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	a, b, c, root := dial(t, s), dial(t, s), dial(t, s), admin(t, s)
	l := locked(t, etcdlock.New(a, "one"))
	first := queued(t, etcdlock.New(b, "one"), 1)
	second := queued(t, etcdlock.New(c, "one"), 2)
	revoke(t, root, 1)
	kit.Eventually(t, "the call to be at the end of the queue", func() bool {
		found := keys(t, root)
		return found.Count == 3 && found.Kvs[2].CreateRevision > int64(l.Token())+3
	})
	kit.Release(t, l)
	next := second.Value(t)
	require.False(t, first.Returned())
	kit.Release(t, next)
	kit.Release(t, first.Value(t))
	empty(t, root)
}

// The key of a call that waits is removed by hand: with its place, but not the call.
func TestAWaitWhoseKeyIsRemovedQueuesAgain(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	a, b, root := dial(t, s), dial(t, s), admin(t, s)
	l := locked(t, etcdlock.New(a, "one"))
	waits := queued(t, etcdlock.New(b, "one"), 1)
	_, err := root.Delete(t.Context(), string(keys(t, root).Kvs[1].Key))
	require.NoError(t, err)
	kit.Eventually(t, "the call to be back", func() bool { return keys(t, root).Count == 2 })
	require.False(t, waits.Returned())
	kit.Release(t, l)
	kit.Release(t, waits.Value(t))
}

func TestAHoldEndsByTheOwnClock(t *testing.T) {
	t.Parallel()
	rig(t, etcdtest.Own(t)).AHoldEndsByTheOwnClock(t)
}

func TestNobodyWaitsLongerThanTheContextForAServerThatHangs(t *testing.T) {
	t.Parallel()
	rig(t, etcdtest.Own(t)).NobodyWaitsLongerThanTheContext(t)
}

func TestClosingEndsThoughTheServerIsAway(t *testing.T) {
	t.Parallel()
	enginetest.ClosingEndsThoughTheServerIsAway(t, rig(t, etcdtest.Own(t)), rig(t, etcdtest.Own(t)))
}

func TestAHoldEndsAtItsLimits(t *testing.T) {
	t.Parallel()
	rig(t, etcdtest.Shared(t)).AHoldEndsAtItsLimits(t)
}

func TestDroppedConnectionsCostNothing(t *testing.T) {
	t.Parallel()
	s := etcdtest.Shared(t)
	var holders, waiters enginetest.Wires
	through := func(w *enginetest.Wires) func(*etcdlock.Options) {
		return func(o *etcdlock.Options) { o.Etcd, o.Lease = wired(w, s), kit.Patience }
	}
	m := etcdlock.New(dial(t, s, through(&holders)), "one")
	n := etcdlock.New(dial(t, s, through(&waiters)), "one")
	rig(t, s).DroppedConnectionsCostNothing(t, m, n, holders.Reset, waiters.Reset)
}

func TestAHistoryInTroubleIsLinearizable(t *testing.T) {
	t.Parallel()
	rig(t, etcdtest.Own(t)).AHistoryInTrouble(t)
}
