package fairlock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// contents is all that is in Redis, but for times to live.
func contents(t *testing.T, s redistest.Backend) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, key := range s.List("KEYS", "*{*") {
		switch kind := s.Text("TYPE", key); kind {
		case "string":
			all[key] = []string{s.Text("GET", key)}
		case "hash":
			fields := s.List("HGETALL", key)
			for pair := range slices.Chunk(fields, 2) {
				all[key] = append(all[key], pair[0]+"="+pair[1])
			}
			slices.Sort(all[key])
		case "zset":
			all[key] = s.List("ZRANGE", key, "0", "-1", "WITHSCORES")
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	return all
}

// mistyped asserts that an error says that a key has another type, and what to do about it.
func mistyped(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "WRONGTYPE")
	require.ErrorContains(t, err, "use another name or prefix")
	require.NotErrorIs(t, err, lease.ErrLost)
}

func TestALockKeyOfAnotherTypeIsReportedAndLeftAlone(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s)
		lock, _, _ := keysOf(kit.Name(t))
		s.Do("SET", lock, "somebody else's")
		before := contents(t, s)
		mistyped(t, begin(t.Context(), m).Err(t))
		_, err := m.TryLock(t.Context())
		mistyped(t, err)
		_, err = m.Inspect(t.Context())
		mistyped(t, err)
		_, err = m.ForceRelease(t.Context(), 0)
		mistyped(t, err)
		require.Equal(t, before, contents(t, s))
		s.Do("DEL", lock)
		kit.Release(t, hold(t, m))
	})
}

func TestAQueueOfAnotherTypeIsReportedAndLeftAlone(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, m)
		lock, queue, _ := keysOf(kit.Name(t))
		s.Do("SET", queue, "somebody else's")
		before := contents(t, s)
		mistyped(t, begin(t.Context(), other).Err(t))
		_, err := other.TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy, "it does not need the queue")
		_, err = other.Inspect(t.Context())
		mistyped(t, err)
		_, err = other.ForceRelease(t.Context(), 0)
		mistyped(t, err)
		require.Equal(t, before, contents(t, s))

		// Nor does a release before which nobody has queued. Any other can do nothing. It says so, and the lease ends the hold.
		kit.Release(t, l)
		l = hold(t, m)
		s.Do("HSET", lock, "high", "1")
		before = contents(t, s)
		err = l.Release(t.Context())
		require.ErrorIs(t, err, lease.ErrUnconfirmed)
		mistyped(t, err)
		require.Equal(t, before, contents(t, s))
		s.Do("DEL", queue)
		require.True(t, inspect(t, other).Held)
		force(t, other)
		kit.Release(t, hold(t, other))
	})
}

// Suspects are looked at where a lease has run out, or somebody is suspected.
func TestSuspectsOfAnotherTypeAreReportedAndLeftAlone(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, m)
		lock, _, suspects := keysOf(kit.Name(t))
		expire := func() { s.Do("HSET", lock, "until", fmt.Sprint(s.Int("HGET", lock, "token")+1)) }
		expire()
		s.Do("SET", suspects, "somebody else's")
		before := contents(t, s)
		_, err := other.TryLock(t.Context())
		mistyped(t, err)
		mistyped(t, begin(t.Context(), other).Err(t))
		require.Equal(t, before, contents(t, s))

		s.Do("DEL", suspects)
		next := hold(t, other) // It finds the lease over, and suspects the first.
		require.Greater(t, next.Token(), l.Token())
		require.Equal(t, int64(1), s.Int("ZCARD", suspects))
		s.Do("SET", suspects, "somebody else's")
		before = contents(t, s)
		_, err = m.TryLock(t.Context())
		mistyped(t, err)
		_, err = other.ForceRelease(t.Context(), 0)
		mistyped(t, err)
		require.Equal(t, before, contents(t, s))
		s.Do("DEL", suspects)
		kit.Release(t, next)
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
	})
}

func TestAKeyThatChangesItsTypeEndsHoldsAndWaits(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := dialMutex(t, s), kit.Dial(t, s)
		l := hold(t, m)
		c := begin(t.Context(), fairlock.New(other, kit.Name(t)))
		queued(t, m, 1)
		lock, queue, _ := keysOf(kit.Name(t))
		s.Do("SET", lock, "somebody else's")
		begun := time.Now()
		mistyped(t, c.Err(t))
		require.Less(t, time.Since(begun), 3*time.Second)
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		require.Equal(t, "somebody else's", s.Text("GET", lock))

		s.Do("DEL", lock, queue)
		synctime.Pass(time.Minute) // What goes on in the background has ended by then.
		s.ResetStats()
		synctime.Pass(time.Minute)
		require.Empty(t, kit.Scripts(s), "somebody still looks after a lock that nobody wants")
		kit.Release(t, hold(t, m))
	})
}

// A client of another version of the protocol reads what it finds in another way: whatever that makes of the name, the two
// must not take turns on it.
func TestALockOfAnotherVersionIsReportedAndLeftAlone(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m, other := dialMutex(t, s), dialMutex(t, s)
		lock, _, _ := keysOf(kit.Name(t))
		l := hold(t, m)
		for _, version := range []string{"2", "4", ""} {
			if s.Do("HSET", lock, "version", version); version == "" {
				s.Do("HDEL", lock, "version") // As the first version had it.
			}
			before := contents(t, s)
			require.ErrorContains(t, begin(t.Context(), other).Err(t), "another version of the protocol")
			_, err := other.TryLock(t.Context())
			require.ErrorContains(t, err, "another version of the protocol")
			require.NotContains(t, err.Error(), "script", "what Redis puts around it")
			_, err = other.Inspect(t.Context())
			require.ErrorContains(t, err, "another version of the protocol")
			_, err = other.ForceRelease(t.Context(), 0)
			require.ErrorContains(t, err, "another version of the protocol")
			require.Equal(t, before, contents(t, s))
		}
		s.Do("HSET", lock, "version", "3")
		kit.Release(t, l)
		kit.Release(t, hold(t, other))
	})
}
