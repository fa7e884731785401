package core

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

func TestASuspiciousSubscriptionIsReliedOnAgainAfterItsPing(t *testing.T) {
	var s Subscription
	require.True(t, s.Want())
	require.False(t, s.Want(), "once")
	require.Equal(t, wire.Deaf, s.Mode(), "not confirmed yet")
	require.True(t, s.Confirm())
	require.Equal(t, wire.Hears, s.Mode())

	require.True(t, s.Suspect())
	require.False(t, s.Suspect(), "it is suspicious already")
	s.Drop()
	require.False(t, s.Confirm(), "the first time was before")
	require.Equal(t, wire.Deaf, s.Mode(), "a confirmation alone ends no suspicion")
	require.False(t, s.Verify(""), "no ping is waited for")

	require.Equal(t, born.Add(pingTime), s.Expect("1", born))
	require.False(t, s.Verify("0"), "that is another's")
	s.PingLate()
	require.False(t, s.Verify("1"), "too late")
	require.Equal(t, born.Add(2*pingTime), s.Expect("2", born), "the next may take longer")
	require.True(t, s.Verify("2"))
	require.Equal(t, wire.Proven, s.Mode(), "which the next check tells the server")
	require.Zero(t, s.latePings)

	s.Suspect()
	s.Expect("3", born)
	s.Drop()
	require.Zero(t, s.PingBy, "no ping is waited for on a connection that is gone")
	s.Confirm()
	require.False(t, s.Verify("3"), "it came over another connection")
	require.False(t, s.Subscribed())
}

func TestAClientThatPollsIsNeverSuspicious(t *testing.T) {
	s := Subscription{Polls: true}
	require.False(t, s.Want())
	require.True(t, s.Subscribed())
	require.False(t, s.Suspect())
	require.Equal(t, wire.Proven, s.Mode(), "each poll proves that it lives")
}

func TestWhenToPollNext(t *testing.T) {
	for _, c := range []struct {
		name      string
		s         Subscription
		v         Sight
		place     int
		from, to  time.Duration
		everyTick bool
	}{
		{name: "usually", s: Subscription{Confirmed: true}, v: SightOf(1, 1, int64(time.Hour), 0), from: 1500 * time.Millisecond, to: 2500 * time.Millisecond, everyTick: true},
		{name: "many clients", s: Subscription{Confirmed: true}, v: SightOf(1000, 1, 2, 0), place: 900, from: 3750 * time.Millisecond, to: 6250 * time.Millisecond, everyTick: true},
		{name: "the lease of the holder ends", s: Subscription{Confirmed: true}, v: SightOf(1, 0, 1e6, 0), from: 1001 * time.Millisecond, to: 1006 * time.Millisecond},
		{name: "the last of the front row", s: Subscription{Confirmed: true}, v: SightOf(20, 0, 1e6, 0), place: 8, from: 1001 * time.Millisecond, to: 1046 * time.Millisecond},
		{name: "after the front row", s: Subscription{Confirmed: true}, v: SightOf(20, 0, 1e6, 0), place: 9, from: 1500 * time.Millisecond, to: 2500 * time.Millisecond, everyTick: true},
		{name: "free, with a queue", s: Subscription{Confirmed: true}, v: SightOf(1, 1, 0, 0), from: 21 * time.Millisecond, to: 26 * time.Millisecond},
		{name: "not subscribed", v: SightOf(1, 1, int64(time.Hour), 0), from: 100 * time.Millisecond, to: 200 * time.Millisecond},
		{name: "late pings", s: Subscription{latePings: 9}, v: SightOf(1, 1, int64(time.Hour), 0), from: 100 * time.Millisecond, to: 1600 * time.Millisecond},
		{name: "polls", s: Subscription{Polls: true}, v: SightOf(1, 1e9, int64(time.Hour), 1e9), from: 1500 * time.Microsecond, to: 2500 * time.Microsecond},
		{name: "polls, further back", s: Subscription{Polls: true}, v: SightOf(30, 1e9, int64(time.Hour), 1e9), place: 20, from: 30 * time.Millisecond, to: 50 * time.Millisecond},
		{name: "polls, nothing has changed for long", s: Subscription{Polls: true}, v: SightOf(1, 1e9, int64(time.Hour), 1), from: 375 * time.Millisecond, to: 625 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range uint64(64) {
				x := &Input{Now: born, Chance: i << 58}
				s, v := c.s, c.v
				s.Born = born.Add(-time.Second / 3)
				v.See(c.place, 4*pollMost)
				at := s.NextPoll(x, &v)
				d := at.Sub(born)
				require.GreaterOrEqual(t, d, c.from)
				require.LessOrEqual(t, d, c.to)
				require.Equal(t, c.everyTick, s.AtTick(at))
			}
		})
	}
	s, x := Subscription{Confirmed: true, Born: born}, &Input{Now: born}
	v := SightOf(1, 0, 1e6, 0)
	v.Keep(time.Minute)
	v.Keep(1500 * time.Millisecond)
	require.Equal(t, 500*time.Millisecond, s.NextOfEvent(x, &v).Sub(born), "a place of an event is prolonged in time")
}

