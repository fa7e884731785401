package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/multilock"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// names are n names that no other test has.
func names(t *testing.T, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(kit.Name(t), ":", i)
	}
	return all
}

// free fails the test unless nobody holds or waits for any of the names.
func free(t *testing.T, c *headwaiter.Client, all []string) {
	t.Helper()
	for _, name := range all {
		kit.Eventually(t, name+" is free", func() bool {
			info, err := fairlock.New(c, name).Inspect(t.Context())
			return err == nil && !info.Held && info.Waiting == 0
		})
	}
}

func TestAllAreTakenAndGivenBackAtOnce(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		all := names(t, 10)
		m := multilock.New(c, all)
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil })) // The scripts are known now.
		time.Sleep(time.Second)                                                           // The clock is ahead of the tokens then: one number is the reply for all.
		s.ResetStats()
		l := kit.Got(m.Lock(t.Context()))(t)
		require.EqualValues(t, 1, s.CommandStats()["evalsha"])
		for _, name := range all {
			require.ErrorIs(t, kit.Err(fairlock.New(c, name).TryLock(t.Context())), lease.ErrBusy)
			require.LessOrEqual(t, kit.Got(fairlock.New(c, name).Inspect(t.Context()))(t).Token, l.Token())
		}
		require.NoError(t, l.Context().Err())
		s.ResetStats()
		require.NoError(t, l.Release(t.Context()))
		require.EqualValues(t, 1, s.CommandStats()["evalsha"])
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
		free(t, c, all)
		require.NoError(t, kit.Err(m.TryLock(t.Context())))
	})
}

// A client that is subscribed for all names queues with its first script. One that is not tries first.
func TestASubscribedClientQueuesWithItsFirstScript(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, _ *redistest.Embedded, a, b *headwaiter.Client) {
		all := names(t, 3)
		held := kit.Got(multilock.New(a, all).Lock(t.Context()))(t)
		for _, scripts := range []int{2, 1} {
			before := b.Stats().AcquireRequests
			ctx, cancel := context.WithCancel(t.Context())
			call := kit.Lock(ctx, multilock.New(b, all).Lock)
			kit.Waiting(t, 1, fairlock.New(a, all[2]).Inspect)
			require.EqualValues(t, scripts, b.Stats().AcquireRequests-before)
			kit.Cancel(t, cancel, call)
			kit.Waiting(t, 0, fairlock.New(a, all[2]).Inspect)
		}
		kit.Release(t, held)
	})
}

func TestATryTakesAllOrNone(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		all := names(t, 4)
		held := kit.Got(fairlock.New(a, all[2]).Lock(t.Context()))(t)
		_, err := multilock.New(b, all).TryLock(t.Context())
		kit.Fails(t, err, lease.ErrBusy, fmt.Sprintf("%q: busy: client %s holds it with token %d", all[2], a.ID(), held.Token()))
		require.NotContains(t, err.Error(), fmt.Sprintf("%q: busy", all[1]))
		for i, name := range all {
			info := kit.Got(fairlock.New(a, name).Inspect(t.Context()))(t)
			require.Equal(t, i == 2, info.Held, "it left a trace")
			require.Zero(t, info.Waiting)
		}
		kit.Release(t, held)
		kit.Release(t, kit.Got(multilock.New(b, all).TryLock(t.Context()))(t))
	})
}

func TestACallThatGivesUpSaysWhichNamesItHadNotGot(t *testing.T) {
	kit.BubbleTwo(t, func(t *testing.T, _ *redistest.Embedded, a, b *headwaiter.Client) {
		all := names(t, 4)
		for _, name := range all[1:3] {
			require.NoError(t, kit.Err(fairlock.New(a, name).Lock(t.Context())))
		}
		m := multilock.New(b, all, multilock.WithBound(3*time.Second), headwaiter.WithMaxWait(time.Second))
		_, err := m.Lock(t.Context())
		kit.Fails(t, err, lease.ErrWaitTimeout, fmt.Sprintf("without [%q %q]: timed out after ", all[1], all[2]))
		_, err = multilock.New(b, all[1:3], headwaiter.WithMaxWait(100*time.Millisecond)).Lock(t.Context())
		require.NotContains(t, err.Error(), "without", "it had none")
		free(t, b, []string{all[0], all[3]})
	})
}

func TestACallWaitsForTheLastOfItsNames(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		all := names(t, 3)
		var held []*lease.Lease
		for _, name := range all {
			held = append(held, kit.Got(fairlock.New(a, name).Lock(t.Context()))(t))
		}
		call := kit.Lock(t.Context(), multilock.New(b, all, multilock.WithBound(kit.Patience)).Lock)
		for _, name := range all {
			kit.Waiting(t, 1, fairlock.New(a, name).Inspect)
		}
		for _, l := range held {
			require.False(t, call.Returned())
			kit.Release(t, l)
		}
		kit.Release(t, call.Value(t))
		free(t, a, all)
	})
}

func TestACallThatGivesUpLeavesNothing(t *testing.T) {
	kit.Two(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		all := names(t, 3)
		held := kit.Got(fairlock.New(a, all[1]).Lock(t.Context()))(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		call := kit.Lock(ctx, multilock.New(b, all).Lock)
		kit.Waiting(t, 1, fairlock.New(a, all[1]).Inspect)
		enough := errors.New("enough")
		cancel(enough)
		kit.Fails(t, call.Err(t), context.Canceled, enough, "multilock: lock [")
		kit.Release(t, held)
		free(t, a, all)
	})
}

