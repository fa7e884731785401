package console

import (
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	// mostHolds is how many holds of a name are kept.
	mostHolds = 200
	// toldHolders is how many holders a look tells: of more it is not known which have ended.
	toldHolders = 100
	// slack is how far two messages of a server may be off, by the time they take.
	slack = 20 * time.Millisecond
	// drawnOver is the time that a timeline shows at most.
	drawnOver = time.Minute
)

// history is the last holds of a name, as messages and looks have told them.
type history struct {
	exclusive bool // one holds at a time, so the next hold ends the last
	holds     []hold
	full      bool // some were dropped
}

// hold is from when until when a ticket has held.
type hold struct {
	ticket string
	token  uint64
	from   time.Time
	to     time.Time // zero: it holds
	until  time.Time // when its lease ends, as the last look has seen it; zero: none has
	lapsed bool      // its lease ran out
}

// end notes when a hold has ended. One that lasted as long as its lease was not released.
func (o *hold) end(at time.Time) {
	o.to = at
	o.lapsed = o.lapsed || !o.until.IsZero() && at.Add(slack).After(o.until)
}

// begin notes a hold, if it is not known yet.
func (h *history) begin(ticket string, token uint64, from time.Time) {
	if slices.ContainsFunc(h.holds, func(o hold) bool { return o.ticket == ticket && o.token == token }) {
		return
	}
	next := hold{ticket: ticket, token: token, from: from}
	if h.exclusive {
		for i := range h.holds {
			o := &h.holds[i]
			if o.token < token && o.to.IsZero() {
				o.end(from)
			}
			if o.token > token && (next.to.IsZero() || o.from.Before(next.to)) {
				next.to = o.from // A look has seen it late.
			}
		}
	}
	h.holds = append(h.holds, next)
	if more := len(h.holds) - mostHolds; more > 0 {
		h.holds, h.full = slices.Delete(h.holds, 0, more), true
	}
}

// recall notes a hold of the past, if it is not known yet.
func (h *history) recall(e inspect.Ended) {
	h.begin(e.Ticket, e.Token, e.Since)
	for i := range h.holds {
		if o := &h.holds[i]; o.ticket == e.Ticket && o.token == e.Token {
			o.to, o.lapsed = e.Until, e.How == "expired"
		}
	}
}

// see takes in a look that began at a time: what it does not tell has ended by then.
func (h *history) see(info lease.Info, begun time.Time) {
	type key struct {
		ticket string
		token  uint64
	}
	held := make(map[key]lease.Holder, len(info.Holders))
	for _, o := range info.Holders {
		held[key{o.Ticket, o.Token}] = o
		h.begin(o.Ticket, o.Token, o.Since)
	}
	for i := range h.holds {
		o := &h.holds[i]
		if o.to.IsZero() {
			now, holds := held[key{o.ticket, o.token}]
			switch {
			case holds:
				o.until = begun.Add(now.Left)
				o.lapsed = o.lapsed || now.Left <= 0
			case o.from.Before(begun) && len(info.Holders) < toldHolders:
				o.end(begun)
			}
		}
	}
}

// drawn is the time that a timeline shows: from when on the holds are known.
func (h *history) drawn(began, now time.Time) time.Time {
	from := now.Add(-drawnOver)
	if began.After(from) {
		from = began
	}
	if h.full && h.holds[0].from.After(from) {
		from = h.holds[0].from
	}
	return from
}
