package multilock_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// holds reports whether anybody holds a name.
func holds(t *testing.T, c *headwaiter.Client, name string) bool {
	t.Helper()
	return kit.Got(fairlock.New(c, name).Inspect(context.Background()))(t).Held
}

// A grant that must be confirmed first is one all the same.
func TestATryOverASlowNetworkHasWhatItWasGranted(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c, other, all := kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s), names(t, 2)
		m := multilock.New(c, all, headwaiter.WithLease(2400*time.Millisecond))
		s.Do("SCRIPT", "LOAD", lua.Fairlock.Renew.Source)
		d.Delay(900*time.Millisecond, faults.ToClient) // More than a third of the lease.
		l, err := m.TryLock(t.Context())
		d.Heal()
		require.NoError(t, err)
		require.True(t, holds(t, other, all[1]))
		kit.Release(t, l)
		free(t, other, all)
	})
}

func TestATryThatWaitsForReplicasHasWhatItWasGranted(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1)
	c, other, all := kit.Dial(t, s), kit.Dial(t, s), names(t, 2)
	with := func(replicas int) *multilock.Lock {
		return multilock.New(c, all, headwaiter.WithReplicas(replicas, 100*time.Millisecond))
	}
	kit.Release(t, kit.Got(with(1).TryLock(t.Context()))(t))
	require.ErrorIs(t, kit.Err(with(2).TryLock(t.Context())), lease.ErrReplicas)
	free(t, other, all)
}

// What the other names were granted is given back too, before the call returns.
func TestTheNamesOfACallThatLacksReplicasAreFreeBehindIt(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		s.Answer("WAIT", ":0")
		d := faults.NewDialer(t, s.Dial)
		c, other, all := kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s), names(t, 20)
		careful := multilock.New(c, all, headwaiter.WithReplicas(1, 100*time.Millisecond))
		d.Delay(10 * time.Millisecond)
		for _, call := range []func(context.Context) (*lease.Lease, error){careful.Lock, careful.TryLock} {
			require.ErrorIs(t, kit.Err(call(t.Context())), lease.ErrReplicas)
			for _, name := range all {
				require.False(t, holds(t, other, name), name)
			}
		}
	})
}

func TestACallThatEndsBeforeItsGrantsAreConfirmedLeavesNothing(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const way = 900 * time.Millisecond // More than a third of the lease.
		other := kit.Dial(t, s)
		for i := range 8 {
			d := faults.NewDialer(t, s.Dial)
			c, all := kit.Dial(t, s, kit.Over(d)), names(t, 2)
			d.Delay(way, faults.ToClient)
			ctx, cancel := context.WithTimeout(t.Context(), way+time.Duration(5+40*i)*time.Millisecond)
			_, err := multilock.New(c, all, headwaiter.WithLease(2400*time.Millisecond)).Lock(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			d.Heal()
			// The release of one name may wait for the answer to the other's. It is less than what is left of the lease.
			time.Sleep(way + 100*time.Millisecond) // Of the bubble.
			for _, name := range all {
				require.False(t, holds(t, other, name), i)
			}
		}
	})
}

// The client closes while the call listens, or asks.
func TestAClientThatClosesEndsACallOnItsWay(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, other *headwaiter.Client) {
		all := names(t, 2)
		for after := time.Millisecond; after < 300*time.Millisecond; after += 10 * time.Millisecond {
			held := kit.Got(fairlock.New(other, all[1]).Lock(t.Context()))(t)
			d := faults.NewDialer(t, s.Dial)
			c := kit.Dial(t, s, kit.Over(d))
			d.Delay(40 * time.Millisecond)
			call := kit.Lock(t.Context(), multilock.New(c, all).Lock)
			time.Sleep(after) // Of the bubble: another moment of the call each time.
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			require.NoError(t, c.Shutdown(ctx), after)
			cancel()
			require.ErrorIs(t, call.Err(t), lease.ErrClosed)
			kit.Release(t, held)
			for _, name := range all {
				require.False(t, holds(t, other, name), after)
			}
		}
	})
}

