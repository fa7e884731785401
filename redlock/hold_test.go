package redlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// force takes the vote of a node away.
func force(t *testing.T, c *headwaiter.Client, name string) {
	t.Helper()
	_, err := c.Queue(lua.Redlock, name, waitqueue.DefaultTerms()).ForceRelease(soon(t), 0)
	require.NoError(t, err)
}

func TestAHoldLastsAsLongAsAMajorityStandsForIt(t *testing.T) {
	t.Parallel()
	const lasts = 2 * time.Second
	all := servers(t, 5)
	m := mutex(t, dial(t, all), headwaiter.WithLease(lasts))
	l, err := m.Lock(soon(t))
	require.NoError(t, err)
	everywhere(t, m, all)
	all[0].Kill()
	all[1].Stop()
	for end := l.Deadline().Add(2 * lasts); l.Deadline().Before(end); {
		kit.Eventually(t, "the hold to be renewed", func() bool {
			require.NoError(t, l.Context().Err())
			return time.Until(l.Deadline()) > lasts/2
		})
		before := l.Deadline()
		kit.Eventually(t, "its end to move", func() bool { return l.Deadline().After(before) })
	}
	all[2].Kill()
	deadline := l.Deadline()
	cause := kit.Lost(t, l)
	require.ErrorIs(t, cause, lease.ErrLost)
	require.Less(t, time.Now(), deadline.Add(lasts), "a bare majority is gone with its first node")
	require.ErrorIs(t, l.Release(soon(t)), lease.ErrLost)
	for _, s := range all[3:] {
		kit.Eventually(t, "what is left to be given back", func() bool { return s.Text("HGET", keys(t).Lock, "owner") == "" })
	}
	all[1].Cont()
}

func TestAHoldEndsBeforeItsDeadlineWhenAllNodesAreSilent(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all), headwaiter.WithLease(2*time.Second))
	l, err := m.Lock(soon(t))
	require.NoError(t, err)
	for _, s := range all {
		s.Stop()
	}
	kit.Await(t, l.Context().Done(), "the hold to end")
	require.ErrorIs(t, context.Cause(l.Context()), lease.ErrLost)
	require.Less(t, time.Until(l.Deadline()), 20*time.Millisecond, "it was certain for longer")
	for _, s := range all {
		s.Cont()
	}
}

func TestVotesTakenByForceAreLostAndTheRestIsGivenBack(t *testing.T) {
	t.Parallel()
	all := servers(t, 5)
	clients := dial(t, all)
	m := mutex(t, clients, headwaiter.WithLease(3*time.Second))
	l, err := m.Lock(soon(t))
	require.NoError(t, err)
	everywhere(t, m, all)
	admin := dial(t, all)
	force(t, admin[0], m.Name())
	force(t, admin[1], m.Name())
	before := l.Deadline()
	kit.Eventually(t, "a renewal with three votes", func() bool { return l.Deadline().After(before) })
	require.NoError(t, l.Context().Err())
	force(t, admin[2], m.Name())
	cause := kit.Lost(t, l)
	require.ErrorIs(t, cause, lease.ErrForced)
	require.ErrorContains(t, cause, "2 of 5 nodes are left")
	empty(t, all)
}

// All nodes are restarted without their data, one after the other, while it is held. Each has its vote again before
// the next goes.
func TestAHoldOutlivesTheRestartOfAllNodesInTurn(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	const lasts = 2 * time.Second
	m := redlock.New(dial(t, all), kit.Name(t), headwaiter.WithLease(lasts))
	first, err := m.Lock(soon(t)) // When they have run for a lease.
	require.NoError(t, err)
	kit.Release(t, first)
	var l *lease.Lease
	kit.Eventually(t, "the lock to be free", func() bool { // What holds by a try asks again too.
		l, err = m.TryLock(soon(t))
		return err == nil
	})
	everywhere(t, m, all)
	for _, s := range all {
		s.Restart()
		kit.Eventually(t, "the node to be old enough, and to vote again", func() bool {
			require.NoError(t, context.Cause(l.Context()))
			// It was renewed again, well after the node had run for a lease.
			held, since := s.Int("HEXISTS", keys(t).Lock, "owner") == 1, s.Int("EXISTS", lua.MarkKey("headwaiter", 0, false)) == 1
			return held && since && time.UnixMicro(kit.Until(s, keys(t).Lock)).Add(-lasts).
				After(time.UnixMilli(s.Int("HGET", lua.MarkKey("headwaiter", 0, false), "since")).Add(lasts+300*time.Millisecond))
		})
	}
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
	empty(t, all)
}

