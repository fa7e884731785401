package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/wire"
)

func TestTheMarginIsAPartOfTheLease(t *testing.T) {
	for lasts, want := range map[time.Duration]time.Duration{
		time.Hour:              36 * time.Second,
		10 * time.Second:       100 * time.Millisecond,
		time.Second:            10 * time.Millisecond,
		100 * time.Millisecond: 2 * time.Millisecond,
		10 * time.Millisecond:  2 * time.Millisecond,
		4 * time.Millisecond:   time.Millisecond,
		time.Millisecond:       250 * time.Microsecond,
	} {
		require.Equal(t, want, Margin(lasts), "%v", lasts)
	}
	h := Hold{Ticket: &Ticket{grant: Grant{limit: born.Add(5 * time.Second)}}}
	require.Equal(t, Until{Deadline: born.Add(9900 * time.Millisecond), Slept: 5}, h.until(born, 10*time.Second, 5, false))
	require.Equal(t, Until{Deadline: h.Ticket.grant.limit, Cause: reason.ErrMaxHold}, h.until(born, 10*time.Second, 0, true))
}

func TestAHoldIsRenewedAfterAThirdOfItsLease(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	require.Empty(t, w.pass(attendAfter-1), "a short hold listens for nothing")
	require.Equal(t, "attend a", w.pass(3*time.Second-attendAfter+1))
	require.Equal(t, "renew a", w.pass(time.Second/3))
	sent := w.renewal(h)
	require.Equal(t, Renewal{Text: h.Ticket.Text, Token: h.Token, Lasts: 10 * time.Second}, sent)
	require.Equal(t, "a until +9.9s", w.renewed(h, sent, w.granted(h.Token, sent.Lasts), answered))
	require.Contains(t, w.pass(10*time.Second/3), "renew a")
	w.renew(h)

	w = subscribed(t)
	a := w.waits("a", 0)
	w.message(a, 7, 0)
	h = w.take(a)
	require.Equal(t, "attend a, renew a", w.pass(2*time.Second/3), "that makes a short grant a full lease")
	require.Equal(t, 10*time.Second, w.renewal(h).Lasts)
}

func TestAnErrorOfARenewalIsRetriedUntilTheDeadline(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	w.pass(4 * time.Second)
	failed, deadline := 0, h.Lasts.Deadline
	for ; h.Gone == nil; w.pass(10 * time.Millisecond) {
		if w.renews[h.Ticket] {
			require.Equal(t, "failing a: disk full", w.renewed(h, w.renewal(h), wire.Reply{}, errFull))
			failed++
			require.EqualValues(t, failed, h.failures)
		}
	}
	require.Greater(t, failed, 6)
	require.ErrorIs(t, h.Gone, reason.ErrExpired)
	require.Equal(t, ending, h.Ticket.state)
	require.Equal(t, deadline, h.Lasts.Deadline)
	require.Equal(t, "acknowledge a", w.released(w.last[h.Ticket], wire.Refused, answered), "Redis may still have had it")
}

func TestAHoldIsLostBeforeTheServerEndsItsLease(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	granted := w.now
	require.Equal(t, "attend a, renew a", w.pass(5*time.Second))
	require.Contains(t, w.pass(5*time.Second), "lose a: lease lost: expired, send a at once", "its renewal was not answered")
	require.Equal(t, granted.Add(10*time.Second-100*time.Millisecond), h.Lasts.Deadline, "I4")
	sent := w.renewal(h)
	require.Empty(t, w.renewed(h, sent, w.granted(h.Token, sent.Lasts), answered), "too late")
	require.Empty(t, w.do(func(x *Input) { w.l.Lose(x, h, reason.ErrForced) }), "once")
}

func TestALostRenewalMayHaveMadeTheLeaseLonger(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	w.pass(4 * time.Second)
	sent := w.renewal(h)
	require.Equal(t, w.now.Add(13*time.Second), h.heldUntil(w.now), "while it is under way")
	w.renewed(h, sent, wire.Reply{}, errLost)
	require.Equal(t, w.now.Add(13*time.Second), h.heldUntil(w.now.Add(time.Minute)), "its not-after, and the lease")
}