// The server stops while some of the names are held and others are waited for.
func TestACallEndsWithItsContextWhereNobodyAnswers(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c, other, all := kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s), names(t, 2)
		require.NoError(t, kit.Err(fairlock.New(other, all[1]).Lock(t.Context())))
		ctx := kit.Within(t, 700*time.Millisecond)
		m := multilock.New(c, all, headwaiter.WithLease(20*time.Second), multilock.WithBound(time.Minute))
		call := kit.Lock(ctx, m.Lock)
		time.Sleep(400 * time.Millisecond) // Of the bubble: the call is on its way.
		began := time.Now()
		d.Freeze()
		require.ErrorIs(t, call.Err(t), context.DeadlineExceeded)
		require.Less(t, time.Since(began), time.Second)
		d.Heal()
	})
}

// What is given back after the bound is asked for again with the head start that it had.
func TestAPlaceThatIsComeBackToKeepsItsPriority(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		many, other, next := kit.Dial(t, s), kit.Dial(t, s), kit.Dial(t, s)
		all := names(t, 2)
		priority := headwaiter.WithPriority(5)
		held := kit.Got(fairlock.New(other, all[1]).Lock(t.Context()))(t)
		call := kit.Lock(t.Context(), multilock.New(many, all, multilock.WithBound(50*time.Millisecond), priority).Lock)
		kit.Waiting(t, 1, fairlock.New(other, all[1]).Inspect)
		first, err := fairlock.New(other, all[0], priority).Lock(t.Context()) // After the bound.
		require.NoError(t, err)
		second := kit.Run(func() error { // It may be served first, in a moment in which the other gives back.
			return fairlock.New(next, all[0], priority).Do(t.Context(), func(context.Context) error { return nil })
		})
		kit.Waiting(t, 1, fairlock.New(other, all[0]).Inspect)
		kit.Release(t, held)
		kit.Eventually(t, "the call for both to come back", func() bool {
			info := kit.Got(fairlock.New(other, all[0]).Inspect(t.Context()))(t)
			if len(info.Queue) == 2 {
				require.Equal(t, many.ID(), info.Queue[0].Client, "it was overtaken")
			}
			return len(info.Queue) == 2
		})
		kit.Release(t, first)
		kit.Release(t, call.Value(t))
		require.NoError(t, second.Err(t))
	})
}

// As a call for one name does.
func TestACallWaitsOutAServerThatIsAway(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		m := multilock.New(c, names(t, 2))
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
		s.Kill()
		call := kit.Lock(kit.Within(t, 20*time.Second), m.Lock)
		time.Sleep(6 * time.Second) // Twice as long as a try goes on.
		require.False(t, call.Returned())
		s.Restart()
		kit.Release(t, call.Value(t))
	})
}

// Leases of several names are given back at the same time: a node that does not answer holds up none of the others.
func TestANodeThatIsStoppedHoldsUpNoReleaseAtOthers(t *testing.T) {
	t.Parallel()
	const lasts = time.Minute // Longer than anybody waits here.
	s := redistest.ClusterOf(t, 3, 0, redistest.WithArgs("--cluster-require-full-coverage", "no"))
	key := func(name string) string { return lua.Fairlock.Keys("headwaiter", name).Lock }
	all := names(t, 64)
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(lua.Slot(key(a)), lua.Slot(key(b))) })
	first, last := all[0], all[len(all)-1]
	node := s.MasterOf(key(first))
	require.NotSame(t, node, s.MasterOf(key(last)))
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	for what, release := range map[string]func(t *testing.T) func() error{
		"a multilock": func(t *testing.T) func() error {
			l := kit.Got(multilock.New(a, []string{first, last}, headwaiter.WithLease(lasts)).Lock(t.Context()))(t)
			return func() error { return l.Release(context.Background()) }
		},
		"each": func(t *testing.T) func() error {
			var leases []*lease.Lease
			for _, o := range fairlock.LockEach(t.Context(), fairlock.New(a, first, headwaiter.WithLease(lasts)), fairlock.New(a, last, headwaiter.WithLease(lasts))) {
				require.NoError(t, o.Err)
				leases = append(leases, o.Lease)
			}
			return func() error { return errors.Join(waitqueue.ReleaseEach(context.Background(), leases...)...) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			giveBack := release(t)
			next := kit.Lock(t.Context(), fairlock.New(b, last).Lock)
			kit.Waiting(t, 1, fairlock.New(b, last).Inspect)
			node.Stop()
			released := kit.Run(giveBack)
			l := next.Value(t)
			node.Cont()
			kit.Release(t, l)
			require.NoError(t, released.Err(t))
			free(t, a, []string{first, last})
		})
	}
}

