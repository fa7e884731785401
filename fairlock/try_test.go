package fairlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// state is all that Redis has of a lock, but for times to live.
func state(t *testing.T, s redistest.Backend, name string) map[string][]string {
	t.Helper()
	lock, queue, suspects := keysOf(name)
	all := map[string][]string{"keys": s.List("KEYS", "*{*")}
	fields := []string{"owner", "until", "lease", "token", "high", "phase", "who", "since", "mark", "scan"}
	for _, v := range s.Do(append([]string{"HMGET", lock}, fields...)...).([]any) {
		text, _ := v.(string)
		all[lock] = append(all[lock], text)
	}
	all[queue] = s.List("ZRANGE", queue, "0", "-1", "WITHSCORES")
	all[suspects] = s.List("ZRANGE", suspects, "0", "-1", "WITHSCORES")
	return all
}

func TestATryOnAHeldLockIsRefusedAndLeavesNoTrace(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder, other := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		before := state(t, s, kit.Name(t))
		for _, m := range []*fairlock.Mutex{other, holder} {
			got, err := m.TryLock(t.Context())
			require.Nil(t, got)
			require.ErrorIs(t, err, lease.ErrBusy)
			require.ErrorContains(t, err, `fairlock: try lock "`+kit.Name(t)+`": busy: client `)
		}
		require.Equal(t, before, state(t, s, kit.Name(t)))
		kit.Release(t, l)
		l, err := other.TryLock(t.Context())
		require.NoError(t, err)
		kit.Release(t, l)
	})
}

func TestATryBehindAQueueIsRefusedAndLeavesNoTrace(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder, waiter, other := dialMutex(t, s), dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		c := begin(t.Context(), waiter)
		queued(t, holder, 1)
		before := state(t, s, kit.Name(t))
		_, err := other.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		require.Equal(t, before, state(t, s, kit.Name(t)))
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
	})
}

// A lock that is free while somebody waits is what a deleted key leaves behind.
func TestATryOnAFreeLockWithAQueueIsRefused(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder, waiter, other := dialMutex(t, s), dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		c := begin(t.Context(), waiter)
		queued(t, holder, 1)
		lock, queue, _ := keysOf(kit.Name(t))
		s.Do("DEL", lock)
		_, err := other.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		next := c.Value(t)
		require.Greater(t, next.Token(), l.Token())
		require.Equal(t, int64(0), s.Int("EXISTS", queue))
		kit.Expiring(t, s)
		kit.Release(t, next)
		kit.Expiring(t, s)
	})
}

// Where two clients wait and none can hear, it may be the server's subscriptions that are gone. The lock
// stays free for the grant lease of the first, and nobody barges meanwhile.
func TestATryOnAFreeLockWhoseWaitersCannotHearIsRefusedForAGrantLease(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s)
		lock, queue, _ := keysOf(kit.Name(t))
		s.Do("ZADD", queue, "1", "dead1:1:x:1:10000:300", "2", "dead2:1:x:1:10000:300")
		s.Do("PEXPIRE", queue, "60000")
		_, err := m.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		require.Equal(t, int64(2), s.Int("ZCARD", queue))
		require.Empty(t, s.Text("HGET", lock, "owner"))
		kit.Expiring(t, s)
		kit.Eventually(t, "the dead to be skipped", func() bool {
			l, err := m.TryLock(t.Context())
			if err != nil {
				require.ErrorIs(t, err, lease.ErrBusy)
				return false
			}
			kit.Release(t, l)
			return true
		})
		require.Zero(t, s.Int("EXISTS", queue))
		kit.Expiring(t, s)
	})
}

// Whichever way the server found that the lock is held, it says who holds it.
func TestATryThatFailsSaysWhoHolds(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		holder, other := kit.Dial(t, s), kit.Dial(t, s)
		m := fairlock.New(holder, kit.Name(t))
		begun := time.Now()
		l := hold(t, m)
		asked := time.Now()
		tries := map[string]*fairlock.Mutex{
			"usual":     fairlock.New(other, kit.Name(t)),
			"with more": fairlock.New(other, kit.Name(t), headwaiter.WithPriority(1)),
		}
		busy := func(name string, waiting int) {
			_, err := tries[name].TryLock(t.Context())
			require.ErrorIs(t, err, lease.ErrBusy, name)
			var e *lease.BusyError
			require.ErrorAs(t, err, &e, name)
			require.Equal(t, holder.ID(), e.Client, name)
			require.Equal(t, l.Token(), e.Token, name)
			require.Equal(t, waiting, e.Waiting, name)
			const way = 2 * time.Second // that the answer was on its way, at the most
			require.WithinRange(t, e.Since, begun.Add(-way), asked.Add(way), name)
			require.Regexp(t, `busy: client \S+ holds it with token \d+ for \S+`, err.Error(), name)
		}
		for name := range tries {
			busy(name, 0)
		}
		waits := begin(t.Context(), dialMutex(t, s))
		queued(t, m, 1)
		for name := range tries {
			busy(name, 1)
		}
		kit.Release(t, l)
		next := waits.Value(t)
		lock, queue, _ := keysOf(kit.Name(t))
		kit.Release(t, next)
		s.Do("HSET", lock, "high", "2")
		s.Do("ZADD", queue, "1", "dead1:1:x:1:10000:300", "2", "dead2:1:x:1:10000:300")
		s.Do("PEXPIRE", queue, "60000")
		_, err := m.TryLock(t.Context())
		require.EqualError(t, err, `fairlock: try lock "`+kit.Name(t)+`": busy`, "nobody holds, and others wait")
	})
}

// A try that calls the keeper says that the lock is busy, however short its own wait may be.
func TestATryThatMayWaitForLessThanItCallsIsBusy(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		_, m := kept(t, s)
		l := hold(t, m)
		_, err := dialMutex(t, s, headwaiter.WithMaxWait(20*time.Millisecond)).TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		l.Unlock()
	})
}
