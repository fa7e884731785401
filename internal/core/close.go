package core

import (
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/times"
)

// Close ends the waits and the holds of the name, because its client closes.
func (l *Lock) Close(x *Input) { l.endAll(x, reason.ErrClosed, reason.ErrClientClosed) }

// Abandon ends all that the client has of the name, and sends nothing for it: another client has it too, or has ended it. It
// reports whether there is a subscription to be ended.
func (l *Lock) Abandon(x *Input, why error) (subscribed bool) {
	l.Name.Abandon()
	l.endAll(x, why, why)
	return l.Wanted
}

// endAll ends waits and holds, each for its reason.
func (l *Lock) endAll(x *Input, wait, hold error) {
	for _, c := range l.cohorts {
		c.end(x, wait)
	}
	for _, t := range slices.Clone(l.tickets.All()) {
		if t.Hold != nil {
			l.Lose(x, t.Hold, hold)
			continue
		}
		t.WaitErr = wait
		l.end(x, t) // Here, not by the call that is woken: Close waits for the releases that have begun.
		x.do(Wake, &t.Call)
	}
}

// Outstanding calls a function with what the server may still have for the client after a time: tickets, and releases of those
// that are not known any more.
func (l *Lock) Outstanding(now time.Time, ticket func(*Ticket), unknown func(*Release)) {
	for _, t := range l.tickets.All() {
		if t.heldUntil(now).After(now) {
			ticket(t)
		}
	}
	for d := range l.leaving {
		if d.held.After(now) {
			unknown(d)
		}
	}
}

// Left is the latest time at which the server can still hold something of the ticket. A ticket that has ended, by a reply
// that says that nothing is left, needs no release.
func (t *Ticket) Left(begun time.Time) (until time.Time) {
	if t.state != ended {
		until = t.heldUntil(begun)
	}
	return until
}

// Left is the same of a release without a ticket, and why it was given up, if it was.
func (l *Lock) Left(d *Release) (until time.Time, unended error) {
	if _, open := l.leaving[d]; open {
		until = d.held
	}
	return until, d.unended
}

// heldUntil is the latest time at which this ticket can block others: by what it holds, by what a request without an answer may
// have taken for it or may yet take, and by what it may be granted by message, now for the last time. It is zero if there is no
// such thing.
func (t *Ticket) heldUntil(now time.Time) (until time.Time) {
	switch {
	case t.Hold != nil:
		until = t.Hold.heldUntil(now)
	case t.grant.Token != 0:
		until = t.grant.From.Add(t.grant.Lasts)
	case t.Arrival != 0:
		until = now.Add(t.takes)
	}
	return times.Later(until, t.Call.HeldUntil(now))
}

// heldUntil is the latest time at which Redis can still have the hold: the end of its lease, or of what renewals without an answer
// may have made of it. A lease that has run out ends in the server by itself within its margin.
func (h *Hold) heldUntil(now time.Time) time.Time {
	until := h.inDoubt
	if h.Gone != reason.ErrExpired {
		until = times.Later(until, h.Lasts.Deadline.Add(Margin(h.spans)))
	}
	if h.renewing {
		until = times.Later(until, now.Add(requestTime+h.Ticket.Renewal))
	}
	return until
}

// HeldUntil is the latest time at which a call can block others by requests without an answer.
func (c *Call) HeldUntil(now time.Time) (until time.Time) {
	if c.inflight > 0 {
		until = times.Later(until, now.Add(max(requestTime, c.Budget)+c.Lease))
	}
	if !c.inDoubt.IsZero() {
		until = times.Later(until, c.inDoubt.Add(c.Lease))
	}
	return until
}
