package core

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A hold can be entered again, by a call whose context comes from it. Each entry is a lease of its own with the hold's token;
// the hold ends when the last of them is released, and a loss ends them all. To enter and to leave is a matter of this process
// alone: what the server has is one hold, and it is told the number of entries with the renewals.

// MaxEntries bounds how often one hold is entered: more is a recursion without end.
const MaxEntries = 1<<16 - 1

// add adds a lease of a kind.
func (h *Hold) add(kind byte) {
	h.open++
	if kind == wire.Write {
		h.writes++
	}
}

// own notes on whose behalf a ticket holds, and lets the calls of the same owner enter.
func (l *Lock) own(x *Input, t *Ticket) {
	if t.Behalf == "" {
		return
	}
	if l.owners == nil {
		l.owners = make(map[string]*Hold)
	}
	l.owners[t.Behalf] = t.Hold
	for _, other := range l.tickets.All() {
		if other != t && other.Behalf == t.Behalf {
			x.do(Wake, &other.Call)
		}
	}
}

// disown lets the calls of a hold's owner enter another hold of that owner from now on, or none. Two calls of one owner that were
// granted at once have a hold each. It does not wait for the answer to the release, which may have to be sent again.
func (l *Lock) disown(h *Hold) {
	if t := h.Ticket; l.owners[t.Behalf] == h {
		delete(l.owners, t.Behalf)
		for _, other := range l.tickets.All() {
			if other != t && other.Behalf == t.Behalf && other.state == held && other.Hold != nil {
				l.owners[t.Behalf] = other.Hold
			}
		}
	}
}

// HeldBy returns the hold of an owner that a context names; nil if it has none.
func (l *Lock) HeldBy(owner string) *Hold { return l.owners[owner] }

// Enter enters a hold once more, for a lease of a kind. It reports false where the hold has ended.
func (l *Lock) Enter(x *Input, h *Hold, kind byte, v Leases) (entered bool, err error) {
	switch {
	case h.Ticket.state != held || v.Releasing || v.Over:
		return false, nil
	case kind == wire.Write && h.writes == 0:
		return false, reason.ErrUpgrade
	case h.open >= MaxEntries:
		return false, fmt.Errorf("%w: it was entered %d times", reason.ErrTooLarge, MaxEntries)
	}
	h.add(kind)
	l.recount(x, h)
	return true, nil
}

// recount sees that the server is told of a change in the number of leases, with others that come soon.
func (l *Lock) recount(x *Input, h *Hold) {
	if !l.Entries {
		return
	}
	h.counts++
	if h.due.IsZero() {
		return // The last renewal was sent.
	}
	h.due = times.Earlier(h.due, x.Now.Add(entriesPause))
	if !h.renewing {
		l.holdTimer(x, h, h.due, false)
	}
}

// Leave takes a lease of a kind off its hold. last: it was the only one, so the hold is to be released. lower: it was the last
// for writing, which the server is to be told. gone is why there is nothing to be done: the hold was lost. cause is why the
// lease has ended, and released whether by its release.
func (l *Lock) Leave(x *Input, h *Hold, kind byte, cause error, released bool) (last, lower bool, gone error) {
	if !released {
		l.Lose(x, h, cause) // If nobody had noticed before: it is the loss of all leases on the hold.
	}
	if h.Ticket.state != held {
		if h.Gone != nil && released {
			return false, false, h.Gone // The server's word came between the end of the context and this.
		}
		return false, false, cause
	}
	if h.open > 1 {
		h.open--
		lower = h.unwrite(kind)
		l.recount(x, h)
		return false, lower, nil
	}
	return true, false, nil
}

// MayLet reports whether the release of the only lease on a hold has nothing to do but to be sent.
func (l *Lock) MayLet(h *Hold, v Leases) bool {
	return h.Ticket.state == held && h.open == 1 && !h.Ticket.StaysTaken() && !v.Over
}

// unwrite notes that a lease of a kind is not for writing any more, and reports whether it was the last.
func (h *Hold) unwrite(kind byte) (lower bool) {
	if kind != wire.Write {
		return false
	}
	h.writes--
	return h.writes == 0
}

// Downgrade turns a lease of a kind into one for reading, and reports whether the server is to be told that none for writing
// is left; holds: the hold goes on.
func (l *Lock) Downgrade(h *Hold, kind byte) (lower, holds bool) {
	if h.Ticket.state != held {
		return false, false
	}
	h.unwrite(kind)
	return h.Ticket.Kind == wire.Write && h.writes == 0, true
}

// Lowered handles the server's reply to a downgrade.
func (l *Lock) Lowered(x *Input, h *Hold, r *wire.Head) error {
	switch {
	case r.Status == wire.Granted:
		return nil
	case h.Ticket.state != held && h.Gone != nil:
		return h.Gone
	case h.Ticket.state != held: // What is left of it was released meanwhile, and was faster.
		return reason.ErrReleased
	}
	return l.Refuse(x, h, r)
}

// Count is how many leases of a kind are not released; of kind 0, how many of any kind.
func (h *Hold) Count(kind byte) int {
	switch kind {
	case wire.Write:
		return h.writes
	case wire.Read:
		return h.open - h.writes
	}
	return h.open
}

// Below notes that a hold is part of a hold of several names, which has a higher token. However this hold ends, the next
// holder of its name gets a token above that higher token.
func (h *Hold) Below(token uint64) { h.Ticket.used = token }
