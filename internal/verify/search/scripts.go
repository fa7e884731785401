package search

import "slices"

// The scripts, told once more and as briefly as they can be, on times in ticks.

// run lets a request take effect, and sends the reply.
func (w *world) run(q *message) {
	s, c, at := &w.s.server, int(q.client), w.noted()
	r := message{client: q.client, age: q.age, tickets: q.tickets}
	if q.how != old {
		s.eaten &^= bit(c)
	}
	overdue := w.rules.has(R7) && q.age > runTime
	switch q.kind {
	case qAsk:
		r.kind, r.mode = rAsk, tooLate
		if !overdue {
			w.runAsk(q, &r)
		}
	case qCheck:
		r.kind, r.mode = rCheck, tooLate
		if !overdue {
			w.runCheck(q, &r)
		}
	case qEnd:
		r.kind = rEnd
		w.runEnd(q, &r)
	case qRenew:
		r.kind, r.mode = rRenew, tooLate
		if !overdue {
			w.runRenew(q, &r)
		}
	case qEcho:
		w.publish(c, message{kind: pEcho, tokens: [maxSlots]uint8{s.lapses[c]}})
	case qSubscribe:
		s.subs |= bit(c)
		w.publish(c, message{kind: pSubscribed})
	case qUnsubscribe:
		w.publish(c, message{kind: pUnsubscribed})
		s.subs &^= bit(c)
	}
	if w.trace != nil { // Ahead of what the script itself has noted.
		*w.trace = slices.Insert(*w.trace, at, "the server runs "+w.told(q, &r))
	}
	if q.how != old && r.kind != noKind && w.s.clients[c].life != dead {
		w.send(r)
	}
}

func (w *world) runAsk(q, r *message) {
	s, c, x := &w.s.server, int(q.client), q.tickets[0]
	if i := s.holder(x); i >= 0 && s.holds[i].until > 0 {
		r.mode = granted
		r.grant(x, s.holds[i].token, s.holds[i].until)
		return
	}
	w.settle(c, r)
	if w.rules.has(R3Ask) {
		w.advance(c, r)
	}
	if i := s.holder(x); i >= 0 {
		r.mode = granted
		if r.grants[0] != x && r.grants[1] != x { // Not in the reply yet: advance has sent a message (R5).
			r.grant(x, s.holds[i].token, s.holds[i].until)
		}
		return
	}
	if s.queued == 0 && w.weight(x) <= w.room() {
		r.mode = granted
		token := w.own(x, leaseTime, full, 255)
		r.grant(x, token, leaseTime)
		return
	}
	arrival := q.also[0]
	if arrival == 0 {
		s.high++
		arrival = s.high
	}
	r.mode = unqueued
	switch {
	case s.suspects&bit(c) != 0:
		r.suspected = true
	case q.mode == wait:
		w.enqueue(x, arrival, q.how != old)
		r.mode = queued
	}
	if r.mode == unqueued && w.cohort(c) {
		w.excuse(x)
	}
	if i := s.rank(x); i >= 0 {
		arrival = s.queue[i].arrival
	}
	r.also[0] = arrival
}

func (w *world) runCheck(q, r *message) {
	s, c, m := &w.s.server, int(q.client), q.mode
	if m == proven {
		// Only a mark that is older than the echo.
		if q.tokens[0] == s.lapses[c] || w.rules.has(StaleProof) {
			s.suspects &^= bit(c)
		}
		m = hearing
	}
	w.settle(c, r)
	if s.suspects&bit(c) != 0 {
		r.suspected = true
		m = deaf
	}
	for k, x := range q.tickets {
		if x == 0 {
			continue
		}
		if i := s.holder(x); i >= 0 {
			r.also[k] = uint8(granted)
			if s.holds[i].phase == byMessage {
				r.also[k] = uint8(missed)
			}
			r.grant(x, s.holds[i].token, s.holds[i].until)
			continue
		}
		r.also[k] = uint8(queued)
		w.enqueue(x, q.also[k], m != deaf)
	}
	if w.rules.has(R3Check) {
		w.advance(c, r)
	}
	for k, x := range q.tickets {
		if x == 0 || r.also[k] != uint8(queued) {
			continue
		}
		switch i := s.rank(x); {
		case s.holder(x) >= 0:
			r.also[k] = uint8(granted)
		case m == deaf && i >= 0:
			w.excuse(x)
			s.dequeue(i)
			r.also[k] = uint8(gone)
		case m == deaf:
			r.also[k] = uint8(gone)
		}
	}
	r.mode = q.mode
	if s.queued == 0 {
		s.marked, s.mark = false, 0
	}
}

