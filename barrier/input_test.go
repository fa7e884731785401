package barrier_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// rejected asserts that every call fails with an error that fits on a line, before anything reaches Redis.
func rejected(t *testing.T, s redistest.Backend, b *barrier.Barrier, is error, contains string) {
	t.Helper()
	s.ResetStats()
	_, await := b.Await(t.Context())
	_, broken := b.Broken(t.Context())
	_, waiting := b.Waiting(t.Context())
	_, inspect := b.Inspect(t.Context())
	for _, err := range []error{await, broken, waiting, inspect, b.Reset(t.Context())} {
		require.ErrorIs(t, err, is)
		require.ErrorContains(t, err, contains)
		require.Less(t, len(err.Error()), 400)
		require.Regexp(t, `^barrier: [a-z ]+ ".*": \P{C}*$`, err.Error())
	}
	require.Empty(t, kit.Scripts(s))
	require.Zero(t, len(s.List("KEYS", "*{*")))
}

func TestUnusableNumbersOfPartiesAreRefused(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		for _, n := range []int{0, -1, math.MinInt} {
			rejected(t, s, barrier.New(c, "name", n), lease.ErrInvalid, "at least 1")
		}
		for _, n := range []int{barrier.MaxParties + 1, 1<<53 - 1, 1 << 53, math.MaxInt} {
			rejected(t, s, barrier.New(c, "name", n), lease.ErrTooLarge, "at most 10000")
		}
		for _, n := range []int{1, 7, barrier.MaxParties} {
			require.Equal(t, n, barrier.New(c, "name", n).Parties())
		}
		b := barrier.New(c, "name", barrier.MaxParties)
		_ = kit.Go(func() (int, error) { return b.Await(t.Context()) })
		kit.Waiting(t, 1, b.Inspect)
		info, err := b.Inspect(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, barrier.MaxParties, info.Limit)
	})
}

func TestUnusableNamesAndTimesAreRefusedBeforeRedis(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		for _, name := range []string{"", "}", "}x", "a\nb", "a\x00b", "a\x1b[2Jb", "\xff"} {
			rejected(t, s, barrier.New(c, name, 2), lease.ErrInvalid, ": ")
		}
		rejected(t, s, barrier.New(c, strings.Repeat("x", lease.MaxName+1), 2), lease.ErrTooLarge, "use a hash")
		for _, d := range []time.Duration{0, -1, time.Second, time.Minute - 1, lease.MaxLease + 1, math.MaxInt64} {
			rejected(t, s, barrier.New(c, "name", 2, barrier.WithLifetime(d)), lease.ErrInvalid, "lifetime")
		}
		for _, d := range []time.Duration{0, -1, lease.MinLease - 1, lease.MaxLease + 1, math.MaxInt64, math.MinInt64} {
			s.ResetStats()
			_, err := barrier.New(c, "name", 2, headwaiter.WithLease(d)).Await(t.Context())
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, "a lease of")
			require.Empty(t, kit.Scripts(s))
		}
	})
}

func TestUnusualNamesWork(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b := kit.Dial(t, s), kit.Dial(t, s)
		for _, name := range []string{
			"{x}", "a}b", "{}x", "{", "a b", "%d%s", `"quoted"`, `back\slash`, "*", "Prüfung/日本語/🔒", "a:b:leases", ":",
			"'; return 1", strings.Repeat("x", lease.MaxName),
		} {
			one, other := barrier.New(a, name, 2), barrier.New(b, name, 2)
			require.Equal(t, name, one.Name())
			c := kit.Go(func() (int, error) { return one.Await(t.Context()) })
			kit.Waiting(t, 1, one.Inspect)
			pass(t, c, kit.Go(func() (int, error) { return other.Await(t.Context()) }))
		}
	})
}

func TestAnotherNumberOfPartiesIsAMismatch(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		two, three := dial(t, s, 2), dial(t, s, 3)
		first := two.comes(t, t.Context(), 1)
		for range 2 {
			_, err := three.Await(t.Context())
			require.ErrorIs(t, err, lease.ErrMismatch)
			require.ErrorContains(t, err, "it was made with 2")
			require.False(t, first.Returned())
			require.False(t, two.broken(t))
		}
		pass(t, first, two.party(t.Context()))
		_, err := three.Await(t.Context())
		require.ErrorIs(t, err, lease.ErrMismatch, "it counts until the barrier is forgotten")
		require.EqualValues(t, 2, three.inspect(t).Limit)
	})
}

func TestAnotherTypeUnderAKeyIsAnErrorAndStaysAsItIs(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		c := kit.Dial(t, s)
		for i, ending := range []string{"", ":leases", ":arrivals", ":last", ":calls"} {
			name := fmt.Sprint("barrier ", i)
			b, key := barrier.New(c, name, 2), lockOf(name)+ending
			s.Do("SET", key, "x")
			_, await := b.Await(t.Context())
			require.ErrorContains(t, await, "WRONGTYPE", "%s", key)
			for _, other := range []string{"", ":leases", ":arrivals", ":last"} {
				if other != ending {
					require.Zero(t, s.Int("EXISTS", lockOf(name)+other), "nothing was written before the error")
				}
			}
			require.Equal(t, "x", s.Text("GET", key))
		}
	})
}

func TestAllPartiesAreToldOfAnErrorThatNoRetryMends(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		v := dial(t, s, 5)
		calls := gathers(t, func(int) view { return v })
		s.Do("SET", lockOf(v.Name()), "x")
		for _, c := range calls {
			require.ErrorContains(t, c.Err(t), "WRONGTYPE")
		}
	})
}
