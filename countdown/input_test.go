package countdown_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// rejected asserts that every call fails with an error that fits on a line, before anything reaches Redis.
func rejected(t *testing.T, s redistest.Backend, l *countdown.Latch, is error, contains string) {
	t.Helper()
	s.ResetStats()
	_, set := l.TrySetCount(t.Context(), 1)
	_, down := l.CountDown(t.Context())
	_, count := l.Count(t.Context())
	_, remove := l.Remove(t.Context())
	_, inspect := l.Inspect(t.Context())
	for _, err := range []error{set, down, count, remove, inspect, l.Wait(t.Context())} {
		require.ErrorIs(t, err, is)
		require.ErrorContains(t, err, contains)
		require.Less(t, len(err.Error()), 400)
		require.Regexp(t, `^countdown: [a-z ]+ ".*": \P{C}*$`, err.Error())
	}
	require.Empty(t, kit.Scripts(s))
	require.Zero(t, len(s.List("KEYS", "*{*")))
}

func TestUnusableNamesAndLifetimesAreRefusedBeforeRedis(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		for _, name := range []string{"", "}", "}x", "a\nb", "a\x00b", "a\x1b[2Jb", "\xff"} {
			rejected(t, s, countdown.New(c, name), lease.ErrInvalid, ": ")
		}
		rejected(t, s, countdown.New(c, strings.Repeat("x", lease.MaxName+1)), lease.ErrTooLarge, "use a hash")
		for _, d := range []time.Duration{
			0, -1, time.Second, time.Minute - 1, lease.MaxLease + 1, math.MaxInt64, math.MinInt64,
		} {
			rejected(t, s, countdown.New(c, "name", countdown.WithLifetime(d)), lease.ErrInvalid, "lifetime")
		}
	})
}

func TestUnusualNamesWork(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := kit.Dial(t, s), kit.Dial(t, s)
		for _, name := range []string{
			"{x}", "a}b", "{}x", "{", "a b", "%d%s", `"quoted"`, `back\slash`, "*", "Prüfung/日本語/🔒", "a:b:calls", ":",
			"'; return 1", strings.Repeat("x", lease.MaxName),
		} {
			one, other := view{countdown.New(a, name), a}, view{countdown.New(b, name), b}
			require.Equal(t, name, one.Name())
			one.set(t, 1)
			c := kit.Run(func() error { return other.Wait(t.Context()) })
			kit.Waiting(t, 1, one.Inspect)
			one.down(t, 0)
			require.NoError(t, c.Err(t))
		}
	})
}

func TestTheLargestCountIsExact(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		v := dial(t, s)
		for _, n := range []int64{countdown.MaxCount + 1, countdown.MaxCount + 2, math.MaxInt64} {
			done, err := v.TrySetCount(t.Context(), n)
			require.False(t, done)
			require.ErrorIs(t, err, lease.ErrTooLarge)
		}
		require.EqualValues(t, 1<<53-1, countdown.MaxCount)
		v.set(t, countdown.MaxCount)
		for i := range int64(10) {
			require.EqualValues(t, countdown.MaxCount-i, v.left(t))
			v.down(t, countdown.MaxCount-i-1)
		}
		info, err := v.Inspect(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, countdown.MaxCount, info.Limit)
	})
}

func TestAnotherTypeUnderTheKeyIsAnErrorAndStaysAsItIs(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		v := dial(t, s)
		lock, calls := keysOf(v.Name())
		s.Do("SET", lock, "x")
		_, set := v.TrySetCount(t.Context(), 1)
		_, down := v.CountDown(t.Context())
		_, count := v.Count(t.Context())
		for _, err := range []error{set, down, count, v.Wait(t.Context())} {
			require.ErrorContains(t, err, "WRONGTYPE")
		}
		require.Equal(t, "x", s.Text("GET", lock))
		s.Do("DEL", lock)

		v.set(t, 2)
		s.Do("DEL", calls)
		s.Do("SET", calls, "x")
		_, err := v.CountDown(t.Context())
		require.ErrorContains(t, err, "WRONGTYPE")
		require.EqualValues(t, 2, v.left(t), "nothing was written before the error")
	})
}
