package core

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

var (
	errLost    = Failure{Err: errors.New("lost"), Advice: errors.New("lost"), Passes: true, Mendable: true}
	errUnsent  = Failure{Err: errors.New("unsent"), Advice: errors.New("unsent"), Unsent: true, Passes: true, Mendable: true}
	errBroken  = Failure{Err: errors.New("broken"), Advice: errors.New("broken"), Answered: true}
	errFull    = Failure{Err: errors.New("disk full"), Advice: errors.New("disk full"), Answered: true, Mendable: true}
	answered   = Failure{}
	errRefusal = errors.New("refusal")
)

var (
	config = Config{Client: "C", GrantLease: 2 * time.Second}
	born   = time.Unix(1000, 0)
)

// A world is the lock of one client, its caller, and a clock. Each step is one input; it returns the effects as text.
// Reminders of the lock and of its holds are kept here, and come when the clock is moved.
type world struct {
	t       *testing.T
	l       *Lock
	now     time.Time
	slept   time.Duration
	v       Leases
	asks    map[*Ticket]*Acquire
	names   map[string]string // of tickets, by their text
	calls   map[*Call]string
	once    map[string]bool    // what was said that the shell does once
	tickets map[string]*Ticket // by name
	timer   time.Time
	holds   map[*Hold]time.Time // their timers
	sends   map[*Release]bool   // releases on their way, or to be sent later
	last    map[*Ticket]*Release
	renews  map[*Ticket]bool
	soon    bool // a usual check is due
}

func newWorld(t *testing.T, change func(*Config, *Subscription)) *world {
	w := &world{
		t: t, now: born, asks: map[*Ticket]*Acquire{}, names: map[string]string{}, calls: map[*Call]string{}, once: map[string]bool{}, tickets: map[string]*Ticket{},
		holds: map[*Hold]time.Time{}, sends: map[*Release]bool{}, last: map[*Ticket]*Release{}, renews: map[*Ticket]bool{},
	}
	c, s := config, Subscription{Born: born}
	if change != nil {
		change(&c, &s)
	}
	w.do(func(x *Input) { w.l = New(x, c, Name{Linger: time.Minute, Subscription: s}) })
	return w
}

// subscribed is a world whose client is subscribed, for a second.
func subscribed(t *testing.T) *world {
	w := newWorld(t, nil)
	w.use()
	w.confirmed()
	w.check()
	w.now = w.now.Add(time.Second)
	return w
}

// do is an input.
func (w *world) do(input func(*Input)) string {
	w.t.Helper()
	x := &Input{Now: w.now}
	input(x)
	for text, t := range w.l.tickets.byText {
		if w.names[text] == "" { // It is new, or got a new number.
			w.names[text] = w.calls[&t.Call] + strings.Repeat("'", int(t.expiries))
		}
	}
	var all []string
	for i := range x.Effects {
		if text := w.perform(&x.Effects[i]); text != "" {
			all = append(all, text)
		}
	}
	w.invariants()
	return strings.Join(all, ", ")
}

func (w *world) in(at time.Time) string {
	if at.IsZero() {
		return "at once"
	}
	if d := at.Sub(w.now).Round(time.Millisecond); d > 0 {
		return "+" + d.String()
	}
	return "now"
}

func (w *world) name(text string) string {
	if n := w.names[text]; n != "" {
		return n
	}
	return text
}

// phrases are effects that are about a call or the name, and carry an error at the most.
var phrases = map[Action]string{
	Wake: "wake", Acknowledge: "acknowledge", Poll: "check", PollSoon: "check soon", Retire: "retire", Subscribe: "subscribe", Owe: "owe",
	Unlocked: "unlocked", Stuck: "stuck", Renew: "renew", Attend: "attend", Lose: "lose", Failing: "failing", Awaited: "awaited", Recall: "recall", Lead: "lead",
	Stays: "stays", Suspected: "suspected", Forged: "forged", Reconnect: "reconnect", Queued: "queued", Ping: "ping", Rejoined: "rejoined",
	Missed: "missed", GivenBack: "give back", Timer: "timer", Send: "send", SendLater: "send",
}

// flagged is what those of them say whose flag is set.
var flagged = map[Action]string{Owe: "owe no more", Awaited: "first awaited", Reconnect: "reconnect and find routes"}

