package core

import (
	"errors"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

const (
	// attendAfter is how long a hold lasts before its client listens for its release by force.
	attendAfter = 250 * time.Millisecond
	// entriesPause is how long a change of the number of entries waits for others before the server is told.
	entriesPause = 50 * time.Millisecond
	// unsaidPause is how long a hold waits at the most before it says again what the server has forgotten, or was not told
	// because the renewal before went wrong, or will not tell by a message.
	unsaidPause = time.Second
	// minLease is the shortest lease.
	minLease = time.Millisecond
	// grid is how many ticks there are in a lease.
	grid = 128
)

// Until is an end that is certain by the clocks of this machine, and what it means when it passes; see keeper.Until.
type Until struct {
	Deadline time.Time
	Slept    time.Duration
	Cause    error
}

// A Hold is what a ticket has while it is held. It has one lease, or several where it was entered again.
type Hold struct {
	Ticket         *Ticket
	Token          uint64
	Lasts          Until    // local end of what is confirmed
	Gone           error    // why it was lost
	ReleaseFailure *Failure // of the last request for its release; nil if none has failed

	// The call that uses it. A hold has one, unless its client lets several calls use it one after the other: then each has a
	// token of its own.
	UseToken uint64
	Since    time.Time // by the clock of this machine
	Idle     time.Time // until when its client keeps it for a call that comes; zero while a call uses it

	granted  time.Time     // when its call got it: not before the server gave it its token
	due      time.Time     // of the next renewal; zero if there is none to come
	inDoubt  time.Time     // until when a renewal that was not answered may have made it last
	hurried  time.Time     // when something was heard that a renewal must look into
	spans    time.Duration // how long the lease is that is confirmed
	failures int32
	renewing bool
	telling  bool      // a call waits to hear that its name stays taken
	told     bool      // and has heard it
	wish     wish      // to know that somebody waits
	short    time.Time // until when a renewal may come late that makes the lease short: later ones do not make it longer
	kept     int64     // server µs until which the key lives, as the renewal that prolonged it has said

	open   int    // leases on it that are not released
	writes int    // and of these, how many are for writing
	counts uint64 // how often their number has changed, as the server is told
}

// Leases is what the caller sees of the leases on a hold, as their holders can end them at any moment.
type Leases struct {
	Releasing bool      // the last of them is being released: then the rest is the release's
	Over      bool      // all of them have ended
	StallBy   time.Time // when the hold ends without progress; zero: it does not
}

// Margin is the last part of a lease, which its holder does not use (I4): clocks run at different speeds, and noticing the
// end takes time. It is a hundredth of the lease and at least 2 ms, but never more than a quarter of a lease under 8 ms.
func Margin(d time.Duration) time.Duration {
	return max(d/100, min(2*time.Millisecond, d/4))
}

// renewAt is when to renew a hold that was granted or renewed at a time for a lease. It is a third of the lease later, so
// that two renewals may fail before the lease is in doubt. It is moved to the tick before, of a grid that begins with
// the client, so that renewals come together.
func (l *Lock) renewAt(from time.Time, lasts time.Duration) time.Time {
	due := from.Add(lasts / 3)
	if tick := lasts / grid; tick > 0 {
		due = due.Add(-(due.Sub(l.Born) % tick))
	}
	return due
}

// Take makes a hold of the grant of a ticket, after [Lock.MayTake]. h is room for it.
func (l *Lock) Take(x *Input, t *Ticket, h *Hold, v Leases) {
	g := t.grant
	*h = Hold{
		Ticket: t, Token: g.Token, UseToken: g.Token, Since: g.From, spans: g.Lasts, granted: x.Now,
	}
	h.Lasts = h.until(g.From, g.Lasts, g.Slept, g.final || !g.limit.IsZero() && !g.From.Add(g.Lasts).Before(g.limit))
	h.add(t.Kind)
	if !g.final { // Else it was renewed for the last time before anybody had it.
		h.due = l.renewAt(g.From, g.Lasts) // That also is what lifts a grant by message to a full lease.
	}
	t.Hold = h
	if t.forced {
		h.due = x.Now
	}
	l.holdTimer(x, h, times.First(h.due, h.ends(v), g.From.Add(attendAfter)), false)
	l.own(x, t)
}

// holdTimer sets the timer of a hold; anew: also later than it was.
func (l *Lock) holdTimer(x *Input, h *Hold, at time.Time, anew bool) {
	x.Add(Effect{Do: HoldTimer, Call: &h.Ticket.Call, At: at, Flag: anew})
}

// until is the local end of a lease that counts from a local time. Where it is the last one, it ends with the maximum hold at
// the latest, and that is its cause.
func (h *Hold) until(from time.Time, lasts, slept time.Duration, final bool) Until {
	u := Until{Deadline: from.Add(lasts - Margin(lasts)), Slept: slept}
	if final {
		u.Cause = reason.ErrMaxHold
		u.Deadline = times.Earlier(u.Deadline, h.Ticket.grant.limit)
	}
	return u
}

// ends is when the hold is lost unless something happens before.
func (h *Hold) ends(v Leases) time.Time { return times.First(h.Lasts.Deadline, v.StallBy) }

// OnHoldTimer takes in that the time of a hold has come: for a renewal, or for its end.
func (l *Lock) OnHoldTimer(x *Input, h *Hold, v Leases) {
	if h.Ticket.state != held || v.Releasing {
		return
	}
	if v.Over {
		l.LoseOver(x, h, v)
		return
	}
	next := l.attend(x, h, l.rest(x, h, h.ends(v)))
	if !h.due.IsZero() && !h.renewing {
		if x.Now.Before(h.due) {
			next = times.Earlier(next, h.due)
		} else {
			h.renewing = true
			x.do(Renew, &h.Ticket.Call)
		}
	}
	l.holdTimer(x, h, next, false)
}

// attend subscribes to releases by force once the hold has lasted for some time, and returns when to look again. Without
// a subscription the next renewal finds a release by force.
func (l *Lock) attend(x *Input, h *Hold, next time.Time) time.Time {
	if at := h.Ticket.grant.From.Add(attendAfter); x.Now.Before(at) {
		return times.Earlier(next, at)
	}
	if !l.Polls {
		x.do(Attend, &h.Ticket.Call)
	}
	return next
}

// hurry asks for a renewal now, because something was heard about the hold.
func (l *Lock) hurry(x *Input, h *Hold) {
	if h.Ticket.state != held {
		return
	}
	h.due = x.Now
	h.hurried = h.due
	l.holdTimer(x, h, h.due, false)
}

// LoseOver ends a hold as lost all of whose leases have ended by themselves.
func (l *Lock) LoseOver(x *Input, h *Hold, v Leases) {
	l.Lose(x, h, causeOver(x.Now, v.StallBy, h.Lasts.Cause))
}

// Lose ends the hold as lost. It also sends a release: Redis may still record the hold.
func (l *Lock) Lose(x *Input, h *Hold, cause error) {
	if h.Ticket.state != held {
		return
	}
	h.Gone = cause
	x.Add(Effect{Do: Lose, Call: &h.Ticket.Call, Err: cause, Flag: h.Idle.IsZero()}) // Of an idle one no call has lost anything.
	l.stop(x, h)
	l.end(x, h.Ticket)
	for _, c := range l.cohorts {
		if c.Hold == h {
			c.OnFailed(x)
		}
	}
}

// stop ends the timer of a hold that ends, and lets its owner's calls enter it no more.
func (l *Lock) stop(x *Input, h *Hold) {
	l.disown(h)
	x.do(StopHold, &h.Ticket.Call)
}

// lossOf is why the server refused a hold. The server remembers only one lease that ran out; the clock of this machine
// tells of all.
func (h *Hold) lossOf(now time.Time, r *wire.Head) error {
	switch {
	case !now.Before(h.Lasts.Deadline):
		return reason.ErrExpired
	case len(r.States) > 0 && r.States[0] == wire.StateDied:
		return reason.ErrReplaced
	case h.Ticket.forced:
		return reason.ErrForced // The server may have forced another since.
	case len(r.States) == 0:
	case r.States[0] == wire.StateForced:
		return reason.ErrForced
	case r.States[0] == wire.StateExpired:
		return reason.ErrExpired
	}
	return reason.ErrForgotten
}

// Refuse ends a hold that the server has refused as lost, and returns the cause.
func (l *Lock) Refuse(x *Input, h *Hold, r *wire.Head) error {
	cause := h.lossOf(x.Now, r)
	l.Lose(x, h, cause)
	return cause
}

// A Renewal is one request to let a hold last.
type Renewal struct {
	Text  string
	Token uint64

	Lasts   time.Duration
	Final   bool          // to the maximum hold: there is none after it
	Idle    bool          // nobody uses the hold now
	Wishes  bool          // its holder wants to know that somebody waits
	Said    bool          // which the server was told before
	Entries string        // what the server is to be told of how often the hold was entered
	Least   time.Duration // for how long from its grant the name is to stay taken
	Stays   bool          // which the server is told now
	Kept    int64         // server µs until which the key lives, as the renewal that prolonged it has said

	Remember time.Duration // for how long after the lease the keys are to live if the hold is not released
}

// renewal says for how long a ticket's hold, made or about to be made, is to last from now on.
func (t *Ticket) renewal(now time.Time, grantLease time.Duration) Renewal {
	r := Renewal{Text: t.Text, Token: t.grant.Token, Lasts: t.Renewal, Least: t.MinHold}
	h := t.Hold
	if h != nil && (!h.Idle.IsZero() || now.Before(h.short)) { // So that a client that dies meanwhile does not keep the others waiting.
		r.Idle, r.Lasts = !h.Idle.IsZero(), min(r.Lasts, grantLease)
		h.kept = 0 // The key's life gets shorter too, or may.
	}
	if limit := t.grant.limit; !limit.IsZero() && limit.Sub(now) <= t.Renewal {
		r.Final = true
		r.Lasts = max(limit.Sub(now).Truncate(time.Millisecond), minLease)
	}
	return r
}

// NextRenewal is the renewal that an attempt is to send for the hold. If it shortens the lease, the lease counts as
// shorter from now on: the server may shorten it though no reply comes (I4).
func (l *Lock) NextRenewal(x *Input, h *Hold, a Attempt) Renewal {
	r := h.Ticket.renewal(a.Sent, l.GrantLease)
	if u := h.until(a.Sent, r.Lasts, a.Slept, false); r.Idle && h.Ticket.state == held && u.Deadline.Before(h.Lasts.Deadline) {
		h.spans = r.Lasts
		l.extend(x, h, u)
		l.holdTimer(x, h, u.Deadline, false)
	}
	r.Kept, r.Entries, r.Stays = h.kept, h.entries(), h.telling
	if t := h.Ticket; h.telling || h.failures == 0 && !t.Joint {
		r.Remember = t.Remember
	}
	if h.failures == 0 && h.wish != fulfilled { // It is not worth the hold: while a slot moves the key of the queue is too much.
		r.Wishes, r.Said = h.wish != noWish, h.wish == said
	}
	return r
}

// extend moves the end of all leases on the hold.
func (l *Lock) extend(x *Input, h *Hold, u Until) {
	h.Lasts = u
	x.Add(Effect{Do: Extend, Call: &h.Ticket.Call, Until: u})
}

// OnRenewed takes in the answer to a renewal, or its lack. An error is retried until the deadline: only then, or by the server's
// word, is the hold lost.
func (l *Lock) OnRenewed(x *Input, h *Hold, sent *Renewal, a Attempt, r *wire.Reply, f *Failure, v Leases) {
	t := h.Ticket
	h.renewing, h.kept = false, sent.Kept
	if f.InDoubt() {
		h.inDoubt = times.Later(h.inDoubt, a.Expires.Add(sent.Lasts))
		if !sent.Final && sent.Lasts < t.Renewal { // Also of a hold that was taken up since.
			h.short = a.Expires
		}
	}
	if t.state != held || v.Releasing {
		return
	}
	if sent.Stays && h.telling && (f.Err == nil && r.Status == wire.Granted || errors.Is(f.Err, reason.ErrReplicas)) {
		h.telling, h.told = false, true
		x.Add(Effect{Do: Stays, Call: &t.Call, Err: f.Err})
	}
	switch {
	case f.Err != nil:
		h.failures++
		x.Add(Effect{Do: Failing, Call: &t.Call, At: h.Lasts.Deadline.Add(-h.spans), Err: f.Err})
		h.due = x.Now.Add(min(x.Backoff(int(h.failures)-1), t.Renewal/10))
		x.Add(Effect{Do: RenewalFailed, Call: &t.Call, Err: f.Err, Left: h.Lasts.Deadline.Sub(x.Now), Lease: h.spans, Count: int(h.failures)})
	case r.Status == wire.Late:
		h.due = x.Now
	case r.Status != wire.Granted:
		head := r.Head()
		l.Refuse(x, h, &head)
		return
	default:
		h.failures = 0
		l.seen = h.Token
		left := h.Lasts.Deadline.Sub(x.Now)
		if v.Over {
			l.LoseOver(x, h, v)
			return
		}
		lasts := micros(r.Until - r.Now)
		l.extend(x, h, h.until(a.Sent, lasts, a.Slept, sent.Final))
		x.Add(Effect{Do: Renewed, Call: &t.Call, Left: left, Lease: h.spans})
		h.spans = lasts
		h.due = l.renewAt(a.Sent, sent.Lasts)
		if h.hurried.After(a.Sent) {
			h.due = x.Now
		} else {
			t.forced = false // Whoever said that it was released by force was wrong.
			if sent.Final {
				h.due = time.Time{}
			}
		}
		l.wished(x, h, sent, r.Has(wire.Wanted))
		l.shorten(x, h)
		if sent.Entries != h.entries() && !sent.Final {
			h.due = times.Earlier(h.due, x.Now.Add(entriesPause)) // It has changed since this was sent.
		}
	}
	l.holdTimer(x, h, times.First(h.due, l.attend(x, h, l.rest(x, h, h.ends(v)))), true)
}

// Stay has the next renewal, which is sent now, say for how long the name stays taken. The effect [Stays] has the answer. It
// reports whether there is something to say.
func (l *Lock) Stay(x *Input, h *Hold) bool {
	if t := h.Ticket; t.MinHold == 0 && t.Remember == 0 || !t.Joint {
		return false // It is one of an earlier call.
	}
	h.telling = true
	l.hurry(x, h)
	return true
}

// Returned notes that a call that had more to do returns now: what it holds stays taken after the hold ([Ticket.MinHold]).
func (l *Lock) Returned(x *Input, h *Hold, v Leases) {
	h.Ticket.Joint = false
	if h.Ticket.state == held && !v.StallBy.IsZero() {
		l.holdTimer(x, h, h.ends(v), false)
	}
	if h.Ticket.Remember > 0 && !h.told {
		l.hurry(x, h)
	}
}

// A holder may want to know that somebody waits for what it has. Its renewals then say so: where somebody waits, they are told;
// else they leave a mark, by which the script that queues the first ticket sends one message to the client. A message that is
// lost is made up for by the next renewal, which does not find the mark any more. A client without subscriptions hears of no
// message: there the hold is renewed more often, and each renewal looks. Without the wish nothing is sent, and nothing is
// stored (I12).

// wish is how far the wish of a hold has come.
type wish uint8

const (
	noWish    wish = iota
	unsaid         // the server is to be told of it by the next renewal
	said           // it has been, and nobody had queued since
	fulfilled      // somebody waits, and the holder knows
)

// Wish notes that the holder wants to know when somebody waits.
func (l *Lock) Wish(x *Input, h *Hold) {
	switch {
	case h.Ticket.state != held:
	case h.wish == fulfilled:
		l.awaited(x, h, false)
	case h.wish == noWish:
		h.wish = unsaid
		if l.Want() {
			x.Add(Effect{Do: Subscribe}) // The confirmation hurries.
		}
		if l.Subscription.Confirmed || l.Polls {
			l.hurry(x, h)
		}
	}
}

// fulfil tells the holder that somebody waits, if the holder wants to know and has not been told.
func (l *Lock) fulfil(x *Input, h *Hold) {
	if h.wish != unsaid && h.wish != said {
		return
	}
	h.wish = fulfilled
	l.awaited(x, h, true)
}

// awaited tells the call that uses a hold that somebody waits. A hold that no call uses is given back.
func (l *Lock) awaited(x *Input, h *Hold, news bool) {
	x.Add(Effect{Do: Awaited, Call: &h.Ticket.Call, Flag: news})
	if !h.Idle.IsZero() {
		x.do(Recall, &h.Ticket.Call)
	}
}

// wished takes in the answer to a renewal that said of the wish, or did not.
func (l *Lock) wished(x *Input, h *Hold, sent *Renewal, wanted bool) {
	switch {
	case h.wish != unsaid && h.wish != said:
	case wanted:
		l.fulfil(x, h)
	case sent.Wishes && !l.Polls:
		h.wish = said
	default:
		h.wish = unsaid
		// Also after the last renewal before the longest hold.
		h.due = times.First(h.due, x.Now.Add(min(h.Ticket.Renewal/10, unsaidPause)))
	}
}

// OnWanted tells the holders that a message is about: all with a token up to the one in the message.
func (l *Lock) OnWanted(x *Input, token uint64) {
	for _, t := range l.tickets.All() {
		if t.Hold != nil && t.state == held && t.Hold.Token <= token {
			l.fulfil(x, t.Hold)
		}
	}
}

// wishAgain lets the holds of the name look whether somebody waits, because messages may have been missed.
func (l *Lock) wishAgain(x *Input) {
	for _, t := range l.tickets.All() {
		if h := t.Hold; h != nil && t.state == held && (h.wish == unsaid || h.wish == said) {
			h.wish = unsaid
			l.hurry(x, h)
		}
	}
}

// entries is what the server is told of the number of leases; nothing while there was never more than one.
func (h *Hold) entries() string {
	if h.counts == 0 {
		return ""
	}
	return strconv.FormatUint(h.counts, 10) + ":" + strconv.Itoa(h.open)
}
