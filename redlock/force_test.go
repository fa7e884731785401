package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

func TestAHoldReleasedByForceAtAllNodesIsTheNextCalls(t *testing.T) {
	t.Parallel()
	all := servers(t, 5)
	m := mutex(t, dial(t, all), headwaiter.WithLease(time.Minute))
	l := kit.Got(m.Lock(soon(t)))(t)
	everywhere(t, m, all)
	other := mutex(t, dial(t, all), headwaiter.WithLease(time.Minute), redlock.WithTimeout(patient))
	waits := kit.Lock(t.Context(), other.Lock)

	require.ErrorIs(t, kit.Err(other.ForceRelease(soon(t), l.Token()+1)), lease.ErrOtherToken)
	require.NoError(t, l.Context().Err(), "what is held with another token stays")

	all[4].Stop() // One that does not answer keeps nobody.
	require.Equal(t, l.Token(), kit.Got(other.ForceRelease(soon(t), l.Token()))(t).Token)
	all[4].Cont()
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	next := waits.Value(t)
	require.Greater(t, next.Token(), l.Token())
	kit.Release(t, next)

	var err error
	kit.Eventually(t, "all votes to be given back", func() bool {
		_, err = other.ForceRelease(soon(t), 0)
		return err != nil
	})
	require.ErrorIs(t, err, lease.ErrNotHeld)
	require.Regexp(t, `^redlock: force release ".*": not held$`, err.Error())
}

func TestAForceThatAMajorityDoesNotAnswerSaysSo(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all), headwaiter.WithLease(time.Minute))
	l := kit.Got(m.Lock(soon(t)))(t)
	everywhere(t, m, all)
	other := mutex(t, dial(t, all), redlock.WithTimeout(patient))
	all[0].Stop()
	all[1].Stop()
	require.ErrorContains(t, kit.Err(other.ForceRelease(soon(t), l.Token())), "2 of 3 nodes did not answer, and may still hold it")
	all[0].Cont()
	all[1].Cont()
}

func TestAForceOfANameThatCannotBeSaysSo(t *testing.T) {
	t.Parallel()
	all := dial(t, servers(t, 3))
	_, err := redlock.New(all, "").ForceRelease(soon(t), 0)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.NotContains(t, err.Error(), "did not answer")
}

// anew are nodes with a hold whose votes at the first restarted nodes were given anew after restarts, so by other tokens
// than the hold's; and the mutex that frees it, through proxies of its own.
func anew(t *testing.T, n, restarted int) (all []*redistest.Server, p []*faults.Proxy, held *lease.Lease, other *redlock.Mutex) {
	t.Helper()
	all, p, connect := behind(t, n)
	lasts := headwaiter.WithLease(3 * time.Second)
	m := redlock.New(dial(t, all), kit.Name(t), lasts)
	held = kit.Got(m.Lock(soon(t)))(t)
	everywhere(t, m, all)
	for _, s := range all[:restarted] {
		s.Restart()
		kit.Eventually(t, "a node to vote anew", func() bool { return voter(t, s) != "" })
		require.NoError(t, m.Wait(soon(t)), "until the vote counts")
		require.NotEqual(t, fmt.Sprint(held.Token()), s.Text("HGET", keys(t).Lock, "token"))
	}
	require.NoError(t, held.Context().Err(), "the hold outlives restarts in turn")
	return all, p, held, redlock.New(connect(), kit.Name(t), lasts, redlock.WithTimeout(1500*time.Millisecond))
}

func TestAForceFreesTheVotesThatNodesHaveGivenAnew(t *testing.T) {
	t.Parallel()
	for _, restarted := range []int{2, 3} {
		kit.Parallel(t, fmt.Sprint(restarted), func(t *testing.T) {
			all, _, held, other := anew(t, 3, restarted)
			require.ErrorIs(t, kit.Err(other.ForceRelease(soon(t), held.Token()+1)), lease.ErrOtherToken)
			require.NoError(t, held.Context().Err())
			require.Equal(t, held.Token(), kit.Got(other.ForceRelease(soon(t), held.Token()))(t).Token)
			require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
			empty(t, all)
			require.ErrorIs(t, kit.Err(other.ForceRelease(soon(t), held.Token())), lease.ErrNotHeld)
		})
	}
}

func TestAForceThatCannotSeeAQuorumSaysSo(t *testing.T) {
	t.Parallel()
	all, proxies, held, other := anew(t, 3, 1)
	proxies[1].Freeze()
	proxies[2].Freeze()
	require.ErrorContains(t, kit.Err(other.ForceRelease(soon(t), held.Token())), "2 of 3 nodes did not answer, and may still hold it")
	// Of the two at least one tells the token of the hold. The other's vote may have come late, with a token of its own.
	tells := slices.IndexFunc(all, func(s *redistest.Server) bool {
		return s.Text("HGET", keys(t).Lock, "token") == fmt.Sprint(held.Token())
	})
	proxies[tells].Heal()
	kit.Eventually(t, "two of three to be freed", func() bool {
		return kit.Err(other.ForceRelease(soon(t), held.Token())) == nil
	})
	require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
	proxies[3-tells].Heal()
}

