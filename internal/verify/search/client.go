package search

// What a client does with what it hears, and by itself: the states of a ticket as in package waitqueue.

func (w *world) ask(c, k int) {
	t := &w.s.clients[c].tickets[k]
	m := message{kind: qAsk, client: uint8(c), mode: look}
	if w.hears(c) {
		m.mode = wait
	}
	m.tickets[0], m.also[0] = idOf(c, k, t.number), t.arrival
	t.inflight++
	w.send(m)
}

// sendEnd sends the end of a ticket, as one operation or, without R9, as what its state asks for.
func (w *world) sendEnd(c, k int) {
	t := &w.s.clients[c].tickets[k]
	m := message{kind: qEnd, client: uint8(c), mode: leave}
	if t.token != 0 {
		m.mode = release
	}
	m.tickets[0] = idOf(c, k, t.number)
	t.endOut = true
	t.endAgain = t.inflight > 0 || t.ghost > 0
	w.send(m)
}

func (w *world) end(c, k int) {
	t := &w.s.clients[c].tickets[k]
	inTime := t.state != held || t.left > 0
	t.state, t.left, t.placed = ending, 0, false
	if w.rules.has(MateAsksLater) {
		w.sendEnd(c, k)
		w.lead(c, k, inTime)
		return
	}
	w.lead(c, k, inTime) // Its ask goes ahead.
	w.sendEnd(c, k)
}

// giveBack ends a grant to a ticket that is not known.
func (w *world) giveBack(x id, token uint8) {
	if token == 0 {
		w.note("  %s ends %v once more", letter(x.client()), x)
	} else {
		w.note("  %s gives %v with token %d back", letter(x.client()), x, token)
	}
	m := message{kind: qEnd, client: uint8(x.client()), mode: giveBack}
	m.tickets[0], m.tokens[0] = x, token
	w.send(m)
}

// goOn sends what a ticket owes: an ask that failed, or an end that must be repeated (R1).
func (w *world) goOn(c, k int) {
	t := &w.s.clients[c].tickets[k]
	switch {
	case t.state == asking && t.inflight == 0:
		w.ask(c, k)
	case t.state == ending && !t.endOut && t.inflight == 0 && t.ghost == 0:
		w.sendEnd(c, k)
	case t.state == confirming && !t.renewing:
		w.renew(c, k)
	}
}

func (w *world) renew(c, k int) {
	t := &w.s.clients[c].tickets[k]
	t.renewing, t.renewed = true, true
	m := message{kind: qRenew, client: uint8(c)}
	m.tickets[0], m.tokens[0] = idOf(c, k, t.number), t.token
	w.send(m)
}

// forget drops a ticket whose end is acknowledged. The next call has another number.
func (w *world) forget(c, k int) {
	t := &w.s.clients[c].tickets[k]
	*t = ticket{number: t.number, calls: t.calls, past: t.past, pastFor: t.pastFor}
	w.renumber(t)
}

func (w *world) renumber(t *ticket) {
	if t.number == maxNumber {
		w.s.over = true
		return
	}
	t.number++
}

// offer brings the notice of a grant to its ticket (R8).
func (w *world) offer(x id, token, lasts, age uint8) {
	c, k := x.client(), x.slot()
	t := w.s.ticket(x)
	if t == nil {
		w.giveBack(x, token)
		return
	}
	switch t.state {
	case held:
		if !w.rules.has(R8Held) {
			w.giveBack(x, token)
		}
		return
	case ending:
		if !w.rules.has(R8Ending) {
			w.giveBack(x, token)
		}
		return
	case confirming:
		if token <= t.token {
			return
		}
	}
	t.token, t.left = token, lasts-min(age, lasts)
	if 3*int(age) > int(lasts) {
		t.state = confirming
		if !t.renewing {
			w.renew(c, k)
		}
		return
	}
	w.hold(c, k)
}

func (w *world) hold(c, k int) {
	t := &w.s.clients[c].tickets[k]
	if t.left == 0 {
		w.giveBack(idOf(c, k, t.number), t.token)
		w.lapsed(c, k)
		return
	}
	t.state, t.renewed = held, true
	w.note("  %v holds with token %d", idOf(c, k, t.number), t.token)
	if o := w.mate(c, k); o >= 0 {
		w.s.clients[c].tickets[o].placed = w.hears(c)
	}
	w.judgeBelief(c, k)
}

// lapsed gives a ticket another number, because a grant to it ran out.
func (w *world) lapsed(c, k int) {
	t := &w.s.clients[c].tickets[k]
	if t.unsure {
		w.outlive(idOf(c, k, t.number), t.ghost)
	}
	w.renumber(t)
	t.token, t.left, t.told, t.placed, t.unsure = 0, 0, false, false, false
	t.state = waiting
	if t.arrival == 0 {
		t.state = asking
		w.goOn(c, k)
		return
	}
	w.startCheck(c)
}

// outlive sees that what has run unknown, or may still run, under a number that a ticket had before is ended
// after that (R1).
func (w *world) outlive(x id, ghost uint8) {
	t := &w.s.clients[x.client()].tickets[x.slot()]
	switch {
	case !w.rules.has(R1Repeat) || w.rules.has(LapseForgets):
	case t.past != 0 && t.past != x:
		w.s.over = true
	default:
		t.past, t.pastFor = x, max(t.pastFor, ghost)
		if t.pastFor == 0 && w.s.clients[x.client()].life == alive {
			w.giveBack(x, 0)
			t.past = 0
		}
	}
}

func (w *world) anyWaits(c int) bool {
	x := &w.s.clients[c]
	return x.tickets[0].waits() || x.tickets[1].waits()
}