func TestTheServerSaysThatAHoldIsOver(t *testing.T) {
	for _, c := range []struct {
		states []string
		change func(*world, *Hold)
		want   error
	}{
		{[]string{wire.StateForced}, nil, reason.ErrForced},
		{[]string{wire.StateExpired}, nil, reason.ErrExpired},
		{nil, nil, reason.ErrForgotten},
		{[]string{"other"}, nil, reason.ErrForgotten},
		{nil, func(w *world, h *Hold) { w.do(func(x *Input) { w.l.OnForced(x, h.Ticket.Text) }) }, reason.ErrForced},
		{[]string{wire.StateForced}, func(w *world, h *Hold) { w.now = h.Lasts.Deadline }, reason.ErrExpired},
	} {
		w := subscribed(t)
		h := w.holding("a", nil)
		w.pass(4 * time.Second)
		sent := w.renewal(h)
		if c.change != nil {
			c.change(w, h)
		}
		effects := w.renewed(h, sent, wire.Reply{Status: wire.Refused, States: c.states}, answered)
		require.Equal(t, fmt.Sprintf("lose a: %v, send a at once", c.want), effects)
		require.ErrorIs(t, h.Gone, c.want)
	}
}

func TestALateRenewalIsRepeatedAtOnce(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	w.pass(4 * time.Second)
	w.renewed(h, w.renewal(h), wire.Reply{Status: wire.Late}, answered)
	require.Contains(t, w.pass(0), "renew a")
}

func TestAMessageOfForceHurriesARenewal(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", nil)
	forced := func() { w.do(func(x *Input) { w.l.OnForced(x, h.Ticket.Text) }) }
	forced()
	require.Equal(t, "renew a", w.pass(0))
	sent := w.renewal(h)
	sentAt := w.attempt()
	w.now = w.now.Add(time.Millisecond)
	forced()
	r := w.granted(h.Token, sent.Lasts)
	w.do(func(x *Input) { w.l.OnRenewed(x, h, &sent, sentAt, &r, &answered, w.v) })
	require.Equal(t, "renew a", w.pass(0), "that one was sent before the second message")
	require.True(t, h.Ticket.forced)
	w.now = w.now.Add(time.Millisecond)
	w.renew(h)
	require.False(t, h.Ticket.forced, "the message was wrong")
	require.NotContains(t, w.pass(time.Second), "renew")

	w.do(func(x *Input) { w.l.OnSuspected(x, h.Ticket.Text) })
	require.Contains(t, w.pass(0), "renew a", "its lease may have run out")

	w = subscribed(t)
	a := w.ticket("a", nil)
	w.message(a, 7, 0)
	w.do(func(x *Input) { w.l.OnForced(x, a.Text) })
	w.take(a)
	require.Equal(t, "renew a", w.pass(0), "also before its call took it")

	w = newWorld(t, func(c *Config, _ *Subscription) { c.Several = true })
	w.holding("a", nil)
	h = w.holding("b", nil)
	forced()
	w.do(func(x *Input) { w.l.OnForced(x, "C:9:x:1:10000:2000") })
	require.Equal(t, "renew b", w.pass(0), "no other")
}

func TestTheLastRenewalIsToTheMaximum(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", func(t *Ticket) { t.MaxHold = 12 * time.Second })
	require.Contains(t, w.pass(4*time.Second), "renew a")
	sent := w.renewal(h)
	require.True(t, sent.Final)
	require.Equal(t, 8*time.Second, sent.Lasts)
	require.Contains(t, w.renewed(h, sent, w.granted(h.Token, sent.Lasts), answered), "a until +7.92s: lease lost: held for its maximum time")
	require.NotContains(t, w.pass(7*time.Second), "renew")
	require.Zero(t, h.due)
}