func TestPausesGrowToALimitAndAreLeftToChance(t *testing.T) {
	x := &Input{}
	for n := range 40 {
		longest := min(times.FirstBackoff<<min(n, 20), times.LongestBackoff)
		seen := map[time.Duration]bool{}
		for range 100 {
			d := x.Backoff(n)
			require.GreaterOrEqual(t, d, longest/2)
			require.LessOrEqual(t, d, longest)
			seen[d] = true
		}
		require.Greater(t, len(seen), 50)
	}
	require.Equal(t, time.Second, x.Jitter(time.Second, time.Second))
	require.Equal(t, time.Second, x.Jitter(time.Second, 0))
}

func TestAMissedMessageMakesTheClientPing(t *testing.T) {
	w := subscribed(t)
	a, b := w.waits("a", 0), w.waits("b", 1)
	require.Equal(t, "check", w.pass(3*time.Second))
	c, named := w.begins()
	require.Equal(t, []string{"a", "b"}, named)
	r := wire.Reply{Grants: []wire.Grant{{Ticket: a.Text, Token: 7, At: w.us(), Until: w.us() + 1e6}}, Until: w.us() + 10e6}
	_, effects := w.answers(&c, r, answered, wire.StateEarlier, wire.StateQueued)
	require.Equal(t, "wake a, timer +250ms, timer +1.562s", effects)
	w.take(a)
	require.Equal(t, "missed a, reconnect and find routes, attend a", w.pass(250*time.Millisecond))
	require.False(t, w.l.Subscribed())
	require.Contains(t, w.pass(200*time.Millisecond), "check")
	c, named = w.begins()
	require.Equal(t, wire.Deaf, c.Round.Mode, "its tickets are not in the queue meanwhile")
	require.Equal(t, []string{"b"}, named)
	w.answers(&c, wire.Reply{}, answered, wire.StateGone)
	require.Equal(t, subscribing, b.state)

	w.cut()
	require.Equal(t, "ping n, timer +1s", w.confirmed())
	require.Empty(t, w.ping("m"))
	require.Contains(t, w.pass(time.Second), "reconnect", "the ping is late")
	if w.l.Checking {
		w.check(wire.StateGone)
	}
	require.Empty(t, w.ping("n"), "too late")
	w.cut()
	require.Contains(t, w.confirmed(), "ping n, timer +2s")
	require.Equal(t, "check", w.ping("n"))
	require.True(t, w.l.all)
	c, _ = w.begins()
	require.Equal(t, wire.Proven, c.Round.Mode)
	w.answers(&c, wire.Reply{}, answered, wire.StateQueued)
	require.Equal(t, waiting, b.state)
	require.Equal(t, wire.Hears, w.l.Mode(), "that was told once")
}

func TestAMessageThatComesSoonEnoughIsNotMissed(t *testing.T) {
	for _, gone := range []bool{false, true} {
		w := subscribed(t)
		a := w.waits("a", 0)
		w.pass(3 * time.Second)
		c, _ := w.begins()
		r := wire.Reply{Grants: []wire.Grant{{Ticket: a.Text, Token: 7, At: w.us(), Until: w.us() + 1e6}}}
		w.answers(&c, r, answered, wire.StateEarlier)
		text := a.Text
		if h := w.take(a); gone {
			w.released(w.release(h), wire.Done, answered)
			require.Contains(t, w.grantTo(text, 7, 0), "give back")
		} else {
			require.Empty(t, w.grantTo(text, 7, 0))
		}
		require.NotContains(t, w.pass(time.Second), "missed")
	}
}

