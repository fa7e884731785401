package core

import (
	"fmt"
	"time"
)

// An Outlook is what the caller of a [Lock] has still to do for it.
type Outlook struct {
	Now       time.Time
	Timer     time.Time                          // of the name; zero: none is set
	HoldTimer func(*Hold) (at time.Time, _ bool) // of a hold, and whether it is set
	Sends     func(*Ticket) bool                 // whether a release of the ticket is on its way, or is to be sent later
	Soon      bool                               // a usual check is due
}

// Broken says which of the invariants does not hold that one client can see, and of what; it is empty if all hold. Tests ask after
// each input, and so does the search of internal/verify/explore.
func Broken(l *Lock, o *Outlook) string {
	if !l.NextCheck.IsZero() && !l.retired && (o.Timer.IsZero() || o.Timer.After(l.NextCheck)) {
		return "a check has its timer (I5)"
	}
	holds, polled := 0, l.Checking || o.Soon || !l.NextCheck.IsZero()
	for _, t := range l.tickets.All() {
		if why := brokenOf(l, t, o, polled); why != "" {
			return fmt.Sprintf("%s: %s", why, t.Text)
		}
		if t.state == held && t.Hold != nil && o.Now.Before(t.Hold.Lasts.Deadline) { // One that is over may not have been looked at.
			holds++
		}
	}
	switch {
	case len(l.tickets.byText) != l.tickets.Len():
		return "each ticket has a text of its own (R8)"
	case holds > 1 && !l.Several:
		return "one holds (I1)"
	case l.Subscribed() && l.Suspicious():
		return "a suspicious client does not queue (R10)"
	}
	for i, d := range l.unlocks {
		if d.index != i || d.Ticket.release != d || l.tickets.Find(d.Text) != d.Ticket {
			return "releases are found by their index"
		}
	}
	for d := range l.leaving {
		if d.Ticket != nil {
			return "only unknown tickets leave: " + d.Text
		}
	}
	for owner, h := range l.owners {
		if h.Ticket.Behalf != owner || h.Ticket.state != held {
			return "an owner holds: " + owner
		}
	}
	return ""
}

// brokenOf is Broken of one ticket. polled: a check is under way, or is to come.
func brokenOf(l *Lock, t *Ticket, o *Outlook, polled bool) string {
	switch {
	case l.tickets.Find(t.Text) != t || t.state == ended:
		return "a ticket is known by its text until its release is over (R8)"
	case t.inflight < 0 || t.repeats < 0:
		return "what is under way is counted"
	case t.Waits() && t.Refused == nil && !polled:
		return "what waits is polled for (I5)"
	case t.Limit != 0 && in(waiting, confirming, held).has(t.state):
		return "a ticket with a place is not refused (I11)"
	case t.state == ending && !t.owed && (t.inflight == 0 || !t.releaseAgain) && !o.Sends(t):
		return "a ticket that ends has its release (R9)" // Where it is owed its caller sends it.
	}
	h := t.Hold
	if t.state != held || h == nil {
		return ""
	}
	at, set := o.HoldTimer(h)
	switch {
	case !set || at.After(h.Lasts.Deadline):
		return "a hold is looked at before its lease ends (I4)"
	case int64(h.UseToken-h.Token) >= max(t.Permits, 1):
		return "a hold uses the tokens that it has reserved (I13)"
	case h.open < 1 || h.writes > h.open:
		return "leases are counted"
	}
	return ""
}
