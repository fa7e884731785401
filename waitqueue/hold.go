package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/renewals"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/shares"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// A hold is what a ticket has while it is held: the machinery's side of the lease, or of the leases where it
// was entered again. The lock of the site guards it.
type hold struct {
	ticket *ticket
	token  uint64
	use    use   // what the call has of it that holds now
	first  share // the lease of the call that got the hold
	leases shares.Shares
	lasts  lease.Until // local end of what is confirmed

	entry    timers.Timer
	ears     conn.Ears // that was asked to hear of a release by force; nil before that
	due      time.Time // of the next renewal; zero if there is none to come
	ghost    time.Time // until when a renewal that was not answered may have made it last
	limit    time.Time // the maximum hold; zero if there is none
	stall    *lease.Stall
	renewing bool
	hurried  time.Time // when something was heard that a renewal must look into
	failures int
	spans    time.Duration // how long the lease is that is confirmed
	stays    chan error    // gets the answer to a renewal that tells for how long the name stays taken; nil but while [Stay] waits for that
	wish     wish          // to know that somebody waits
	awaited  func()        // is called, in the background, when somebody does; may be nil
	idle     time.Time     // until when its client keeps it for a call that comes; zero while a call uses it
	short    time.Time     // until when a renewal may come late that makes the lease short: later ones do not make it longer
	kept     int64         // server µs until which the key lives, as the renewal that prolonged it has said
	gone     error         // why it was lost

	endFailure error // why the last request for its end failed
}

// A use is what one call has of a hold. A hold has one, unless a layer lets several calls use it one after the other
// ([Hold.Pass]): then each has a token of its own.
type use struct {
	token  uint64
	since  time.Time      // by the clock of this machine
	teller *notify.Teller // of the call; nil: nobody looks
}

// grasp makes the lease of a ticket that was granted. It returns nil if the grant is too old to be taken
// without a word from the server; the ticket is then to be confirmed.
func (s *site) grasp(ctx context.Context, t *ticket, waited time.Duration) *lease.Lease {
	_ = s.client.servers.Overtake(ctx, s.keys.Lock) // What this client gave up since the call began is not to end it.
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.state != held {
		return nil
	}
	g := t.grant
	if g.stale() || lease.Slept()-g.slept > timers.WokeUp || t.shortLocked() || !g.vouched && s.proof(t) != (conn.Proof{}) {
		t.to(confirming)
		return nil
	}
	if g.over() {
		s.giveBackLocked(t.text, g.token)
		t.ranOutLocked(true)
		return nil
	}
	h := &hold{ticket: t, token: g.token, use: use{token: g.token, since: g.from, teller: t.teller}, spans: g.lasts, limit: g.limit, stall: lease.NewStall(t.queue.terms.MaxStall)}
	if t.joint {
		h.stall.Pause()
	}
	h.lasts = h.until(g.from, g.lasts, g.slept, g.final || !h.limit.IsZero() && !g.from.Add(g.lasts).Before(h.limit))
	l := h.grantLocked(t.teller.Granted(ctx, g.token, waited, g.note), &h.first, t.queue, waited)
	if !g.final { // Else it was renewed for the last time before anybody had it.
		h.due = renewals.At(s.client.born, g.from, g.lasts) // That also is what lifts a grant by message to a full lease.
	}
	h.entry.Target = h
	t.hold = h
	if t.doubted {
		h.due = time.Now()
	}
	s.client.stats.Granted.Add(1)
	s.client.servers.Timers.Before(&h.entry, h.tellLongLocked(g.from, timers.First(h.due, h.endsLocked(), g.from.Add(attendAfter))))
	s.ownLocked(t)
	return l
}

// shortLocked reports whether a grant must be made longer before its call returns. Without renewal a hold lasts for its
// lease even if its process dies at once, and a grant by message is shorter than that. With a minimum hold the server is told
// of that by the renewal; of several names by [Stay].
func (t *ticket) shortLocked() bool {
	terms := &t.queue.terms
	return !t.grant.confirmed && (t.staysLocked() || terms.WithoutRenewal && t.grant.lasts < t.lease())
}

// staysLocked reports whether a renewal before the call returns is to say for how long the name stays taken.
func (t *ticket) staysLocked() bool { return t.queue.terms.MinHold > 0 && !t.joint }

// restsLocked reports whether the name is to stay taken after the end of the ticket for as long as the server was told. A hold
// that no call has returned frees it at once. In doubt whether a hold was adopted that somebody else had used, the server decides.
func (t *ticket) restsLocked() bool {
	return t.inherits || t.queue.terms.MinHold > 0 && t.hold != nil && !t.joint
}

// until is the local end of a lease that counts from a local time. Where it is the last one, it ends with
// the maximum hold at the latest, and that is its cause.
func (h *hold) until(from time.Time, lasts, slept time.Duration, final bool) lease.Until {
	if !final {
		return renewals.Until(from, lasts, slept, nil)
	}
	u := renewals.Until(from, lasts, slept, lease.ErrMaxHold)
	u.Deadline = timers.Earlier(u.Deadline, h.limit)
	return u
}

