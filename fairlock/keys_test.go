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
	"github.com/headwaiter/headwaiter/waitqueue"
)

// lives is for how long the longest of a lock's keys lives.
func lives(t *testing.T, s redistest.Backend) time.Duration {
	t.Helper()
	var longest int64
	lock, queue, suspects := keysOf(kit.Name(t))
	for _, key := range []string{lock, queue, suspects} {
		left := s.Int("PTTL", key)
		require.NotEqual(t, int64(-1), left, "%s does not expire", key)
		longest = max(longest, left)
	}
	return time.Duration(longest) * time.Millisecond
}

// Where the key is gone tokens begin at the clock. It is there until they are no longer ahead of it, for a day at the most.
func TestAKeyLivesUntilItsTokenIsNotAheadOfTheClock(t *testing.T) {
	for name, d := range map[string]time.Duration{"a short lease": 10 * time.Second, "a long lease": time.Minute} {
		t.Run(name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				c := kit.Dial(t, s)
				waitqueue.Above(c, uint64(kit.ServerTime(s)+time.Hour.Microseconds())) // Seen at another name, or node.
				m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(d))
				l := hold(t, m)
				require.Greater(t, lives(t, s), time.Hour-kit.Patience)
				kit.Release(t, l)
				require.Greater(t, lives(t, s), time.Hour-kit.Patience)
				l = hold(t, dialMutex(t, s))
				next := begin(t.Context(), m)
				queued(t, m, 1)
				kit.Release(t, l)
				kit.Release(t, next.Value(t))
				require.Greater(t, lives(t, s), time.Hour-kit.Patience)
				require.Less(t, lives(t, s), time.Hour+2*time.Minute)
			})
		})
	}
}

// The server's clock steps back while nobody holds. What sets the life of the key anew goes by the token too.
func TestTokensRiseLongAfterTheClockOfTheServerSteppedBack(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	m := dialMutex(t, s, headwaiter.WithLease(time.Minute))
	kit.Release(t, hold(t, m))
	s.Miniredis().SetTime(time.Now().Add(-time.Hour))
	l := hold(t, dialMutex(t, s, headwaiter.WithLease(time.Minute)))
	kit.Release(t, l)
	s.Miniredis().FastForward(50 * time.Minute) // For the lives of keys alone.
	next := hold(t, dialMutex(t, s))
	require.Greater(t, next.Token(), l.Token())
	kit.Release(t, next)
}

// However a long lease ends, and whoever held after it: keys are kept for a minute or so from then on.
func TestKeysAreNotKeptForALeaseThatIsOver(t *testing.T) {
	const day = 24 * time.Hour
	for name, end := range map[string]func(t *testing.T, s redistest.Backend){
		"handed on": func(t *testing.T, s redistest.Backend) {
			m := dialMutex(t, s)
			l := hold(t, dialMutex(t, s, headwaiter.WithLease(day)))
			next := begin(t.Context(), m)
			queued(t, m, 1)
			kit.Release(t, l)
			l = next.Value(t)
			require.Less(t, lives(t, s), 2*time.Minute)
			kit.Release(t, l)
		},
		"handed on within a client": func(t *testing.T, s redistest.Backend) {
			c := kit.Dial(t, s)
			l := hold(t, fairlock.New(c, kit.Name(t), headwaiter.WithLease(day)))
			m := fairlock.New(c, kit.Name(t))
			next := begin(t.Context(), m)
			queued(t, m, 1)
			kit.Release(t, l)
			kit.Release(t, next.Value(t))
		},
		"freed by force": func(t *testing.T, s redistest.Backend) {
			m := dialMutex(t, s, headwaiter.WithLease(day))
			hold(t, m)
			_, err := m.ForceRelease(t.Context(), 0)
			require.NoError(t, err)
		},
		"given up in the queue": func(t *testing.T, s redistest.Backend) {
			l := hold(t, dialMutex(t, s))
			c := kit.Dial(t, s)
			m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(day))
			next := begin(t.Context(), m)
			queued(t, m, 1)
			require.NoError(t, c.Close(t.Context()))
			require.Error(t, next.Err(t))
			kit.Release(t, l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Each(t, func(t *testing.T, s redistest.Backend) {
				end(t, s)
				require.Less(t, lives(t, s), 2*time.Minute)
			})
		})
	}
}

func TestAForcedReleaseSaysThatAnotherTokenHolds(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		m := dialMutex(t, s)
		_, err := m.ForceRelease(t.Context(), 1)
		require.ErrorIs(t, err, lease.ErrNotHeld)
		require.NotErrorIs(t, err, lease.ErrOtherToken)
		l := hold(t, m)
		_, err = m.ForceRelease(t.Context(), l.Token()-1)
		require.ErrorIs(t, err, lease.ErrOtherToken)
		kit.Release(t, l)
	})
}

func TestACohortOfLessThanNoneIsNotTooLarge(t *testing.T) {
	t.Parallel()
	_, err := dialMutex(t, redistest.Mini(t), fairlock.WithCohort(-1)).Lock(t.Context())
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.NotErrorIs(t, err, lease.ErrTooLarge)
	require.ErrorContains(t, err, ": invalid argument: WithCohort: -1 passes must be from 0 to 1024")
}
