package search

// The network: a command connection, one for renewals and one for subscriptions for each client. What is
// under way on one direction of a connection, a lane, arrives in order (R1).

type kind uint8

const (
	noKind kind = iota
	qAsk
	qCheck
	qEnd
	qEcho
	qRenew
	qSubscribe
	qUnsubscribe
	rAsk
	rCheck
	rEnd
	rRenew
	pSubscribed
	pUnsubscribed
	pGrant
	pSuspect
	pEcho
	pGone // the connection that subscribes is cut
)

func (k kind) request() bool { return k < rAsk }

type link uint8

const (
	commands link = iota
	side
	listener
)

func (k kind) link() link {
	switch k {
	case qRenew, rRenew:
		return side
	case qSubscribe, qUnsubscribe, pSubscribed, pUnsubscribed, pGrant, pSuspect, pEcho, pGone:
		return listener
	default:
		return commands
	}
}

type how uint8

const (
	prompt how = iota // arrives before anything else happens, unless it is held up
	late              // arrives at any time
	old               // on a connection that its client has given up
)

// How a request is meant, or what a reply says.
type mode uint8

const (
	look mode = iota // of an ask: the client cannot hear
	wait
	hearing // of a check
	proven
	deaf
	release // of an end; without R9 they differ
	leave
	giveBack
	granted // of a reply
	queued
	unqueued
	refused
	tooLate
	missed // of one ticket in the reply to a check
	gone
)

// A message is a request, a reply to one, or what is pushed to a subscriber.
type message struct {
	kind      kind
	client    uint8
	how       how
	age       uint8 // since the request was sent, or the message pushed
	mode      mode
	suspected bool
	tickets   [maxSlots]id
	also      [maxSlots]uint8 // arrivals in a request, a mode each in a reply
	grants    [maxSlots]id
	tokens    [maxSlots]uint8 // of the grants; of an end or a renewal, the one it is about
	lasts     [maxSlots]uint8
}

// lane orders what is under way.
func (m *message) lane() int {
	l := int(m.client)<<4 | int(m.kind.link())<<2
	if !m.kind.request() {
		l |= 2
	}
	if m.how == old {
		l |= 1
	}
	return l
}

// grant adds a grant to a reply.
func (m *message) grant(x id, token, lasts uint8) {
	i := 0
	if m.grants[0] != 0 {
		i = 1
	}
	m.grants[i], m.tokens[i], m.lasts[i] = x, token, lasts
}

// tells reports whether a message tells of a grant to a ticket, or the server of its end.
func (m *message) tells(x id) bool {
	return m.kind == qEnd && m.tickets[0] == x || m.grants[0] == x || m.grants[1] == x
}

// send puts a message under way.
func (w *world) send(m message) {
	s := &w.s
	if s.sent == maxNet {
		s.over = true
		return
	}
	if w.scope.Async && m.how == prompt {
		m.how = late
	}
	i, l := int(s.sent), m.lane()
	for i > 0 && s.net[i-1].lane() > l {
		s.net[i] = s.net[i-1]
		i--
	}
	s.net[i] = m
	s.sent++
}

// take removes a message.
func (w *world) take(i int) message {
	s := &w.s
	m := s.net[i]
	copy(s.net[i:s.sent], s.net[i+1:s.sent])
	s.sent--
	s.net[s.sent] = message{}
	return m
}

// arrives reports whether a message can arrive: its receiver runs, and nothing is ahead of it.
func (w *world) arrives(i int) bool {
	s := &w.s
	m := &s.net[i]
	if !m.kind.request() && s.clients[m.client].life == stopped {
		return false
	}
	if m.how == old || !w.rules.has(R1Order) && m.kind.link() == commands {
		return true
	}
	return i == 0 || s.net[i-1].lane() != m.lane()
}

// deliver lets a message arrive.
func (w *world) deliver(i int) {
	m := w.take(i)
	if m.kind.request() {
		w.run(&m)
	} else {
		w.receive(&m)
	}
}

// cut ends a connection of a client, which notices at once. What was under way to the server may still
// run, if ghosts is set; nothing else arrives.
func (w *world) cut(c int, l link, ghosts bool) {
	s := &w.s
	var failed [maxNet]message
	n := 0
	for i := int(s.sent) - 1; i >= 0; i-- {
		m := &s.net[i]
		if int(m.client) == c && m.how != old && m.kind.link() == l {
			failed[n] = w.take(i)
			n++
		}
	}
	for i := n - 1; i >= 0; i-- {
		m := failed[i]
		switch m.kind {
		case qAsk, qCheck, qRenew:
			if ghosts {
				m.how = old
				w.send(m)
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		w.failed(&failed[i])
	}
	for k := range s.clients[c].tickets {
		w.goOn(c, k)
	}
}

// publish sends a message to the subscriber that a client has, if it can come through.
func (w *world) publish(c int, m message) {
	if w.s.server.subs&bit(c) != 0 && !w.s.clients[c].half {
		m.client = uint8(c)
		w.send(m)
	}
}

// counted is what PUBSUB NUMSUB says of the channel of a client: nothing of a subscriber at a replica.
func (w *world) counted(c int) bool {
	subs := w.s.server.subs
	if w.scope.Replica == c+1 {
		subs &^= bit(c)
	}
	return (subs|w.s.server.zombies)&bit(c) != 0
}

// hangUp ends the connection that subscribes: the server notices, unless it was half-open.
func (w *world) hangUp(c int) {
	s, x := &w.s, &w.s.clients[c]
	if x.half && s.server.subs&bit(c) != 0 {
		s.server.zombies |= bit(c)
	}
	s.server.subs &^= bit(c)
	x.half = false
	for i := int(s.sent) - 1; i >= 0; i-- {
		m := &s.net[i]
		if int(m.client) != c || m.kind.link() != listener || m.how == old {
			continue
		}
		gone := w.take(i)
		// R2: what an earlier connection brings does not count.
		if !w.rules.has(R2Connection) && !gone.kind.request() && gone.kind != pGone {
			gone.how = old
			w.send(gone)
		}
	}
}