// asksFor matches the asks of several names in a mode.
func asksFor(mode string) func([]string) bool {
	runs := kit.Runs(lua.MultiAsk)
	return func(command []string) bool { return runs(command) && slices.Contains(command, mode) }
}

// The reply to the ask that queues is lost, and one name is granted by message before the ask is sent again: so nothing
// has told of its arrival when it is given back.
func TestANameThatIsGrantedBeforeItsAskIsAnsweredKeepsItsPlace(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		many, other, next := kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s), kit.Dial(t, s)
		all := names(t, 2)
		early := kit.Got(fairlock.New(other, all[0]).Lock(t.Context()))(t)
		late := kit.Got(fairlock.New(other, all[1]).Lock(t.Context()))(t)
		d.LoseReplies(1, asksFor(wire.Wait))
		call := kit.Lock(t.Context(), multilock.New(many, all, multilock.WithBound(50*time.Millisecond)).Lock)
		kit.LostReplies(t, d.Faults, 1)
		kit.Release(t, early)
		second := kit.Lock(t.Context(), fairlock.New(next, all[0]).Lock) // After the call in the queue too.
		first := second.Value(t)                                         // After the bound.
		third := kit.Lock(t.Context(), fairlock.New(other, all[0]).Lock)
		kit.Waiting(t, 1, fairlock.New(other, all[0]).Inspect)
		kit.Release(t, late)
		kit.Waiting(t, 2, fairlock.New(other, all[0]).Inspect) // It comes back.
		info := kit.Got(fairlock.New(other, all[0]).Inspect(t.Context()))(t)
		require.Equal(t, many.ID(), info.Queue[0].Client, "it was overtaken")
		kit.Release(t, first)
		kit.Release(t, call.Value(t))
		kit.Release(t, third.Value(t))
		free(t, other, all)
	})
}

// What ends while others are waited for is not held, however it ended: it is waited for again.
func TestANameThatIsLostWhileOthersAreWaitedForIsTakenAgain(t *testing.T) {
	for what, c := range map[string]struct {
		options []multilock.Option
		end     func(t *testing.T, c *headwaiter.Client, name string)
	}{
		"given back ahead of its maximum": {
			[]multilock.Option{headwaiter.WithMaxHold(300 * time.Millisecond)},
			func(*testing.T, *headwaiter.Client, string) {},
		},
		"by force": {nil, func(t *testing.T, c *headwaiter.Client, name string) {
			require.NoError(t, kit.Err(fairlock.New(c, name).ForceRelease(t.Context(), 0)))
		}},
	} {
		kit.BubbleOf(t, what, func(t *testing.T, s *redistest.Embedded) {
			many, other, all := kit.Dial(t, s), kit.Dial(t, s), names(t, 2)
			held := kit.Got(fairlock.New(other, all[1]).Lock(t.Context()))(t)
			call := kit.Lock(t.Context(), multilock.New(many, all, append(c.options, multilock.WithBound(time.Minute))...).Lock)
			kit.Eventually(t, "the first name to be held", func() bool { return holds(t, other, all[0]) })
			time.Sleep(290 * time.Millisecond) // Of the bubble.
			c.end(t, other, all[0])
			kit.Eventually(t, "the first name to be lost", func() bool { return !holds(t, other, all[0]) })
			synctest.Wait() // Until its holder knows.
			require.False(t, call.Returned())
			l := kit.Next(t, held, call)
			require.NoError(t, l.Context().Err())
			for _, name := range all {
				require.True(t, holds(t, other, name))
			}
			kit.Release(t, l)
			free(t, other, all)
		})
	}
}

