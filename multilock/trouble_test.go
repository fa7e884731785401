package multilock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/multilock"
)

// Two calls each come to hold what the other waits for, at the same moment, with the same bound, over a network that is
// slow enough for neither to hear in time that the other gives up. Both must have all of it soon.
func TestTwoThatGiveUpAtTheSameMomentDoNotDoSoForGood(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		over := func() *headwaiter.Client {
			d := faults.NewDialer(t, s.Dial)
			d.Delay(time.Millisecond)
			return kit.Dial(t, s, kit.Over(d))
		}
		const bound = 10 * time.Millisecond
		first, second, holder := over(), over(), kit.Dial(t, s)
		for apart := range 20 {
			all := names(t, 3)
			l, err := multilock.New(holder, []string{all[0], all[2]}).Lock(t.Context())
			assert.NoError(t, err)
			var work sync.WaitGroup
			call := func(c *headwaiter.Client) {
				m := multilock.New(c, all, multilock.WithBound(bound))
				work.Go(func() { assert.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil })) })
			}
			// The first holds the name in the middle, which is free, until its bound is over, and waits for the others.
			call(first)
			time.Sleep(5 * bound) // Of the bubble.
			// The second takes that name about when the first gets the others.
			call(second)
			time.Sleep(time.Duration(apart) * time.Millisecond) // Of the bubble.
			kit.Release(t, l)
			begun := time.Now()
			kit.All(t, &work)
			assert.Less(t, time.Since(begun), 10*time.Second, "%d ms apart", apart)
		}
	})
}

// The same two where a maximum ends what each holds before its bound is over.
func TestTwoThatLoseTheirNamesAtTheSameMomentDoNotDoSoForGood(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		over := func() *headwaiter.Client {
			d := faults.NewDialer(t, s.Dial)
			d.Delay(4 * time.Millisecond)
			return kit.Dial(t, s, kit.Over(d))
		}
		const most = 200 * time.Millisecond
		first, second, holder := over(), over(), kit.Dial(t, s)
		for apart := range 120 {
			all := names(t, 3)
			l, err := multilock.New(holder, []string{all[0], all[2]}).Lock(t.Context())
			assert.NoError(t, err)
			var work sync.WaitGroup
			call := func(c *headwaiter.Client) {
				m := multilock.New(c, all, headwaiter.WithMaxHold(most))
				work.Go(func() { assert.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil })) })
			}
			call(first)
			time.Sleep(3 * most / 4) // Of the bubble.
			call(second)
			time.Sleep(time.Duration(apart) * time.Millisecond) // Of the bubble.
			kit.Release(t, l)
			begun := time.Now()
			kit.All(t, &work)
			assert.Less(t, time.Since(begun), 10*most, "%d ms apart", apart)
		}
	})
}

func TestALeaseOnSeveralNamesSaysWhichTheyAre(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		l := kit.Got(multilock.New(kit.Dial(t, s), []string{"a", "b", "c", "d", "e"}).Lock(t.Context()))(t)
		require.Contains(t, l.String(), `"a, b, c and 2 more"`)
		kit.Release(t, l)
		require.ErrorContains(t, l.Release(t.Context()), `lease: release "a, b, c and 2 more": `)
	})
}

func TestATryCallsTheClientsThatKeepSomeOfTheNames(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := kit.Name(t)+" a", kit.Name(t)+" b"
		m := multilock.New(kit.Dial(t, s), []string{a, b})
		var kept []*fairlock.Mutex
		for _, name := range []string{a, b} {
			kept = append(kept, fairlock.New(kit.Dial(t, s), name, fairlock.WithKeep(time.Minute)))
		}
		hold := func(i int) *lease.Lease { return kit.Got(kept[i].Lock(t.Context()))(t) }
		hold(0).Unlock()
		hold(1).Unlock()
		kit.Release(t, kit.Got(m.TryLock(t.Context()))(t))

		used := hold(1)
		hold(0).Unlock()
		begun := time.Now()
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), lease.ErrBusy)
		require.InDelta(t, 50*time.Millisecond, time.Since(begun), float64(20*time.Millisecond))
		kit.Release(t, used)
	})
}

