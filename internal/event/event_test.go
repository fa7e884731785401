package event

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/wire"
)

func TestAStepThatIsNotInTheTableIsNotTaken(t *testing.T) {
	for from := range leads {
		for to := range leads {
			x, of := &core.Input{}, &Waiter{state: state(from)}
			of.to(x, state(to))
			if from == to || slices.Contains(leads[from], state(to)) {
				require.Equal(t, state(to), of.state)
				require.Empty(t, x.Effects)
			} else {
				require.Equal(t, state(from), of.state)
				require.Equal(t, []core.Effect{{Do: core.Impossible, Call: &of.Call}}, x.Effects)
			}
		}
	}
	require.Empty(t, leads[ended], "an ended waiter stays ended")
}

func TestAWaiterThatAsksBeforeTheSubscriptionIsSeenByTheCheckAfterIt(t *testing.T) {
	w := newWorld(t, latch)
	a := w.asked("a")
	require.Equal(t, wire.Look, w.asks[a].Mode)
	effects, step := w.replied(a, wire.Waiting, 3, answered)
	require.Equal(t, "timer +108ms, subscribe", effects)
	require.Equal(t, core.Step{}, step)
	require.Equal(t, subscribing, a.state)
	require.Equal(t, core.Sleep, w.does(a))
	require.Equal(t, "check", w.do(func(x *core.Input) { w.e.OnSubscribed(x, 1, "n") }))
	require.Contains(t, w.check(wire.StateGranted), "wake a", "it was opened in between")
	require.Equal(t, core.Return, w.does(a))
	require.Equal(t, "acknowledge a", w.finish(a))

	w = newWorld(t, latch)
	a = w.asked("a")
	w.replied(a, wire.Waiting, 3, answered)
	w.do(func(x *core.Input) { w.e.OnSubscribed(x, 1, "n") })
	require.Contains(t, w.check(wire.StateQueued), "queued a with 0")
	require.Equal(t, waiting, a.state)
	require.Equal(t, "wake a", w.message(3, true))

	w = newWorld(t, latch)
	a = w.asked("a")
	w.do(func(x *core.Input) { w.e.Want(); w.e.OnSubscribed(x, 1, "n") })
	w.check()
	effects, _ = w.replied(a, wire.Waiting, 3, answered)
	require.Contains(t, effects, "check", "the message may have come before the subscription, which came before the reply")
}

func TestAMessageMayOvertakeTheReply(t *testing.T) {
	w := subscribed(t, latch)
	a := w.asked("a")
	require.Equal(t, wire.Wait, w.asks[a].Mode)
	require.Empty(t, w.message(3, true), "for which generation it waits is not known yet")
	effects, _ := w.replied(a, wire.Waiting, 3, answered)
	require.Contains(t, effects, "check")
	require.Equal(t, "wake a", w.check(wire.StateGranted))

	b := w.asked("b")
	require.EqualValues(t, 3, w.asks[b].Seen, "the newest that the client knows of")
	effects, _ = w.replied(b, wire.Waiting, 4, answered)
	require.NotContains(t, effects, "check")
}

func TestAMessageOpensNothingButItsGeneration(t *testing.T) {
	for _, c := range []struct {
		name       string
		config     Config
		generation int64
		open       bool
		want       string
		refused    error
	}{
		{"equal", latch, 5, true, "wake a", nil},
		{"older", latch, 4, true, "", nil},
		{"newer", latch, 6, true, "check", nil},
		{"equal, removed", latch, 5, false, "stop a, wake a", errGone},
		{"older, removed", latch, 4, false, "", nil},
		{"newer, removed", latch, 6, false, "check", nil},
		{"equal, of a barrier", barrier, 5, true, "wake a", nil},
		{"a barrier is broken", barrier, 5, false, "stop a, wake a", errGone},
		{"the leader has changed", election, 5, true, "wake a", nil},
		{"the leader has changed twice", election, 6, true, "wake a", nil},
		{"the leader had changed before", election, 4, true, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := subscribed(t, c.config)
			a := w.waits("a", 5)
			require.Equal(t, c.want, w.message(c.generation, c.open))
			require.Equal(t, c.refused, a.Refused)
			switch {
			case c.refused != nil:
				require.Equal(t, core.Fail, w.does(a))
			case c.want == "wake a":
				require.Equal(t, core.Return, w.does(a))
				require.Empty(t, w.message(c.generation, false), "the outcome does not change (I10)")
				require.NoError(t, a.Refused)
			default:
				require.Equal(t, core.Sleep, w.does(a))
			}
		})
	}
}