func TestAMessageThatOvertakesTheCheckIsNotMissed(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	w.do(w.l.Poll)
	c, _ := w.begins()
	w.message(a, 7, 0)
	r := wire.Reply{Grants: []wire.Grant{{Ticket: a.Text, Token: 7, At: w.us(), Until: w.us() + 1e6}}}
	_, effects := w.answers(&c, r, answered, wire.StateEarlier)
	require.Empty(t, effects)
	require.NotContains(t, w.pass(time.Second), "missed")
}

func TestATicketThatIsOutOfTheQueueTwiceMakesItsClientSuspicious(t *testing.T) {
	w := subscribed(t)
	w.waits("a", 0)
	again := func() string { w.do(w.l.Poll); return w.check(wire.StateAgain) }
	require.Contains(t, again(), "rejoined a, timer +1.562s", "a server that has forgotten")
	require.Contains(t, again(), "rejoined a, reconnect and find routes, timer", "the server may count none of its subscriptions (R10)")

	w = subscribed(t)
	w.waits("a", 0)
	require.NotContains(t, again(), "reconnect")
	w.cut()
	w.confirmed()
	require.NotContains(t, again(), "reconnect", "the subscription was made again in between")
	require.Contains(t, again(), "reconnect")
}

func TestASuspectQueuesUnderAnotherNumber(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	require.Equal(t, "suspected, wake a, reconnect and find routes, timer +100ms, timer now", w.do(func(x *Input) { w.l.OnSuspected(x, a.Text) }))
	require.Equal(t, "a'", w.name(a.Text))
	require.Equal(t, 4*time.Second, a.Takes())
	require.Equal(t, "check", w.pass(0))
	require.Equal(t, "timer +108ms", w.check(wire.StateGone))
	require.Equal(t, subscribing, a.state)
}

func TestAMissingSubscriptionIsPolledFor(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	require.Equal(t, "timer +100ms", w.cut())
	require.Equal(t, "check", w.pass(200*time.Millisecond))
	w.check(wire.StateGone)
	w.do(func(*Input) { w.l.OnSubscribeRefused(errRefusal) })
	require.ErrorIs(t, a.Deafness, errRefusal)
	require.Equal(t, "timer now", w.confirmed(), "messages may have been missed in the gap")
	require.True(t, w.l.all)
}

func TestACheckNamesTheOldestHundred(t *testing.T) {
	w := subscribed(t)
	for i := range 250 {
		w.waits(fmt.Sprint(i), int64(i))
	}
	w.tickets["249"].to(&Input{}, subscribing)
	w.do(w.l.Poll)
	c, named := w.begins()
	require.Len(t, named, 100)
	require.Equal(t, []string{"0", "99"}, []string{named[0], named[99]})
	states := make([]string, 100)
	for i := range states {
		states[i] = wire.StateQueued
	}
	more, _ := w.answers(&c, wire.Reply{}, answered, states...)
	require.True(t, more)
	w.do(func(*Input) { c = w.l.BeginCheck(c.Round, w.now) })
	require.Len(t, c.Named, 1, "and those that have no place yet")
	require.Equal(t, "249", w.name(c.Named[0].Text))
	more, _ = w.answers(&c, wire.Reply{}, answered, wire.StateQueued)
	require.False(t, more)

	w.do(w.l.Poll)
	c, _ = w.begins()
	states[0] = wire.StateAgain
	more, _ = w.answers(&c, wire.Reply{}, answered, states...)
	for _, n := range []int{100, 100, 50} {
		require.True(t, more, "the server may have forgotten the others too")
		w.do(func(*Input) { c = w.l.BeginCheck(c.Round, w.now) })
		require.Len(t, c.Named, n)
		more, _ = w.answers(&c, wire.Reply{}, answered)
	}
	require.False(t, more)

	w.confirmed()
	w.pass(time.Second)
	c, _ = w.begins()
	w.answers(&c, wire.Reply{}, errFull)
	require.True(t, w.l.all, "not all were named after the subscription")
}

func TestARoundGoesOnWhereMoreIsToBeSeen(t *testing.T) {
	for name, r := range map[string]wire.Reply{
		"more work": {Flags: wire.More}, "late": {Status: wire.Late},
	} {
		t.Run(name, func(t *testing.T) {
			w := subscribed(t)
			w.waits("a", 0)
			w.do(w.l.Poll)
			c, _ := w.begins()
			more, _ := w.answers(&c, r, answered, wire.StateQueued)
			require.True(t, more)
			w.do(func(*Input) { c = w.l.BeginCheck(c.Round, w.now) })
			require.Len(t, c.Named, 1)
			require.Empty(t, w.do(w.l.Poll), "after the one that is under way")
			more, _ = w.answers(&c, wire.Reply{}, answered, wire.StateQueued)
			require.True(t, more)
			w.do(func(*Input) { c = w.l.BeginCheck(c.Round, w.now) })
			more, _ = w.answers(&c, wire.Reply{}, answered, wire.StateQueued)
			require.False(t, more)
		})
	}
}