// The error says how long the call has waited, and for want of what.
func TestACallThatEndsWhileNobodyAnswersSaysHowLongItHasWaited(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := multilock.New(kit.Dial(t, s), names(t, 2))
		s.Kill()
		_, err := m.Lock(kit.Within(t, 5*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		waited := kit.As[*lease.WaitError](t, err)
		require.Equal(t, 5*time.Second, waited.Waited.Round(time.Second))
		require.Error(t, waited.Last)
		require.NotErrorIs(t, waited.Last, context.DeadlineExceeded)
	})
}

// Names of one slot are held for no longer than the bound also while the node of another slot does not answer.
func TestANodeThatIsStoppedHoldsUpNoNameOfOthers(t *testing.T) {
	t.Parallel()
	s := redistest.ClusterOf(t, 3, 0, redistest.WithArgs("--cluster-require-full-coverage", "no"))
	key := func(name string) string { return lua.Fairlock.Keys("headwaiter", name).Lock }
	all := names(t, 64)
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(lua.Slot(key(a)), lua.Slot(key(b))) })
	ends := []string{all[0], all[len(all)-1]}
	node := s.MasterOf(key(ends[1]))
	require.NotSame(t, node, s.MasterOf(key(ends[0])))
	a, b := kit.Dial(t, s), kit.Dial(t, s)
	m := multilock.New(a, ends, headwaiter.WithLease(time.Minute), multilock.WithBound(50*time.Millisecond))
	kit.Release(t, kit.Lock(t.Context(), m.Lock).Value(t))
	node.Stop()
	call := kit.Lock(t.Context(), m.Lock)
	kit.Eventually(t, "the first name to be held", func() bool { return holds(t, b, ends[0]) })
	l := kit.Lock(t.Context(), fairlock.New(b, ends[0]).Lock).Value(t)
	require.False(t, call.Returned())
	node.Cont()
	kit.Release(t, l)
	kit.Release(t, call.Value(t))
	free(t, b, ends)
}

// A call whose request is late takes the name that another call has just given back, and stands behind that call in the other
// queue. Both come back to the queue of that name in the same order, though the late request was sent first.
func TestCallsComeBackInTheOrderInWhichTheyStandElsewhere(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		slow, quick, other := kit.Dial(t, s, kit.Over(d)), kit.Dial(t, s), kit.Dial(t, s)
		all := names(t, 2)
		kept := kit.Got(fairlock.New(other, all[1]).Lock(t.Context()))(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		multi := func(c *headwaiter.Client) *kit.Call[*lease.Lease] {
			return kit.Lock(ctx, multilock.New(c, all, multilock.WithBound(40*time.Millisecond)).Lock)
		}
		subscribed, over := context.WithCancel(t.Context())
		call := kit.Lock(subscribed, multilock.New(slow, all).Lock)
		kit.Waiting(t, 1, fairlock.New(other, all[1]).Inspect)
		kit.Cancel(t, over, call)
		free(t, other, all[:1])
		d.Delay(100*time.Millisecond, faults.ToServer)
		behind := multi(slow)
		time.Sleep(10 * time.Millisecond) // It has sent its request, which arrives when the other call has given back what it had.
		before := multi(quick)
		kit.Waiting(t, 2, fairlock.New(other, all[1]).Inspect)
		first := kit.Got(fairlock.New(other, all[0]).Lock(t.Context()))(t) // After both bounds.
		kit.Release(t, kept)
		kit.Waiting(t, 2, fairlock.New(other, all[0]).Inspect)
		info := kit.Got(fairlock.New(other, all[0]).Inspect(t.Context()))(t)
		require.Equal(t, quick.ID(), info.Queue[0].Client)
		kit.Cancel(t, cancel, before)
		require.ErrorIs(t, behind.Err(t), context.Canceled)
		kit.Release(t, first)
		free(t, other, all)
	})
}
