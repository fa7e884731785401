package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/wire"
)

func TestAReleaseIsSentOnceWhereAllIsAnswered(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	d := w.release(h)
	require.True(t, h.Ticket.owed, "Close waits for it, also before it is sent")
	require.Equal(t, "acknowledge a, owe no more a", w.released(d, wire.Done, answered))
	require.True(t, h.Ticket.Acknowledged())
	require.NoError(t, h.Ticket.ReleaseErr)
	require.Zero(t, w.l.tickets.Len())
}

func TestAReleaseIsSentAgainAfterWhatWasInFlight(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	w.do(w.l.Poll)
	c, _ := w.begins()
	require.Equal(t, "send a at once", w.finish(a))
	require.Equal(t, "acknowledge a, owe a", w.released(w.last[a], wire.Done, answered), "a check that names it is under way (R1)")
	require.Equal(t, ending, a.state)
	_, effects := w.answers(&c, wire.Reply{}, answered, wire.StateQueued)
	require.Equal(t, "send a at once, owe no more a", effects)
	require.EqualValues(t, 1, a.repeats)
	require.Equal(t, "", w.released(w.last[a], wire.Done, answered))
	require.Zero(t, w.l.tickets.Len())
}

func TestATicketIsKeptUntilItsRepeatedReleaseIsAnswered(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	w.do(w.l.Poll)
	c, _ := w.begins()
	w.finish(a)
	first := w.last[a]
	_, effects := w.answers(&c, wire.Reply{}, answered, wire.StateQueued)
	require.Equal(t, "send a at once", effects, "while the answer to the first is on its way")
	require.Equal(t, "acknowledge a", w.released(first, wire.Done, answered))
	require.Equal(t, ending, a.state)
	require.Equal(t, "", w.released(w.last[a], wire.Done, answered))
	require.Equal(t, ended, a.state)
}

func TestAReleaseIsSentAgainAfterTheNotAfterOfALostRequest(t *testing.T) {
	w := subscribed(t)
	a := w.ticket("a", nil)
	w.asked(a)
	w.replied(a, wire.Reply{}, errLost)
	w.now = w.now.Add(time.Second)
	require.Equal(t, "send a at once", w.finish(a))
	require.Equal(t, "acknowledge a, send a +2s", w.released(w.last[a], wire.Done, answered), "until then the request may run (R7)")
	require.Equal(t, w.now.Add(12*time.Second), a.Left(w.now), "and take a lease")
	w.now = w.now.Add(2 * time.Second)
	require.Equal(t, "", w.released(w.last[a], wire.Done, answered))
	require.Zero(t, w.l.tickets.Len())

	w = subscribed(t)
	a = w.ticket("a", nil)
	w.asked(a)
	w.finish(a)
	d := w.last[a]
	effects, _ := w.replied(a, wire.Reply{}, errLost)
	require.Equal(t, "timer +10ms, send a +3s", effects, "it was in flight when the release was sent")
	w.released(d, wire.Done, answered)
	require.Equal(t, 1, w.l.tickets.Len())

	w = subscribed(t)
	a = w.ticket("a", func(t *Ticket) { t.Permits = 5 })
	w.asked(a)
	w.replied(a, wire.Reply{}, errLost)
	w.asked(a)
	w.replied(a, w.granted(7, 10*time.Second), answered)
	h := w.take(a)
	w.pass(time.Millisecond)
	w.do(func(x *Input) { require.True(t, w.l.pass(x, h, true, false, w.v)) })
	d = w.release(h)
	require.EqualValues(t, 8, d.Token)
	require.Equal(t, "acknowledge a, send a +2.999s, owe no more a", w.released(d, wire.Done, answered), "what the late request takes has another token")
}

func TestARequestUnderAnOldNumberIsReleasedAfterItsNotAfter(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	w.do(w.l.Poll)
	c, _ := w.begins()
	w.message(a, 7, time.Second)
	w.confirm(a, wire.Reply{Status: wire.Refused}, answered)
	_, effects := w.answers(&c, wire.Reply{}, errLost)
	require.Contains(t, effects, "send a +3s", "the check named it by that")
	require.EqualValues(t, 0, w.last[nil].Token)
	require.Len(t, w.l.leaving, 1)
	until, _ := w.l.Left(w.last[nil])
	require.Equal(t, w.now.Add(13*time.Second), until)
	require.False(t, w.last[nil].Rests)
	w.message(a, 8, 2*time.Second)
	a.Inherits = true
	effects, _ = w.confirm(a, wire.Reply{Status: wire.Refused}, answered)
	require.Equal(t, "send a' +3s, wake a, timer now", effects, "and the number after it, while that request may run")
	require.True(t, w.last[nil].Rests, "who gave the hold that it adopted has used it")
}