func TestAReplySaysWhatTheCallDoesNext(t *testing.T) {
	for _, c := range []struct {
		name   string
		status wire.Status
		f      core.Failure
		known  int64 // the generation for which it waits
		want   core.Step
		retry  core.Step
		state  state
	}{
		{name: "open", status: wire.Granted, state: passed},
		{name: "late", status: wire.Late, state: asking},
		{name: "no room yet", status: wire.Busy, want: core.Step{Do: core.Pause, Rest: 5 * time.Millisecond}, state: asking},
		{name: "refused", status: wire.Unset, want: core.Step{Do: core.Fail, Err: errRefusal}, state: asking},
		{name: "lost", f: errLost, retry: core.Step{Do: core.Pause, Rest: 5 * time.Millisecond}, state: asking},
		{name: "to be mended, without a place", f: errFull, retry: core.Step{Do: core.Fail, Err: errFull.Advice}, state: asking},
		{name: "to be mended, with a place", f: errFull, known: 5, retry: core.Step{Do: core.Pause, Rest: 5 * time.Millisecond}, state: asking},
		{name: "for good", f: errBroken, known: 5, retry: core.Step{Do: core.Fail, Err: errBroken.Advice}, state: asking},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, barrier)
			a := w.asked("a")
			a.Generation = c.known
			_, step := w.replied(a, c.status, 5, c.f)
			require.Equal(t, c.want, step)
			require.Equal(t, c.state, a.state)
			require.Equal(t, step.Do == core.Fail, a.Clean)
			if c.f.Err != nil {
				w.do(func(x *core.Input) { step = w.e.Retry(x, a, &c.f) })
				require.Equal(t, c.retry, step)
				return
			}
			require.Equal(t, c.status == wire.Late, a.Budget == 6*time.Second)
		})
	}
	w := newWorld(t, barrier)
	for range 20 {
		w.asked("a")
		_, step := w.replied(w.waiters["a"], wire.Full, 5, answered)
		require.LessOrEqual(t, step.Rest, 160*time.Millisecond, "somebody else's action lasts long, and its end should be seen soon")
	}
}

func TestTheLastAtABarrierRunsTheActionFirst(t *testing.T) {
	w := subscribed(t, barrier)
	a := w.asked("a")
	w.replied(a, wire.Acting, 5, answered)
	require.Equal(t, core.Act, w.does(a))
	require.True(t, a.MayAct())
	require.True(t, a.Waits(), "its place is prolonged meanwhile")
	require.Empty(t, w.message(5, true), "it learns of that by its own answer")
	require.Equal(t, acting, a.state)
	w.do(func(x *core.Input) { w.e.Acted(x, a, 2) })
	require.Equal(t, core.Return, w.does(a))
	require.Equal(t, 2, a.Place)

	w = subscribed(t, barrier)
	a = w.asked("a")
	w.replied(a, wire.Acting, 5, answered)
	require.Equal(t, "stop a, wake a", w.message(5, false), "it was broken meanwhile")
	require.False(t, a.MayAct())
	require.Equal(t, core.Fail, w.does(a))

	w = subscribed(t, barrier)
	a = w.asked("a")
	w.replied(a, wire.Acting, 5, answered)
	require.Equal(t, "stop a, send a, wake a", w.do(w.e.Close))
	require.False(t, a.MayAct())
	w.do(func(x *core.Input) { w.e.Acted(x, a, 0) })
	require.Equal(t, ending, a.state, "the event has come all the same")
}

func TestChecksKeepThePlacesAtABarrier(t *testing.T) {
	w := subscribed(t, barrier)
	w.waits("a", 5)
	w.waits("b", 5)
	require.Contains(t, w.pass(2*time.Second), "check", "after a third of its lease at the latest")
	c, named := w.begins()
	require.ElementsMatch(t, []string{"a", "b"}, named, "each place is prolonged")
	states := map[string]string{"a": wire.StateGranted, "b": wire.StateBroken}
	w.answers(c, answered, 0, states[named[0]], states[named[1]])
	require.Equal(t, core.Return, w.does(w.waiters["a"]))
	require.Equal(t, core.Fail, w.does(w.waiters["b"]))
	require.Equal(t, errGone, w.waiters["b"].Refused)

	w.finish(w.waiters["b"])
	a := w.waits("c", 6)
	w.do(w.e.Poll)
	require.Contains(t, w.check(wire.StateForgotten), "stop c, wake c")
	require.Equal(t, errForgotten, a.Refused)
}