// What a try finds busy at one node is no hold, so the node is asked again: a bare majority outlasts nothing.
func TestAHoldByATryGetsTheOtherVotesToo(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	clients := dial(t, all)
	m := mutex(t, clients, headwaiter.WithLease(lasts))
	split, err := dial(t, all)[1].Queue(lua.Redlock, kit.Name(t), waitqueue.DefaultTerms()).Acquire(soon(t))
	require.NoError(t, err)
	held, err := m.TryLock(soon(t))
	require.NoError(t, err)
	kit.Release(t, split)
	kit.Eventually(t, "the vote of the node that was busy", func() bool {
		return strings.HasPrefix(all[1].Text("HGET", keys(t).Lock, "owner"), clients[1].ID())
	})
	kit.Release(t, held)
	empty(t, all)
}

func TestATryAtNodesThatHaveJustStartedSaysSo(t *testing.T) {
	t.Parallel()
	m := redlock.New(dial(t, servers(t, 3)), kit.Name(t), headwaiter.WithLease(time.Minute))
	_, err := m.TryLock(soon(t))
	require.ErrorIs(t, err, lease.ErrBusy)
	require.ErrorIs(t, err, lease.ErrRestarted)
	require.ErrorContains(t, err, `of 3 nodes: busy: the server has restarted`)
}

func TestAMaximumHoldEndsIt(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all), headwaiter.WithMaxHold(300*time.Millisecond))
	l, err := m.Lock(soon(t))
	require.NoError(t, err)
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrMaxHold)
	empty(t, all)
}

func TestAHoldWhoseWorkStallsEndsOnTime(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all), headwaiter.WithLease(time.Minute), headwaiter.WithMaxStall(300*time.Millisecond))
	l, err := m.Lock(soon(t))
	require.NoError(t, err)
	time.Sleep(200 * time.Millisecond) // A step of the work.
	l.Progress()
	moved := time.Now()
	kit.Await(t, l.Context().Done(), "the loss")
	require.GreaterOrEqual(t, time.Since(moved), 300*time.Millisecond)
	require.Less(t, time.Since(moved), 6*time.Second, "the lease has its next look only after ten")
	require.ErrorIs(t, context.Cause(l.Context()), lease.ErrStalled)
	empty(t, all)
}

func TestLockingWithTheContextOfAHoldIsADeadlock(t *testing.T) {
	t.Parallel()
	clients := dial(t, servers(t, 3))
	m := mutex(t, clients)
	err := m.Do(soon(t), func(ctx context.Context) error {
		_, err := mutex(t, []*headwaiter.Client{clients[2], clients[0], clients[1]}).Lock(ctx)
		require.ErrorIs(t, err, lease.ErrDeadlock)
		require.ErrorContains(t, err, `redlock: lock "TestLocking`)
		l, err := redlock.New(clients, "another", redlock.WithoutSafeRestart()).Lock(ctx)
		require.NoError(t, err)
		return l.Release(ctx)
	})
	require.NoError(t, err)
}

func TestAnErrorOfWhatDoCallsIsReturnedAndTheLockFree(t *testing.T) {
	t.Parallel()
	m := mutex(t, dial(t, servers(t, 3)))
	failure := errors.New("failure")
	require.Equal(t, failure, m.Do(soon(t), func(context.Context) error { return failure }))
	l, err := m.TryLock(soon(t))
	require.NoError(t, err)
	kit.Release(t, l)
}

// However a call is cancelled, it holds or has left.
func TestACallThatIsCancelledLeavesNothing(t *testing.T) {
	t.Parallel()
	all := servers(t, 5)
	a, b := mutex(t, dial(t, all)), mutex(t, dial(t, all))
	for range 100 {
		l, err := a.Lock(soon(t))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*time.Millisecond))
		wait := kit.Lock(ctx, b.Lock)
		release := kit.Run(func() error { return l.Release(context.Background()) })
		if err := wait.Err(t); err == nil {
			kit.Release(t, wait.Value(t))
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.NoError(t, release.Err(t))
		cancel()
	}
	require.NoError(t, a.Wait(soon(t)))
	require.NoError(t, b.Wait(soon(t)))
	empty(t, all)
}

func TestOneAndSevenNodes(t *testing.T) {
	for _, n := range []int{1, 2, 4, 7} {
		t.Run(string(rune('0'+n)), func(t *testing.T) {
			t.Parallel()
			all := servers(t, n)
			a, b := mutex(t, dial(t, all)), mutex(t, dial(t, all))
			l, err := a.Lock(soon(t))
			require.NoError(t, err)
			_, err = b.TryLock(soon(t))
			require.ErrorIs(t, err, lease.ErrBusy)
			next := kit.Lock(soon(t), b.Lock)
			queued(t, all, 1)
			kit.Release(t, l)
			second := next.Value(t)
			require.Greater(t, second.Token(), l.Token())
			kit.Release(t, second)
		})
	}
}

func TestAnEmbeddedServerIsANodeToo(t *testing.T) {
	t.Parallel()
	m := redlock.New([]*headwaiter.Client{kit.Dial(t, redistest.Mini(t))}, "a", redlock.WithoutSafeRestart())
	l, err := m.Lock(soon(t))
	require.NoError(t, err)
	kit.Release(t, l)
}