func (w *world) runEnd(q, r *message) {
	s, c, x := &w.s.server, int(q.client), q.tickets[0]
	// R9: out of the queue, and freed if it holds.
	frees, leaves := true, true
	if !w.rules.has(R9) {
		frees, leaves = q.mode != leave, q.mode == leave
	}
	r.mode = refused
	removed := false
	if i := s.holder(x); frees && i >= 0 && (q.tokens[0] == 0 || q.tokens[0] == s.holds[i].token) {
		s.free(i)
		r.mode = granted
	} else if i := s.rank(x); leaves && i >= 0 {
		s.dequeue(i)
		removed = true
	}
	if s.queued == 0 {
		s.marked, s.mark = false, 0
	}
	w.settle(c, r)
	if w.rules.has(R3Leave) || r.mode == granted {
		w.advance(c, r)
	}
	if r.mode == refused && !removed {
		for _, h := range s.holds {
			if h.ticket != 0 && h.ticket.client() == c && h.phase != full && r.grants[0] != h.ticket && r.grants[1] != h.ticket {
				r.grant(h.ticket, h.token, h.until)
			}
		}
	}
}

func (w *world) runRenew(q, r *message) {
	s, x := &w.s.server, q.tickets[0]
	r.mode, r.tokens[0] = refused, q.tokens[0]
	if i := s.holder(x); i >= 0 && s.holds[i].token == q.tokens[0] && s.holds[i].until > 0 {
		s.holds[i].until, s.holds[i].phase = leaseTime, full
		r.mode = granted
		r.lasts[0] = leaseTime
	}
}

// settle ends the leases that have run out. Their clients are suspects (R10).
func (w *world) settle(caller int, r *message) {
	s := &w.s.server
	for i := 0; i < maxHolds; i++ {
		h := s.holds[i]
		if h.ticket == 0 || h.until > 0 {
			continue
		}
		s.free(i)
		i--
		c := h.ticket.client()
		w.excuseMates(c)
		if h.phase == byMessage {
			s.eaten |= bit(c)
			if c == caller {
				s.eaten &^= bit(c)
			}
		}
		if !w.rules.has(R10Suspects) {
			continue
		}
		s.suspects |= bit(c)
		s.lapses[c]++
		if c == caller {
			r.suspected = true
		} else {
			w.publish(c, message{kind: pSuspect, tickets: [maxSlots]id{h.ticket}})
		}
	}
}

// enqueue puts a ticket into the queue by its arrival, or moves it there if a late ask of its own has given
// it a later one. stays says that its client is there and hears.
func (w *world) enqueue(x id, arrival uint8, stays bool) {
	s := &w.s.server
	if t := w.s.ticket(x); t != nil {
		t.placed = t.placed || stays
	}
	if i := s.rank(x); i >= 0 {
		if s.queue[i].arrival <= arrival || w.rules.has(LateArrivalStays) {
			return
		}
		s.dequeue(i)
	}
	if s.queued == maxQueue {
		w.s.over = true
		return
	}
	i := int(s.queued)
	for i > 0 && s.queue[i-1].arrival > arrival {
		s.queue[i] = s.queue[i-1]
		i--
	}
	s.queue[i] = entry{x, arrival}
	s.queued++
}

func (w *world) weight(x id) int { return w.scope.Clients[x.client()].Weight }

// room is how many permits are free.
func (w *world) room() int {
	room := w.scope.Permits
	for _, h := range w.s.server.holds {
		if h.ticket != 0 {
			room -= w.weight(h.ticket)
		}
	}
	return room
}

// own lets a ticket hold, with a token above every earlier one (I2); but readers share theirs. arrival is
// that of the ticket, for the judge.
func (w *world) own(x id, lasts uint8, p phase, arrival uint8) uint8 {
	s := &w.s.server
	n, room := 0, w.room()
	for n < maxHolds && s.holds[n].ticket != 0 {
		n++
	}
	if n == maxHolds {
		w.s.over = true
		return 0
	}
	reader := w.scope.Shared && w.weight(x) < w.scope.Permits
	if !reader || room == w.scope.Permits || s.group != s.token {
		s.token++
		if reader {
			s.group = s.token
		}
	}
	s.holds[n] = hold{x, s.token, lasts, p}
	w.judgeTurn(x, arrival)
	return s.token
}