func TestACheckNamesOneOfThoseThatWaitForTheSame(t *testing.T) {
	w := subscribed(t, latch)
	for i := range 250 {
		w.waits(fmt.Sprint(i), int64(i%2+5))
	}
	w.do(w.e.Poll)
	c, named := w.begins()
	require.Len(t, named, 2)
	w.answers(c, answered, 0, wire.StateGranted, wire.StateQueued)
	for i := range 250 {
		require.Equal(t, map[int]core.Next{0: core.Return, 1: core.Sleep}[i%2], w.does(w.waiters[fmt.Sprint(i)]))
	}

	w = subscribed(t, barrier)
	for i := range 250 {
		w.waits(fmt.Sprint(i), 5)
	}
	w.do(w.e.Poll)
	c, _ = w.begins()
	for _, n := range []int{100, 100, 50} {
		require.Len(t, c.Named, n)
		more, _ := w.answers(c, answered, 0)
		require.Equal(t, n == 100, more)
	}
	require.False(t, w.e.Checking)
}

func TestALookGoesOnWhereMoreIsToBeSeen(t *testing.T) {
	w := subscribed(t, latch)
	w.waits("a", 5)
	w.do(w.e.Poll)
	c, _ := w.begins()
	require.Empty(t, w.do(w.e.Poll), "after the one that is under way")
	more, _ := w.answers(c, answered, 0, wire.StateQueued)
	require.True(t, more)
	more, _ = w.answers(c, answered, wire.More, wire.StateQueued)
	require.True(t, more)
	more, _ = w.answers(c, answered, 0, wire.StateQueued)
	require.False(t, more)
}

func TestAFailedCheckIsRepeatedUnlessNobodyCanMendIt(t *testing.T) {
	w := subscribed(t, latch)
	a, b := w.waits("a", 5), w.waits("b", 5)
	w.do(w.e.Poll)
	c, _ := w.begins()
	_, effects := w.answers(c, errLost, 0)
	require.Equal(t, "timer +10ms, timer +5ms", effects)
	require.Equal(t, "check", w.pass(6*time.Millisecond))
	c, _ = w.begins()
	_, effects = w.answers(c, errBroken, 0)
	require.Equal(t, "stop a, wake a, stop b, wake b", effects, "also the one that the check did not name")
	require.ErrorIs(t, a.Refused, errBroken.Advice)
	require.ErrorIs(t, b.Refused, errBroken.Advice)
	require.Equal(t, core.Fail, w.does(a))
}

func TestTheWaitOfAnEventEnds(t *testing.T) {
	w := subscribed(t, latch)
	a := w.waits("a", 5)
	require.Equal(t, "acknowledge a", w.finish(a), "the server has nothing of it")
	require.Zero(t, w.e.waiters.Len())

	w = subscribed(t, barrier)
	a = w.waits("a", 5)
	require.Equal(t, w.now.Add(a.Takes), a.Left(w.now))
	w.do(w.e.Poll)
	c, _ := w.begins()
	require.Equal(t, "send a", w.finish(a))
	require.Equal(t, "acknowledge a, owe a", w.released(a, answered))
	_, effects := w.answers(c, errLost, 0)
	require.Equal(t, "timer +10ms, send a +3s, owe a", effects, "the check may prolong its place until its not-after (R7)")
	left := 0
	w.e.Outstanding(w.now, func(*Waiter) { left++ })
	require.Equal(t, 1, left)
	w.now = w.now.Add(3 * time.Second)
	require.Empty(t, w.released(a, answered))
	require.Zero(t, w.e.waiters.Len())
	require.Zero(t, a.Left(w.now))

	w = subscribed(t, barrier)
	a = w.waits("a", 5)
	w.finish(a)
	require.Equal(t, "send a +5ms", w.released(a, errFull))
	w.now = w.now.Add(time.Hour)
	require.Equal(t, "acknowledge a", w.released(a, errFull))
	require.ErrorIs(t, a.ReleaseErr, reason.ErrUnconfirmed)
	require.ErrorIs(t, a.Unended, errFull.Advice)

	w = subscribed(t, barrier)
	a = w.asked("a")
	w.replied(a, wire.Unset, 0, answered)
	require.Equal(t, "acknowledge a", w.finish(a), "it was refused")
	a = w.asked("b")
	w.do(func(x *core.Input) { w.e.Unsent(x, a) })
	require.Equal(t, "send b", w.finish(a))
	require.True(t, a.Unanswered())
}

