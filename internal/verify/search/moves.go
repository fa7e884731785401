package search

// A move is one step: something a client does, a message that arrives, the passing of time, or a fault.
type move struct{ what, a, b uint8 }

const (
	mArrive uint8 = iota
	mHold         // a message is held up
	mCall
	mRelease
	mCancel
	mRenew
	mCheck
	mDrop // a client that waits for nothing ends its subscription
	mTick
	mContinue
	// Faults.
	mLose // a message that was pushed is lost
	mCut
	mCutLate // and what was under way may still run
	mDie
	mStop
	mHalf // the connection that subscribes is half-open from here on
	mKill // the server ends the subscriptions of one client
	mKillAll
)

// moves appends what can happen next.
func (w *world) moves(to []move) []move {
	s, start := &w.s, len(to)
	if s.over {
		return to
	}
	for i := range s.net[:s.sent] {
		if m := &s.net[i]; m.how == prompt && w.arrives(i) {
			to = append(to, move{what: mArrive, a: uint8(i)})
			if s.left.late > 0 {
				to = append(to, move{what: mHold, a: uint8(i)})
			}
			to = w.faultsOf(to, i)
		}
	}
	if len(to) > start {
		return to // It arrives before anything else happens.
	}
	for i := range s.net[:s.sent] {
		if w.arrives(i) {
			to = append(to, move{what: mArrive, a: uint8(i)})
		}
		to = w.faultsOf(to, i)
	}
	for c := range w.scope.Clients {
		switch s.clients[c].life {
		case alive:
			to = w.movesOf(to, c)
		case stopped:
			to = append(to, move{what: mContinue, a: uint8(c)})
		}
	}
	to = append(to, move{what: mTick})
	if s.left.faults > 0 && s.server.subs&(s.server.subs-1) != 0 {
		to = append(to, move{what: mKillAll})
	}
	return to
}

// faultsOf are the faults that concern one message.
func (w *world) faultsOf(to []move, i int) []move {
	s := &w.s
	m := &s.net[i]
	if s.left.faults == 0 || m.how == old {
		return to
	}
	switch m.kind {
	case pGrant, pSuspect, pEcho:
		return append(to, move{what: mLose, a: uint8(i)})
	case pSubscribed, pUnsubscribed, pGone, qSubscribe, qUnsubscribe:
		return to
	}
	if !w.first(i) {
		return to
	}
	to = append(to, move{mCut, m.client, uint8(m.kind.link())})
	if m.kind.request() {
		to = append(to, move{mCutLate, m.client, uint8(m.kind.link())})
	}
	return to
}

// first reports whether a message is the first of those that a cut of its connection would concern.
func (w *world) first(i int) bool {
	m := &w.s.net[i]
	for j := range i {
		o := &w.s.net[j]
		if o.client == m.client && o.kind.link() == m.kind.link() && o.how != old {
			return false
		}
	}
	return true
}

// movesOf are the moves of a client that runs.
func (w *world) movesOf(to []move, c int) []move {
	s := &w.s
	x := &s.clients[c]
	idle := true
	for k := range x.tickets {
		t := &x.tickets[k]
		at := func(what uint8) { to = append(to, move{what, uint8(c), uint8(k)}) }
		idle = idle && t.state == none
		switch t.state {
		case none:
			if t.calls > 0 && (k == 0 || x.tickets[k-1].state != none) && w.inOrder(c) {
				at(mCall)
			}
		case held:
			at(mRelease)
			if !t.renewing && !t.renewed {
				at(mRenew)
			}
		case asking, subscribing, waiting, confirming, mating:
			if s.left.cancels > 0 {
				at(mCancel)
			}
		}
	}
	if w.anyWaits(c) && !x.checking && !x.looked {
		to = append(to, move{what: mCheck, a: uint8(c)})
	}
	if idle && x.sub == subConfirmed && x.want && s.left.drops > 0 {
		to = append(to, move{what: mDrop, a: uint8(c)})
	}
	if s.left.faults == 0 {
		return to
	}
	to = append(to, move{what: mDie, a: uint8(c)})
	if !idle {
		to = append(to, move{what: mStop, a: uint8(c)})
	}
	if s.server.subs&bit(c) != 0 && !x.half {
		to = append(to, move{what: mHalf, a: uint8(c)}, move{what: mKill, a: uint8(c)})
	}
	return to
}

// inOrder keeps clients that are alike from calling first in every order.
func (w *world) inOrder(c int) bool {
	if c == 0 || w.scope.Clients[c] != w.scope.Clients[c-1] || w.scope.Replica == c || w.scope.Replica == c+1 {
		return true
	}
	before := &w.s.clients[c-1]
	return before.life == dead || before.tickets[0].calls < uint8(w.scope.Clients[c-1].Calls)
}

