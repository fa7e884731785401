package fairlock_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

const year = 365 * 24 * time.Hour

// rejected asserts that calls of m fail with the error before anything reaches Redis.
func rejected(t *testing.T, s redistest.Backend, m *fairlock.Mutex, is error, contains string) {
	t.Helper()
	s.ResetStats()
	_, lockErr := m.Lock(t.Context())
	_, tryErr := m.TryLock(t.Context())
	require.Regexp(t, `^fairlock: lock ".*": `, lockErr.Error())
	require.Regexp(t, `^fairlock: try lock ".*": `, tryErr.Error())
	for _, err := range []error{lockErr, tryErr, m.Do(t.Context(), nil)} {
		readable(t, err, is, contains)
	}
	require.Empty(t, kit.Scripts(s))
	require.Zero(t, len(s.List("KEYS", "*{*")))
}

// readable asserts what an error is, and that it fits on a line and does nothing to a terminal.
func readable(t *testing.T, err, is error, contains string) {
	t.Helper()
	require.ErrorIs(t, err, is)
	require.ErrorContains(t, err, contains)
	require.Less(t, len(err.Error()), 400)
	require.Regexp(t, `^\P{C}*$`, err.Error())
}

func TestUnusableNamesAreRefusedBeforeRedis(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		for _, bad := range []struct {
			name     string
			is       error
			contains string
		}{
			{"", lease.ErrInvalid, "empty"},
			{"}", lease.ErrInvalid, "put something before it"},
			{"}x", lease.ErrInvalid, "put something before it"},
			{"a\nb", lease.ErrInvalid, "encode"},
			{"a\x00b", lease.ErrInvalid, "encode"},
			{"a\x1b[2Jb", lease.ErrInvalid, "encode"},
			{"\xff", lease.ErrInvalid, "encode"},
			{"a\xffb", lease.ErrInvalid, "encode"},
			{"a\u0085b", lease.ErrInvalid, "encode"},
			{strings.Repeat("x", lease.MaxName+1), lease.ErrTooLarge, "use a hash"},
			{strings.Repeat("x", 1<<20), lease.ErrTooLarge, "use a hash"},
			{strings.Repeat("\xff", 1<<20), lease.ErrTooLarge, "use a hash"},
		} {
			m := fairlock.New(c, bad.name)
			rejected(t, s, m, bad.is, bad.contains)
			_, err := m.Inspect(t.Context())
			readable(t, err, bad.is, bad.contains)
			_, err = m.ForceRelease(t.Context(), 0)
			readable(t, err, bad.is, bad.contains)
		}
	})
}

func TestUnusualNamesWork(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := kit.Dial(t, s), kit.Dial(t, s)
		names := []string{
			"{x}", "a}b", "{}x", "{", "a{b}c", "a b", "%d%s", `"quoted"`, `back\slash`, "*", "[a-z]?", "$1",
			"Prüfung/日本語/🔒", "a:b:queue", ":", "-", "--", "'; return 1", strings.Repeat("x", lease.MaxName),
		}
		for _, name := range names {
			m, other := fairlock.New(a, name), fairlock.New(b, name)
			l := hold(t, m)
			c := begin(t.Context(), other)
			queued(t, m, 1)
			_, err := m.TryLock(t.Context())
			require.ErrorIs(t, err, lease.ErrBusy)
			kit.Release(t, l)
			next := c.Value(t)
			require.Greater(t, next.Token(), l.Token())
			require.Equal(t, b.ID(), inspect(t, m).Holder.Client)
			kit.Release(t, next)
		}
		if server, ok := s.(*redistest.Server); ok {
			for _, name := range names {
				lock, queue, suspects := keysOf(name)
				require.NotZero(t, server.Int("EXISTS", lock))
				require.Equal(t, redistest.Slot(lock), redistest.Slot(queue), "%q", name)
				require.Equal(t, redistest.Slot(lock), redistest.Slot(suspects), "%q", name)
			}
		}
	})
}

func TestNoClientIsNoClientAtOnce(t *testing.T) {
	t.Parallel()
	const says = "headwaiter: nil client"
	require.PanicsWithValue(t, says, func() { fairlock.New(nil, "name") })
	require.PanicsWithValue(t, says, func() { fairlock.New(&headwaiter.Client{}, "name") })
}

func TestUnusableTimesAreRefusedBeforeRedis(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		for _, d := range []time.Duration{
			0, -1, -time.Second, time.Nanosecond, 500 * time.Microsecond, lease.MinLease - 1,
			lease.MaxLease + 1, 290 * year, math.MaxInt64, math.MinInt64,
		} {
			rejected(t, s, fairlock.New(c, "name", headwaiter.WithLease(d)), lease.ErrInvalid, "WithLease: a lease of "+d.String()+" must be from 1ms to 365 days")
			if d != 0 { // No maximum.
				m := fairlock.New(c, "name", headwaiter.WithMaxHold(d))
				rejected(t, s, m, lease.ErrInvalid, "WithMaxHold: ")
				rejected(t, s, fairlock.New(c, "name", headwaiter.WithMaxStall(d)), lease.ErrInvalid, "WithMaxStall: ")
			}
		}
		rejected(t, s, fairlock.New(c, "name", headwaiter.WithPriority(math.MaxInt)), lease.ErrTooLarge, "WithPriority: ")
		rejected(t, s, fairlock.New(c, "name", headwaiter.WithPriority(math.MinInt)), lease.ErrTooLarge, "WithPriority: ")
		rejected(t, s, fairlock.New(c, "", headwaiter.WithLease(0)), lease.ErrInvalid, "empty")
	})
}

func TestExtremeTimesWork(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c, other := kit.Dial(t, s), kit.Dial(t, s)
		long := fairlock.New(c, "long", headwaiter.WithLease(lease.MaxLease))
		l := hold(t, long)
		require.InDelta(t, lease.MaxLease, inspect(t, long).Holder.Left, float64(time.Minute))
		require.WithinRange(t, l.Deadline(), time.Now().Add(lease.MaxLease*9/10), time.Now().Add(lease.MaxLease))
		w := begin(t.Context(), fairlock.New(other, "long", headwaiter.WithLease(lease.MaxLease)))
		queued(t, long, 1)
		kit.Release(t, l)
		next := w.Value(t)
		require.Greater(t, next.Token(), l.Token())
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
	run(lua.Fairlock.Ask, "A:1:x:1:50:50", "wait", notAfter)
	run(lua.Fairlock.Ask, "B:1:x:1:50:50", "wait", notAfter)
	run(lua.Fairlock.Ask, "C:1:x:1:50:50", "wait 5:", notAfter)
	require.EqualValues(t, 2, s.Int("ZCARD", keys[1]))
	kit.Eventually(t, "the end of the lease", func() bool { return kit.ServerTime(s) > s.Int("HGET", keys[0], "until") })
	run(lua.Fairlock.Ask, "D:1:x:1:50:50", "wait 5:", notAfter)
	run(lua.Fairlock.End, "E:1:x:1:50:50")
}