func TestAHoldIsEnteredAndLeft(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *Subscription) { c.Entries = true })
	h := w.holding("a", func(t *Ticket) { t.Behalf = "me" })
	b := w.ticket("b", func(t *Ticket) { t.Behalf = "me" })
	require.Equal(t, Enter, w.does(b), "its owner holds")
	require.Same(t, h, w.l.HeldBy("me"))
	enter := func(kind byte) (entered bool, err error) {
		w.do(func(x *Input) { entered, err = w.l.Enter(x, h, kind, w.v) })
		return entered, err
	}
	leave := func(released bool) (last bool, gone error) {
		w.do(func(x *Input) { last, _, gone = w.l.Leave(x, h, wire.Exclusive, reason.ErrStalled, released) })
		return last, gone
	}
	entered, err := enter(wire.Exclusive)
	require.True(t, entered)
	require.NoError(t, err)
	w.finish(b)
	require.Equal(t, 2, h.Count(0))
	require.Equal(t, "renew a", w.pass(100*time.Millisecond), "the server is told soon")
	require.Equal(t, "1:2", w.renewal(h).Entries)
	require.False(t, w.l.MayLet(h, w.v), "two leases are on it")
	last, _ := leave(true)
	require.False(t, last)
	require.True(t, w.l.MayLet(h, w.v))
	require.Equal(t, "2:1", h.entries())
	last, gone := leave(true)
	require.True(t, last)
	require.NoError(t, gone)

	h.open = MaxEntries
	_, err = enter(wire.Exclusive)
	require.ErrorIs(t, err, reason.ErrTooLarge)
	h.open = 2
	for _, v := range []Leases{{Releasing: true}, {Over: true}} {
		w.v = v
		entered, err = enter(wire.Exclusive)
		require.False(t, entered)
		require.NoError(t, err)
	}
	w.v = Leases{}
	last, gone = leave(false)
	require.False(t, last)
	require.ErrorIs(t, gone, reason.ErrStalled, "a lease that ends ends them all")
	require.Equal(t, ending, h.Ticket.state)
	require.Nil(t, w.l.HeldBy("me"))
	_, gone = leave(true)
	require.ErrorIs(t, gone, reason.ErrStalled)
	entered, _ = enter(wire.Exclusive)
	require.False(t, entered)
	require.False(t, w.l.MayLet(h, w.v))
}

func TestTheCallsOfAnOwnerThatHoldsTwiceEnterTheOther(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *Subscription) { c.Several = true })
	mine := func(t *Ticket) { t.Behalf = "me" }
	a, c := w.holding("a", mine), w.ticket("c", mine)
	b := w.ticket("b", mine)
	w.message(b, 9, 0)
	require.Equal(t, Take, w.does(b), "it was granted meanwhile")
	w.names[b.Text] = "b"
	hb := &Hold{}
	require.Equal(t, "wake a, wake c", sorted(w.do(func(x *Input) { w.l.Take(x, b, hb, w.v) })))
	require.Same(t, hb, w.l.HeldBy("me"))
	w.release(hb)
	require.Same(t, a, w.l.HeldBy("me"), "also while the release of the other is under way")
	require.Equal(t, Enter, w.does(c))
	w.do(func(x *Input) { require.Equal(t, Ask, w.l.Next(x, c, false, true).Do, "to enter has just failed") })
	w.release(a)
	require.Nil(t, w.l.HeldBy("me"))
	require.Equal(t, Ask, w.does(c))
}

