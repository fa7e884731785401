package search

type verdict uint8

const (
	heard verdict = iota
	calling
	silent
	suspect
)

// verdict tells of a client whether it can be granted.
func (w *world) verdict(c, caller int) verdict {
	switch {
	case c == caller && w.rules.has(R5):
		return calling
	case w.s.server.suspects&bit(c) != 0:
		return suspect
	case !w.rules.has(R4) || w.counted(c):
		return heard
	}
	return silent
}

// A pass is one way through the queue from its head.
type pass struct {
	met    bool // a head that ends it
	alive  bool // a head that can be granted
	heard  bool // one of another client than the caller
	silent uint8
	gone   int // entries that leave the queue
	rank   int
	grants [maxQueue]bool
	room   int
}

// advance serves the queue while something is free (R3).
func (w *world) advance(caller int, r *message) {
	s := &w.s.server
	p := pass{room: w.room()}
	if p.room <= 0 {
		return
	}
	w.scan(&p, caller)
	if !p.alive {
		// R6: if several are silent and nobody is heard, it is not they who are gone.
		several := p.silent&(p.silent-1) != 0
		if several && w.rules.has(R6) {
			if !s.marked {
				s.marked, s.mark = true, grantTime
			}
			if s.mark > 0 {
				return
			}
		}
		w.drop(p.rank, &p, several && (!s.marked || s.mark > 0))
		s.marked, s.mark = false, 0
		return
	}
	if !p.met && (p.heard || p.silent&(p.silent-1) == 0) {
		p.gone = p.rank
	}
	s.marked, s.mark = false, 0
	var heads [maxQueue]entry
	n := 0
	for i := range p.gone {
		if p.grants[i] {
			heads[n] = s.queue[i]
			n++
		}
	}
	w.drop(p.gone, &p, false)
	for _, e := range heads[:n] {
		w.serve(e, caller, r)
	}
}

// scan looks at the heads as long as they are dead, or fit.
func (w *world) scan(p *pass, caller int) {
	s := &w.s.server
	for ; p.rank < int(s.queued); p.rank++ {
		e := s.queue[p.rank]
		c := e.ticket.client()
		v := w.verdict(c, caller)
		fits := w.weight(e.ticket) <= p.room
		if v == heard && !w.rules.has(R4) && fits && !w.counted(c) {
			// Granted and told before anything was asked, and undone because PUBLISH counted nobody.
			s.token++
			w.publish(c, w.notice(e.ticket, s.token))
			v = silent
		}
		switch v {
		case silent:
			p.silent |= bit(c)
			continue
		case suspect:
			continue
		case heard:
			p.heard = p.heard || c != caller
		}
		p.alive, p.gone = true, p.rank
		if !fits {
			p.met = true
			return
		}
		p.grants[p.rank] = true
		p.gone = p.rank + 1
		p.room -= w.weight(e.ticket)
		if p.room <= 0 {
			p.met = true
			p.rank++
			return
		}
	}
}

// drop removes the first n entries. unfair says that those who are not granted have done nothing to lose
// their turn.
func (w *world) drop(n int, p *pass, unfair bool) {
	s := &w.s.server
	for i := range n {
		c := s.queue[i].ticket.client()
		harmed := s.hurt&bit(c) != 0 || s.suspects&bit(c) != 0
		if p.grants[i] || harmed && !unfair {
			w.excuse(s.queue[i].ticket)
		}
		if !p.grants[i] {
			w.note("  %v is dropped from the queue", s.queue[i].ticket)
		}
	}
	for range n {
		s.dequeue(0)
	}
}

// excuse notes that a ticket need not be served in turn.
func (w *world) excuse(x id) {
	if t := w.s.ticket(x); t != nil {
		t.placed = false
	}
}

// serve grants the lock to a head, in the reply to its own client (R5), else by message.
func (w *world) serve(e entry, caller int, r *message) {
	s, c := &w.s.server, e.ticket.client()
	if c == caller && w.rules.has(R5) {
		token := w.own(e.ticket, grantTime, byReply, e.arrival)
		r.grant(e.ticket, token, grantTime)
		return
	}
	token := w.own(e.ticket, grantTime, byMessage, e.arrival)
	w.note("  %v is granted by message, token %d", e.ticket, token)
	if x := &w.s.clients[c]; s.eaten&bit(c) != 0 && (x.life != alive || x.half) {
		w.fail(Eats, "%s let a grant lapse, has said nothing since, and %v is granted", letter(c), e.ticket)
	}
	w.publish(c, w.notice(e.ticket, token))
}

func (w *world) notice(x id, token uint8) message {
	return message{kind: pGrant, grants: [maxSlots]id{x}, tokens: [maxSlots]uint8{token}, lasts: [maxSlots]uint8{grantTime}}
}