func TestCloseAndAbandonEndTheWaits(t *testing.T) {
	w := subscribed(t, barrier)
	a := w.waits("a", 5)
	require.Equal(t, "stop a, send a, wake a", w.do(w.e.Close))
	require.ErrorIs(t, a.WaitErr, reason.ErrClosed)
	require.Equal(t, core.Fail, w.does(a))

	w = subscribed(t, barrier)
	a = w.waits("a", 5)
	require.Equal(t, "stop a, acknowledge a, wake a", w.do(func(x *core.Input) { require.True(t, w.e.Abandon(x, reason.ErrCopied)) }), "another copy may have it too")
	require.ErrorIs(t, a.WaitErr, reason.ErrCopied)
	require.Zero(t, w.e.waiters.Len())

	w = subscribed(t, latch)
	w.waits("a", 5)
	require.Equal(t, "stop a, acknowledge a, wake a", w.do(w.e.Close), "the server has nothing of it")
}

func TestAClientThatIsSuspectedPingsBeforeItWaits(t *testing.T) {
	w := subscribed(t, barrier)
	w.waits("a", 5)
	require.Equal(t, "suspected, reconnect, timer +100ms, timer", w.do(w.e.OnSuspected))
	require.Equal(t, "check", w.pass(0))
	c, _ := w.begins()
	require.Equal(t, wire.Deaf, c.Mode)
	w.answers(c, answered, 0, wire.StateQueued)
	w.do(w.e.OnUnsubscribed)
	confirm := func() string { return w.do(func(x *core.Input) { w.e.OnSubscribed(x, 1, "n") }) }
	require.Equal(t, "ping n, timer +1s", confirm())
	require.Contains(t, w.pass(time.Second), "reconnect", "the ping is late")
	if w.e.Checking {
		w.check(wire.StateQueued)
	}
	w.do(w.e.OnUnsubscribed)
	require.Equal(t, "ping n, timer +2s", confirm())
	require.Equal(t, "check", w.do(func(x *core.Input) { w.e.OnPing(x, "n") }))
	c, _ = w.begins()
	require.Equal(t, wire.Proven, c.Mode)
	w.answers(c, answered, 0, wire.StateQueued)
	require.Equal(t, wire.Hears, w.e.Mode())

	w.do(w.e.OnUnsubscribed)
	require.NotContains(t, confirm(), "check", "of many names, they are spread")
	require.Equal(t, "check", w.pass(100*time.Millisecond))
	w.do(func(*core.Input) { w.e.OnSubscribeRefused(errRefusal) })
	require.ErrorIs(t, w.waiters["a"].Deafness, errRefusal)
}

func TestAnEventThatIsNotUsedRetires(t *testing.T) {
	w := subscribed(t, latch)
	a := w.waits("a", 5)
	for range 50 {
		require.NotContains(t, w.pass(3*time.Second), "retire")
		if w.e.Checking {
			w.check(wire.StateQueued)
		}
	}
	w.finish(a)
	require.Empty(t, w.pass(59*time.Second), "nobody waits, so nothing is looked at")
	require.Equal(t, "retire", w.pass(time.Second))
	retire := func() (over, subscribed bool) {
		w.do(func(x *core.Input) { over, subscribed = w.e.Retire(x) })
		return over, subscribed
	}
	b := w.asked("b")
	over, _ := retire()
	require.False(t, over, "a call has come")
	w.replied(b, wire.Granted, 5, answered)
	w.finish(b)
	w.now = w.now.Add(time.Minute)
	over, subscribed := retire()
	require.Equal(t, []bool{true, true}, []bool{over, subscribed})
	require.False(t, w.e.Wanted)
}
