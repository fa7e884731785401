package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

const (
	// WokeUp is how much sleep of the machine counts as a suspension.
	WokeUp = 500 * time.Millisecond
	// claimSlack is how long after the end of a grant lease the client that handed on polls.
	claimSlack = 20 * time.Millisecond
	// mostExpiries is how many grants of one call may run out on their way before the call fails.
	mostExpiries = 5
)

// OnReply takes in what every reply can say besides the state of its own ticket: grants to other tickets of the client, that
// the request handed the lock on, and that the client is suspected. A grant in the reply to a check may be older than the
// check: its message was lost, or is still on its way.
func (l *Lock) OnReply(x *Input, a Attempt, r *wire.Reply, note string, check bool) {
	for i := range r.Grants {
		g := &r.Grants[i]
		if !check {
			l.heardOf(g.Ticket)
		}
		l.deliver(x, g.Ticket, Grant{Token: g.Token, From: a.Sent, Slept: a.Slept, Lasts: micros(g.Until - g.At), Note: note, Before: g.Before})
	}
	l.seen = cmp.Or(r.Token, l.seen)
	switch {
	case r.Has(wire.Handed) && (l.claimBy.IsZero() || !l.Several):
		// A client that hands on looks once whether the grant was claimed.
		left := micros(r.Until - r.Now)
		if r.Status == wire.Granted {
			left = min(left, l.GrantLease) // Until is the end of the caller's own lease.
		}
		l.handed = r.Token
		l.claimBy = x.Now.Add(left + claimSlack)
		l.Arm(x, l.claimBy)
	case l.Several:
		// A later grant says nothing of the earlier ones.
	case r.Token > l.handed:
		l.claimBy, l.handed = time.Time{}, 0
	}
	if r.Has(wire.Suspected) {
		x.Add(Effect{Do: Suspected})
		l.suspect(x)
	}
	if r.Has(wire.More) {
		l.CheckAt(x, x.Now)
	}
}

// OnGrant takes in a grant that a message has brought.
func (l *Lock) OnGrant(x *Input, ticket string, g Grant) {
	l.heardOf(ticket)
	l.deliver(x, ticket, g)
	l.seen = g.Token
}

// heardOf notes that the news of a grant came as it should.
func (l *Lock) heardOf(ticket string) {
	if t := l.tickets.Find(ticket); t != nil {
		t.heard = true
	}
	if l.missing == ticket {
		l.missing, l.missBy = "", time.Time{}
	}
}

// deliver brings a grant to its ticket, or gives it back (R8).
func (l *Lock) deliver(x *Input, ticket string, g Grant) {
	if l.Copied {
		return // It is of a ticket that the other copy has too.
	}
	t := l.tickets.Find(ticket)
	if t == nil {
		x.Add(Effect{Do: GivenBack, Text: ticket})
		l.giveBack(x, ticket, g.Token)
		return
	}
	// Nobody can make a hold longer than it was asked for, not even a forged message.
	g.Lasts = min(g.Lasts, t.Lease)
	g.Before = remembered(g.Before, l.seen)
	l.offer(x, t, g)
}

// offer brings the notice of a grant to a ticket that is known (R8).
func (l *Lock) offer(x *Input, t *Ticket, g Grant) {
	switch t.state {
	case held, ending:
		// Dropped: a second notice of the same grant, or a late one of an earlier grant. To give it back would free the
		// present hold. If it is a later grant, the next renewal finds out, or the release is under way.
		if t.state == ending && t.Hold == nil && g.Token > t.grant.Token {
			t.grant = g // So that Close reckons how long the server may have it.
		}
		return
	case confirming:
		if g.Token <= t.grant.Token {
			return
		}
	}
	if t.MaxHold > 0 {
		g.limit = g.From.Add(t.MaxHold)
	}
	t.grant = g
	if g.stale(x.Now) {
		t.to(x, confirming)
	} else {
		t.to(x, held)
	}
	x.Add(Effect{Do: RaiseToken, Token: g.Token})
	x.do(Wake, &t.Call)
}

