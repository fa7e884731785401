package core

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/wire"
)

func TestAFreeLockIsGrantedInTheReply(t *testing.T) {
	w := newWorld(t, nil)
	a := w.ticket("a", nil)
	require.Equal(t, Ask, w.does(a))
	require.Empty(t, w.asked(a))
	require.Equal(t, wire.Look, w.asks[a].Mode, "it does not queue, as its client is not subscribed (R2)")
	effects, step := w.replied(a, w.granted(7, 10*time.Second), answered)
	require.Equal(t, "wake a", effects)
	require.Equal(t, Step{Do: Take}, step)
	require.Equal(t, Take, w.does(a))
	h := w.take(a)
	require.Equal(t, uint64(7), h.Token)
	require.Equal(t, Until{Deadline: w.now.Add(9900 * time.Millisecond)}, h.Lasts)
}

func TestATicketOfAClientThatIsNotSubscribedIsQueuedByACheck(t *testing.T) {
	w := newWorld(t, nil)
	a := w.ticket("a", func(t *Ticket) { t.Limit = 5 })
	w.asked(a)
	require.Equal(t, 5, w.asks[a].Limit)
	effects, step := w.replied(a, w.told(-1, 3*time.Second), answered)
	require.Equal(t, "timer +108ms, subscribe", effects)
	require.Equal(t, Step{}, step)
	require.Equal(t, Sleep, w.does(a))
	require.Equal(t, subscribing, a.state)
	require.Equal(t, "check", w.confirmed(), "a message may have been missed")
	c, named := w.begins()
	require.Equal(t, []string{"a"}, named)
	require.Equal(t, wire.Hears, c.Round.Mode)
	require.Equal(t, 5, c.Named[0].Limit, "it has had no place yet (I11)")
	more, effects := w.answers(&c, wire.Reply{Waiting: 1}, answered, wire.StateQueued)
	require.False(t, more)
	require.Equal(t, "queued a after 1, timer +22ms", effects, "the lock is free")
	require.Equal(t, waiting, a.state)
	require.Equal(t, "wake a", w.message(a, 7, 0))
	require.Equal(t, Take, w.does(a))
}

func TestTheConfirmationMayComeBeforeTheReply(t *testing.T) {
	w := newWorld(t, nil)
	a := w.ticket("a", nil)
	w.asked(a)
	w.use()
	require.Equal(t, "check", w.confirmed())
	require.Empty(t, w.check(), "there is nothing to name")
	effects, _ := w.replied(a, w.told(-1, time.Hour), answered)
	require.Contains(t, effects, "check", "no other input would queue it")
}

func TestAGrantByMessageMayOvertakeTheReply(t *testing.T) {
	w := subscribed(t)
	a := w.ticket("a", nil)
	w.asked(a)
	require.Equal(t, wire.Wait, w.asks[a].Mode)
	require.Equal(t, "wake a", w.message(a, 7, 0))
	require.Equal(t, Take, w.does(a))
	w.replied(a, w.told(0, time.Hour), answered)
	require.Equal(t, held, a.state)
	require.NotZero(t, a.Arrival, "the grant may run out, its place stays")
	require.EqualValues(t, 7, w.take(a).Token)
}

func TestAnAcquireReplySaysWhatTheCallDoesNext(t *testing.T) {
	later := Failure{Err: errLost.Err, Advice: errLost.Advice, Answered: true, Passes: true, Mendable: true}
	for _, c := range []struct {
		name   string
		change func(*Ticket)
		reply  wire.Reply
		f      Failure
		want   Step // of the reply
		retry  Step // of a failure
	}{
		{name: "busy", reply: wire.Reply{Status: wire.Busy}, want: Step{Do: Fail, Err: errRefusal}},
		{name: "no room", reply: wire.Reply{Status: wire.Full}, want: Step{Do: Fail, Err: errRefusal}},
		{name: "late", reply: wire.Reply{Status: wire.Late}},
		{name: "lost", f: errLost, retry: Step{Do: Pause, Rest: 5 * time.Millisecond}},
		{name: "answered with a passing error", f: later, retry: Step{Do: Pause, Rest: 5 * time.Millisecond}},
		{name: "mendable, without a place", f: errFull, retry: Step{Do: Fail, Err: errFull.Advice}},
		{name: "mendable, with a place", change: func(t *Ticket) { t.Arrival = 1 }, f: errFull, retry: Step{Do: Pause, Rest: 5 * time.Millisecond}},
		{name: "for good", f: errBroken, retry: Step{Do: Fail, Err: errBroken.Advice}},
		{name: "a try that has lasted for too long", change: func(t *Ticket) { t.Try, t.Begun = true, born.Add(-time.Hour) }, f: errLost, retry: Step{Do: Fail, Err: errLost.Advice}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			a := w.ticket("a", c.change)
			w.asked(a)
			_, step := w.replied(a, c.reply, c.f)
			require.Equal(t, c.want, step)
			require.Equal(t, step.Do == Fail, a.Clean)
			if c.f.Err != nil {
				w.do(func(x *Input) { step = w.l.Retry(x, a, &c.f) })
				require.Equal(t, c.retry, step)
			}
			if c.reply.Status == wire.Late {
				require.Equal(t, 6*time.Second, a.Budget, "the next may take longer")
				require.Equal(t, Ask, w.does(a))
			}
		})
	}
}