func TestAFailedCheckIsRepeatedUnlessNobodyCanMendIt(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	w.do(w.l.Poll)
	c, _ := w.begins()
	_, effects := w.answers(&c, wire.Reply{}, errFull)
	require.Equal(t, "timer +5ms", effects)
	require.ErrorIs(t, w.l.Last, errFull.Advice)
	require.True(t, w.l.Silent(w.now))
	require.Equal(t, "check", w.pass(10*time.Millisecond))
	c, _ = w.begins()
	_, effects = w.answers(&c, wire.Reply{}, errLost)
	require.Equal(t, "timer +20ms, timer +11ms", effects, "and once for what the reply may have told")
	require.Equal(t, "check", w.pass(11*time.Millisecond))
	c, _ = w.begins()
	require.Equal(t, 2, w.l.Failures)
	_, effects = w.answers(&c, wire.Reply{}, errBroken)
	require.Equal(t, "wake a", effects)
	require.ErrorIs(t, a.Refused, errBroken.Advice)
	require.Equal(t, Fail, w.does(a))
}

func TestACheckMayRefuseATicketWithoutAPlace(t *testing.T) {
	for _, c := range []struct {
		state   string
		limit   int
		refused bool
	}{{wire.StateFull, 1, true}, {wire.StateFull, 0, false}, {wire.StateExcess, 0, true}} {
		w := newWorld(t, nil)
		a := w.ticket("a", func(t *Ticket) { t.Limit = c.limit })
		w.asked(a)
		w.replied(a, w.told(-1, time.Hour), answered)
		w.confirmed()
		effects := w.check(c.state)
		require.Equal(t, c.refused, a.Refused != nil, c.state)
		require.Equal(t, c.refused, effects != "" && effects[:4] == "wake")
		if c.refused {
			require.Equal(t, Fail, w.does(a))
		}
	}
	w := subscribed(t)
	a := w.waits("a", 0)
	require.Equal(t, "wake a", w.do(func(x *Input) { w.l.OnExcess(x, a.Text, errRefusal) }), "the limit was lowered while it waited")
	w.finish(a)
	require.Empty(t, w.do(func(x *Input) { w.l.OnExcess(x, a.Text, errors.New("other")) }))
	require.ErrorIs(t, a.Refused, errRefusal)
}

func TestUsualChecksGoTogether(t *testing.T) {
	look := func(t *testing.T) (w *world, a *Ticket, named []Named) {
		w = newWorld(t, func(c *Config, _ *Subscription) { c.Together = true })
		w.use()
		w.confirmed()
		w.check()
		a = w.waits("a", 0)
		require.Equal(t, "check soon", w.pass(3*time.Second))
		require.Empty(t, w.do(func(x *Input) { named = w.l.BeginLook(x) }))
		return w, a, named
	}
	answer := func(w *world, named []Named, place int, more bool, f Failure) string {
		return w.do(func(x *Input) {
			w.soon = false
			w.l.OnLookReply(x, named, []int{place}, more, w.us(), w.us()+time.Hour.Microseconds(), &f)
		})
	}
	w, a, named := look(t)
	require.Contains(t, answer(w, named, 3, false, answered), "timer +1.")
	require.Equal(t, 3, a.Place)
	w, _, named = look(t)
	require.Equal(t, "check", answer(w, named, 3, true, answered), "only a check of its own can tell")
	w, _, named = look(t)
	require.Equal(t, "timer +5ms", answer(w, named, 3, false, errLost))
	w, a, named = look(t)
	require.Equal(t, "wake a", answer(w, named, 3, false, errBroken))
	require.ErrorIs(t, a.Refused, errBroken.Advice)

	for name, change := range map[string]func(*world, *Ticket){
		"not subscribed":   func(w *world, _ *Ticket) { w.cut() },
		"all":              func(w *world, _ *Ticket) { w.l.all = true },
		"without a place":  func(_ *world, a *Ticket) { a.to(&Input{}, subscribing) },
		"nothing to name":  func(w *world, a *Ticket) { w.message(a, 7, 0) },
		"check under way":  func(w *world, _ *Ticket) { w.do(w.l.Poll) },
		"the pings proved": func(w *world, _ *Ticket) { w.l.verified = true },
	} {
		w, a, _ := look(t)
		change(w, a)
		w.do(func(x *Input) {
			w.soon = false
			require.Empty(t, w.l.BeginLook(x), name)
		})
		require.True(t, w.l.Checking, name)
	}
}