// stale reports whether a grant is so old, or arrived over such a gap, that the server must be asked whether it still holds.
func (g *Grant) stale(now time.Time) bool { return !g.confirmed && now.Sub(g.From) > g.Lasts/3 }

// over reports whether a grant has no time left, of its lease or of its maximum.
func (g *Grant) over(now time.Time) bool {
	return !now.Before(g.From.Add(g.Lasts-Margin(g.Lasts))) || !g.limit.IsZero() && !now.Before(g.limit)
}

// expire gives the ticket another number, because a grant to it ran out: later grants to the old number are given back.
// The next grant may last twice as long (R10).
func (l *Lock) expire(x *Input, t *Ticket, next state) {
	if !t.inDoubt.IsZero() {
		// A request that was not answered may have taken the lock under the old number, or may do so yet.
		l.releaseUnknown(x, t.Text, t.inDoubt, t.Inherits)
	}
	before := t.Text
	t.takes = min(2*t.takes, t.Lease)
	t.expiries++
	t.name(l.Client)
	l.tickets.Renamed(t, before)
	t.grant, t.heard, t.rejoined = Grant{}, false, false
	t.to(x, next)
	x.do(Wake, &t.Call)
}

// ranOut lets a ticket wait on after a grant ran out before its call took it. counts: too many of these fail the call.
func (l *Lock) ranOut(x *Input, t *Ticket, counts bool) {
	next := waiting
	if t.MinHold > 0 {
		t.inDoubt = times.Later(t.inDoubt, x.Now) // The name may stay taken, and nobody has had it.
	}
	if t.Arrival == 0 {
		next = idling // It was never queued: no check knows it, so it asks again.
	}
	l.expire(x, t, next)
	switch {
	case counts && t.expiries >= mostExpiries:
		t.Refused = fmt.Errorf("%w: a lease of %v runs out before an answer of Redis is here", reason.ErrInvalid, t.Lease)
	case t.Waits():
		l.CheckAt(x, x.Now)
	}
}

// MayTake reports whether a lease can be made of the grant of a ticket. If the grant is too old to be used without asking
// the server, the ticket is to be confirmed. slept is how long the machine has been suspended until now. wanting:
// something else that the call wants, as replicas, is not there yet.
func (l *Lock) MayTake(x *Input, t *Ticket, slept time.Duration, wanting bool) bool {
	g := &t.grant
	switch {
	case t.state != held:
		return false
	case g.stale(x.Now) || slept-g.Slept > WokeUp || t.short() || wanting && !g.acknowledged:
		t.to(x, confirming)
		return false
	case g.over(x.Now):
		l.giveBack(x, t.Text, g.Token)
		l.ranOut(x, t, true)
		return false
	}
	return true
}

// short reports whether a grant must be made longer before its call returns. Without renewal a hold lasts for its lease even
// if its process dies at once, and a grant by message is shorter than that. With a minimum hold the server is told of that by
// the renewal.
func (t *Ticket) short() bool {
	return !t.grant.confirmed && (t.stays() || t.WithoutRenewal && t.grant.Lasts < t.Lease)
}

// stays reports whether a renewal before the call returns is to say for how long the name stays taken, or is remembered. A call
// for several names says it once all are held.
func (t *Ticket) stays() bool { return (t.MinHold > 0 || t.Remember > 0) && !t.Joint }

// StaysTaken reports whether the name is to stay taken after the end of the ticket for as long as the server was told. A hold
// that no call has returned frees it at once. Where a hold was adopted that may stay taken, the server decides.
func (t *Ticket) StaysTaken() bool {
	return t.Inherits || t.MinHold > 0 && t.Hold != nil && !t.Joint
}