func TestAStaleGrantIsConfirmedByARenewal(t *testing.T) {
	for _, c := range []struct {
		name string
		age  time.Duration
		wake time.Duration // of the machine, for how long it has slept since
	}{{"too old", 700 * time.Millisecond, 0}, {"the machine has slept", 0, 600 * time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			w := subscribed(t)
			a := w.waits("a", 0)
			require.Equal(t, "wake a", w.message(a, 7, c.age))
			w.slept = c.wake
			if c.wake > 0 {
				may, _ := w.mayTake(a, false)
				require.False(t, may)
			}
			require.Equal(t, confirming, a.state)
			require.Equal(t, Confirm, w.does(a))
			require.Empty(t, w.message(a, 7, 0), "a second notice of the same grant says nothing new")
			effects, _ := w.confirm(a, w.granted(7, 10*time.Second), answered)
			require.Empty(t, effects)
			require.Equal(t, Take, w.does(a))
			require.Equal(t, w.now.Add(9900*time.Millisecond), w.take(a).Lasts.Deadline)
		})
	}
	w := subscribed(t)
	a := w.waits("a", 0)
	w.message(a, 7, time.Second)
	require.Equal(t, "wake a", w.message(a, 8, 0), "a newer grant needs no renewal")
	require.EqualValues(t, 8, w.take(a).Token)

	w = subscribed(t)
	a = w.ticket("a", func(t *Ticket) { t.MaxHold = 5 * time.Second })
	w.message(a, 7, time.Second)
	w.confirm(a, w.granted(7, 10*time.Second), answered)
	require.Equal(t, w.now.Add(4*time.Second), w.take(a).Ticket.grant.limit, "its maximum counts from the grant")
}

func TestAGrantThatTheServerRefusesRanOut(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	arrival, text := a.Arrival, a.Text
	w.message(a, 7, time.Second)
	_, step := w.confirm(a, wire.Reply{}, errLost)
	require.Equal(t, Step{Do: Pause, Rest: 5 * time.Millisecond}, step, "an error is waited out")
	effects, _ := w.confirm(a, wire.Reply{Status: wire.Refused}, answered)
	require.Equal(t, "wake a, timer now", effects)
	require.Equal(t, waiting, a.state)
	require.Equal(t, arrival, a.Arrival, "it waits on at its place (I3)")
	require.NotEqual(t, text, a.Text)
	require.Equal(t, 4*time.Second, a.Takes(), "the next grant lasts twice as long (R10)")
	require.Equal(t, "give back a, send a/7 at once", w.grantTo(text, 7, 0), "a late notice for the old number")
	require.Equal(t, "check", w.pass(time.Millisecond))
	_, named := w.begins()
	require.Equal(t, []string{"a'"}, named)
}

func TestAGrantThatRanOutIsGivenBackUnderItsOldNumber(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	w.message(a, 7, 0)
	a.grant.limit = w.now // Its maximum is over, though its lease is not.
	may, effects := w.mayTake(a, false)
	require.False(t, may)
	require.Equal(t, "send a/7 at once, wake a, timer now", effects)
	require.Equal(t, waiting, a.state)
}