func TestAClientThatHandsOnLooksWhetherTheGrantWasClaimed(t *testing.T) {
	handed := func(w *world, token uint64) string {
		r := wire.Reply{Status: wire.Done, Now: w.us(), Until: w.us() + 2e6, Token: token, Flags: wire.Handed}
		return w.do(func(x *Input) { w.l.OnReply(x, w.attempt(), &r, "", false) })
	}
	w := subscribed(t)
	require.Equal(t, "timer +2.02s", handed(w, 7))
	require.Equal(t, "check", w.pass(3*time.Second))
	w.check()
	require.Equal(t, "timer +2.02s", handed(w, 8))
	w.do(func(x *Input) { w.l.OnReply(x, w.attempt(), &wire.Reply{Token: 9}, "", false) })
	require.Empty(t, w.pass(3*time.Second), "a later token says that it was")

	w = newWorld(t, func(c *Config, _ *Subscription) { c.Several = true })
	handed(w, 7)
	w.now = w.now.Add(time.Second)
	require.Empty(t, handed(w, 8), "one look is for all")
	w.do(func(x *Input) { w.l.OnReply(x, w.attempt(), &wire.Reply{Token: 9}, "", false) })
	require.Equal(t, "check", w.pass(1100*time.Millisecond), "a later token says nothing of the earlier ones")

	w = subscribed(t)
	r := w.granted(7, time.Hour)
	r.Flags = wire.Handed | wire.Suspected | wire.More
	require.Equal(t, "timer +2.02s, suspected, reconnect and find routes, timer now",
		w.do(func(x *Input) { w.l.OnReply(x, w.attempt(), &r, "", false) }), "until is the end of the caller's own lease")
}

func TestANameThatIsNotUsedRetires(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	for range 50 {
		require.NotContains(t, w.pass(3*time.Second), "retire")
		if w.l.Checking {
			w.check(wire.StateQueued)
		}
	}
	w.finish(a)
	w.released(w.last[a], wire.Done, answered)
	require.NotContains(t, w.pass(59*time.Second), "retire")
	if w.l.Checking {
		w.check()
	}
	w.use()
	require.NotContains(t, w.pass(59*time.Second), "retire", "it was used in between")
	w.l.NextCheck = w.now.Add(time.Hour)
	require.Equal(t, "retire", w.pass(time.Second))
	require.Zero(t, w.l.NextCheck, "nobody waits for a check of it")
	retire := func() (over, subscribed bool, effects string) {
		effects = w.do(func(x *Input) { over, subscribed = w.l.Retire(x) })
		return over, subscribed, effects
	}
	w.use()
	over, _, effects := retire()
	require.False(t, over, "a call has come")
	require.Equal(t, "timer +1m0s", effects)
	b := w.ticket("b", nil)
	w.now = w.now.Add(time.Hour)
	over, _, _ = retire()
	require.False(t, over)
	w.finish(b)
	w.do(func(x *Input) { w.l.releaseUnknown(x, "C:9:x:1:10000:2000", w.now.Add(time.Minute), false) })
	w.now = w.now.Add(time.Minute)
	over, _, _ = retire()
	require.False(t, over, "nobody else would know what the answer grants")
	w.released(w.last[nil], wire.Done, answered)
	w.now = w.now.Add(time.Minute)
	over, subscribed, effects := retire()
	require.Equal(t, []any{true, true, ""}, []any{over, subscribed, effects})
	require.False(t, w.l.Wanted)
}

func TestTheServerIsSilent(t *testing.T) {
	var a Answers
	require.False(t, a.Silent(born))
	a.Sent(born)
	a.Sent(born.Add(time.Second))
	require.False(t, a.Silent(born.Add(SlowAnswer)))
	require.True(t, a.Silent(born.Add(SlowAnswer+1)))
	a.Over(true, born.Add(time.Second))
	require.False(t, a.Silent(born.Add(time.Second+SlowAnswer)))
	a.Over(false, born.Add(time.Minute))
	require.False(t, a.Silent(born.Add(time.Hour)), "nothing is asked")
}
