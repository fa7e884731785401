package event

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

var (
	latch    = Config{}
	election = Config{Latest: true}
	barrier  = Config{Places: true}

	born                              = time.Unix(1000, 0)
	errRefusal, errGone, errForgotten = errors.New("refusal"), errors.New("gone"), errors.New("forgotten")
	answered                          core.Failure
	errLost                           = core.Failure{Err: errors.New("lost"), Advice: errors.New("lost"), Passes: true, Mendable: true}
	errFull                           = core.Failure{Err: errors.New("full"), Advice: errors.New("full"), Answered: true, Mendable: true}
	errBroken                         = core.Failure{Err: errors.New("broken"), Advice: errors.New("broken"), Answered: true}
)

// A world is the event of one client, and a clock. Each step is one input; it returns the effects as text.
type world struct {
	t       *testing.T
	e       *Event
	now     time.Time
	asks    map[*Waiter]*Acquire
	waiters map[string]*Waiter // by name, which is the text
	timer   time.Time
	sends   []*core.Release
}

func newWorld(t *testing.T, c Config) *world {
	w := &world{t: t, now: born, asks: map[*Waiter]*Acquire{}, waiters: map[string]*Waiter{}}
	w.do(func(x *core.Input) {
		w.e = New(x, c, core.Name{Linger: time.Minute, Subscription: core.Subscription{Born: born}})
	})
	return w
}

// do is an input. What the waiters are in is asserted after each.
func (w *world) do(input func(*core.Input)) string {
	w.t.Helper()
	x := &core.Input{Now: w.now}
	input(x)
	var all []string
	for _, f := range x.Effects {
		all = append(all, w.perform(&f))
	}
	for _, of := range w.e.waiters.All() {
		if w.e.waiters.Find(of.Text) != of || of.state == ended || of.Waits() && of.Refused == nil && !w.e.Checking && w.e.NextCheck.IsZero() {
			require.Fail(w.t, "a waiter is known by its text until its release is over (R8), and what waits is polled for (I5)", of.Text)
		}
	}
	require.True(w.t, w.e.NextCheck.IsZero() || w.e.Copied || !w.timer.IsZero() && !w.timer.After(w.e.NextCheck), "a check has its timer (I5)")
	return strings.Join(all, ", ")
}

func (w *world) perform(f *core.Effect) string {
	who, at := "", ""
	if f.Call != nil {
		who = " " + f.Call.Text
	}
	if d := f.At.Sub(w.now).Round(time.Millisecond); !f.At.IsZero() && d > 0 {
		at = " +" + d.String()
	}
	switch f.Do {
	case core.Timer:
		w.timer = times.First(w.timer, f.At)
		return "timer" + at
	case core.Send, core.SendLater:
		w.sends = append(w.sends, f.Release)
		return "send " + f.Release.Text + at
	case core.Queued:
		return fmt.Sprintf("queued%s with %d", who, f.Count)
	case core.Ping:
		return "ping " + f.Text
	}
	names := map[core.Action]string{
		core.Wake: "wake", core.Acknowledge: "acknowledge", core.Poll: "check", core.Retire: "retire", core.Subscribe: "subscribe",
		core.Reconnect: "reconnect", core.Owe: "owe", core.StopAction: "stop", core.Suspected: "suspected",
	}
	require.Contains(w.t, names, f.Do, "an impossible step, or an effect that no event has")
	return names[f.Do] + who
}

// pass moves the clock, and has what is due happen.
func (w *world) pass(d time.Duration) string {
	w.t.Helper()
	until, all := w.now.Add(d), []string{}
	for !w.timer.IsZero() && !w.timer.After(until) {
		w.now, w.timer = times.Later(w.now, w.timer), time.Time{}
		for s := range strings.SplitSeq(w.do(w.e.OnTimer), ", ") {
			if s != "" && !strings.HasPrefix(s, "timer") {
				all = append(all, s)
			}
		}
	}
	w.now = until
	return strings.Join(all, ", ")
}