func TestFiveGrantsThatRunOutFailTheCall(t *testing.T) {
	for _, placed := range []bool{true, false} {
		w := subscribed(t)
		a := w.ticket("a", nil)
		for i := range mostExpiries {
			require.NoError(t, a.Refused, "%d", i)
			if placed && i == 0 {
				w.asked(a)
				w.replied(a, w.told(0, time.Hour), answered)
			}
			w.message(a, uint64(7+i), 0)
			if !placed {
				w.now = w.now.Add(time.Second)
			}
			a.grant.confirmed = true
			w.now = w.now.Add(time.Minute)
			may, _ := w.mayTake(a, false)
			require.False(t, may)
			require.Equal(t, placed, a.state == waiting, "without a place it asks again")
		}
		require.ErrorIs(t, a.Refused, reason.ErrInvalid)
		require.Equal(t, Fail, w.does(a))
		require.Contains(t, w.finish(a), map[bool]string{true: "send a''''' at once", false: "acknowledge a"}[placed])
	}
}

func TestALateOrSecondNoticeOfAGrantIsDropped(t *testing.T) {
	w := subscribed(t)
	b := w.waits("b", 0)
	require.NotEmpty(t, w.message(b, 3, 0))
	mine := b.grant
	require.Empty(t, w.message(b, 4, 0), "a later one replaces no grant that its call has not taken yet")
	require.Equal(t, mine, b.grant)
	w.take(b)

	w = subscribed(t)
	h := w.holding("a", func(t *Ticket) { t.MaxHold = time.Hour })
	before := h.Ticket.grant
	require.Empty(t, w.message(h.Ticket, h.Token, 0), "a second notice (R8)")
	require.Empty(t, w.message(h.Ticket, h.Token-1, 0), "a late one: to give that back would free what is held now")
	require.Empty(t, w.message(h.Ticket, h.Token+1, 0), "a later one replaces no grant that is held")
	require.Equal(t, before, h.Ticket.grant)
	d := w.release(h)
	require.Empty(t, w.message(h.Ticket, h.Token, 0), "its release is under way")
	w.released(d, wire.Done, answered)
	require.Equal(t, "give back a, send a/9 at once", w.message(h.Ticket, 9, 0), "it is unknown now")
	require.Equal(t, "", w.released(w.last[nil], 0, errBroken))
	require.Empty(t, w.l.leaving)
	_, unended := w.l.Left(w.last[nil])
	require.ErrorIs(t, unended, errBroken.Advice)
}

func TestAWaiterThatEndsGivesBackWhatItIsGranted(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	require.Equal(t, "send a at once", w.finish(a))
	require.Equal(t, w.now.Add(a.Takes()), a.Left(w.now))
	require.Empty(t, w.message(a, 7, 0))
	require.EqualValues(t, 7, a.grant.Token, "Close waits until that ends")
	require.Equal(t, "acknowledge a", w.released(w.last[a], wire.Done, answered))
	require.Zero(t, a.Left(w.now))
}

func TestWhatIsNotOursIsForged(t *testing.T) {
	w := subscribed(t)
	for _, text := range []string{"D:1:x:1:10000:2000", "C", "C:1:x:1:10000"} {
		require.Equal(t, "give back "+text+", forged", w.grantTo(text, 7, 0))
	}
	for i := range mostLeaving {
		w.l.giveBack(&Input{}, "C:"+strconv.Itoa(i)+":x:1:10000:2000", 7)
	}
	require.Contains(t, w.grantTo("C:9999:x:1:10000:2000", 7, 0), "forged", "what forged messages cost is bounded")
	require.Len(t, w.l.leaving, mostLeaving)
}

func TestNobodyMakesAHoldLongerThanItWasAskedFor(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	w.do(func(x *Input) { w.l.OnGrant(x, a.Text, Grant{Token: 7, From: w.now, Lasts: time.Hour}) })
	require.Equal(t, a.Lease, a.Grant().Lasts)
}

