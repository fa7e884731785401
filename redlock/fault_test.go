package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

const (
	timeout = 500 * time.Millisecond
	lasts   = 10 * time.Second
)

type trouble struct {
	name    string
	begin   func(s *redistest.Server, p *faults.Proxy)
	recover func(s *redistest.Server, p *faults.Proxy)
}

// troubles are what can happen to a node, and how it ends.
var troubles = []trouble{
	{
		"killed",
		func(s *redistest.Server, _ *faults.Proxy) { s.Kill() },
		func(s *redistest.Server, _ *faults.Proxy) { s.Restart() },
	},
	{
		"stopped",
		func(s *redistest.Server, _ *faults.Proxy) { s.Stop() },
		func(s *redistest.Server, _ *faults.Proxy) { s.Cont() },
	},
	{
		"slow by a second",
		func(_ *redistest.Server, p *faults.Proxy) { p.Delay(time.Second) },
		func(_ *redistest.Server, p *faults.Proxy) { p.Heal() },
	},
	{
		"unreachable",
		func(_ *redistest.Server, p *faults.Proxy) { p.Freeze() },
		func(_ *redistest.Server, p *faults.Proxy) { p.Heal() },
	},
}

// behind returns servers with a proxy before each, and what leads clients to these.
func behind(t *testing.T, n int) ([]*redistest.Server, []*faults.Proxy, func() []*headwaiter.Client) {
	t.Helper()
	all := servers(t, n)
	proxies := make([]*faults.Proxy, n)
	for i, s := range all {
		proxies[i] = kit.Proxy(t, s)
	}
	return all, proxies, func() []*headwaiter.Client {
		clients := make([]*headwaiter.Client, n)
		for i, s := range all {
			clients[i] = kit.Dial(t, s, kit.Through(proxies[i]))
		}
		return clients
	}
}

// How long it takes is asserted in bubbles, whose clocks stand still while the machine is busy.
func TestR1AMinorityInTroubleHoldsUpNobody(t *testing.T) {
	for _, trouble := range append(troubles, trouble{
		"empty after a restart",
		func(s *redistest.Server, _ *faults.Proxy) { s.Restart() },
		func(*redistest.Server, *faults.Proxy) {},
	}) {
		t.Run(trouble.name, func(t *testing.T) {
			t.Parallel()
			all, proxies, connect := behind(t, 5)
			options := []redlock.Option{redlock.WithTimeout(timeout), headwaiter.WithLease(lasts)}
			a, b, c := mutex(t, connect(), options...), mutex(t, connect(), options...), mutex(t, connect(), options...)

			held, err := a.Lock(soon(t))
			require.NoError(t, err)
			everywhere(t, a, all)
			for i := range 2 {
				trouble.begin(all[i], proxies[i])
			}
			kit.Release(t, held)
			l, err := a.Lock(soon(t))
			require.NoError(t, err)
			next := kit.Lock(soon(t), b.Lock)
			_, err = c.TryLock(t.Context())
			require.ErrorIs(t, err, lease.ErrBusy)
			kit.Release(t, l)
			kit.Release(t, next.Value(t))

			g := newGuard()
			stop := g.contend(t, a, b, c)
			g.reached(t, 20)
			for i := range 2 {
				trouble.recover(all[i], proxies[i])
			}
			g.reached(t, 20)
			stop()
			g.sound(t)
		})
	}
}

func TestR2AMajorityInTroubleIsAClearErrorAndLeavesNothing(t *testing.T) {
	for _, trouble := range troubles {
		t.Run(trouble.name, func(t *testing.T) {
			t.Parallel()
			all, proxies, connect := behind(t, 5)
			const lasts = 2 * time.Second
			m := mutex(t, connect(), redlock.WithTimeout(timeout), headwaiter.WithLease(lasts))
			for i := range 3 {
				trouble.begin(all[i], proxies[i])
			}
			_, err := m.Lock(context.Background())
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, `redlock: lock "TestR2`)
			require.ErrorContains(t, err, "no quorum: 3 of 5 nodes did not answer: ")

			_, err = m.TryLock(context.Background())
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorContains(t, err, "3 of 5 nodes did not answer")

			for i := range 3 {
				trouble.recover(all[i], proxies[i])
			}
			// What was on its way to them may arrive now; it ends with its lease at the latest.
			empty(t, all)
			ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
			defer cancel()
			l, err := m.Lock(ctx)
			require.NoError(t, err)
			kit.Release(t, l)
			require.NoError(t, m.Wait(ctx))
			empty(t, all)
		})
	}
}

