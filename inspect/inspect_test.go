package inspect_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// listed collects a list, as kind and name, in the order of names.
func listed(t *testing.T, c *headwaiter.Client, pattern string) (names []string) {
	t.Helper()
	for n, err := range inspect.List(t.Context(), c, pattern) {
		require.NoError(t, err)
		require.NoError(t, n.Err)
		names = append(names, n.Kind+" "+n.Name)
	}
	slices.Sort(names)
	return names
}

func hold(t *testing.T, c *headwaiter.Client, names ...string) (held []*lease.Lease) {
	t.Helper()
	for _, name := range names {
		l := kit.Got(fairlock.New(c, name, headwaiter.WithLease(time.Minute)).Lock(t.Context()))(t)
		held = append(held, l)
	}
	return held
}

func TestListTellsOfAllKinds(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, c, other *headwaiter.Client) {
		require.Empty(t, listed(t, c, "*"))
		const name = "x"
		held := hold(t, c, name)[0]
		m := fairlock.New(other, name)
		ctx, giveUp := context.WithCancel(t.Context())
		waits := kit.Lock(ctx, m.Lock)
		kit.Waiting(t, 1, m.Inspect)
		require.NoError(t, kit.Err(reentrant.New(c, name).Lock(t.Context())))
		require.NoError(t, kit.Err(rwlock.New(c, name).RLock(t.Context())))
		require.NoError(t, kit.Err(semaphore.New(c, name, 7).Acquire(t.Context(), 3)))
		require.NoError(t, kit.Err(election.New(c, name).Campaign(t.Context(), "value")))
		require.NoError(t, kit.Err(countdown.New(c, name).TrySetCount(t.Context(), 5)))
		b := barrier.New(c, name, 2)
		comes := kit.Go(func() (int, error) { return b.Await(ctx) })
		kit.Waiting(t, 1, b.Inspect)

		found := map[string]inspect.Listed{}
		for n, err := range inspect.List(t.Context(), c, "*") {
			require.NoError(t, err)
			require.NoError(t, n.Err)
			require.Equal(t, name, n.Name)
			found[n.Kind] = n
		}
		require.Len(t, found, 7)
		lock := found["lock"].Info
		require.Equal(t, c.ID(), lock.Holder.Client)
		require.True(t, strings.HasPrefix(lock.Holder.Who, "test@"))
		require.Equal(t, held.Token(), lock.Holder.Token)
		require.Equal(t, 1, lock.Waiting)
		require.Equal(t, other.ID(), lock.Queue[0].Client)
		require.EqualValues(t, 1, found["reentrant"].Info.Used)
		require.EqualValues(t, 1, found["rwlock"].Info.Used)
		require.EqualValues(t, []int64{7, 3}, []int64{found["semaphore"].Info.Limit, found["semaphore"].Info.Used})
		require.Equal(t, c.ID(), found["election"].Info.Holder.Client)
		require.EqualValues(t, 5, found["latch"].Info.Used)
		require.EqualValues(t, []int64{2, 1}, []int64{found["barrier"].Info.Limit, found["barrier"].Info.Used})

		giveUp()
		require.Error(t, waits.Err(t))
		require.Error(t, comes.Err(t))
	})
}

func TestPatterns(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		names := []string{"a", "b", "ab", "a/b/c", "a*", "über", "a:{b", "{b", "b}"}
		hold(t, c, names...)
		for _, other := range []string{"headwaiter", "headwaiter:lock:b", "headwaiter:fence:{b}", "other:lock:{b}", "headwaiter:lock:{}"} {
			s.Do("SET", other, "x")
		}
		for pattern, want := range map[string]string{
			"*":       "a a* a/b/c a:{b ab b b} {b über",
			"a":       "a",
			"a*":      "a a* a/b/c a:{b ab",
			`a\*`:     "a*",
			"?":       "a b",
			"?b":      "ab {b",
			"[a-b]":   "a b",
			"[^a]*":   "b b} {b über",
			"a/*":     "a/b/c",
			"*/*":     "a/b/c",
			"?ber":    "über",
			"b*":      "b b}",
			"nothing": "",
		} {
			var want2 []string
			for name := range strings.FieldsSeq(want) {
				want2 = append(want2, "lock "+name)
			}
			require.Equal(t, want2, listed(t, c, pattern), pattern)
		}
		told := 0
		for _, err := range inspect.List(t.Context(), c, "[a") {
			told++
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.EqualError(t, err, `inspect: list "[a": invalid argument: the pattern has a class without an end, or a backslash at the end`)
		}
		require.Equal(t, 1, told)
	})
}