func TestAGrantIsMadeLongerBeforeItsCallReturns(t *testing.T) {
	for name, change := range map[string]func(*Ticket){
		"without renewal":   func(t *Ticket) { t.WithoutRenewal = true },
		"with minimum hold": func(t *Ticket) { t.MinHold = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			w := subscribed(t)
			a := w.ticket("a", change)
			w.message(a, 7, 0)
			may, _ := w.mayTake(a, false)
			require.False(t, may)
			w.confirm(a, w.granted(7, 10*time.Second), answered)
			may, _ = w.mayTake(a, false)
			require.True(t, may)
		})
	}
	w := subscribed(t)
	a := w.ticket("a", func(t *Ticket) { t.MinHold, t.Joint = time.Second, true })
	w.message(a, 7, 0)
	may, _ := w.mayTake(a, false)
	require.True(t, may, "of several names that is told once all are held")

	w = subscribed(t)
	a = w.ticket("a", func(t *Ticket) { t.MinHold = time.Second })
	w.message(a, 7, 0)
	w.mayTake(a, true)
	for _, aged := range []bool{true, false} {
		w.do(func(x *Input) {
			sent, _ := w.l.BeginConfirm(x, a, w.now, aged)
			require.Equal(t, !aged, sent.Stays, "a call that waits for the server's age has not returned the hold")
		})
	}
}

func TestAGrantWaitsForWhatItsCallWantsOfTheServer(t *testing.T) {
	w := subscribed(t)
	a := w.waits("a", 0)
	w.message(a, 7, 0)
	may, _ := w.mayTake(a, true)
	require.False(t, may)
	confirm := func(short error, left time.Duration) (step Step) {
		w.do(func(x *Input) {
			sent, _ := w.l.BeginConfirm(x, a, w.now, left > 0)
			r := w.granted(7, 10*time.Second)
			w.l.OnConfirmReply(x, a, &sent, w.attempt(), &r, &answered, short, left)
			step = w.l.AfterConfirm(x, a, &answered, false)
		})
		return step
	}
	require.Equal(t, Step{Do: Pause, Rest: 10 * time.Second / 3}, confirm(nil, time.Minute), "the server restarted a short time ago")
	w.now = w.now.Add(50 * time.Second)
	require.Equal(t, Step{Do: Pause, Rest: 10 * time.Second / 3}, confirm(nil, 10*time.Second))
	w.now = w.now.Add(10 * time.Second)
	require.Equal(t, Step{Do: GiveWay}, confirm(nil, 0), "those go first who came first")
	require.Equal(t, held, a.state)
	text := a.Text
	var d *Release
	require.Equal(t, "wake a", w.do(func(x *Input) { d = w.l.GiveWay(x, a, 5) }))
	require.Equal(t, []any{text, uint64(7), int64(5), idling}, []any{d.Text, d.Token, a.Arrival, a.state})
	require.Equal(t, Ask, w.does(a))

	b := w.ticket("b", nil)
	w.message(b, 9, time.Second)
	w.do(func(x *Input) {
		sent, _ := w.l.BeginConfirm(x, b, w.now, false)
		r := w.granted(9, 10*time.Second)
		w.l.OnConfirmReply(x, b, &sent, w.attempt(), &r, &answered, reason.ErrReplicas, 0)
	})
	require.Equal(t, Fail, w.does(b), "too few replicas")
	require.Contains(t, w.finish(b), "send b at once")
}

func TestATryWaitsForNothing(t *testing.T) {
	w := subscribed(t)
	a := w.ticket("a", func(t *Ticket) { t.Try = true })
	w.message(a, 7, time.Second)
	_, step := w.confirm(a, wire.Reply{}, errLost)
	require.Equal(t, Pause, step.Do)
	a.believed = w.now.Add(time.Second)
	w.confirm(a, w.granted(7, 10*time.Second), answered)
	require.ErrorIs(t, a.Refused, reason.ErrRestarted)
	require.Equal(t, Fail, w.does(a))
	w.now = w.now.Add(4 * time.Second)
	a.to(&Input{}, confirming)
	_, step = w.confirm(a, wire.Reply{}, errLost)
	require.Equal(t, Step{Do: Fail, Err: errLost.Advice}, step)
}

func TestOneOfSeveralNamesAsksOnceItsClientIsSubscribed(t *testing.T) {
	w := newWorld(t, nil)
	a := w.ticket("a", nil)
	w.asked(a)
	w.do(func(x *Input) { w.l.Unsent(x, a) })
	require.Zero(t, w.l.pending)
	hear := func() (subscribed bool, effects string) {
		effects = w.do(func(x *Input) { subscribed = w.l.Hear(x, a) })
		return subscribed, effects
	}
	subscribed, effects := hear()
	require.False(t, subscribed)
	require.Equal(t, "subscribe", effects)
	require.Equal(t, idling, a.state)
	require.Equal(t, "wake a, check", w.confirmed())
	subscribed, _ = hear()
	require.True(t, subscribed)
	w.message(a, 7, 0)
	subscribed, _ = hear()
	require.True(t, subscribed, "no request is needed any more")
	w.l.Fail(a, errRefusal)
	require.Equal(t, Fail, w.does(a))
	w.do(func(x *Input) { require.Equal(t, TimeOut, w.l.Next(x, w.ticket("b", nil), true, false).Do) })
	require.True(t, w.tickets["b"].Over)
}