func (w *world) attempt() core.Attempt {
	return core.Attempt{Sent: w.now, Expires: w.now.Add(3 * time.Second)}
}

// asked makes a waiter known, and begins its request.
func (w *world) asked(name string) *Waiter {
	w.t.Helper()
	of := w.waiters[name]
	if of == nil {
		of = &Waiter{Takes: 10 * time.Second}
		of.Text, of.Lease, of.Budget = name, 6*time.Second, 3*time.Second
		w.waiters[name] = of
		w.do(func(*core.Input) { w.e.Register(of) })
	}
	require.Equal(w.t, core.Ask, w.does(of))
	w.do(func(x *core.Input) {
		q, ok := w.e.BeginAcquire(x, of, w.now)
		require.True(w.t, ok)
		w.asks[of] = &q
	})
	return of
}

func (w *world) does(of *Waiter) core.Next { return w.e.Next(of, false).Do }

// replied takes in the reply to the request of a waiter. awaited is the generation for which it is to wait.
func (w *world) replied(of *Waiter, status wire.Status, awaited int64, f core.Failure) (string, core.Step) {
	w.t.Helper()
	var step core.Step
	r := wire.EventReply{Head: wire.Head{Status: status, Now: w.now.UnixMicro()}, Generation: awaited - 1, Awaited: awaited}
	effects := w.do(func(x *core.Input) { step = w.e.OnReply(x, w.asks[of], w.attempt(), &r, &f, errRefusal) })
	return effects, step
}

// waits is a waiter that was told to wait for a generation.
func (w *world) waits(name string, generation int64) *Waiter {
	w.t.Helper()
	of := w.asked(name)
	w.replied(of, wire.Waiting, generation, answered)
	return of
}

// subscribed is a world whose client is subscribed.
func subscribed(t *testing.T, c Config) *world {
	w := newWorld(t, c)
	w.do(func(x *core.Input) { w.e.Want(); w.e.OnSubscribed(x, 1, "n") })
	w.check()
	return w
}

func (w *world) message(generation int64, open bool) string {
	w.t.Helper()
	return w.do(func(x *core.Input) { w.e.OnMessage(x, generation, open, func(*Waiter) error { return errGone }) })
}

// begins begins a look.
func (w *world) begins() (c *Check, named []string) {
	w.t.Helper()
	require.True(w.t, w.e.Checking, "no check was asked for")
	w.do(func(*core.Input) { c = w.e.BeginChecks(w.now) })
	return c, c.names()
}

func (c *Check) names() (all []string) {
	for _, of := range c.Named {
		all = append(all, of.Text)
	}
	return all
}

func (w *world) answers(c *Check, f core.Failure, flags int64, states ...string) (more bool, effects string) {
	w.t.Helper()
	r := wire.EventReply{Head: wire.Head{Status: wire.Done, Now: w.now.UnixMicro(), Flags: flags, States: states}}
	errs := slices.Repeat([]Errors{{Broken: errGone, Forgotten: errForgotten}}, len(states))
	effects = w.do(func(x *core.Input) { more = w.e.OnCheckReply(x, c, w.attempt(), &r, errs, &f) })
	return more, effects
}

// check is a look that is answered at once.
func (w *world) check(states ...string) string {
	w.t.Helper()
	c, _ := w.begins()
	_, effects := w.answers(c, answered, 0, states...)
	return effects
}

func (w *world) released(of *Waiter, f core.Failure) string {
	w.t.Helper()
	d := w.sends[len(w.sends)-1]
	sent := w.now
	return w.do(func(x *core.Input) { w.e.OnReleaseReply(x, of, d, sent, &f) })
}

func (w *world) finish(of *Waiter) string {
	w.t.Helper()
	return w.do(func(x *core.Input) { w.e.Finish(x, of) })
}