// Fired is called by the hold's timer: time for a renewal, or the end.
func (h *hold) Fired(now time.Time) {
	t := h.ticket
	s := t.site
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.state != held || h.leases.Releasing() {
		return
	}
	if h.leases.Overdue() {
		if !h.leases.Releasing() { // Else it was released just now.
			h.loseLocked(lease.ErrExpired)
		}
		return
	}
	next := h.attendLocked(now, h.tellLongLocked(now, h.restsLocked(now, h.endsLocked())))
	if !h.due.IsZero() && !h.renewing {
		if now.Before(h.due) {
			next = timers.Earlier(next, h.due)
		} else {
			h.renewing = true
			s.client.renewals.Add(h)
		}
	}
	s.client.servers.Timers.Before(&h.entry, next)
}

// endsLocked is when the hold is lost unless something happens before.
func (h *hold) endsLocked() time.Time { return h.stall.Earlier(h.lasts.Deadline) }

// hurryLocked asks for a renewal now, because something was heard about the hold.
func (h *hold) hurryLocked() {
	h.due = time.Now()
	h.hurried = h.due
	h.ticket.site.client.servers.Timers.Before(&h.entry, h.due)
}

// loseLocked ends the hold as lost. The server is told too: what it may still have of it is in nobody's hand.
func (h *hold) loseLocked(cause error) {
	t := h.ticket
	if t.state != held {
		return
	}
	for sh := range h.leases.Each {
		sh.Keeper.Lose(cause)
	}
	h.gone = cause
	if h.idle.IsZero() { // Else no call has lost anything.
		t.site.client.stats.Lost.Add(1)
		h.tellLostLocked(cause)
	}
	h.unwatchLocked()
	t.site.endLocked(t)
}

// lossOfLocked is the cause for which the server refused a hold. The server remembers one lease that ran out; by
// the clock of this machine it is known of all.
func (h *hold) lossOfLocked(r *lua.Head) error {
	switch {
	case !time.Now().Before(h.lasts.Deadline):
		return lease.ErrExpired
	case h.ticket.doubted:
		return lease.ErrForced // The server may have forced another since.
	case len(r.States) == 0:
	case r.States[0] == lua.StateForced:
		return lease.ErrForced
	case r.States[0] == lua.StateExpired:
		return lease.ErrExpired
	}
	return lease.ErrForgotten
}

// endLocked begins the end of a hold that is released.
func (h *hold) endLocked() {
	h.unwatchLocked()
	h.ticket.to(ending)
	h.ticket.rests = h.ticket.restsLocked()
	h.ticket.note = h.use.teller.Note()
	h.ticket.oweLocked(true) // Also before its end is sent.
}

// letGo tells the server of the end of a hold that has begun; ended says that ctx had ended before that, and the end
// goes in the background.
func (h *hold) letGo(ctx context.Context, ended bool) error {
	if ended {
		return h.outlast(ctx)
	}
	a := h.ticket.site.sendEnd(ctx, h.ticket, nil)
	return h.conclude(ctx, &a)
}

// conclude is what the answer to the end of a hold means to its caller; without one it waits for what goes on in the
// background.
func (h *hold) conclude(ctx context.Context, a *answer) error {
	if s := h.ticket.site; a.err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return h.outcomeLocked(&a.Head)
	}
	return h.outlast(ctx)
}

// outcomeLocked is what the answer to a first release means to its caller.
func (h *hold) outcomeLocked(r *lua.Head) error {
	switch {
	case r.Status != lua.Done:
		return h.lossOfLocked(r)
	case r.Has(lua.Unwoken):
		return h.ticket.queue.unwoken()
	}
	return nil
}

// outlast waits for the end of a release that did not succeed at once. An answer to a repetition says what has become of the
// hold if all attempts before were refused. Behind one that had no answer it is success, whatever it says: if the ticket is
// not the owner any more, it was that one which did it.
func (h *hold) outlast(ctx context.Context) error {
	t := h.ticket
	over, why := t.site.verdict(t)
	if why != nil {
		return why
	}
	timer := time.NewTimer(time.Until(h.lasts.Deadline) + conn.AnswerTime)
	defer timer.Stop()
	select {
	case <-over:
		_, why = t.site.verdict(t)
		return why
	case <-ctx.Done():
		why = h.lastEndFailure(retry.WhyEnded(ctx))
	case <-t.site.client.servers.Ended():
		why = lease.ErrClosed
	case <-timer.C:
		why = h.lastEndFailure(errNoAnswer)
	}
	return unconfirmed(why)
}

