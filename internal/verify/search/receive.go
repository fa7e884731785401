package search

// receive lets a client take in a reply or what its subscription brings.
func (w *world) receive(m *message) {
	c := int(m.client)
	x := &w.s.clients[c]
	if w.trace != nil {
		w.note("%s receives %v", letter(c), w.heard(m))
	}
	if m.how == old && w.rules.has(R2Connection) {
		return
	}
	switch m.kind {
	case rAsk:
		w.asked(m)
	case rCheck:
		w.checked(m)
	case rEnd:
		w.ended(m)
	case rRenew:
		w.renewed(m)
	case pSubscribed:
		w.subscribed(c)
	case pUnsubscribed:
		if x.sub == subLeaving {
			x.sub = subNone
			if x.want {
				w.subscribe(c)
			}
		}
	case pGrant:
		w.news(m.grants[0])
		w.offer(m.grants[0], m.tokens[0], m.lasts[0], m.age)
	case pSuspect:
		w.suspected(c, m.tickets[0])
	case pEcho:
		if x.echo != 0 {
			x.echo, x.deaf, x.proven, x.proof = 0, false, true, m.tokens[0]
			w.startCheck(c)
		}
	case pGone:
		w.hangUp(c)
		x.sub, x.echo = subNone, 0
		if x.want {
			w.subscribe(c)
		}
	}
}

// absorb takes in the grants of a reply, and whether the client is a suspect. Those in the reply to a check
// may be old ones, of which it is not known yet whether they were missed.
func (w *world) absorb(m *message, check bool) {
	for i, x := range m.grants {
		if x == 0 {
			continue
		}
		if !check {
			w.news(x)
		}
		w.offer(x, m.tokens[i], m.lasts[i], m.age)
	}
	if m.suspected {
		w.doubt(int(m.client))
	}
}

// news notes that the news of one grant came as it should.
func (w *world) news(x id) {
	if t := w.s.ticket(x); t != nil {
		t.told = true
	}
	if c := &w.s.clients[x.client()]; c.missing == x {
		c.missing = 0
	}
}

func (w *world) asked(m *message) {
	c, n := int(m.client), m.tickets[0]
	x := &w.s.clients[c]
	w.landed(m)
	t := w.s.ticket(n)
	if t != nil && t.state == asking && (m.mode == queued || m.mode == unqueued) {
		t.state = waiting
		if m.mode == unqueued {
			t.state = subscribing
		}
	}
	if t != nil && t.arrival == 0 {
		t.arrival = m.also[0]
	}
	w.absorb(m, false)
	w.goOn(c, n.slot())
	if m.mode != unqueued {
		return
	}
	if !x.want {
		w.subscribe(c)
	} else if w.hears(c) {
		w.startCheck(c) // The confirmation came between the question and its answer.
	}
}

func (w *world) checked(m *message) {
	c := int(m.client)
	x := &w.s.clients[c]
	x.checking = false
	w.absorb(m, true)
	w.landed(m)
	for k, n := range m.tickets {
		t := w.s.ticket(n)
		if n == 0 || t == nil {
			continue
		}
		switch mode(m.also[k]) {
		case granted:
			t.told = true
		case missed:
			if m.mode != deaf && x.sub == subConfirmed && !t.told {
				x.missing = n
			}
		case queued:
			if t.waits() {
				t.state = waiting
			}
		case gone:
			if t.waits() {
				t.state = subscribing
			}
		}
		w.goOn(c, k)
	}
	if m.mode == proven {
		x.proven, x.proof = false, 0
	}
	if x.again || m.mode == tooLate {
		x.again = false
		w.startCheck(c)
	}
}

// ended takes in that an end was acknowledged. It is repeated when something may still come after it (R1).
func (w *world) ended(m *message) {
	w.absorb(m, false)
	n := m.tickets[0]
	t := w.s.ticket(n)
	if t == nil || t.state != ending {
		return
	}
	t.endOut = false
	if w.rules.has(EndWhenAnswered) {
		t.endAgain = t.inflight > 0 || t.ghost > 0
	}
	if t.endAgain && w.rules.has(R1Repeat) {
		w.goOn(int(m.client), n.slot())
		return
	}
	w.forget(int(m.client), n.slot())
}

func (w *world) renewed(m *message) {
	c, k := int(m.client), m.tickets[0].slot()
	t := w.s.ticket(m.tickets[0])
	if t == nil || t.token != m.tokens[0] {
		// It was about a grant that is over, or an earlier one of the same ticket.
		if t != nil {
			t.renewing = false
			w.goOn(c, k)
		}
		return
	}
	t.renewing = false
	left := m.lasts[0] - min(m.age, m.lasts[0])
	switch {
	case t.state == confirming && m.mode == granted:
		t.left = left
		w.hold(c, k)
	case t.state == confirming && m.mode == refused:
		w.lapsed(c, k)
	case t.state == held && m.mode == granted:
		if t.left > 0 {
			t.left = max(t.left, left)
		}
	case t.state == held && m.mode == refused:
		w.note("  %v is lost: the server says so", m.tickets[0])
		w.end(c, k)
	}
	w.goOn(c, k)
}

func (w *world) subscribed(c int) {
	x := &w.s.clients[c]
	if w.rules.has(R2Connection) && x.sub != subSent {
		return
	}
	x.sub = subConfirmed
	switch {
	case !x.want:
		x.sub = subLeaving
		w.send(message{kind: qUnsubscribe, client: uint8(c)})
	case x.deaf:
		x.echo = 1
		w.send(message{kind: qEcho, client: uint8(c)})
	default:
		w.startCheck(c)
	}
}

// suspected takes in that a lease of this client ran out.
func (w *world) suspected(c int, n id) {
	if t := w.s.ticket(n); t != nil {
		switch {
		case t.state == held && !t.renewing:
			w.renew(c, n.slot())
		case t.waits():
			w.lapsed(c, n.slot())
		}
	}
	w.doubt(c)
	w.startCheck(c)
}