func TestAPrefixIsNoPattern(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		strange := kit.Dial(t, s, func(o *headwaiter.Options) { o.Prefix = `a[b]*?\` })
		usual := kit.Dial(t, s, func(o *headwaiter.Options) { o.Prefix = "ab" })
		hold(t, strange, "x")
		hold(t, usual, "y")
		require.Equal(t, []string{"lock x"}, listed(t, strange, "*"))
		require.Equal(t, []string{"lock y"}, listed(t, usual, "*"))
	})
}

func TestAKeyOfAnotherTypeIsToldWithItsName(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		hold(t, c, "good")
		s.Do("SET", "headwaiter:lock:{bad}", "x")
		failed := map[string]bool{}
		for n, err := range inspect.List(t.Context(), c, "*") {
			require.NoError(t, err)
			failed[n.Name] = n.Err != nil
		}
		require.Equal(t, map[string]bool{"good": false, "bad": true}, failed)
	})
}

func TestAListEndsWhenItsCallerHasEnough(t *testing.T) {
	kit.One(t, func(t *testing.T, _ redistest.Backend, c *headwaiter.Client) {
		hold(t, c, "a", "b", "c")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range inspect.List(ctx, c, "*") {
			cancel() // And it does not tell of that to somebody who has gone.
			break
		}
		n := 0
		for _, err := range inspect.List(ctx, c, "*") {
			require.ErrorIs(t, err, context.Canceled)
			n++
		}
		require.Equal(t, 1, n)
	})
}

func TestWhoIsNotTheTextOfAnError(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		hold(t, c, "x")
		s.Do("SET", "headwaiter:client:"+c.ID(), "no hash")
		found := kit.Got(inspect.Find(t.Context(), c, "x"))(t)
		require.Equal(t, c.ID(), found[0].Info.Holder.Client)
		require.Empty(t, found[0].Info.Holder.Who)
	})
}

func TestFindTellsOfOneName(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		find := func(name string) (kinds []string) {
			found := kit.Got(inspect.Find(t.Context(), c, name))(t)
			for _, n := range found {
				require.NoError(t, n.Err)
				kinds = append(kinds, n.Kind)
			}
			return kinds
		}
		require.Empty(t, find("x"))
		kit.Release(t, hold(t, c, "x")[0])
		require.Equal(t, []string{"lock"}, find("x"), "it is known for a while")
		require.NoError(t, kit.Err(semaphore.New(c, "x", 2).Acquire(t.Context(), 1)))
		require.NoError(t, kit.Err(countdown.New(c, "x").TrySetCount(t.Context(), 5)))
		require.Equal(t, []string{"lock", "semaphore", "latch"}, find("x"))
		require.Empty(t, find("x*"))

		s.Do("SET", "headwaiter:barrier:{x}", "x")
		found := kit.Got(inspect.Find(t.Context(), c, "x"))(t)
		require.Len(t, found, 4)
		require.ErrorContains(t, found[3].Err, "WRONGTYPE")
		require.ErrorIs(t, kit.Err(inspect.Find(t.Context(), c, "")), lease.ErrInvalid)
		s.Kill()
		ctx := kit.Within(t, time.Second)
		require.ErrorIs(t, kit.Err(inspect.Find(ctx, c, "x")), context.DeadlineExceeded)
	})
}

func TestAListWalksInSteps(t *testing.T) {
	t.Parallel()
	const others = 20_000
	s := redistest.Start(t)
	c := kit.Dial(t, s)
	s.Do("DEBUG", "POPULATE", fmt.Sprint(others), "headwaiter:lock")
	hold(t, c, "a", "b")
	s.ResetStats()
	require.Equal(t, []string{"lock a", "lock b"}, listed(t, c, "*"))
	stats := s.CommandStats()
	require.Zero(t, stats["keys"])
	require.GreaterOrEqual(t, stats["scan"], int64(others/2000))
	require.LessOrEqual(t, stats["evalsha"]+stats["eval"], int64(8), "two looks, and what a client says of itself meanwhile")
}

func TestAListNeedsARight(t *testing.T) {
	s := kit.Start(t, redistest.WithUser("reader", "secret", "+@all", "-scan", "~*", "&*"))
	c := kit.Dial(t, s)
	told := 0
	for _, err := range inspect.List(t.Context(), c, "*") {
		told++
		kit.Fails(t, err, `inspect: list "*": the user lacks a right`, "scan")
	}
	require.Equal(t, 1, told)
}

func TestALookAtASilentServerEndsWithItsContext(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c := kit.Dial(t, s, kit.Over(d))
		hold(t, c, "name")
		ctx := kit.Within(t, 200*time.Millisecond)
		d.Drop()
		begun := time.Now()
		_, err := inspect.Find(ctx, c, "name")
		require.Less(t, time.Since(begun), 300*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, headwaiter.ErrUnavailable)
		ctx = kit.Within(t, 200*time.Millisecond)
		for _, err := range inspect.List(ctx, c, "*") {
			require.ErrorIs(t, err, headwaiter.ErrUnavailable)
		}
		require.ErrorIs(t, kit.Err(inspect.Deadlocks(kit.Within(t, 200*time.Millisecond), c, 0)), headwaiter.ErrUnavailable)
		require.ErrorIs(t, kit.Err(inspect.History(kit.Within(t, 200*time.Millisecond), c, "name")), headwaiter.ErrUnavailable)
		d.Heal()
	})
}
