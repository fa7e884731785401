package barrier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// task is an action that the test holds up.
type task struct {
	began chan struct{}   // closed when it runs
	end   chan error      // what it is to return
	ctx   context.Context // that it was given, once it runs
}

func newTask() *task { return &task{began: make(chan struct{}), end: make(chan error, 1)} }

// run is the action: it returns what the test says, when it says it.
func (a *task) run(ctx context.Context) error {
	a.ctx = ctx
	close(a.began)
	return <-a.end
}

// untilOver is an action that waits for the end of its context.
func (a *task) untilOver(ctx context.Context) error {
	a.ctx = ctx
	close(a.began)
	<-ctx.Done()
	return ctx.Err()
}

// acts lets all parties come, the last with an action, and returns when that runs.
func acts(t testing.TB, ctx context.Context, views func(int) view, a *task, action func(context.Context) error) (others []*kit.Call[int], last *kit.Call[int]) {
	t.Helper()
	others = gathers(t, views)
	last = views(len(others)).with(t, barrier.WithAction(action)).party(ctx)
	kit.Await(t, a.began, "the action to run")
	info := views(0).inspect(t)
	require.Len(t, info.Holders, views(0).Parties())
	require.Equal(t, views(0).Parties(), info.Waiting)
	for _, c := range others {
		require.False(t, c.Returned(), "nobody passes before the action is done")
	}
	return others, last
}

func TestAnActionThatFailsBreaksTheBarrierAndItsPartyIsToldWhy(t *testing.T) {
	among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
		failure := errors.New("the action has failed")
		for range 5 {
			a := newTask()
			others, last := acts(t, t.Context(), views, a, a.run)
			a.end <- failure
			require.ErrorIs(t, last.Err(t), failure)
			require.NotErrorIs(t, last.Err(t), barrier.ErrBroken)
			fail(t, others...)
			require.Error(t, a.ctx.Err(), "its context has ended")
			rest(t, views(0))
		}
	})
}

func TestAnActionThatPanicsBreaksTheBarrierAndPanicsOn(t *testing.T) {
	among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
		others := gathers(t, views)
		last := views(1).with(t, barrier.WithAction(func(context.Context) error { panic("out of paint") }))
		require.PanicsWithValue(t, "out of paint", func() { _, _ = last.Await(t.Context()) })
		fail(t, others...)
		require.True(t, views(0).broken(t))
	})
}

func TestAResetEndsTheContextOfTheAction(t *testing.T) {
	among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
		a := newTask()
		others, last := acts(t, t.Context(), views, a, a.untilOver)
		require.NoError(t, a.ctx.Err())
		require.NoError(t, views(0).Reset(t.Context()))
		fail(t, append(others, last)...)
		require.False(t, views(0).broken(t))
	})
}

// What an action says of a generation that was broken meanwhile changes nothing.
func TestAnActionThatIsDoneAfterAResetOpensNothing(t *testing.T) {
	among(t, 2, func(t *testing.T, s redistest.Backend, views func(int) view) {
		a := newTask()
		others, last := acts(t, t.Context(), views, a, a.run)
		require.NoError(t, views(0).Reset(t.Context()))
		fail(t, others...)
		next := views(1).comes(t, t.Context(), 1)
		a.end <- nil
		fail(t, last)
		require.False(t, next.Returned())
		require.Equal(t, 1, views(0).inspect(t).Waiting)
		pass(t, next, views(0).party(t.Context()))
	})
}

func TestACancelledPartyBreaksTheBarrierDuringTheAction(t *testing.T) {
	among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
		ctx, cancel := context.WithCancel(t.Context())
		leaves := views(0).comes(t, ctx, 1)
		stays := views(1).comes(t, t.Context(), 2)
		a := newTask()
		last := views(1).with(t, barrier.WithAction(a.untilOver)).party(t.Context())
		kit.Await(t, a.began, "the action to run")
		kit.Cancel(t, cancel, leaves)
		fail(t, stays, last)
	})
}

func TestTheContextOfTheActionEndsWithItsCallers(t *testing.T) {
	among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
		ctx, cancel := context.WithCancel(t.Context())
		a := newTask()
		others, last := acts(t, ctx, views, a, a.untilOver)
		kit.Cancel(t, cancel, last)
		fail(t, others...)
	})
}