func TestAReleaseThatIsNotAnsweredIsRepeatedUntilTheLeaseIsOver(t *testing.T) {
	for _, c := range []struct {
		name string
		f    Failure
		want error
	}{{"lost", errLost, ErrNoAnswer}, {"refused", errFull, errFull.Advice}} {
		t.Run(c.name, func(t *testing.T) {
			w := subscribed(t)
			h := w.holding("a", nil)
			begun := w.now
			d, effects := w.unlock(h)
			require.Equal(t, "owe a, send a soon", effects)
			for tries := 1; ; tries++ {
				effects = w.released(d, 0, c.f)
				if h.Ticket.state == ended {
					break
				}
				require.Equal(t, tries, d.Tries)
				require.Contains(t, effects, "send a +")
				require.Equal(t, c.f.Answered && tries == 1, effects[:5] != "send ", effects)
				w.now = w.now.Add(time.Second)
			}
			require.Equal(t, "owe no more a, unlocked a: "+Unconfirmed(c.want).Error()+", acknowledge a", effects)
			require.Equal(t, 11*time.Second, w.now.Sub(begun), "its lease is over")
			require.ErrorIs(t, h.Ticket.ReleaseErr, reason.ErrUnconfirmed)
			require.ErrorIs(t, h.Ticket.Unended, c.want)
			require.Empty(t, w.l.Unlocks())
		})
	}
}

func TestACallThatWaitsForItsReleaseGoesOnForAMinute(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	d := w.release(h)
	begun := w.now
	require.Equal(t, "send a +5ms", w.released(d, 0, errLost))
	w.now = begun.Add(time.Minute)
	require.Equal(t, "send a +10ms", w.released(d, 0, errUnsent))
	w.now = w.now.Add(time.Microsecond)
	w.released(d, 0, errLost)
	require.Equal(t, ended, h.Ticket.state)
	require.ErrorIs(t, h.Ticket.ReleaseErr, ErrNoAnswer)

	w = subscribed(t)
	h = w.holding("a", nil)
	require.Contains(t, w.released(w.release(h), 0, errBroken), "acknowledge a", "no retry mends that")
	require.ErrorIs(t, h.Ticket.ReleaseErr, errBroken.Advice)
}

func TestWhatTheAnswerToAReleaseMeans(t *testing.T) {
	refused := func(w *world, d *Release) { w.released(d, wire.Refused, answered) }
	for name, c := range map[string]struct {
		does func(*world, *Release)
		want error
	}{
		"it was lost before": {refused, reason.ErrForgotten},
		"an attempt without an answer may have done it": {func(w *world, d *Release) {
			w.released(d, 0, errLost)
			refused(w, d)
		}, nil},
		"all attempts before were refused": {func(w *world, d *Release) {
			w.released(d, 0, errFull)
			refused(w, d)
		}, reason.ErrForgotten},
	} {
		t.Run(name, func(t *testing.T) {
			w := subscribed(t)
			h := w.holding("a", nil)
			c.does(w, w.release(h))
			require.Equal(t, c.want, h.Ticket.ReleaseErr)
			require.Equal(t, ended, h.Ticket.state)
		})
	}
	h := &Hold{Ticket: &Ticket{}, Lasts: Until{Deadline: born}}
	require.ErrorIs(t, h.Outcome(born.Add(-1), &wire.Head{Status: wire.Done, Flags: wire.Unwoken}), reason.ErrUnwoken)
}

func TestAReleaseThatNobodyWaitsForMayGoWithTheNextRequest(t *testing.T) {
	for _, c := range []struct {
		name string
		does func(*world, *Hold)
		want string
	}{
		{"got at once, and held for a short time", func(*world, *Hold) {}, "soon"},
		{"held for long", func(w *world, _ *Hold) { w.now = w.now.Add(Linger) }, "at once"},
		{"it waited", func(_ *world, h *Hold) { h.Ticket.Arrival = 1 }, "at once"},
		{"somebody waits", func(_ *world, h *Hold) { h.wish = fulfilled }, "at once"},
		{"another call of the client waits", func(w *world, _ *Hold) { w.waits("b", 1) }, "at once"},
		{"a check is under way", func(w *world, _ *Hold) { w.do(w.l.Poll) }, "at once"},
	} {
		w := subscribed(t)
		w.pass(5 * time.Second)
		h := w.holding("a", nil)
		require.True(t, w.l.MayLet(h, w.v))
		c.does(w, h)
		_, effects := w.unlock(h)
		require.Equal(t, "owe a, send a "+c.want, effects, c.name)
	}
}