func TestTheLastLeaseForWritingIsLowered(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *Subscription) { c.Several = true })
	h := w.holding("a", func(t *Ticket) { t.Kind, t.Permits = wire.Write, wire.AllReaders })
	for _, kind := range []byte{wire.Write, wire.Read} {
		w.do(func(x *Input) {
			entered, err := w.l.Enter(x, h, kind, w.v)
			require.True(t, entered)
			require.NoError(t, err)
		})
	}
	require.Equal(t, []int{3, 2, 1}, []int{h.Count(0), h.Count(wire.Write), h.Count(wire.Read)})
	leave := func() (lower bool) {
		w.do(func(x *Input) { _, lower, _ = w.l.Leave(x, h, wire.Write, reason.ErrReleased, true) })
		return lower
	}
	require.False(t, leave())
	require.True(t, leave())
	w.do(func(x *Input) {
		_, err := w.l.Enter(x, h, wire.Write, w.v)
		require.ErrorIs(t, err, reason.ErrUpgrade)
	})
	lowered := func(status wire.Status) (err error) {
		w.do(func(x *Input) { err = w.l.Lowered(x, h, &wire.Head{Status: status}) })
		return err
	}
	require.NoError(t, lowered(wire.Granted))
	require.ErrorIs(t, lowered(wire.Refused), reason.ErrForgotten)
	require.ErrorIs(t, lowered(wire.Refused), reason.ErrForgotten, "that is why it was lost")
	h.Gone = nil
	require.ErrorIs(t, lowered(wire.Refused), reason.ErrReleased, "the rest was released meanwhile")

	h = w.holding("b", func(t *Ticket) { t.Kind = wire.Write })
	lower, holds := w.l.Downgrade(h, wire.Write)
	require.Equal(t, []bool{true, true}, []bool{lower, holds})
	w.release(h)
	lower, holds = w.l.Downgrade(h, wire.Read)
	require.Equal(t, []bool{false, false}, []bool{lower, holds})
}

// keeping is a world with a hold that reserves five tokens, which its client wants back when somebody waits.
func keeping(t *testing.T) (*world, *Hold) {
	w := subscribed(t)
	h := w.holding("a", func(t *Ticket) { t.Kind, t.Permits = wire.Kept, 5 })
	w.now = w.now.Add(time.Millisecond)
	w.do(func(x *Input) { w.l.Wish(x, h) })
	require.Equal(t, "renew a", w.pass(0))
	sent := w.renewal(h)
	require.True(t, sent.Wishes)
	require.False(t, sent.Said)
	w.renewed(h, sent, w.granted(h.Token, sent.Lasts), answered)
	require.Equal(t, said, h.wish)
	return w, h
}

func (w *world) keep(h *Hold, d time.Duration) (kept bool) {
	w.do(func(x *Input) { kept = w.l.keep(x, h, d, false, w.v) })
	return kept
}

func TestAHoldIsPassedOnByItsNextToken(t *testing.T) {
	w, h := keeping(t)
	may := func() bool { return w.l.mayPass(&Input{Now: w.now}, h, false, false, w.v) }
	first := h.Token
	for i := uint64(1); i < 5; i++ {
		require.True(t, may())
		w.do(func(x *Input) { w.l.pass(x, h, false, false, w.v) })
		require.Equal(t, first+i, h.UseToken)
		require.Equal(t, w.now, h.Since)
	}
	require.False(t, may(), "it has used all that it reserved (I13)")
	d := w.release(h)
	require.Equal(t, first+4, d.Token, "the next hold has a higher one")

	w, h = keeping(t)
	now := w.now
	w.now = h.granted.Add(time.Microsecond)
	require.False(t, may(), "no microsecond has passed since the grant (I13)")
	w.now = now
	require.False(t, w.l.mayPass(&Input{Now: w.now}, h, false, true, w.v), "in doubt")
	w.v.Over = true
	require.False(t, may())
	w.v.Over = false
	h.failures = 1
	require.False(t, may(), "its renewals fail")
	h.failures, h.Ticket.forced = 0, true
	require.False(t, may(), "it may have been released by force")
	h.Ticket.forced = false
	w.now = h.Lasts.Deadline.Add(-2 * time.Second)
	require.False(t, may(), "its end is near")
}

