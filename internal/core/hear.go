package core

// What a client does about the subscription of a name (R10).

// OnSubscribed takes in that the subscription stands: see [Name.Heard].
func (l *Lock) OnSubscribed(x *Input, channels int, nonce string) {
	for _, t := range l.tickets.All() {
		t.rejoined = false
		if t.state == idling {
			x.do(Wake, &t.Call) // It waits for the subscription before it asks.
		}
	}
	l.wishAgain(x)
	l.all = l.Heard(x, channels, nonce) || l.all
}

// OnUnsubscribed takes in that the subscription is gone. The caller makes it again.
func (l *Lock) OnUnsubscribed(x *Input) {
	l.Drop()
	l.pollUnheard(x)
}

// pollUnheard has a client that is not subscribed poll soon.
func (l *Lock) pollUnheard(x *Input) {
	if at := UnheardSoon(x); l.AnyWaits() {
		l.CheckAt(x, at)
	}
}

// OnSubscribeRefused takes in that the server refuses the subscription for good. The waits go on by their own checks, and say
// why if they end.
func (l *Lock) OnSubscribeRefused(err error) {
	for _, t := range l.tickets.All() {
		if t.Waits() {
			t.Deafness = err
		}
	}
}

// OnPing takes in a ping of the client to itself.
func (l *Lock) OnPing(x *Input, nonce string) {
	if l.Verify(nonce) {
		l.all = true
		l.Poll(x)
	}
}

// suspect treats the subscription as broken: see [Name.Distrust].
func (l *Lock) suspect(x *Input) {
	if l.Distrust(x) {
		l.pollUnheard(x)
	}
}

// dropped takes in that a ticket was not in the queue any more, though the subscription stands. Once that is a server that has
// forgotten it. When it is so again, and no subscription was confirmed in between, the server that is asked may count none: it is
// another one, which was the master before, or the connection died and nobody has noticed.
func (l *Lock) dropped(x *Input, t *Ticket) {
	if t.rejoined {
		l.suspect(x)
	}
	t.rejoined = !t.rejoined
}

// OnSuspected takes in that a lease of this client ran out: of a grant that it did not take, or of a hold.
func (l *Lock) OnSuspected(x *Input, ticket string) {
	x.Add(Effect{Do: Suspected})
	if t := l.tickets.Find(ticket); t != nil {
		switch {
		case t.Hold != nil:
			l.hurry(x, t.Hold)
		case t.Waits():
			l.expire(x, t, waiting)
		}
	}
	l.suspect(x)
	l.CheckAt(x, x.Now)
}

// OnForced takes in that a hold was released by force.
func (l *Lock) OnForced(x *Input, ticket string) {
	if t := l.tickets.Find(ticket); t != nil {
		t.forced = true
		if t.Hold != nil {
			l.hurry(x, t.Hold)
		}
	}
}