func TestAReleaseThatNobodyWaitsForIsSentAgainToo(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	w.do(w.l.Poll)
	c, _ := w.begins()
	w.message(a, 7, 0)
	d, _ := w.unlock(w.take(a))
	_, effects := w.answers(&c, wire.Reply{}, errLost)
	require.Equal(t, "timer +10ms, send a +3s, owe no more a", effects, "the check was in flight (R1)")
	again := w.last[a]
	require.Contains(t, w.released(d, wire.Done, answered), "unlocked a, acknowledge a")
	require.Equal(t, ending, a.state)
	w.now = w.now.Add(3 * time.Second)
	for _, d := range []*Release{again, w.last[a]} {
		if w.sends[d] {
			w.released(d, wire.Done, answered)
		}
	}
	require.Equal(t, ended, a.state)
}

func TestLaterRequestsFollowTheReleasesThatNobodyWaitsFor(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *Subscription) { c.Several = true })
	var all []*Release
	for _, name := range []string{"a", "b", "c"} {
		d, _ := w.unlock(w.holding(name, nil))
		all = append(all, d)
	}
	require.Equal(t, all, w.l.Unlocks())
	require.Equal(t, "unlocked b, acknowledge b, owe no more b", w.released(all[1], wire.Done, answered))
	require.Equal(t, []*Release{all[0], all[2]}, w.l.Unlocks())
	require.Equal(t, "stuck c, send c +5ms", w.released(all[2], 0, errFull), "those that follow it are told")
	require.True(t, all[2].IsStuck())
	require.Equal(t, &errFull, all[2].Ticket.Hold.ReleaseFailure)
	require.Equal(t, "send c +10ms", w.released(all[2], 0, errFull), "once")
	w.released(all[0], wire.Done, answered)
	w.released(all[2], wire.Done, answered)
	require.Empty(t, w.l.Unlocks())
}

func TestAHoldThatIsHandedOverAndGoneIsReleasedPlainly(t *testing.T) {
	for name, r := range map[string]struct {
		head  wire.Head
		plain bool
	}{
		"moved":               {wire.Head{Status: wire.Granted}, false},
		"moved by one before": {wire.Head{Status: wire.Refused, States: []string{wire.StateMoved}}, false},
		"gone":                {wire.Head{Status: wire.Refused, States: []string{wire.StateExpired}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := subscribed(t)
			h := w.holding("a", nil)
			d := w.release(h)
			d.Moves = true
			delete(w.sends, d)
			effects := w.do(func(x *Input) { w.l.OnReleaseReply(x, d, w.now, &r.head, &answered) })
			require.NoError(t, h.Ticket.ReleaseErr)
			if !r.plain {
				require.Equal(t, ended, h.Ticket.state)
				return
			}
			require.Equal(t, "acknowledge a, send a +1ms, owe no more a", effects, "a late request may have taken it again")
			require.ErrorIs(t, h.Gone, reason.ErrExpired)
			require.False(t, w.last[h.Ticket].Moves)
			w.now = w.now.Add(time.Millisecond)
			w.released(w.last[h.Ticket], wire.Refused, answered)
			require.Equal(t, ended, h.Ticket.state)
		})
	}
}

func TestAPlainReleaseFollowsWhatALateRequestMayHaveDone(t *testing.T) {
	moved := wire.Head{Status: wire.Refused, States: []string{wire.StateMoved}}
	for name, c := range map[string]struct {
		head                wire.Head
		moves, lost, unsure bool
		plain               bool
	}{
		"moved by one before":                       {moved, true, true, true, true},
		"moved by one before, and nothing was lost": {moved, true, false, true, false},
		"moved by an attempt that is repeated":      {wire.Head{Status: wire.Granted}, true, true, true, true},
		"moved at once":                             {wire.Head{Status: wire.Granted}, true, true, false, false},
		"another token":                             {wire.Head{Status: wire.Refused, States: []string{wire.StateExpired}}, false, true, false, true},
		"another token, and nothing was lost":       {wire.Head{Status: wire.Refused, States: []string{wire.StateExpired}}, false, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := subscribed(t)
			a := w.ticket("a", nil)
			w.asked(a)
			if c.lost {
				w.replied(a, wire.Reply{}, errLost)
				w.asked(a)
			}
			w.replied(a, w.granted(uint64(w.us()), a.Lease), answered)
			h := w.take(a)
			a.used = h.Token
			w.now = w.now.Add(4 * time.Second) // What was lost can run no more.
			d := w.release(h)
			d.Moves, d.unsure = c.moves, c.unsure
			effects := w.do(func(x *Input) {
				delete(w.sends, d)
				w.l.OnReleaseReply(x, d, w.now, &c.head, &answered)
			})
			if !c.plain {
				require.Equal(t, ended, a.state)
				return
			}
			require.Contains(t, effects, "send a +1ms")
			require.Zero(t, w.last[a].Token, "whatever the ticket has")
			require.False(t, w.last[a].Moves)
			w.now = w.now.Add(time.Millisecond)
			w.released(w.last[a], wire.Done, answered)
			require.Equal(t, ended, a.state)
		})
	}
}