// All have passed, so it has passed too.
func TestAnActionThatIsDoneAfterTheEndOfItsContextLetsAllPass(t *testing.T) {
	among(t, 3, func(t *testing.T, s redistest.Backend, views func(int) view) {
		ctx, cancel := context.WithCancel(t.Context())
		a := newTask()
		others, last := acts(t, ctx, views, a, a.run)
		cancel()
		a.end <- nil
		pass(t, append(others, last)...)
	})
}

func TestAnActionMayTakeLongerThanTheLease(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		a, b := dial(t, s, 3, headwaiter.WithLease(time.Second)), dial(t, s, 3, headwaiter.WithLease(time.Second))
		views := turns(a, b)
		slow := newTask()
		others, last := acts(t, t.Context(), views, slow, slow.run)
		synctime.Pass(10 * time.Second)
		require.NoError(t, slow.ctx.Err())
		require.Equal(t, 3, a.inspect(t).Waiting)
		slow.end <- nil
		pass(t, append(others, last)...)
	})
}

func TestClosingTheClientOfTheActionBreaksTheBarrier(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		a, b, slow := dial(t, s, 2), dial(t, s, 2), newTask()
		others, last := acts(t, t.Context(), turns(a, b), slow, slow.untilOver)
		begun := time.Now()
		require.NoError(t, b.client.Shutdown(t.Context()))
		require.ErrorIs(t, last.Err(t), lease.ErrClosed)
		fail(t, others...)
		require.Less(t, time.Since(begun), hears)
		require.True(t, a.broken(t))
	})
}

func TestCallsBeyondThePartiesWaitForTheActionAndAreTheNextGeneration(t *testing.T) {
	among(t, 2, func(t *testing.T, s redistest.Backend, views func(int) view) {
		a := newTask()
		others, last := acts(t, t.Context(), views, a, a.run)
		var more []*kit.Call[int]
		for i := range 3 {
			before := views(i).client.Stats().AcquireRequests
			more = append(more, views(i).party(t.Context()))
			kit.Eventually(t, "its ask, and a repetition", func() bool { return views(i).client.Stats().AcquireRequests >= before+2 })
		}
		ctx, cancel := context.WithCancel(t.Context())
		leaves := views(1).party(ctx)
		before := views(1).client.Stats().AcquireRequests
		kit.Eventually(t, "another ask", func() bool { return views(1).client.Stats().AcquireRequests > before })
		kit.Cancel(t, cancel, leaves)
		for _, c := range append(more, others...) {
			require.False(t, c.Returned())
		}
		require.Equal(t, 2, views(0).inspect(t).Waiting)
		a.end <- nil
		pass(t, append(others, last)...)
		// Of the three two meet, and one waits for a fourth.
		kit.Waiting(t, 1, views(0).Inspect)
		fourth := views(1).party(t.Context())
		places := []int{fourth.Value(t)}
		for _, c := range more {
			places = append(places, c.Value(t))
		}
		require.ElementsMatch(t, []int{0, 0, 1, 1}, places)
	})
}

// Whoever comes last and has nothing to run lets all pass, whatever the others would have run.
func TestOnlyTheActionOfTheLastToComeRuns(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		v := dial(t, s, 2)
		first := v.with(t, barrier.WithAction(func(context.Context) error {
			t.Error("it was not the last to come")
			return nil
		})).comes(t, t.Context(), 1)
		synctest.Wait()
		pass(t, first, v.party(t.Context()))
	})
}

func TestAStoppedPartyBreaksTheBarrierAndLearnsOfIt(t *testing.T) {
	s := kit.Start(t)
	v := dial(t, s, 3, headwaiter.WithLease(time.Second))
	here := v.comes(t, t.Context(), 1)
	stopped := crowd.Start(t, crowd.Plan{
		Addr: s.Addr(), Kind: crowd.Barrier, Names: []string{v.Name()}, Clients: 1, Waiters: 1, N: 3, Lease: time.Second,
	})
	kit.Waiting(t, 2, v.Inspect)
	stopped.Stop()
	fail(t, here)
	rest(t, v)
	here = v.comes(t, t.Context(), 1)
	stopped.Cont()
	stopped.Await(crowd.Broken, 1, kit.Patience)
	require.Equal(t, 1, v.inspect(t).Waiting, "it did not come to the next generation")
	require.NoError(t, v.Reset(t.Context()))
	fail(t, here)
}