// do makes a move.
func (w *world) do(m move) {
	s, c := &w.s, int(m.a)
	switch m.what {
	case mArrive:
		w.deliver(c)
	case mHold:
		s.left.late--
		held := w.take(c)
		w.note("held up: %v", w.name(&held))
		held.how = late
		w.putBack(c, held)
	case mCall:
		t := &s.clients[c].tickets[m.b]
		t.calls--
		if w.leader(c, int(m.b)) >= 0 {
			w.note("%s has a mate", letter(c))
			w.join(c, int(m.b))
			break
		}
		t.state = asking
		w.note("%v asks", idOf(c, int(m.b), t.number))
		w.ask(c, int(m.b))
	case mRelease:
		w.note("%v releases", idOf(c, int(m.b), s.clients[c].tickets[m.b].number))
		if !w.pass(c, int(m.b)) {
			w.end(c, int(m.b))
		}
	case mCancel:
		s.left.cancels--
		w.note("%v gives up", idOf(c, int(m.b), s.clients[c].tickets[m.b].number))
		if s.clients[c].tickets[m.b].state == mating {
			w.leaves(c, int(m.b))
			break
		}
		w.end(c, int(m.b))
	case mRenew:
		w.note("%v is renewed", idOf(c, int(m.b), s.clients[c].tickets[m.b].number))
		w.renew(c, int(m.b))
	case mCheck:
		w.note("%s checks", letter(c))
		s.clients[c].looked = true
		w.startCheck(c)
	case mDrop:
		s.left.drops--
		w.note("%s ends its subscription", letter(c))
		x := &s.clients[c]
		x.want, x.deaf, x.proven, x.proof, x.echo, x.missing = false, false, false, 0, 0, 0
		x.sub = subLeaving
		w.send(message{kind: qUnsubscribe, client: m.a})
	case mTick:
		w.note("a tick passes")
		w.tick()
	case mContinue:
		w.note("%s is continued", letter(c))
		s.clients[c].life = alive
		w.due(c)
	default:
		w.fault(m)
	}
	w.judge()
}

// putBack puts a message where it was.
func (w *world) putBack(i int, m message) {
	s := &w.s
	copy(s.net[i+1:s.sent+1], s.net[i:s.sent])
	s.net[i] = m
	s.sent++
}

// fault makes a move that harms.
func (w *world) fault(m move) {
	s, c := &w.s, int(m.a)
	s.left.faults--
	switch m.what {
	case mLose:
		lost := w.take(c)
		w.note("lost: %v", w.name(&lost))
		s.server.hurt |= bit(int(lost.client))
	case mCut:
		w.note("%s loses its %v connection, and what was on it", letter(c), link(m.b))
		w.cut(c, link(m.b), false)
	case mCutLate:
		w.note("%s gives up its %v connection; what was on it may still run", letter(c), link(m.b))
		w.cut(c, link(m.b), true)
	case mDie:
		w.note("%s dies", letter(c))
		w.die(c)
	case mStop:
		w.note("%s is stopped", letter(c))
		s.clients[c].life = stopped
		s.server.hurt |= bit(c)
	case mHalf:
		w.note("%s hears nothing any more, and does not know", letter(c))
		s.server.hurt |= bit(c)
		w.half(c)
	case mKill:
		w.note("the server cuts the subscription of %s", letter(c))
		w.kill(c, prompt)
	case mKillAll:
		w.note("the server cuts all subscriptions")
		for c := range w.scope.Clients {
			w.kill(c, late) // Each notices in its own time.
		}
	}
}

func (w *world) die(c int) {
	s := &w.s
	w.hangUp(c)
	for i := int(s.sent) - 1; i >= 0; i-- {
		if m := s.net[i]; int(m.client) == c && m.how != old {
			m = w.take(i)
			if m.kind.request() && m.kind.link() != listener && m.kind != qEcho {
				m.how = old
				w.send(m)
			}
		}
	}
	s.server.hurt |= bit(c)
	s.clients[c] = client{life: dead}
}

func (w *world) half(c int) {
	s := &w.s
	s.clients[c].half = true
	for i := int(s.sent) - 1; i >= 0; i-- {
		if m := &s.net[i]; int(m.client) == c && m.kind.link() == listener && m.how != old {
			w.take(i)
		}
	}
}

// kill ends the subscription of a client, which notices promptly or late.
func (w *world) kill(c int, noticed how) {
	s := &w.s
	if s.server.subs&bit(c) == 0 {
		return
	}
	s.server.hurt |= bit(c)
	w.publish(c, message{kind: pGone, how: noticed})
	s.server.subs &^= bit(c)
}