// perform notes an effect as the caller would perform it, and says it.
func (w *world) perform(f *Effect) string {
	who, text := w.calls[f.Call], phrases[f.Do]
	var h *Hold
	if t := w.tickets[who]; t != nil {
		h = t.Hold
	}
	if f.Flag && flagged[f.Do] != "" {
		text = flagged[f.Do]
	}
	switch f.Do {
	case Timer:
		w.timer = times.First(w.timer, f.At)
		return text + " " + w.in(f.At)
	case Send, SendLater:
		d := f.Release
		require.False(w.t, w.sends[d], "a release is sent twice at the same time")
		w.sends[d], w.last[d.Ticket] = true, d
		if who = w.name(d.Text); d.Token != 0 {
			who += fmt.Sprintf("/%d", d.Token)
		}
		switch {
		case f.Do == SendLater:
			return text + " " + who + " " + w.in(f.At)
		case f.Flag:
			return text + " " + who + " at once"
		}
		return text + " " + who + " soon"
	case HoldTimer:
		if at := w.holds[h]; f.Flag || at.IsZero() || f.At.Before(at) {
			w.holds[h] = f.At
		}
		return "" // The tests look at renewals and losses.
	case StopHold:
		delete(w.holds, h)
		return ""
	case Renewed, RenewalFailed, RaiseToken:
		return "" // For statistics.
	case Extend:
		return fmt.Sprintf("%s until %s", who, w.in(f.Until.Deadline)) + because(f.Until.Cause)
	case Renew:
		w.renews[h.Ticket] = true
	case PollSoon:
		w.soon = true
	case Attend, Queued: // They are said again and again.
		if w.once[text+who] {
			return ""
		}
		w.once[text+who] = true
		if f.Do == Queued {
			who += fmt.Sprintf(" after %d", f.Place)
		}
	case Lose:
		if !f.Flag {
			text += " idle"
		}
	case Ping:
		who = f.Text
	case Lead:
		who = f.Follower.Owner.(string)
	case Rejoined, Missed, GivenBack:
		who = w.name(f.Text)
	}
	require.NotEmpty(w.t, text, "an impossible step, or an unknown effect: %d", f.Do)
	return strings.TrimSpace(text + " " + who + because(f.Err))
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// must is require.True for what is asserted many times.
func (w *world) must(ok bool, rule string, of any) {
	w.t.Helper()
	if !ok {
		require.Fail(w.t, rule, "%v", of)
	}
}

// invariants are asserted after each input, as far as one client can see them.
func (w *world) invariants() {
	w.t.Helper()
	o := Outlook{Now: w.now, Timer: w.timer, Soon: w.soon}
	o.HoldTimer = func(h *Hold) (at time.Time, set bool) { at, set = w.holds[h]; return at, set }
	o.Sends = func(t *Ticket) bool {
		for d := range w.sends {
			if d.Ticket == t {
				return true
			}
		}
		return false
	}
	if why := Broken(w.l, &o); why != "" {
		require.Fail(w.t, why)
	}
}

// pass moves the clock, and has what is due happen.
func (w *world) pass(d time.Duration) string {
	w.t.Helper()
	until := w.now.Add(d)
	var all []string
	for range 1000 {
		next := w.timer
		var hold *Hold
		for h, at := range w.holds {
			if next.IsZero() || at.Before(next) || at.Equal(next) && hold != nil && h.Ticket.number < hold.Ticket.number {
				next, hold = at, h
			}
		}
		if next.IsZero() || next.After(until) {
			w.now = until
			return strings.Join(all, ", ")
		}
		w.now = times.Later(w.now, next)
		var text string
		if hold != nil {
			delete(w.holds, hold)
			w.v.Over = !w.now.Before(hold.Lasts.Deadline)
			text = w.do(func(x *Input) {
				w.l.OnHoldTimer(x, hold, w.v)
			})
			w.v.Over = false
		} else {
			w.timer = time.Time{}
			text = w.do(w.l.OnTimer)
		}
		for s := range strings.SplitSeq(text, ", ") {
			if s != "" && !strings.HasPrefix(s, "timer") {
				all = append(all, s)
			}
		}
	}
	require.Fail(w.t, "the timers never rest")
	return ""
}

// us is the time of the server, whose clock is right.
func (w *world) us() int64 { return w.now.UnixMicro() }

func (w *world) attempt() Attempt {
	return Attempt{Sent: w.now, Slept: w.slept, Expires: w.now.Add(3 * time.Second)}
}

// ticket makes a ticket known.
func (w *world) ticket(name string, change func(*Ticket)) *Ticket {
	w.t.Helper()
	t := &Ticket{Options: &Options{Kind: wire.Exclusive, Permits: 1, Renewal: 10 * time.Second}}
	t.Lease, t.Begun, t.Place, t.Budget = 10*time.Second, w.now, -1, 3*time.Second
	if change != nil {
		change(t)
	}
	t.Named(w.l.Client, uint64(len(w.tickets)+1), w.l.GrantLease)
	w.tickets[name], w.calls[&t.Call] = t, name
	w.do(func(*Input) { w.l.Register(t) })
	return t
}

// asked begins an acquire request.
func (w *world) asked(t *Ticket) string {
	w.t.Helper()
	return w.do(func(x *Input) {
		mode := wire.Wait
		if t.Try {
			mode = wire.Try
		}
		q, ok := w.l.BeginAcquire(x, t, mode, w.now)
		require.True(w.t, ok)
		w.asks[t] = &q
	})
}

// replied takes in the reply to the acquire request of a ticket, and what its call does next.
func (w *world) replied(t *Ticket, r wire.Reply, f Failure) (string, Step) {
	w.t.Helper()
	var step Step
	if r.Now == 0 {
		r.Now = w.us()
	}
	effects := w.do(func(x *Input) {
		step = w.l.OnAcquireReply(x, w.asks[t], w.attempt(), &r, &f, errRefusal)
	})
	return effects, step
}

// granted is a reply that grants.
func (w *world) granted(token uint64, lasts time.Duration) wire.Reply {
	return wire.Reply{Status: wire.Granted, Now: w.us(), Token: token, Until: w.us() + lasts.Microseconds()}
}

// told is a reply that has a ticket wait at a place, after a holder whose lease has some time left.
func (w *world) told(place int64, left time.Duration) wire.Reply {
	return wire.Reply{Status: wire.Waiting, Now: w.us(), Until: w.us() + left.Microseconds(), Place: place, Waiting: int(max(place, 0)), Arrival: w.us()}
}

// waits is a ticket that waits at a place.
func (w *world) waits(name string, place int64) *Ticket {
	w.t.Helper()
	t := w.ticket(name, nil)
	w.asked(t)
	w.replied(t, w.told(place, time.Hour), answered)
	w.now = w.now.Add(time.Microsecond) // Arrivals are unique.
	return t
}

// holding is a ticket that holds since now.
func (w *world) holding(name string, change func(*Ticket)) *Hold {
	w.t.Helper()
	t := w.ticket(name, change)
	w.asked(t)
	w.replied(t, w.granted(uint64(w.us()), t.Lease), answered)
	return w.take(t)
}

// take makes a hold of what a ticket was granted.
func (w *world) take(t *Ticket) *Hold {
	w.t.Helper()
	h := &Hold{}
	w.do(func(x *Input) {
		require.True(w.t, w.l.MayTake(x, t, w.slept, false))
		w.l.Take(x, t, h, w.v)
	})
	return h
}

// mayTake reports whether the grant of a ticket can be taken without a word from the server.
func (w *world) mayTake(t *Ticket, wanting bool) (may bool, effects string) {
	w.t.Helper()
	effects = w.do(func(x *Input) { may = w.l.MayTake(x, t, w.slept, wanting) })
	return may, effects
}

// does is what the call of a ticket does next.
func (w *world) does(t *Ticket) (next Next) {
	w.t.Helper()
	w.do(func(x *Input) { next = w.l.Next(x, t, false, false).Do })
	return next
}

// message is a grant by a message that was published some time ago.
func (w *world) message(t *Ticket, token uint64, ago time.Duration) string {
	w.t.Helper()
	return w.grantTo(t.Text, token, ago)
}

func (w *world) grantTo(text string, token uint64, ago time.Duration) string {
	w.t.Helper()
	return w.do(func(x *Input) {
		_, lasts := wire.TicketTerms(text)
		w.l.OnGrant(x, text, Grant{Token: token, From: w.now.Add(-ago), Lasts: lasts, Slept: w.slept})
	})
}