func TestALostReplyIsLookedForSoon(t *testing.T) {
	w := subscribed(t)
	b := w.waits("b", 0)
	a := w.ticket("a", nil)
	w.asked(a)
	effects, _ := w.replied(a, wire.Reply{}, errLost)
	require.Equal(t, "timer +10ms", effects, "the reply may have told of a grant to b")
	require.Equal(t, "check", w.pass(20*time.Millisecond))
	c, named := w.begins()
	require.Equal(t, []string{"b"}, named)
	r := wire.Reply{Grants: []wire.Grant{{Ticket: b.Text, Token: 7, At: w.us(), Until: w.us() + 2e6}}}
	_, effects = w.answers(&c, r, answered, wire.StateGranted)
	require.Equal(t, "wake b", effects)
	require.Equal(t, 3*time.Second, a.inDoubt.Sub(born.Add(time.Second+time.Microsecond)), "until its not-after (R7)")
}

func TestALookForALostReplyWaitsAsChecksThatFailDo(t *testing.T) {
	for failures, want := range map[int]string{0: "timer +10ms", 3: "timer +80ms", 10: "timer +500ms"} {
		w := newWorld(t, nil)
		w.l.Failures = failures
		a := w.ticket("a", nil)
		w.asked(a)
		effects, _ := w.replied(a, wire.Reply{}, errLost)
		require.Equal(t, want, effects)
		w.asked(a)
		w.now = w.now.Add(time.Millisecond)
		effects, _ = w.replied(a, wire.Reply{}, errLost)
		require.NotEmpty(t, effects)
		require.Equal(t, born, a.LostSince())
	}
}

func TestRepliesThatAreLostTogetherAreLookedForOnce(t *testing.T) {
	w := subscribed(t)
	a := w.ticket("a", nil)
	for range 3 {
		w.asked(a)
		w.replied(a, wire.Reply{}, errLost)
	}
	require.Empty(t, w.pass(time.Second), "nobody waits")
	w.asked(a)
	w.replied(a, wire.Reply{}, errLost)
	w.waits("b", 0)
	require.Equal(t, "check", w.pass(time.Second))
}

func TestAWaitThatEndsIsForgottenWhereTheServerHasNothingOfIt(t *testing.T) {
	for _, c := range []struct {
		name string
		does func(w *world, a *Ticket)
		want string
	}{
		{"nothing was sent", func(*world, *Ticket) {}, "acknowledge a"},
		{"refused", func(w *world, a *Ticket) { w.asked(a); w.replied(a, wire.Reply{Status: wire.Busy}, answered) }, "acknowledge a"},
		{"late only", func(w *world, a *Ticket) { w.asked(a); w.replied(a, wire.Reply{Status: wire.Late}, answered) }, "send a at once"},
		{"under way", func(w *world, a *Ticket) { w.asked(a) }, "send a at once"},
		{"lost", func(w *world, a *Ticket) { w.asked(a); w.replied(a, wire.Reply{}, errLost) }, "send a at once"},
		{"refused after a lost one", func(w *world, a *Ticket) {
			w.asked(a)
			w.replied(a, wire.Reply{}, errLost)
			w.asked(a)
			w.replied(a, wire.Reply{Status: wire.Busy}, answered)
		}, "send a at once"},
		{"waits", func(w *world, a *Ticket) { w.asked(a); w.replied(a, w.told(0, time.Hour), answered) }, "send a at once"},
		{"granted", func(w *world, a *Ticket) { w.message(a, 7, 0) }, "send a at once"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := subscribed(t)
			a := w.ticket("a", nil)
			c.does(w, a)
			require.Equal(t, c.want, w.finish(a))
			require.Equal(t, c.want == "acknowledge a", w.l.tickets.Len() == 0)
		})
	}
}