func TestAPartyThatWaitsKeepsItsPlaceForAsLongAsItLives(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		lasts := headwaiter.WithLease(300 * time.Millisecond)
		a, b := dial(t, s, 122, lasts), dial(t, s, 122, lasts)
		calls := []*kit.Call[int]{a.comes(t, t.Context(), 1)}
		for range 120 { // More than one check can name.
			calls = append(calls, b.party(t.Context()))
		}
		kit.Waiting(t, 121, a.Inspect)
		synctime.Pass(2 * time.Second)
		require.Equal(t, 121, a.inspect(t).Waiting)
		require.False(t, a.broken(t))
		calls = append(calls, a.party(t.Context()))
		seen := map[int]bool{}
		for _, c := range calls {
			seen[c.Value(t)] = true
		}
		require.Len(t, seen, 122)
	})
}

func TestADeadActionIsADeadParty(t *testing.T) {
	kit.EachBehind(t, func(t *testing.T, s redistest.Backend, p *faults.Proxy) {
		lasts := headwaiter.WithLease(time.Second)
		far, near := on(t, kit.Dial(t, s, kit.Through(p)), 2, lasts), dial(t, s, 2, lasts)
		a := newTask()
		others, last := acts(t, t.Context(), turns(near, far), a, a.run)
		p.Away()
		fail(t, others...)
		require.True(t, near.broken(t))
		p.Heal()
		a.end <- nil
		// Where no answer comes in time it cannot tell.
		if err := last.Err(t); !errors.Is(err, lease.ErrOutcomeUnknown) {
			require.ErrorIs(t, err, barrier.ErrBroken)
		}
		require.True(t, near.broken(t), "what it has done comes too late")
	})
}

// In the next two requests come to the server long after their sender gave them up.

func lateness(t *testing.T, run func(t *testing.T, late, prompt view, d *faults.Dialer, by time.Duration)) {
	t.Parallel()
	for _, by := range []time.Duration{300 * time.Millisecond, 2200 * time.Millisecond, 7 * time.Second, 2 * time.Minute} {
		kit.BubbleOf(t, by.String(), func(t *testing.T, s *redistest.Embedded) {
			d := faults.NewDialer(t, s.Dial)
			late, prompt := on(t, kit.Dial(t, s, kit.Over(d)), 2), dial(t, s, 2)
			rest(t, prompt) // Now the server knows the scripts.
			meet(t, turns(late, prompt))
			run(t, late, prompt, d, by)
			// Nothing comes after that.
			rest(t, prompt)
			alone := prompt.comes(t, t.Context(), 1)
			synctime.Pass(time.Minute)
			require.False(t, alone.Returned())
			require.Equal(t, 1, prompt.inspect(t).Waiting)
			pass(t, alone, late.party(t.Context()))
		})
	}
}

func TestAnArrivalThatComesTooLateStaysAway(t *testing.T) {
	lateness(t, func(t *testing.T, late, prompt view, d *faults.Dialer, by time.Duration) {
		waits := prompt.comes(t, t.Context(), 1)
		d.Freeze(faults.ToServer)
		require.ErrorIs(t, kit.Err(late.Await(kit.Within(t, 100*time.Millisecond))), context.DeadlineExceeded)
		synctime.Pass(by)
		d.Heal()
		synctest.Wait()
		if by < 3*time.Second {
			return // It was in time, and so the two have met.
		}
		require.False(t, waits.Returned())
		require.False(t, prompt.broken(t))
	})
}

func TestAResetThatComesTooLateResetsNothing(t *testing.T) {
	lateness(t, func(t *testing.T, late, prompt view, d *faults.Dialer, by time.Duration) {
		waits := prompt.comes(t, t.Context(), 1)
		d.Freeze(faults.ToServer)
		require.ErrorIs(t, late.Reset(kit.Within(t, 100*time.Millisecond)), lease.ErrOutcomeUnknown)
		synctime.Pass(by)
		d.Heal()
		synctest.Wait()
		require.Equal(t, by < 3*time.Second, waits.Returned())
	})
}

func TestAResetThatMayNotBePublishedIsAnErrorAndResetsAllTheSame(t *testing.T) {
	s := kit.Start(t)
	v := dial(t, s, 3)
	here := v.comes(t, t.Context(), 1)
	s.Do("ACL", "SETUSER", "default", "-publish")
	require.ErrorIs(t, v.Reset(t.Context()), lease.ErrUnwoken)
	fail(t, here)
	require.Zero(t, v.inspect(t).Waiting)
}