func TestNobodyUsesAHoldOnceItsClientKnowsThatSomebodyWaits(t *testing.T) {
	w, h := keeping(t)
	wanted := func(token uint64) string { return w.do(func(x *Input) { w.l.OnWanted(x, token) }) }
	require.Empty(t, wanted(h.Token-1), "that is about an earlier hold")
	require.Equal(t, "first awaited a", wanted(h.Token))
	require.Empty(t, wanted(h.Token), "once")
	require.False(t, w.l.mayPass(&Input{Now: w.now}, h, false, false, w.v), "I14")
	require.True(t, w.l.mayPass(&Input{Now: w.now}, h, true, false, w.v), "except for the passes of a cohort")
	require.False(t, w.keep(h, time.Minute))
	require.Equal(t, "awaited a", w.do(func(x *Input) { w.l.Wish(x, h) }), "who asks later is told too")

	w, h = keeping(t)
	h.wish, h.Ticket.Arrival = unsaid, 5
	require.False(t, w.keep(h, time.Minute), "others may wait after its call, which has waited itself (I14)")
	h.hurried = time.Time{}
	w.do(func(x *Input) { w.l.hurry(x, h) })
	w.pass(0)
	sent := w.renewal(h)
	r := w.granted(h.Token, sent.Lasts)
	r.Flags = wire.Wanted
	require.Contains(t, w.renewed(h, sent, r, answered), "first awaited a")

	w, h = keeping(t)
	require.Contains(t, w.confirmed(), "timer")
	require.Equal(t, unsaid, h.wish)
	require.Contains(t, w.pass(time.Millisecond), "renew a", "messages may have been missed")
	w.renewed(h, w.renewal(h), wire.Reply{}, errFull)
	require.Contains(t, w.pass(time.Second), "renew a")
	sent = w.renewal(h)
	require.False(t, sent.Wishes, "to know is not worth the hold")
	w.renewed(h, sent, w.granted(h.Token, sent.Lasts), answered)
	require.Equal(t, unsaid, h.wish)
	require.Contains(t, w.pass(time.Second), "renew a", "it says so soon")
	require.True(t, w.renewal(h).Wishes)
}

func TestAHoldThatNobodyUsesIsShortAndGivenBackInTime(t *testing.T) {
	w, h := keeping(t)
	require.True(t, w.keep(h, time.Minute))
	require.Equal(t, w.now.Add(time.Minute), h.Idle)
	require.Contains(t, w.pass(2*time.Second/3), "renew a", "soon, for the grant lease (I15)")
	long := h.Lasts.Deadline
	sent := w.renewal(h)
	require.Equal(t, []any{2 * time.Second, true}, []any{sent.Lasts, sent.Idle})
	require.True(t, h.Lasts.Deadline.Before(long), "it is short from now on, though no answer comes (I4)")
	require.Equal(t, w.now.Add(1980*time.Millisecond), h.Lasts.Deadline)
	w.renewed(h, sent, wire.Reply{}, errLost)
	require.False(t, w.l.mayPass(&Input{Now: w.now}, h, false, false, w.v), "its renewal has failed")
	h.Idle = time.Time{} // A call takes it up all the same.
	w.pass(100 * time.Millisecond)
	sent = w.renewal(h)
	require.Equal(t, []any{2 * time.Second, false}, []any{sent.Lasts, sent.Idle}, "the renewal without an answer may come after it, and make it short")
	w.renewed(h, sent, w.granted(h.Token, sent.Lasts), answered)
	w.pass(2 * time.Second / 3)
	w.renewed(h, w.renewal(h), wire.Reply{}, errLost)
	expires := w.attempt().Expires // This one may come later still.
	w.pass(100 * time.Millisecond)
	sent = w.renewal(h)
	for sent.Lasts == 2*time.Second {
		require.True(t, w.now.Before(expires))
		w.renewed(h, sent, w.granted(h.Token, sent.Lasts), answered)
		w.pass(2 * time.Second / 3)
		sent = w.renewal(h)
	}
	require.Equal(t, 10*time.Second, sent.Lasts)
	require.False(t, w.now.Before(expires), "that one can run no more")

	w, h = keeping(t)
	require.True(t, w.keep(h, time.Second))
	w.pass(700 * time.Millisecond)
	w.renew(h)
	require.Contains(t, w.pass(time.Second), "recall a", "nobody takes it up")
	require.Equal(t, fulfilled, h.wish)
	require.NotContains(t, w.pass(500*time.Millisecond), "recall", "once")
	require.Contains(t, w.pass(2*time.Second), "lose idle a: lease lost: expired", "no call has lost anything")
}