// startCheck sends a check that names all that wait, now or after the one that is under way.
func (w *world) startCheck(c int) {
	x := &w.s.clients[c]
	if x.checking {
		x.again = true
		return
	}
	if !w.anyWaits(c) {
		return
	}
	m := message{kind: qCheck, client: uint8(c), mode: deaf}
	switch {
	case w.hears(c) && x.proven:
		m.mode, m.tokens[0] = proven, x.proof
	case w.hears(c):
		m.mode = hearing
	}
	for k := range x.tickets {
		if t := &x.tickets[k]; t.waits() {
			m.tickets[k], m.also[k] = idOf(c, k, t.number), t.arrival
			t.inflight++
		}
	}
	x.checking = true
	w.send(m)
}

// landed notes that a request that named tickets is over.
func (w *world) landed(m *message) {
	x := &w.s.clients[m.client]
	for _, n := range m.tickets {
		if n == 0 {
			continue
		}
		if t := &x.tickets[n.slot()]; t.inflight > 0 {
			t.inflight--
		}
	}
}

// failed takes in that a request will not be answered.
func (w *world) failed(m *message) {
	c := int(m.client)
	x := &w.s.clients[c]
	switch m.kind {
	case qAsk, rAsk, qCheck, rCheck:
		w.landed(m)
		for _, n := range m.tickets {
			if n == 0 {
				continue
			}
			ghost := runTime + 1 - min(m.age, runTime+1)
			if t := w.s.ticket(n); t != nil {
				if t.state == asking && w.cohort(c) {
					t.placed = false // It led, and was not heard.
				}
				t.ghost, t.unsure = max(t.ghost, ghost), true
			} else {
				w.outlive(n, ghost)
			}
		}
		if m.kind == qCheck || m.kind == rCheck {
			x.checking, x.again, x.looked = false, false, false
		}
	case qEnd, rEnd:
		if t := w.s.ticket(m.tickets[0]); t != nil && t.state == ending && m.mode != giveBack {
			t.endOut = false
			w.sendEnd(c, m.tickets[0].slot())
		} else if m.kind == qEnd {
			m.age = 0
			w.send(*m)
		}
	case qRenew, rRenew:
		x.tickets[m.tickets[0].slot()].renewing = false
	}
}

func (w *world) subscribe(c int) {
	x := &w.s.clients[c]
	x.want = true
	if x.sub == subNone {
		x.sub = subSent
		w.send(message{kind: qSubscribe, client: uint8(c)})
	}
}

// reconnect replaces the connection that subscribes.
func (w *world) reconnect(c int) {
	x := &w.s.clients[c]
	w.note("  %s makes a new connection to subscribe", letter(c))
	w.s.server.hurt |= bit(c) // For as long as that takes nobody can know that it lives.
	w.hangUp(c)
	x.sub, x.echo = subNone, 0
	if x.want {
		w.subscribe(c)
	}
}

// doubt treats the subscription as broken (R10).
func (w *world) doubt(c int) {
	x := &w.s.clients[c]
	if x.deaf || !w.rules.has(R10Doubt) {
		return
	}
	x.deaf, x.proven, x.proof, x.missing = true, false, 0, 0
	if x.want {
		w.reconnect(c)
	}
}

// due does what the passing of time asks of a client that runs.
func (w *world) due(c int) {
	x := &w.s.clients[c]
	for k := range x.tickets {
		t := &x.tickets[k]
		if t.state == held && t.left == 0 {
			w.note("  %v is lost: its deadline has passed", idOf(c, k, t.number))
			w.end(c, k)
		}
		if t.past != 0 && t.pastFor == 0 {
			w.giveBack(t.past, 0)
			t.past = 0
		}
		w.goOn(c, k)
	}
	if x.missing != 0 {
		x.missing = 0
		w.doubt(c)
	}
	if x.echo == 2 {
		w.reconnect(c)
	}
	if x.echo == 1 {
		x.echo = 2
	}
}

// tick lets time pass.
func (w *world) tick() {
	s := &w.s
	down := func(p *uint8) {
		if *p > 0 {
			*p--
		}
	}
	for i := range s.server.holds {
		down(&s.server.holds[i].until)
	}
	down(&s.server.mark)
	for c := range w.scope.Clients {
		x := &s.clients[c]
		x.looked = false
		for k := range x.tickets {
			t := &x.tickets[k]
			down(&t.left)
			down(&t.ghost)
			down(&t.pastFor)
			t.renewed = false
		}
	}
	w.grow()
	for c := range w.scope.Clients {
		if s.clients[c].life == alive {
			w.due(c)
		}
	}
}

// grow lets what is under way grow older. What a client waits for too long ends the connection. A request
// of an earlier connection that nobody will hear of again is forgotten when it is too late to have an effect.
func (w *world) grow() {
	s := &w.s
	for i := int(s.sent) - 1; i >= 0; i-- {
		m := &s.net[i]
		m.age = min(m.age+1, maxAge)
		if m.how == old && m.age > runTime && w.rules.has(R7) && m.kind.request() {
			w.take(i)
		}
	}
	for c := range w.scope.Clients {
		if s.clients[c].life != alive {
			continue
		}
		for _, l := range []link{commands, side} {
			if w.overdue(c, l) {
				w.note("  %s gives up its %v connection; what was on it may still run", letter(c), l)
				w.cut(c, l, true)
			}
		}
	}
}

func (w *world) overdue(c int, l link) bool {
	for i := range w.s.net[:w.s.sent] {
		if m := &w.s.net[i]; int(m.client) == c && m.kind.link() == l && m.how != old && m.age >= patience {
			return true
		}
	}
	return false
}
