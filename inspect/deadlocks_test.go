package inspect_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

func waitsFor(t *testing.T, c *headwaiter.Client, lasting time.Duration) inspect.Graph {
	t.Helper()
	g := kit.Got(inspect.Deadlocks(t.Context(), c, lasting))(t)
	require.False(t, g.Partial)
	return g
}

// circle lets each client hold a name of its own and wait for the next client's.
func circle(t *testing.T, clients []*headwaiter.Client, names []string) (held []*lease.Lease, waits []*kit.Call[*lease.Lease]) {
	t.Helper()
	for i, c := range clients {
		l := kit.Got(fairlock.New(c, names[i], headwaiter.WithLease(time.Minute)).Lock(t.Context()))(t)
		held = append(held, l)
	}
	for i, c := range clients {
		m := fairlock.New(c, names[(i+1)%len(names)])
		waits = append(waits, kit.Lock(t.Context(), m.Lock))
		kit.Waiting(t, 1, m.Inspect)
	}
	return held, waits
}

func TestADeadlockIsFoundAndBrokenByForce(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b, c := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
		look := kit.Dial(t, s)
		require.Zero(t, waitsFor(t, look, 0))
		clients, names := []*headwaiter.Client{a, b, c}, []string{"x", "y", "z"}
		held, waits := circle(t, clients, names)

		g := waitsFor(t, look, 0)
		require.Len(t, g.Waits, 3)
		require.Equal(t, 3, g.Stuck)
		require.Len(t, g.Cycles, 1)
		cycle := g.Cycles[0]
		require.Len(t, cycle, 3)
		for i, link := range cycle {
			next := cycle[(i+1)%3]
			at := slices.Index(names, link.Name)
			require.Equal(t, clients[(at+2)%3].ID(), link.Client)
			require.Equal(t, "lock", link.Kind)
			require.Equal(t, 1, link.Place)
			require.Positive(t, link.Wait.Wait)
			require.True(t, strings.HasPrefix(link.Who, "test@"), link.Who)
			require.Equal(t, next.Client, link.Hold.Client)
			require.Equal(t, held[at].Token(), link.Hold.Token)
		}

		m := fairlock.New(look, cycle[0].Name)
		require.NoError(t, kit.Err(m.ForceRelease(t.Context(), cycle[0].Hold.Token)))
		require.ErrorIs(t, kit.Lost(t, held[slices.Index(names, cycle[0].Name)]), lease.ErrForced)
		got := waits[(slices.Index(names, cycle[0].Name)+2)%3].Value(t)
		g = waitsFor(t, look, 0)
		require.Zero(t, g.Stuck)
		require.Empty(t, g.Cycles)
		require.Len(t, g.Waits, 2)
		kit.Release(t, got)
	})
}

// Permits that do not come back, and those that do.
func TestDeadlocksOfSharedLocks(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b, look := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
		hold(t, b, "x")
		mine, theirs := semaphore.New(a, "s", 3), semaphore.New(b, "s", 3)
		require.NoError(t, kit.Err(mine.Acquire(t.Context(), 2)))
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		x := fairlock.New(a, "x")
		kit.Lock(ctx, x.Lock)
		kit.Waiting(t, 1, x.Inspect)
		small := kit.Got(theirs.Acquire(t.Context(), 1))(t)
		require.Empty(t, waitsFor(t, look, 0).Cycles)
		kit.Release(t, small)
		kit.Go(func() (*lease.Lease, error) { return theirs.Acquire(ctx, 2) })
		kit.Waiting(t, 1, theirs.Inspect)
		require.Len(t, waitsFor(t, look, 0).Cycles, 1)
	})
}

// Processes that use a lock from several goroutines each wait for it while they hold it, all the time and one after the
// other; no goroutine waits for itself.
func TestNoDeadlockOfProcessesThatUseOneLockByManyGoroutines(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b, look := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
		for _, lock := range []struct {
			first, next func(*headwaiter.Client) (*lease.Lease, error)
			inspect     func(context.Context) (lease.Info, error)
		}{
			{
				func(c *headwaiter.Client) (*lease.Lease, error) { return fairlock.New(c, "l").Lock(t.Context()) },
				func(c *headwaiter.Client) (*lease.Lease, error) { return fairlock.New(c, "l").Lock(t.Context()) },
				fairlock.New(look, "l").Inspect,
			},
			{
				func(c *headwaiter.Client) (*lease.Lease, error) { return rwlock.New(c, "rw").RLock(t.Context()) },
				func(c *headwaiter.Client) (*lease.Lease, error) { return rwlock.New(c, "rw").Lock(t.Context()) },
				rwlock.New(look, "rw").Inspect,
			},
			{
				func(c *headwaiter.Client) (*lease.Lease, error) {
					return semaphore.New(c, "s", 2).Acquire(t.Context(), 1)
				},
				func(c *headwaiter.Client) (*lease.Lease, error) {
					return semaphore.New(c, "s", 2).Acquire(t.Context(), 2)
				},
				semaphore.New(look, "s", 2).Inspect,
			},
		} {
			held := kit.Got(lock.first(a))(t)
			var waits []*kit.Call[*lease.Lease]
			for i, c := range []*headwaiter.Client{b, a, b, a} {
				waits = append(waits, kit.Go(func() (*lease.Lease, error) { return lock.next(c) }))
				kit.Waiting(t, i+1, lock.inspect)
			}
			g := waitsFor(t, look, 0)
			require.Len(t, g.Waits, 4)
			require.Zero(t, g.Stuck)
			require.Empty(t, g.Cycles)
			for _, w := range waits {
				held = kit.Next(t, held, w)
			}
			kit.Release(t, held)
		}
	})
}