// lastEndFailure adds to an error the last one with which the server has refused its end.
func (h *hold) lastEndFailure(why error) error {
	h.ticket.site.mu.Lock()
	defer h.ticket.site.mu.Unlock()
	if !conn.Answered(h.endFailure) {
		return why
	}
	return fmt.Errorf("%w (last error: %w)", why, conn.Advise(h.endFailure))
}

// A hold that lasts listens on its client's own channel for a release by force. What is released by force while that is
// not heard is found by the next renewal.

// attendAfter is how long a hold lasts before its client listens for it.
const attendAfter = 250 * time.Millisecond

// attendLocked sees that the client hears of a release by force once the hold has lasted for some time, also where
// the slot of its name has moved and the routes know that, and returns when to look again.
func (h *hold) attendLocked(now, next time.Time) time.Time {
	s := h.ticket.site
	if at := h.ticket.grant.from.Add(attendAfter); h.ears == nil && now.Before(at) {
		return timers.Earlier(next, at)
	}
	if l := s.client.servers.Ears(s.slot); h.ears != l && !s.trust.Polls {
		if h.ears != nil {
			h.ears.Leave()
		}
		h.ears = l
		l.Attend()
	}
	return next
}

// unwatchLocked ends the hold's timer, because the hold ends, and the way of its owner's calls to it.
func (h *hold) unwatchLocked() {
	h.disownLocked()
	h.ticket.site.client.servers.Timers.Remove(&h.entry)
	if h.ears != nil {
		h.ears.Leave()
		h.ears = nil
	}
}

// told takes in what was heard on the client's own channel. It runs on the reader of the connection.
func (c *client) told(text string) {
	c.stats.Messages.Add(1)
	m, err := lua.ParseMessage(text)
	if err != nil || m.Kind != lua.MessageForced {
		c.stats.Forged.Add(1)
		return
	}
	s := c.known(m.Lock)
	if s == nil {
		return
	}
	s.tell(observe.Observation{Moment: observe.Woken})
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tickets[m.Ticket]; t != nil {
		t.doubted = true
		if t.hold != nil {
			t.hold.hurryLocked()
		}
	}
}

// A hold that goes to another process (R11). To hand over is the end of a ticket, to adopt is an ask; both are requests of
// one script.

// Gives reports whether the hold can be handed over. Where a layer makes the leases, as for a cohort, they are none of these.
func (sh *share) Gives() bool { return sh.hold.ticket.queue.proto == lua.Fairlock }

// HandOver is what HandOver of a lease does, once. The lease's context has ended.
func (sh *share) HandOver(ctx context.Context) (text string, err error) {
	h := sh.hold
	t, s := h.ticket, h.ticket.site
	todo := sh.takeOff(false)
	if !todo.last {
		return "", todo.gone
	}
	x := lua.NewTransit(s.keys.Lock, s.id, min(s.client.opts.GrantLease, t.lease()))
	if a := s.sendEnd(ctx, t, &x); a.err != nil {
		err = h.conclude(ctx, &a)
	}
	s.mu.Lock()
	if h.gone != nil {
		err = h.gone // The server's word, whenever it came.
	}
	s.mu.Unlock()
	h.ended(observe.HandedOver, todo.held, err)
	if err != nil && !errors.Is(err, lease.ErrUnconfirmed) {
		return "", err
	}
	return x.Text(), err
}

// handedOverLocked takes in the answer to the end of a hold that is handed over. Where the server has not moved it, now or at an
// earlier attempt, it was lost before; and as what the ticket has now may be what an old ask has taken, an end follows.
func (d *end) handedOverLocked(r *lua.Head) {
	if d.heir != nil && r.Status != lua.Granted && (len(r.States) == 0 || r.States[0] != lua.StateMoved) {
		d.ticket.hold.gone = d.ticket.hold.lossOfLocked(r)
		d.ticket.ghost = timers.Later(d.ticket.ghost, time.Now().Add(time.Millisecond)) // After this was sent.
	}
}

// script is that for the end of a ticket.
func (d *end) script() *lua.Script {
	if d.heir != nil {
		return lua.Move
	}
	return d.site.proto.End
}

// moving is what it gets where the hold is handed over. It may run at any time: it has no effect where the ticket does not
// hold.
func (d *end) moving() []string {
	c, token := d.site.client, strconv.FormatUint(d.ticket.grant.token, 10)
	return []string{d.text, d.heir.Ticket(), token, "", lua.PhaseFinal, lua.Ever, c.highest(), c.servers.Counted()}
}

// Adopt takes a hold of the name out of transit.
func (q Queue) Adopt(ctx context.Context, x lua.Transit) (*lease.Lease, error) {
	retry.Given(ctx)
	if q.err == nil && q.keys.Lock != x.Lock {
		return nil, fmt.Errorf("%w: it is for %.80q, and this client has the prefix %q", lease.ErrNotGenuine, x.Lock, q.client.opts.Prefix)
	}
	l, _, err := obtain(ctx, q, lua.Wait, &x)
	return l, err
}