// All go through the slots in the same order, from the lowest: a call that waits in one has nothing in higher ones, so nobody
// waits the other way round.
func TestACallThatWaitsInASlotHasNothingInHigherOnes(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	holder, c, all := kit.Dial(t, s), kit.Dial(t, s), names(t, 3)
	slices.SortFunc(all, func(a, b string) int { return int(slotOf(a)) - int(slotOf(b)) })
	first := fairlock.New(holder, all[0])
	held := kit.Got(first.Lock(t.Context()))(t)
	calls := make([]*kit.Call[*lease.Lease], 20)
	for i := range calls {
		calls[i] = kit.Lock(t.Context(), func(ctx context.Context) (*lease.Lease, error) {
			l, err := multilock.New(c, all).Lock(ctx)
			if err == nil {
				err = l.Release(context.Background())
			}
			return l, err
		})
	}
	kit.Waiting(t, len(calls), first.Inspect)
	for _, higher := range all[1:] {
		info := kit.Got(fairlock.New(holder, higher).Inspect(t.Context()))(t)
		require.False(t, info.Held, higher)
		require.Zero(t, info.Waiting, higher)
	}
	kit.Release(t, held)
	for _, call := range calls {
		call.Value(t)
	}
}

func slotOf(name string) uint16 { return lua.Slot(lua.Fairlock.Keys("headwaiter", name).Lock) }

// Before the call returns nobody can say that the work moves on, however long it holds one of the names by then.
func TestTheTimeWithoutProgressBeginsWhenTheCallForSeveralNamesReturns(t *testing.T) {
	const stall = 500 * time.Millisecond
	for what, lock := range map[string]func(c *headwaiter.Client, all []string) func(context.Context) ([]*lease.Lease, error){
		"multilock": func(c *headwaiter.Client, all []string) func(context.Context) ([]*lease.Lease, error) {
			m := multilock.New(c, all, headwaiter.WithMaxStall(stall), multilock.WithBound(time.Minute))
			return func(ctx context.Context) ([]*lease.Lease, error) {
				l, err := m.Lock(ctx)
				return []*lease.Lease{l}, err
			}
		},
		"LockEach": func(c *headwaiter.Client, all []string) func(context.Context) ([]*lease.Lease, error) {
			var locks []*fairlock.Mutex
			for _, name := range all {
				locks = append(locks, fairlock.New(c, name, headwaiter.WithMaxStall(stall)))
			}
			return func(ctx context.Context) (leases []*lease.Lease, err error) {
				for _, o := range fairlock.LockEach(ctx, locks...) {
					if leases = append(leases, o.Lease); err == nil {
						err = o.Err
					}
				}
				return leases, err
			}
		},
	} {
		kit.BubbleOf(t, what, func(t *testing.T, s *redistest.Embedded) {
			all := names(t, 2)
			other := kit.Got(fairlock.New(kit.Dial(t, s), all[1]).Lock(t.Context()))(t)
			take := lock(kit.Dial(t, s), all)
			call := kit.Go(func() ([]*lease.Lease, error) { return take(t.Context()) })
			synctime.Pass(3 * stall)
			require.False(t, call.Returned())
			kit.Release(t, other)
			leases := call.Value(t)
			for _, l := range leases {
				require.Greater(t, time.Until(l.Deadline()), stall-10*time.Millisecond)
			}
			for range 5 {
				synctime.Pass(stall * 3 / 5)
				for _, l := range leases {
					require.NoError(t, context.Cause(l.Context()))
					l.Progress()
				}
			}
			synctime.Pass(stall)
			for _, l := range leases {
				require.True(t, kit.Closed(l.Context().Done()))
				require.ErrorIs(t, context.Cause(l.Context()), lease.ErrStalled)
			}
			synctest.Wait() // The ends are on their way.
			free, err := fairlock.New(kit.Dial(t, s), all[0]).TryLock(t.Context())
			require.NoError(t, err, "the server was told at once")
			kit.Release(t, free)
		})
	}
}

// ahead gives a name a last token that lies an hour ahead of the server's clock.
func ahead(t *testing.T, s redistest.Backend, name string) uint64 {
	t.Helper()
	token := uint64(time.Now().Add(time.Hour).UnixMicro())
	keys := lua.Fairlock.Keys("headwaiter", name)
	s.Do("HSET", keys.Lock, "token", fmt.Sprint(token), "kept", "0")
	s.Do("PEXPIRE", keys.Lock, "60000")
	return token
}