// Calls of one client that run at the same time are no deadlock, and neither is a candidate that leads elsewhere.
func TestWhatIsNoDeadlock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b, look := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
		ctx, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		hold(t, a, "x", "y")
		for _, name := range []string{"x", "y"} {
			m := fairlock.New(a, name)
			kit.Lock(ctx, m.Lock)
			kit.Waiting(t, 1, m.Inspect)
		}
		for i, c := range []*headwaiter.Client{a, b} {
			require.NoError(t, kit.Err(election.New(c, []string{"e", "f"}[i]).Campaign(t.Context(), "")))
		}
		for i, c := range []*headwaiter.Client{b, a} {
			e := election.New(c, []string{"e", "f"}[i])
			kit.Go(func() (*lease.Lease, error) { return e.Campaign(ctx, "") })
			kit.Waiting(t, 1, e.Inspect)
		}
		g := waitsFor(t, look, 0)
		require.Len(t, g.Waits, 2)
		require.Zero(t, g.Stuck)
	})
}

// A cycle that is over before the second look is none.
func TestACycleMustLast(t *testing.T) {
	s := kit.Start(t)
	a, b, look := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
	held, waits := circle(t, []*headwaiter.Client{a, b}, []string{"x", "y"})
	require.Len(t, waitsFor(t, look, 0).Cycles, 1)
	s.ResetStats()
	const lasting = 2 * time.Second
	graph := kit.Go(func() (inspect.Graph, error) { return inspect.Deadlocks(t.Context(), look, lasting) })
	kit.Eventually(t, "the first look", func() bool { return s.CommandStats()["evalsha"] >= 2 })
	for _, l := range held {
		kit.Release(t, l)
	}
	for _, w := range waits {
		kit.Release(t, w.Value(t))
	}
	circle(t, []*headwaiter.Client{a, b}, []string{"x", "y"}) // Another one, of the same clients.
	g := graph.Value(t)
	require.Empty(t, g.Cycles)
	require.Zero(t, g.Stuck)
	require.Len(t, waitsFor(t, look, 0).Cycles, 1)

	ctx, cancel := context.WithCancelCause(t.Context())
	circle(t, []*headwaiter.Client{a, b}, []string{"v", "w"})
	s.ResetStats()
	graph = kit.Go(func() (inspect.Graph, error) { return inspect.Deadlocks(ctx, look, time.Hour) })
	kit.Eventually(t, "the first look", func() bool { return s.CommandStats()["evalsha"] >= 2 })
	why := errors.New("enough")
	cancel(why)
	kit.Fails(t, graph.Err(t), context.Canceled, why)
}

func TestWhatCannotBeReadMayBeInACycle(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		s.Do("SET", "headwaiter:lock:{bad}", "x")
		require.True(t, kit.Got(inspect.Deadlocks(t.Context(), c, 0))(t).Partial)
	})
}

func TestWhatEndsByItselfIsInNoDeadlock(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b, look := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
		for _, ends := range []bool{true, false} {
			opts := []semaphore.Option{headwaiter.WithLease(time.Minute)}
			if ends {
				opts = append(opts, semaphore.WithoutRenewal())
			}
			name := map[bool]string{true: "rate", false: "jobs"}[ends]
			permit := kit.Got(semaphore.New(a, name, 1, opts...).Acquire(t.Context(), 1))(t)
			lock := kit.Got(fairlock.New(b, name).Lock(t.Context()))(t)
			m, p := fairlock.New(a, name), semaphore.New(b, name, 1, opts...)
			first := kit.Lock(t.Context(), m.Lock)
			kit.Waiting(t, 1, m.Inspect)
			second := kit.Lock(t.Context(), func(ctx context.Context) (*lease.Lease, error) { return p.Acquire(ctx, 1) })
			kit.Waiting(t, 1, p.Inspect)
			g := waitsFor(t, look, 0)
			require.Len(t, g.Waits, 2)
			require.Equal(t, ends, len(g.Cycles) == 0)
			require.Equal(t, ends, g.Stuck == 0)
			kit.Release(t, lock)
			kit.Release(t, first.Value(t))
			kit.Release(t, permit)
			kit.Release(t, second.Value(t))
		}
	})
}
