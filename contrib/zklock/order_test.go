package zklock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestThirtyTwoClientsHoldInOrder(t *testing.T) {
	t.Parallel()
	rig(t, zktest.Shared(t)).ClientsHoldInOrder(t)
}

// On a server of its own, whose watches and connections are those of the test.
func TestNothingStaysAfterAThousandCyclesWithCancels(t *testing.T) {
	t.Parallel()
	s := zktest.Own(t)
	r := rig(t, s)
	a, b := r.Dial(t, kit.Patience), r.Dial(t, kit.Patience)
	r.CyclesWithCancels(t, a, b)
	watches, err := s.Watches()
	require.NoError(t, err)
	require.Zero(t, watches)
	require.Equal(t, 3, s.Connections())
	require.NoError(t, a.Close(t.Context()))
	require.NoError(t, b.Close(t.Context()))
	kit.Eventually(t, "one connection to be left, that of the test", func() bool { return s.Connections() == 1 })
}

func TestAWaiterThatLeavesFromTheMiddleLetsNobodyIn(t *testing.T) {
	t.Parallel()
	rig(t, zktest.Shared(t)).AWaiterThatLeavesFromTheMiddleLetsNobodyIn(t)
}

// The token is not always asked for: where nothing else has happened it is that of the parent's last change.
func TestTokensAreWhereTheNodesWereMade(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	root := admin(t, s)
	const clients, cycles = 6, 40
	var group sync.WaitGroup
	var last uint64
	for n := range clients {
		m := zklock.New(dial(t, s, lasting(kit.Patience)), "one")
		group.Go(func() {
			for i := range cycles {
				ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
				if (i+n)%5 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(i%7)*time.Millisecond)
				}
				l, err := m.Lock(ctx)
				cancel()
				if err != nil {
					continue
				}
				info, err := m.Inspect(t.Context())
				if err != nil || info.Token != l.Token() || info.Token <= last {
					t.Errorf("token %d after %d, the node was made at %d: %v", l.Token(), last, info.Token, err)
				}
				last = l.Token()
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	kit.All(t, &group)
	empty(t, root)
}

// Curator's locks and those of the library stand in the same line.
func TestOtherLibrariesStandInTheSameLine(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	m, root := zklock.New(dial(t, s), "one"), admin(t, s)
	other := zk.NewLock(root, one(t), zk.WorldACL(zk.PermAll))
	l := locked(t, m)
	theirs := kit.Run(other.Lock)
	kit.Waiting(t, 1, m.Inspect)
	next := queued(t, m, 2)
	require.False(t, theirs.Returned())
	kit.Release(t, l)
	require.NoError(t, theirs.Err(t))
	require.False(t, next.Returned())
	_, err := m.TryLock(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	require.NoError(t, other.Unlock())
	kit.Release(t, next.Value(t))
}

// Many calls that give up behind one holder leave one watch behind, at the server and in the library, not one each.
func TestCallsThatGiveUpShareAWatch(t *testing.T) {
	t.Parallel()
	s := zktest.Own(t)
	r := zktest.NewRelay(t, s)
	long := lasting(3 * kit.Patience) // So that the only watches are those of who waits.
	m, n := zklock.New(dial(t, s, long), "one"), zklock.New(dial(t, s, through(r), long), "one")
	l := locked(t, m)
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		call := kit.Lock(ctx, n.Lock)
		kit.Waiting(t, 1, m.Inspect)
		if i == 0 {
			kit.Eventually(t, "the watch to be asked for", func() bool { return r.Count(zktest.GetData) == 1 })
		}
		cancel()
		require.ErrorIs(t, call.Err(t), context.Canceled)
		kit.Waiting(t, 0, m.Inspect)
	}
	waits := kit.Lock(t.Context(), n.Lock)
	kit.Waiting(t, 1, m.Inspect)
	require.False(t, waits.Returned())
	kit.Release(t, l)
	kit.Release(t, waits.Value(t))
	require.Equal(t, 1, r.Count(zktest.GetData))
	kit.Eventually(t, "all watches to be gone", func() bool {
		watches, err := s.Watches()
		require.NoError(t, err)
		return watches == 0
	})
}

// A parent can count to 2³¹. Near that, calls wait until the line is empty, and the next parent counts anew.
func TestALineThatHasCountedItsMostBeginsAnew(t *testing.T) {
	s := zktest.Shared(t)
	defer zklock.SetMaxNumber(zklock.SetMaxNumber(5))
	m, n, root := zklock.New(dial(t, s), "one"), zklock.New(dial(t, s), "one"), admin(t, s)
	l := locked(t, m)
	for i := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		call := kit.Lock(ctx, n.Lock)
		kit.Waiting(t, 1, m.Inspect)
		require.True(t, strings.HasSuffix(queue(t, m)[0].Ticket, fmt.Sprintf("-lock-%010d", i+1)))
		cancel()
		require.ErrorIs(t, call.Err(t), context.Canceled)
		kit.Waiting(t, 0, m.Inspect)
	}
	waits := kit.Lock(t.Context(), n.Lock)
	kit.Eventually(t, "the call to have tried", func() bool {
		_, stat, err := root.Get(one(t))
		require.NoError(t, err)
		return stat.Cversion > 13 // Seven were made, and six removed.
	})
	_, err := n.TryLock(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	require.False(t, waits.Returned())
	kit.Release(t, l)
	next := waits.Value(t)
	require.Greater(t, next.Token(), l.Token())
	info, err := m.Inspect(t.Context())
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(info.Holder.Ticket, "-lock-0000000000"), info.Holder.Ticket)
	kit.Release(t, next)
	empty(t, root)
}

// The look at who is left comes with the release before, so the next one holds at the first word of its turn.
func TestNothingIsAskedBetweenAReleaseAndTheNextHold(t *testing.T) {
	t.Parallel()
	s := zktest.Shared(t)
	r := zktest.NewRelay(t, s)
	m, n := zklock.New(dial(t, s), "one"), zklock.New(dial(t, s, through(r), lasting(kit.Patience)), "one")
	looks := func() int { return r.Count(zktest.GetChildren) }
	held := locked(t, m)
	second, third := queued(t, m, 1), queued(t, n, 2)
	before := looks()
	kit.Release(t, held)
	held = second.Value(t)
	kit.Eventually(t, "the last to look", func() bool { return looks() > before })
	before = looks()
	kit.Release(t, held)
	kit.Release(t, third.Value(t))
	require.Equal(t, before, looks())
}
