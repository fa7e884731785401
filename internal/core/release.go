package core

import (
	"cmp"
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// The release of a ticket (R9) is sent at once, by the call that releases, or in the background for a ticket that nobody waits
// for any more. It is repeated until it is answered, and sent again when everything that was in flight for the ticket is
// answered or can no longer run (R1, R7). Then the ticket is forgotten.

const (
	// requestTime is how long a request may usually take from its sending to its not-after; an acquire request after a late
	// one may take up to LongestAttempt.
	requestTime = 3 * time.Second
	// mostLeaving is how many releases without a ticket may be under way for a name, which bounds what forged messages cost.
	// A grant that is not given back ends with its grant lease.
	mostLeaving = 4096
)

// Finish ends a ticket that does not hold. Where nothing of it can be in the server, it is just forgotten.
func (l *Lock) Finish(x *Input, t *Ticket) {
	if t.Quiet() && t.grant.Token == 0 && (t.Clean || t.state == idling) {
		l.forget(x, t)
		return
	}
	l.end(x, t)
}

// end begins the release of a ticket in the background.
func (l *Lock) end(x *Input, t *Ticket) {
	if t.state == ending || t.state == ended {
		return
	}
	t.to(x, ending)
	t.rests = t.StaysTaken()
	if l.Copied {
		l.forget(x, t) // What the server has of it may be the other copy's.
		return
	}
	t.Releasing()
	d := ReleaseOf(t)
	x.Add(Effect{Do: Send, Release: &d, Flag: true})
}

// forget drops a ticket whose release is acknowledged, or was never needed.
func (l *Lock) forget(x *Input, t *Ticket) {
	t.to(x, ended)
	l.Use(x)
	l.tickets.Remove(t)
	t.Owe(x, false)
	l.unlocked(x, t, cmp.Or(t.ReleaseErr, errUnanswered))
	t.Acknowledge(x)
}

// OnReleaseReply handles the reply to a release, or the failure of the request. sent is when the release was sent.
func (l *Lock) OnReleaseReply(x *Input, d *Release, sent time.Time, r *wire.Head, f *Failure) {
	t := d.Ticket
	if t != nil && f.Err == nil {
		l.moved(x, d, r)
		if t.Hold != nil && !t.acknowledged && !d.Moves && (!d.unsure || r.Status == wire.Done) {
			t.ReleaseErr = t.Hold.Outcome(x.Now, r) // Else it may be an attempt before that did it.
		}
		l.unlocked(x, t, t.ReleaseErr)
		t.Acknowledge(x) // The release itself may have to be sent once more.
	}
	if f.Err != nil && f.Mendable {
		if t != nil {
			l.refusedRelease(x, t, f)
		}
		l.retryRelease(x, d, f)
		return
	}
	if t == nil || f.Err != nil {
		l.releaseOver(x, d, f.Advice)
		return
	}
	switch t.Released(x, d, sent) {
	case Again:
		l.repeat(x, t)
	case Forget: // Close waits for releases that are to be sent again as long as there is the ticket.
		l.forget(x, t)
	}
}

// Outcome is what the answer to the first release of a hold means to its caller.
func (h *Hold) Outcome(now time.Time, r *wire.Head) error {
	switch {
	case r.Status != wire.Done:
		return h.lossOf(now, r)
	case r.Has(wire.Unwoken):
		return reason.ErrUnwoken
	}
	return nil
}

// moved takes in the answer to a release that leaves other holds of its ticket alone: it hands a hold over, or names its token.
// A late acquire request may have taken the lock again for the ticket, and a late check its place in the queue: after the hold was
// lost, or after an attempt before this one. So a plain release follows.
func (l *Lock) moved(x *Input, d *Release, r *wire.Head) {
	t := d.Ticket
	before := len(r.States) > 0 && r.States[0] == wire.StateMoved
	again := !t.inDoubt.IsZero()
	switch {
	case !d.Moves:
		again = again && d.Token != 0 && r.Status == wire.Refused
	case r.Status == wire.Granted:
		again = again && d.unsure
	case !before:
		t.Hold.Gone = t.Hold.lossOf(x.Now, r)
		again = true
	}
	if again {
		t.inDoubt = times.Later(t.inDoubt, x.Now.Add(time.Millisecond)) // After this was sent.
	}
}

// refusedRelease notes that a release of a ticket failed. It tells the calls that have to follow that release where the
// server has refused it with an error that only somebody mends.
func (l *Lock) refusedRelease(x *Input, t *Ticket, f *Failure) {
	if t.Hold != nil {
		kept := *f
		t.Hold.ReleaseFailure = &kept
	}
	if u := t.release; u != nil && !f.Passes && !u.stuck {
		u.stuck = true
		x.Add(Effect{Do: Stuck, Release: u, Call: &t.Call})
	}
}

// giveBack ends a grant that nobody takes: to a ticket that is not known, or is about to get another number.
func (l *Lock) giveBack(x *Input, ticket string, token uint64) {
	if !l.ours(ticket) || len(l.leaving) >= mostLeaving {
		x.Add(Effect{Do: Forged})
		return
	}
	x.Add(Effect{Do: Send, Release: l.newRelease(ticket, token, x.Now), Flag: true})
}

// releaseUnknown releases what a ticket may have under an old number, once no request that names that number can run any
// more. rests: it may have adopted a hold after which the name stays taken.
func (l *Lock) releaseUnknown(x *Input, ticket string, at time.Time, rests bool) {
	if l.Copied {
		return
	}
	d := l.newRelease(ticket, 0, at)
	d.Rests = rests
	x.Add(Effect{Do: SendLater, Release: d, At: at})
}

// newRelease notes a release without a ticket, of a grant that was made, or will have been, by a time.
func (l *Lock) newRelease(ticket string, token uint64, at time.Time) *Release {
	d := &Release{Text: ticket, Token: token, How: wire.HowUnused, held: at.Add(wire.TicketLease(ticket))}
	if l.leaving == nil {
		l.leaving = make(map[*Release]struct{})
	}
	l.leaving[d] = struct{}{}
	return d
}

// repeat sends the release of a ticket once more, after the last request in flight for it can no longer run.
func (l *Lock) repeat(x *Input, t *Ticket) {
	d := &Release{Call: &t.Call, Ticket: t, Text: t.Text, Rests: t.StaysTaken(), How: t.how()}
	if !t.acknowledged {
		d.Token = t.used // After that, what the ticket has is what a late request has got for it: it is freed whatever its token.
	}
	t.Repeat(x, d)
}

// retryRelease sends a release again that was not answered, for as long as that can help.
func (l *Lock) retryRelease(x *Input, d *Release, f *Failure) {
	if d.until.IsZero() && d.Ticket != nil && d.Ticket.release != nil {
		d.until = d.Ticket.heldUntil(x.Now)
	}
	if why := d.Retry(x, f); why != nil {
		l.releaseOver(x, d, why)
	}
}

// releaseOver notes that a release is sent no more, and why it was not confirmed, if it was given up.
func (l *Lock) releaseOver(x *Input, d *Release, why error) {
	if d.Ticket == nil {
		d.unended = why
		delete(l.leaving, d)
		return
	}
	d.Ticket.ReleaseErr, d.Ticket.Unended = Unconfirmed(why), why
	l.forget(x, d.Ticket)
}

// BeginRelease begins the release of a hold, which the caller sends. note is what the grant to the next is to carry.
func (l *Lock) BeginRelease(x *Input, h *Hold, note string) {
	t := h.Ticket
	l.stop(x, h)
	t.to(x, ending)
	t.rests = t.StaysTaken()
	t.Note, t.crowded = note, l.Waited
	t.Owe(x, true) // Also before it is sent.
}

// Unlock sends the release of a hold, for which nobody waits. [Lock.BeginRelease] comes before it. The release is stored in d,
// and has no goroutine. It is kept until the server answers or the lease has ended.
func (l *Lock) Unlock(x *Input, h *Hold, d *Release, held time.Duration) {
	t := h.Ticket
	t.Releasing()
	*d = ReleaseOf(t)
	d.index, d.Held = len(l.unlocks), held
	t.release = d
	l.unlocks = append(l.unlocks, d)
	x.Add(Effect{Do: Send, Release: d, Flag: !l.lingers(h, held)})
}

// Linger is the longest that a release waits to go together with the next acquire request of the client.
const Linger = 5 * time.Millisecond

// lingers reports whether the release of a hold may wait for the next acquire request. The hold was got at once, so
// nobody waited then, and so short a time ago that nobody will have come since. No call of this client waits, as it would
// have a check to come (I5).
func (l *Lock) lingers(h *Hold, held time.Duration) bool {
	return h.Ticket.Arrival == 0 && held < Linger && h.wish != fulfilled && l.NextCheck.IsZero() && !l.Checking
}

// unlocked tells what came of the release of a hold that nobody waits for.
func (l *Lock) unlocked(x *Input, t *Ticket, err error) {
	d := t.release
	if d == nil {
		return
	}
	t.release = nil
	last := len(l.unlocks) - 1
	l.unlocks[last].index = d.index
	l.unlocks[d.index], l.unlocks[last] = l.unlocks[last], nil
	l.unlocks = l.unlocks[:last]
	x.Add(Effect{Do: Unlocked, Release: d, Call: &t.Call, Err: err})
}

// Unlocks are the releases that nobody waits for and that are not answered.
func (l *Lock) Unlocks() []*Release { return l.unlocks }

// IsStuck reports whether the server refuses the release until somebody mends the server.
func (d *Release) IsStuck() bool { return d.stuck }

// ReleaseOf returns the last request of a ticket.
func ReleaseOf(t *Ticket) Release {
	return Release{Call: &t.Call, Ticket: t, Text: t.Text, Token: t.used, Rests: t.rests, Crowded: t.crowded, How: t.how()}
}

// how is how the hold of the ticket has ended, for the next one. If no call had it, that one is told what this one was told.
func (t *Ticket) how() string {
	if h := t.Hold; h != nil && !t.acknowledged && (h.Gone != nil || !t.Joint || t.grant.Before == "") {
		return howLost(h.Gone)
	}
	return wire.HowUnused
}