func TestTheLossOfOneIsTheLossOfAll(t *testing.T) {
	const lasts = 2 * time.Second
	kit.Two(t, func(t *testing.T, _ redistest.Backend, a, b *headwaiter.Client) {
		all := names(t, 3)
		l := kit.Got(multilock.New(a, all, headwaiter.WithLease(lasts)).Lock(t.Context()))(t)
		kit.Eventually(t, "renewals of all", func() bool { return a.Stats().Renewals > 9 })
		require.NoError(t, l.Context().Err())
		require.Less(t, time.Until(l.Deadline()), lasts)
		require.NoError(t, kit.Err(fairlock.New(b, all[2]).ForceRelease(t.Context(), 0)))
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrForced)
		free(t, b, all)
	})
}

func TestAHolderOfOneCannotWaitForItself(t *testing.T) {
	kit.One(t, func(t *testing.T, _ redistest.Backend, c *headwaiter.Client) {
		all := names(t, 3)
		l := kit.Got(multilock.New(c, all[:2]).Lock(t.Context()))(t)
		require.ErrorIs(t, kit.Err(multilock.New(c, all[1:]).Lock(l.Context())), lease.ErrDeadlock)
		require.ErrorIs(t, kit.Err(fairlock.New(c, all[0]).Lock(l.Context())), lease.ErrDeadlock)
		kit.Release(t, kit.Got(fairlock.New(c, all[2]).Lock(l.Context()))(t), l)
	})
}

func TestLostRepliesAreMadeGood(t *testing.T) {
	s := kit.Start(t)
	for _, script := range []*lua.Script{lua.MultiAsk, lua.MultiEnd} {
		kit.Parallel(t, script.Name, func(t *testing.T) {
			p := kit.Proxy(t, s)
			c, other, all := kit.Dial(t, s, kit.Through(p)), kit.Dial(t, s), names(t, 3)
			m := multilock.New(c, all)
			var last uint64
			for range 5 {
				p.LoseReplies(1, kit.Runs(script))
				l := kit.Got(m.Lock(t.Context()))(t)
				require.Greater(t, l.Token(), last)
				last = l.Token()
				for _, name := range all {
					require.ErrorIs(t, kit.Err(fairlock.New(other, name).TryLock(t.Context())), lease.ErrBusy)
				}
				kit.Release(t, l)
			}
			free(t, other, all)
		})
	}
}

func TestWhatCannotBeUsedIsSaid(t *testing.T) {
	c, many := kit.Dial(t, redistest.Mini(t)), names(t, multilock.MaxNames+1)
	for want, m := range map[error]*multilock.Lock{
		lease.ErrInvalid:  multilock.New(c, nil),
		lease.ErrTooLarge: multilock.New(c, many),
		lease.ErrInvalid:  multilock.New(c, many[:2], multilock.WithBound(0)),
	} {
		require.ErrorIs(t, kit.Err(m.Lock(t.Context())), want)
		require.ErrorIs(t, kit.Err(m.TryLock(t.Context())), want)
	}
	require.ErrorIs(t, kit.Err(multilock.New(c, []string{"a", "}"}).Lock(t.Context())), lease.ErrInvalid)
	m := multilock.New(c, []string{"b", "a", "b"})
	require.Equal(t, []string{"a", "b"}, m.Names())
	kit.Release(t, kit.Got(m.Lock(t.Context()))(t))
}

func TestAKeyOfAnotherKindChangesNothing(t *testing.T) {
	kit.One(t, func(t *testing.T, s redistest.Backend, c *headwaiter.Client) {
		all := names(t, 3)
		s.Do("SET", "headwaiter:lock:{"+all[2]+"}:queue", "x")
		require.Error(t, kit.Err(multilock.New(c, all).Lock(t.Context())))
		free(t, c, all[:2])
	})
}

// In a cluster the names of different slots are asked for slot by slot.
func TestNamesOfDifferentSlots(t *testing.T) {
	t.Parallel()
	s := redistest.Cluster(t)
	a, b, all := kit.Dial(t, s), kit.Dial(t, s), names(t, 12)
	var inside atomic.Int32
	var turns atomic.Int64
	var work sync.WaitGroup
	for _, c := range []*headwaiter.Client{a, b, a, b} {
		work.Go(func() {
			for range 10 {
				some := rand.Perm(len(all))[:4]
				m := multilock.New(c, []string{all[0], all[some[0]], all[some[1]], all[some[2]]}, multilock.WithBound(100*time.Millisecond))
				err := m.Do(t.Context(), func(context.Context) error {
					if inside.Add(1) > 1 {
						t.Error("two hold ", all[0])
					}
					time.Sleep(time.Millisecond) // So long two would be seen.
					inside.Add(-1)
					turns.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	kit.AllMoving(t, &work, turns.Load)
	free(t, a, all)
	held := kit.Got(fairlock.New(a, all[5]).Lock(t.Context()))(t)
	require.ErrorIs(t, kit.Err(multilock.New(b, all).TryLock(t.Context())), lease.ErrBusy)
	kit.Release(t, held)
	free(t, a, all)
}