func TestAWishWaitsForTheSubscription(t *testing.T) {
	w := newWorld(t, nil)
	h := w.holding("a", nil)
	require.Equal(t, "subscribe", w.do(func(x *Input) { w.l.Wish(x, h) }))
	require.NotContains(t, w.pass(time.Second), "renew")
	require.Equal(t, "check", w.confirmed())
	require.Contains(t, w.pass(0), "renew a")

	w = newWorld(t, func(_ *Config, s *Subscription) { s.Polls = true })
	h = w.holding("a", nil)
	w.do(func(x *Input) { w.l.Wish(x, h) })
	require.Contains(t, w.pass(0), "renew a")
	w.renew(h)
	require.Equal(t, unsaid, h.wish)
	require.Equal(t, "renew a", w.pass(time.Second), "no message comes: each renewal looks")
	w.released(w.release(h), wire.Done, answered)
	h = w.holding("b", func(t *Ticket) { t.MaxHold = 5 * time.Second })
	w.do(func(x *Input) { w.l.Wish(x, h) })
	require.Contains(t, w.pass(0), "renew b")
	w.renew(h)
	require.Contains(t, w.pass(time.Second), "renew b", "also after the last one")
}

func TestANameStaysTakenForItsMinimumHold(t *testing.T) {
	for _, c := range []struct {
		name  string
		min   time.Duration
		joint bool
		hold  bool
		stays bool
		adopt bool
	}{
		{"held", time.Second, false, true, true, false},
		{"not held", time.Second, false, false, false, false},
		{"not returned yet", time.Second, true, true, false, false},
		{"none", 0, false, true, false, false},
		{"adopted", 0, false, true, true, true},
	} {
		a := &Ticket{Options: &Options{MinHold: c.min}, Joint: c.joint, Inherits: c.adopt}
		if c.hold {
			a.Hold = &Hold{}
		}
		require.Equal(t, c.stays, a.StaysTaken(), c.name)
	}

	w := subscribed(t)
	h := w.holding("a", func(t *Ticket) { t.MinHold, t.Joint = time.Second, true })
	stay := func() (says bool) { w.do(func(x *Input) { says = w.l.Stay(x, h) }); return says }
	require.True(t, stay())
	require.Equal(t, "renew a", w.pass(0))
	sent := w.renewal(h)
	require.Equal(t, []any{true, time.Second}, []any{sent.Stays, sent.Least})
	w.renewed(h, sent, wire.Reply{}, errFull)
	w.pass(10 * time.Millisecond)
	sent = w.renewal(h)
	require.Contains(t, w.renewed(h, sent, w.granted(h.Token, sent.Lasts), answered), "stays a, ")
	w.do(func(x *Input) { w.l.Returned(x, h, w.v) })
	require.False(t, stay(), "it is one of an earlier call")
	require.True(t, w.release(h).Rests)
}

func TestAHoldThatWasAdoptedStaysTakenWhereTheReplySaysSo(t *testing.T) {
	for _, states := range [][]string{nil, {wire.StateRests}} {
		w := newWorld(t, nil)
		a := w.ticket("a", func(t *Ticket) { t.Inherits = true }) // Until the reply says.
		w.asked(a)
		w.asks[a].Moves = true
		r := w.granted(7, 10*time.Second)
		r.States = states
		w.replied(a, r, answered)
		require.Equal(t, states != nil, a.StaysTaken())
	}
}

func TestAHoldMayEndWithoutProgress(t *testing.T) {
	w := subscribed(t)
	h := w.holding("a", func(t *Ticket) { t.Joint = true })
	w.v.StallBy = w.now.Add(time.Second)
	w.do(func(x *Input) { w.l.Returned(x, h, w.v) })
	require.Equal(t, w.v.StallBy, h.ends(w.v))
	require.False(t, w.holds[h].After(w.v.StallBy))
}
