package search

import "fmt"

// A Kind is what went wrong.
type Kind uint8

// The kinds of violations.
const (
	Nothing   Kind = iota
	Believers      // more may work at a time than there are permits for, by their own clocks
	Token          // a token is not above those of holders before
	Phantom        // a full lease runs of which no process knows
	Overtaken      // a ticket is granted ahead of one that came before, waits, and did nothing to lose its turn
	Eats           // a client that says nothing lets a second grant lapse
	Stranded       // without further faults, somebody alive does not get in
	Ghost          // and when all have left, a ticket of one of them is in the queue
)

func (k Kind) String() string {
	return [...]string{
		"nothing", "two believers", "token not above", "phantom holder", "overtaken", "second lapse", "stranded", "ghost in the queue",
	}[k]
}

func (w *world) fail(k Kind, format string, args ...any) {
	if w.kind == Nothing && (!w.resting || k >= Stranded) {
		w.kind, w.why = k, format
		if w.trace != nil {
			w.why = fmt.Sprintf(format, args...)
		}
	}
}

// judge looks at a state after a move.
func (w *world) judge() {
	s := &w.s
	weight := 0
	for c := range w.scope.Clients {
		if s.clients[c].life == dead {
			continue
		}
		for k := range s.clients[c].tickets {
			if s.clients[c].tickets[k].believes() {
				weight += w.scope.Clients[c].Weight
			}
		}
	}
	if weight > w.scope.Permits {
		if w.kind == Token {
			w.kind = Nothing // It is the smaller part of this.
		}
		w.fail(Believers, "%d permits are in use of %d", weight, w.scope.Permits)
	}
	for _, h := range s.server.holds {
		if h.phase != full || h.ticket == 0 || h.until == 0 {
			continue
		}
		c := h.ticket.client()
		past := s.clients[c].tickets[h.ticket.slot()].past
		if s.clients[c].life == alive && s.ticket(h.ticket) == nil && past != h.ticket && !w.underWay(h.ticket) {
			w.fail(Phantom, "%v holds for %d more ticks, and %s has forgotten it", h.ticket, h.until, letter(c))
		}
	}
}

// underWay reports whether a message will tell the client of the ticket, or the server that it ended.
func (w *world) underWay(x id) bool {
	for i := range w.s.net[:w.s.sent] {
		m := &w.s.net[i]
		if m.how != old && m.tells(x) {
			return true
		}
	}
	return false
}

// judgeTurn looks at a grant at the moment at which it is made.
func (w *world) judgeTurn(x id, arrival uint8) {
	s := &w.s
	w.excuse(x)
	for c := range w.scope.Clients {
		if s.clients[c].life != alive {
			continue
		}
		for k := range s.clients[c].tickets {
			t := &s.clients[c].tickets[k]
			other := idOf(c, k, t.number)
			mates := c != x.client() && (t.state == mating || t.state == asking && t.arrival != 0 && w.cohort(c))
			if t.placed && (t.waits() || mates) && t.arrival < arrival && s.server.holder(other) < 0 {
				w.fail(Overtaken, "%v is granted, although %v came before it, lives, and kept to the rules", x, other)
			}
		}
	}
}

// judgeBelief looks at a ticket at the moment at which it holds, as its client sees it.
func (w *world) judgeBelief(c, k int) {
	s, t := &w.s.server, &w.s.clients[c].tickets[k]
	if !w.scope.Shared && w.scope.Permits > 1 {
		return // The tokens of a semaphore are no order.
	}
	if w.scope.Clients[c].Weight < w.scope.Permits {
		if t.token <= s.writer {
			w.fail(Token, "%v has token %d, and a writer with %d came before it", idOf(c, k, t.number), t.token, s.writer)
		}
		s.believed = max(s.believed, t.token)
		return
	}
	if highest := max(s.writer, s.believed); t.token <= highest {
		w.fail(Token, "%v has token %d, and a holder with %d came before it", idOf(c, k, t.number), t.token, highest)
	}
	s.writer = max(s.writer, t.token)
}