// everywhere waits until all nodes have given their votes to who holds m, and that one knows of them.
func everywhere(t *testing.T, m *redlock.Mutex, all []*redistest.Server) {
	t.Helper()
	for _, s := range all {
		kit.Eventually(t, "a node to give its vote", func() bool { return s.Text("HGET", keys(t).Lock, "owner") != "" })
	}
	require.NoError(t, m.Wait(soon(t)))
}

// empty waits until nobody holds or waits for the lock of the test at any node.
func empty(t *testing.T, all []*redistest.Server) {
	t.Helper()
	k := keys(t)
	for _, s := range all {
		kit.Eventually(t, "a node to have nothing of the lock", func() bool {
			return s.Text("HGET", k.Lock, "owner") == "" && s.Int("ZCARD", k.Queue) == 0
		})
	}
}

// A node that has forgotten its vote would give it to the next, and with two others make a second quorum. Without the
// delay that is what happens, so the case has teeth.
func TestR3ANodeThatCameUpWithoutItsDataHasNoVoteBeforeALeaseIsOver(t *testing.T) {
	t.Parallel()
	for _, safe := range []bool{true, false} {
		t.Run(fmt.Sprintf("safe restart %v", safe), func(t *testing.T) {
			t.Parallel()
			all, proxies, connect := behind(t, 5)
			options := []redlock.Option{headwaiter.WithLease(4 * time.Second), redlock.WithTimeout(timeout)}
			if !safe {
				options = append(options, redlock.WithoutSafeRestart())
			}
			a := redlock.New(connect(), kit.Name(t), options...)
			b := redlock.New(dial(t, all), kit.Name(t), options...)
			proxies[3].Freeze()
			proxies[4].Freeze()
			held, err := a.Lock(soon(t)) // A bare majority; by nodes that have run for a lease, if that counts.
			require.NoError(t, err)
			all[2].Restart()
			second, err := b.Lock(soon(t))
			require.NoError(t, err)
			if safe {
				require.ErrorIs(t, context.Cause(held.Context()), lease.ErrLost)
			} else {
				require.NoError(t, held.Context().Err(), "it is known to be lost by the next renewals")
			}
			require.Greater(t, second.Token(), held.Token())
			kit.Release(t, second)
		})
	}
}

// soon is the context of what must come.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	t.Cleanup(cancel)
	return ctx
}

// The clock of one node jumps by more than a lease, so that node gives its vote to the next, and to nobody it helps:
// the others are a majority of a hold that all nodes have voted for.
func TestR4OneClockThatIsOffByALeaseLetsNobodyIn(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{2 * lasts, -2 * lasts} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			clock := redistest.NewClock(t)
			all := append(servers(t, 4), redistest.Start(t, redistest.WithClock(clock)))
			options := []redlock.Option{headwaiter.WithLease(lasts), redlock.WithTimeout(timeout)}
			a, b, c := mutex(t, dial(t, all), options...), mutex(t, dial(t, all), options...), mutex(t, dial(t, all), options...)
			held, err := a.Lock(soon(t))
			require.NoError(t, err)
			everywhere(t, a, all)
			next := kit.Lock(soon(t), b.Lock)
			queued(t, all, 1)
			clock.Shift(jump)
			if jump > 0 {
				owner := all[4].Text("HGET", keys(t).Lock, "owner")
				kit.Eventually(t, "the node whose clock jumped to give its vote to another", func() bool {
					_, _ = c.TryLock(soon(t)) // It finds what is over its time.
					return all[4].Text("HGET", keys(t).Lock, "owner") != owner
				})
			}
			_, err = c.TryLock(soon(t))
			require.ErrorIs(t, err, lease.ErrBusy)
			require.False(t, next.Returned())
			require.NoError(t, held.Context().Err())
			kit.Release(t, held)
			second := next.Value(t)
			require.Greater(t, second.Token(), held.Token())
			kit.Release(t, second)

			g := newGuard()
			g.token = second.Token()
			contend := func() {
				stop := g.contend(t, a, b, c)
				g.reached(t, 50)
				stop()
			}
			contend()
			for _, m := range []*redlock.Mutex{a, b, c} {
				require.NoError(t, m.Wait(soon(t)))
			}
			third, err := a.Lock(soon(t))
			require.NoError(t, err)
			g.enter(third)
			everywhere(t, a, all)
			clock.Shift(0)
			g.leave(third)
			kit.Release(t, third)
			contend()
			g.sound(t)
		})
	}
}

// queued waits until so many wait at every node.
func queued(t *testing.T, all []*redistest.Server, n int64) {
	t.Helper()
	for _, s := range all {
		kit.Eventually(t, "the queue of a node to have its length", func() bool { return s.Int("ZCARD", keys(t).Queue) == n })
	}
}