func TestCloseEndsWaitsAndHolds(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	b, c, d := w.waits("b", 1), w.waits("c", 2), w.ticket("d", nil)
	w.finish(c)
	w.now = w.now.Add(time.Second)
	effects := w.do(w.l.Close)
	require.Equal(t, "lose a: lease lost: client closed, send a at once, send b at once, send d at once, wake b, wake c, wake d", sorted(effects))
	require.ErrorIs(t, b.WaitErr, reason.ErrClosed)
	require.Equal(t, Fail, w.does(b))
	require.ErrorIs(t, h.Gone, reason.ErrClientClosed)

	var left []*Ticket
	w.do(func(x *Input) {
		w.l.releaseUnknown(x, "C:9:x:1:5000:2000", w.now, false)
		w.l.releaseUnknown(x, "C:8:x:1:5000:2000", w.now.Add(-5*time.Second), false)
	})
	unknown := 0
	w.l.Outstanding(w.now, func(t *Ticket) { left = append(left, t) }, func(*Release) { unknown++ })
	require.ElementsMatch(t, []*Ticket{h.Ticket, b, c}, left, "nothing was sent for d")
	require.Equal(t, 1, unknown, "the other is over")
	require.Equal(t, h.Lasts.Deadline.Add(100*time.Millisecond), h.Ticket.Left(w.now))
	for _, ticket := range []*Ticket{h.Ticket, b, c, d} {
		w.released(w.last[ticket], wire.Done, answered)
	}
	require.Zero(t, w.l.tickets.Len())
}

func TestAnAbandonedClientSendsNothing(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	b := w.ticket("b", nil)
	w.asked(b)
	effects := w.do(func(x *Input) { require.True(t, w.l.Abandon(x, reason.ErrCopied)) })
	require.Equal(t, "acknowledge a, acknowledge b, lose a: lease lost: the process is a copy of the holder, wake b", sorted(effects))
	require.ErrorIs(t, b.WaitErr, reason.ErrCopied)
	require.ErrorIs(t, h.Gone, reason.ErrCopied)
	require.Zero(t, w.l.tickets.Len())
	effects, _ = w.replied(b, wire.Reply{}, errLost)
	require.Empty(t, effects)
	require.Empty(t, w.message(b, 7, 0), "it is of a ticket that the other copy has too")
}

func TestACallThatLeftNothingAtTheServer(t *testing.T) {
	left := &Ticket{state: ending}
	require.Zero(t, left.Left(born))
	left.inDoubt = born
	left.Lease = 10 * time.Second
	require.Equal(t, born.Add(10*time.Second), left.Left(born), "a request may still run")
	left.inDoubt, left.inflight = time.Time{}, 1
	require.Equal(t, born.Add(13*time.Second), left.Left(born))
	left.Budget = time.Minute
	require.Equal(t, born.Add(70*time.Second), left.Left(born), "after a late one it has more time (R7)")
	left.Budget = 3 * time.Second
	left.state = ended
	require.Zero(t, left.Left(born))
	left = &Ticket{state: waiting, Arrival: 1, takes: time.Second}
	require.Equal(t, born.Add(time.Second), left.Left(born), "what it may be granted now")
	left.grant = Grant{Token: 1, From: born, Lasts: 3 * time.Second}
	require.Equal(t, born.Add(3*time.Second), left.Left(born.Add(time.Hour)))
	h := &Hold{Ticket: left, Gone: reason.ErrExpired, Lasts: Until{Deadline: born}}
	left.Hold = h
	require.Zero(t, left.Left(born), "a lease that ran out ends in the server by itself")
}
