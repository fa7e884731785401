package fairlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func TestNoClientIsNoClientAtOnce(t *testing.T) {
	t.Parallel()
	const says = "headwaiter: nil client"
	require.PanicsWithValue(t, says, func() { fairlock.New(nil, "name") })
	require.PanicsWithValue(t, says, func() { fairlock.New(&headwaiter.Client{}, "name") })
}

func TestExtremeTimesWork(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, c, other *headwaiter.Client) {
		long := fairlock.New(c, "long", headwaiter.WithLease(lease.MaxLease))
		l := hold(t, long)
		require.InDelta(t, lease.MaxLease, inspect(t, long).Holder.Left, float64(time.Minute))
		require.WithinRange(t, l.Deadline(), time.Now().Add(lease.MaxLease*9/10), time.Now().Add(lease.MaxLease))
		w := joins(t, 1, fairlock.New(other, "long", headwaiter.WithLease(lease.MaxLease)), long)
		next := kit.Next(t, l, w)
		kit.Release(t, next)

		// A lease of a millisecond may be over before anybody can act on it: it must only harm nobody.
		short := fairlock.New(c, "short", headwaiter.WithLease(lease.MinLease))
		if l, err := short.TryLock(t.Context()); err == nil {
			_ = l.Release(t.Context())
		}
		kit.Eventually(t, "the short lease to be over", func() bool {
			l, err := fairlock.New(other, "short").TryLock(t.Context())
			if err == nil {
				kit.Release(t, l)
			}
			return err == nil
		})
	})
}

// A client of another kind may leave out what the headers say may be missing, also where it gives all keys.
func TestWhatMayBeMissingOfARequestMayBeMissingWithAllKeys(t *testing.T) {
	s := redistest.Start(t)
	keys := lua.Fairlock.Keys("headwaiter", kit.Name(t)).All()
	run := func(script *lua.Script, args ...string) any {
		return s.Do(append(append([]string{"EVAL", script.Source, "3"}, keys...), args...)...)
	}
	const notAfter = "9007199254740991"
	run(lua.Fairlock.Ask, "A:1:x:1:60000:60000", "wait", notAfter)
	run(lua.Fairlock.Ask, "B:1:x:1:60000:60000", "wait", notAfter)
	run(lua.Fairlock.Ask, "C:1:x:1:60000:60000", "wait 5", notAfter)
	require.EqualValues(t, 2, s.Int("ZCARD", keys[1]))
	s.Do("HSET", keys[0], "until", "1") // The lease is over.
	run(lua.Fairlock.Ask, "D:1:x:1:60000:60000", "wait 5", notAfter)
	require.NotEqual(t, "A:1:x:1:60000:60000", s.Text("HGET", keys[0], "owner"))
	run(lua.Fairlock.End, "E:1:x:1:60000:60000")
}

// The server's clock steps back while nobody holds. What sets the life of the key anew goes by the token too.
func TestTokensRiseLongAfterTheClockOfTheServerSteppedBack(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	kit.Release(t, hold(t, dialMutex(t, s, headwaiter.WithLease(time.Minute))))
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
			m, l := dialMutex(t, s), hold(t, dialMutex(t, s, headwaiter.WithLease(day)))
			next := joins(t, 1, m, m)
			l = kit.Next(t, l, next)
			require.Less(t, kit.Lives(t, s, lua.Fairlock.Keys("headwaiter", kit.Name(t))), 2*time.Minute)
			kit.Release(t, l)
		},
		"handed on within a client": func(t *testing.T, s redistest.Backend) {
			c := kit.Dial(t, s)
			l := hold(t, fairlock.New(c, kit.Name(t), headwaiter.WithLease(day)))
			m := fairlock.New(c, kit.Name(t))
			kit.PassOn(t, l, joins(t, 1, m, m))
		},
		"freed by force": func(t *testing.T, s redistest.Backend) {
			m := dialMutex(t, s, headwaiter.WithLease(day))
			hold(t, m)
			require.NoError(t, kit.Err(m.ForceRelease(t.Context(), 0)))
		},
		"given up in the queue": func(t *testing.T, s redistest.Backend) {
			l, c := hold(t, dialMutex(t, s)), kit.Dial(t, s)
			m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(day))
			next := joins(t, 1, m, m)
			require.NoError(t, c.Shutdown(t.Context()))
			require.Error(t, next.Err(t))
			kit.Release(t, l)
		},
	} {
		kit.EachOf(t, name, func(t *testing.T, s redistest.Backend) {
			end(t, s)
			require.Less(t, kit.Lives(t, s, lua.Fairlock.Keys("headwaiter", kit.Name(t))), 2*time.Minute)
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
		require.ErrorIs(t, kit.Err(m.ForceRelease(t.Context(), l.Token()-1)), lease.ErrOtherToken)
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

// mistyped asserts that an error says that a key has another type, and what to do about it.
func mistyped(t *testing.T, err error) {
	t.Helper()
	kit.Fails(t, err, "WRONGTYPE", "use another name or prefix")
	require.NotErrorIs(t, err, lease.ErrLost)
}

func TestAKeyThatChangesItsTypeEndsHoldsAndWaits(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m, other := dialMutex(t, s), kit.Dial(t, s)
		l, c := hold(t, m), joins(t, 1, fairlock.New(other, kit.Name(t)), m)
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