// Whoever guards something by one of the names has seen the token of all: the next holder of that name comes in.
func TestTheNextHolderOfANameHasAHigherToken(t *testing.T) {
	next := func(t *testing.T, s redistest.Backend, token uint64, all []string) {
		t.Helper()
		for _, name := range all {
			// A client of its own, which has not seen any token.
			l := kit.Got(fairlock.New(kit.Dial(t, s), name).Lock(t.Context()))(t)
			require.Greater(t, l.Token(), token, name)
			kit.Release(t, l)
		}
	}
	kit.EachOf(t, "free", func(t *testing.T, s redistest.Backend) {
		all := names(t, 3)
		last := ahead(t, s, all[1])
		l := kit.Got(multilock.New(kit.Dial(t, s), all).Lock(t.Context()))(t)
		require.Greater(t, l.Token(), last)
		for _, name := range all {
			info := kit.Got(fairlock.New(kit.Dial(t, s), name).Inspect(t.Context()))(t)
			require.Greater(t, info.Token, last, "the asks that find all free give all one height")
		}
		kit.Release(t, l)
		next(t, s, l.Token(), all)
	})
	kit.EachOf(t, "taken one after the other", func(t *testing.T, s redistest.Backend) {
		all, c := names(t, 3), kit.Dial(t, s)
		held := kit.Got(fairlock.New(c, all[1]).Lock(t.Context()))(t)
		call := kit.Lock(t.Context(), multilock.New(kit.Dial(t, s), all, multilock.WithBound(kit.Patience)).Lock)
		kit.Waiting(t, 1, fairlock.New(c, all[1]).Inspect)
		last := ahead(t, s, all[1])
		l := kit.Next(t, held, call)
		require.Greater(t, l.Token(), last)
		// The first ends while somebody waits for it, the others while nobody does.
		waits := kit.Joins(t, 1, fairlock.New(kit.Dial(t, s), all[0]).Lock, fairlock.New(c, all[0]).Inspect)
		after := kit.Next(t, l, waits)
		kit.Release(t, after)
		next(t, s, l.Token(), all)
	})
	for end, how := range map[string]func(t *testing.T, c *headwaiter.Client, l *lease.Lease, names []string){
		"unlocked": func(_ *testing.T, _ *headwaiter.Client, l *lease.Lease, _ []string) { l.Unlock() },
		"closed": func(t *testing.T, c *headwaiter.Client, _ *lease.Lease, _ []string) {
			require.NoError(t, c.Shutdown(t.Context()))
		},
		"lost": func(t *testing.T, c *headwaiter.Client, l *lease.Lease, names []string) {
			require.NoError(t, kit.Err(fairlock.New(c, names[2]).ForceRelease(t.Context(), 0)))
			require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
		},
	} {
		kit.EachOf(t, "taken one after the other, and "+end, func(t *testing.T, s redistest.Backend) {
			all, c, mine := names(t, 3), kit.Dial(t, s), kit.Dial(t, s)
			held := kit.Got(fairlock.New(c, all[1]).Lock(t.Context()))(t)
			call := kit.Lock(t.Context(), multilock.New(mine, all, multilock.WithBound(kit.Patience)).Lock)
			kit.Waiting(t, 1, fairlock.New(c, all[1]).Inspect)
			last := ahead(t, s, all[1])
			l := kit.Next(t, held, call)
			require.Greater(t, l.Token(), last)
			how(t, mine, l, all)
			next(t, s, l.Token(), all[:2]) // Who takes the third away by force has not seen the token.
		})
	}
	t.Run("in a cluster", func(t *testing.T) {
		s, all := redistest.Cluster(t), names(t, 6)
		last := ahead(t, s, all[1])
		l := kit.Got(multilock.New(kit.Dial(t, s), all).Lock(t.Context()))(t)
		require.Greater(t, l.Token(), last)
		kit.Release(t, l)
		next(t, s, l.Token(), all)
	})
}

func TestAHoldOfSeveralNamesIsToldWhenSomebodyWaitsForOneOfThem(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		all := names(t, 3)
		l := kit.Got(multilock.New(kit.Dial(t, s), all).Lock(t.Context()))(t)
		select {
		case <-l.Wanted():
			t.Fatal("nobody waits")
		default:
		}
		next := kit.Lock(t.Context(), fairlock.New(kit.Dial(t, s), all[1]).Lock)
		kit.Await(t, l.Wanted(), "the word that somebody waits for one of them")
		kit.PassOn(t, l, next)
	})
}