// BeginConfirm begins a renewal that says whether a grant that is old, or came over a gap, still holds. After it the
// client asks for what else the call wants. aged: the call also wants a server that is old enough, so it may not return
// for a lease.
func (l *Lock) BeginConfirm(x *Input, t *Ticket, sent time.Time, aged bool) (r Renewal, ok bool) {
	if t.state != confirming {
		return r, false
	}
	r = t.renewal(sent, l.GrantLease)
	if r.Stays = t.stays() && !aged; r.Stays {
		r.Remember = t.Remember
	}
	return r, true
}

// OnConfirmReply takes in the reply to the renewal of BeginConfirm. short is the error if fewer replicas or disks
// than the call wants have acknowledged the hold. left is how much longer the server must run to be old enough.
func (l *Lock) OnConfirmReply(x *Input, t *Ticket, sent *Renewal, a Attempt, r *wire.Reply, f *Failure, short error, left time.Duration) {
	if f.Err != nil {
		if sent.Stays && f.InDoubt() {
			t.inDoubt = times.Later(t.inDoubt, a.Expires)
		}
		if !t.passes(f) {
			t.Refused = f.Advice
		}
		return
	}
	switch {
	case t.state != confirming:
	case r.Status == wire.Granted:
		g := &t.grant
		g.From, g.Slept, g.confirmed, g.final = a.Sent, a.Slept, true, sent.Final
		g.Lasts = micros(r.Until - r.Now)
		switch {
		case short != nil:
			t.Refused = short
		case left > 0:
			t.believed = x.Now.Add(left)
		default:
			if g.acknowledged = true; sent.Stays == t.stays() {
				t.to(x, held) // Else the server is old enough now, and is told by another one.
			}
		}
	case r.Status == wire.Refused:
		l.ranOut(x, t, t.Arrival == 0) // Without a place it would ask again and again: nobody makes it wait.
	}
}

// AfterConfirm says what a call does after such a renewal. After a restart it goes on until the server is old enough, and
// then lets earlier callers go first. It waits out an error that will pass; a try does so for as long as for its first
// request.
func (l *Lock) AfterConfirm(x *Input, t *Ticket, f *Failure, ended bool) Step {
	if f.Err == nil {
		l.Last = nil
	}
	left := t.believed.Sub(x.Now)
	if left > 0 && t.Try {
		t.Refused = fmt.Errorf("%w: %w", reason.ErrBusy, reason.ErrRestarted)
	}
	waited := t.state == held && !t.believed.IsZero()
	if waited {
		t.believed = time.Time{}
	}
	switch {
	case waited && !t.Try:
		return Step{Do: GiveWay}
	case left > 0 && f.Err == nil && !t.Try:
		return Step{Do: Pause, Rest: min(left, t.Renewal/3)} // The hold, which nobody has yet, is renewed meanwhile.
	case f.Err == nil || ended:
		return Step{}
	}
	if t.Over = t.passes(f) && t.tryIsOver(x.Now); t.Over {
		l.note(x, t, f)
		return Step{Do: Fail, Err: f.Advice}
	}
	return l.pause(x, t, f)
}

// GiveWay gives back a hold whose call had to wait after a restart, because earlier callers have come back to the queue
// meanwhile: the lock then goes to the first arrival again. The call waits on, at its place. It returns the release,
// which is to be sent after the next acquire request of the ticket: so that has its place when the queue is served.
func (l *Lock) GiveWay(x *Input, t *Ticket, arrival int64) *Release {
	if t.state != held || arrival == 0 {
		return nil
	}
	d := l.newRelease(t.Text, t.grant.Token, x.Now)
	t.Arrival = arrival
	l.expire(x, t, idling)
	return d
}

// parts of the text of a ticket.
const ticketWords = 6

// ours reports whether a text is the text of a ticket of this client.
func (l *Lock) ours(ticket string) bool {
	return wire.TicketClient(ticket) == l.Client && strings.Count(ticket, ":") == ticketWords-1
}