// One clock, or a minority of them, does not decide what tokens the others give: these would run ahead of their own clocks,
// and their keys would have to be kept for as long.
func TestTokensFollowNoClockThatIsFarAhead(t *testing.T) {
	for name, x := range map[string]struct {
		nodes, wrong int
		ahead        time.Duration
	}{
		"two seconds": {3, 1, 2 * time.Second},
		"hours":       {3, 1, 3 * time.Hour},
		"days":        {3, 1, 3 * 24 * time.Hour},
		"two of five": {5, 2, 3 * time.Hour},
	} {
		kit.Parallel(t, name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := bubble(t, x.nodes)
				for i := range x.wrong {
					b.all[i].Miniredis().SetTime(time.Now().Add(x.ahead))
				}
				connected := [][]*headwaiter.Client{b.connect(), b.connect()}
				for i := range x.wrong {
					for _, way := range b.ways[i] {
						way.Delay(time.Millisecond) // The others are a quorum before these have answered.
					}
				}
				var last uint64
				for range 5 {
					for _, clients := range connected {
						m := mutex(t, clients, redlock.WithTimeout(timeout), headwaiter.WithLease(lasts))
						l := kit.Got(m.Lock(t.Context()))(t)
						require.Greater(t, l.Token(), last)
						last = l.Token()
						require.Less(t, last, uint64(time.Now().Add(time.Second).UnixMicro()))
						synctest.Wait()
						kit.Release(t, l)
						require.NoError(t, m.Wait(t.Context()))
					}
				}
			})
		})
	}
}

const (
	timeout = 500 * time.Millisecond
	patient = 5 * time.Second // where a node that is slow must not count as one that does not answer
	lasts   = 10 * time.Second
)

// behind returns servers with a proxy before each, and what leads clients to these.
func behind(t *testing.T, n int) ([]*redistest.Server, []*faults.Proxy, func() []*headwaiter.Client) {
	t.Helper()
	all, proxies := servers(t, n), make([]*faults.Proxy, n)
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

// everywhere waits until all nodes have given their votes to who holds m, and that one knows of them.
func everywhere(t *testing.T, m *redlock.Mutex, all []*redistest.Server) {
	t.Helper()
	for _, s := range all {
		kit.Eventually(t, "a node to give its vote", func() bool { return voter(t, s) != "" })
	}
	require.NoError(t, m.Wait(soon(t)))
}

// voter is the ticket that has the vote of a node; empty if none has, also where the next is to be told how the last one
// lost it.
func voter(t *testing.T, s interface{ Text(args ...string) string }) string {
	t.Helper()
	owner := s.Text("HGET", keys(t).Lock, "owner")
	if wire.Rests(owner) {
		return ""
	}
	return owner
}

// empty waits until nobody holds or waits for the lock of the test at any node.
func empty(t *testing.T, all []*redistest.Server) {
	t.Helper()
	k := keys(t)
	for _, s := range all {
		kit.Eventually(t, "a node to have nothing of the lock", func() bool {
			return voter(t, s) == "" && s.Int("ZCARD", k.Queue) == 0
		})
	}
}

// A node that has forgotten its vote would give it to the next, and with two others make a second quorum. Without the
// delay that is what happens, so the case has teeth.
func TestR3ANodeThatCameUpWithoutItsDataHasNoVoteBeforeALeaseIsOver(t *testing.T) {
	t.Parallel()
	for _, safe := range []bool{true, false} {
		kit.Parallel(t, fmt.Sprintf("safe restart %v", safe), func(t *testing.T) {
			all, proxies, connect := behind(t, 5)
			options := []redlock.Option{headwaiter.WithLease(4 * time.Second), redlock.WithTimeout(timeout)}
			if !safe {
				options = append(options, redlock.WithoutSafeRestart())
			}
			a := redlock.New(connect(), kit.Name(t), options...)
			b := redlock.New(dial(t, all), kit.Name(t), options...)
			proxies[3].Freeze()
			proxies[4].Freeze()
			held := kit.Got(a.Lock(soon(t)))(t) // A bare majority; by nodes that have run for a lease, if that counts.
			all[2].Restart()
			second := kit.Got(b.Lock(soon(t)))(t)
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
func soon(t *testing.T) context.Context { return kit.Within(t, kit.Patience) }

// The clock of one node jumps by more than a lease, so that node gives its vote to the next, and to nobody it helps:
// the others are a majority of a hold that all nodes have voted for.
func TestR4OneClockThatIsOffByALeaseLetsNobodyIn(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{2 * lasts, -2 * lasts} {
		kit.Parallel(t, jump.String(), func(t *testing.T) {
			clock := redistest.NewClock(t)
			all := append(servers(t, 4), redistest.Start(t, redistest.WithClock(clock)))
			options := []redlock.Option{headwaiter.WithLease(lasts), redlock.WithTimeout(timeout)}
			a, b, c := mutex(t, dial(t, all), options...), mutex(t, dial(t, all), options...), mutex(t, dial(t, all), options...)
			held := kit.Got(a.Lock(soon(t)))(t)
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
			require.ErrorIs(t, kit.Err(c.TryLock(soon(t))), lease.ErrBusy)
			require.False(t, next.Returned())
			require.NoError(t, held.Context().Err())
			second := kit.Next(t, held, next)
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
			third := kit.Got(a.Lock(soon(t)))(t)
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

// queued waits until n wait at every node.
func queued(t *testing.T, all []*redistest.Server, n int64) {
	t.Helper()
	for _, s := range all {
		kit.Eventually(t, "the queue of a node to have its length", func() bool { return s.Int("ZCARD", keys(t).Queue) == n })
	}
}
