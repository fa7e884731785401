package core

import (
	"cmp"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// Every state that waits has a timer that ends in a check (I5). One check names the oldest tickets of its name, queues again
// what the server does not know, and serves the queue.

const (
	// checkBatch is how many tickets one check names.
	checkBatch = 100
	// checkFirst is how long after an acquire request a client polls at the latest. The reply to the request tells how
	// many tickets wait; only the reply to a check tells how many clients.
	checkFirst = 10 * time.Second
	// soonEnough is how much later than the check that found its grant a message may come without counting as lost.
	soonEnough = 250 * time.Millisecond
)

// checkIn sets a check after a time, if a ticket waits for one.
func (l *Lock) checkIn(x *Input, d time.Duration) {
	if l.AnyWaits() {
		l.CheckAt(x, x.Now.Add(d))
	}
}

// await makes sure that the client is subscribed, and that a check is scheduled, after a ticket was told to wait. The flag says
// that the ticket has no place in the queue, because its client is not known to be subscribed. Only this ticket counts: the
// checks of the others were scheduled after their own replies, and there may be thousands.
func (l *Lock) await(x *Input, t *Ticket, v *Sight, unqueued bool) {
	t.sees(v)
	l.CheckAt(x, times.Earlier(l.NextPoll(x, v), x.Now.Add(checkFirst)))
	if unqueued && l.Want() {
		x.Add(Effect{Do: Subscribe})
	} else if unqueued && l.Subscribed() {
		l.Poll(x) // The confirmation came between the request and its answer.
	}
}

// sees adds a ticket that waits to what a check is for.
func (t *Ticket) sees(v *Sight) {
	if t.Waits() {
		v.See(t.Place, t.takes)
	}
}

// AnyWaits reports whether checks have something to name.
func (l *Lock) AnyWaits() bool {
	for _, t := range l.tickets.All() {
		if t.Waits() {
			return true
		}
	}
	return false
}

// A Round is one look at the tickets of a name, in one or several checks.
type Round struct {
	Mode string
	all  bool // it names all tickets
	more bool // the server has more to do at once
	late bool // one came late
	last Sight
	rest []*Ticket // of the checks to come
}

// A Check is one request of a round.
type Check struct {
	Round *Round
	Named []Named
}

// Named is a ticket as a check has named it.
type Named struct {
	Ticket  *Ticket
	Text    string
	Arrival int64
	Limit   int
}

// BeginRound begins a look.
func (l *Lock) BeginRound() *Round {
	r := l.newRound()
	l.Again, l.all = false, false
	return r
}

// newRound chooses the tickets of a look, the oldest first.
func (l *Lock) newRound() *Round {
	r := &Round{Mode: l.Mode(), all: l.all}
	for _, t := range l.tickets.All() {
		if t.Waits() {
			r.rest = append(r.rest, t)
		}
	}
	slices.SortStableFunc(r.rest, func(a, b *Ticket) int { return cmp.Compare(a.Arrival, b.Arrival) })
	if !l.all && len(r.rest) > checkBatch {
		// And those that have no place yet: their requests came before the subscription, and were answered after it.
		placeless := slices.DeleteFunc(slices.Clone(r.rest[checkBatch:]), func(t *Ticket) bool { return t.state != subscribing })
		r.rest = append(r.rest[:checkBatch:checkBatch], placeless...)
	}
	return r
}

// next takes the tickets of the next check of a round.
func (r *Round) next() (tickets []*Ticket) {
	n := min(len(r.rest), checkBatch)
	tickets, r.rest = r.rest[:n], r.rest[n:]
	return tickets
}

// BeginCheck begins the next check of a round.
func (l *Lock) BeginCheck(r *Round, sent time.Time) Check {
	tickets := r.next()
	c := Check{Round: r, Named: make([]Named, 0, len(tickets))}
	for _, t := range tickets {
		if t.Waits() {
			t.Send()
			l.Sent(sent)
			c.Named = append(c.Named, Named{t, t.Text, t.Arrival, t.Limit})
		}
	}
	return c
}

// CheckState is what a check says of a ticket.
type CheckState struct {
	State string
	Place int   // -1: it does not say
	Err   error // what it means, of a ticket that is refused
}

// OnCheckReply takes in the answer to a check, or its lack, and reports whether the round goes on. waiting is how many wait.
func (l *Lock) OnCheckReply(x *Input, c *Check, a Attempt, r *wire.Reply, states []CheckState, f *Failure) (more bool) {
	if f.Err == nil {
		l.OnReply(x, a, r, "", true)
	}
	for i, n := range c.Named {
		l.requestDone(x, n.Ticket, n.Text, a, f)
		if f.Err == nil && i < len(states) && n.Ticket.Text == n.Text {
			l.ticketChecked(x, n.Ticket, &states[i], r.Waiting, c.Round.Mode)
		}
	}
	if f.Err != nil {
		return l.endRound(x, c.Round, f)
	}
	if r.Status == wire.Done && c.Round.Mode == wire.Proven {
		l.VerificationTold()
	}
	c.Round.more = c.Round.more || r.Has(wire.More)
	c.Round.late = c.Round.late || r.Status == wire.Late
	c.Round.last = SightOf(r.Waiting, r.Now, r.Until, r.Token)
	if len(c.Round.rest) > 0 {
		return true
	}
	return l.endRound(x, c.Round, f)
}

// endRound ends a look, and reports whether another one follows at once.
func (l *Lock) endRound(x *Input, r *Round, f *Failure) (again bool) {
	l.all = l.all || r.all && (r.late || f.Err != nil) // Some were not named.
	switch {
	case f.Err != nil:
		l.checkFailed(x, f)
	case l.Again || r.more || r.late:
		l.Failures = 0
		*r = *l.BeginRound()
		return true
	case l.AnyWaits():
		l.Failures = 0
		for _, t := range l.tickets.All() {
			t.sees(&r.last)
		}
		l.CheckAt(x, l.NextPoll(x, &r.last))
	}
	l.Checking = false
	return false
}

// checkFailed ends the waits of all tickets if a check got an error that no retry mends. Waiters wait out any other
// error.
func (l *Lock) checkFailed(x *Input, f *Failure) {
	l.Last = f.Advice
	if l.Failures++; f.Mendable {
		l.checkIn(x, x.Backoff(l.Failures-1))
		return
	}
	for _, t := range l.tickets.All() {
		if t.Waits() {
			l.refuse(x, t, l.Last) // Also those that were not named: their keys are the same.
		}
	}
}

// refuse ends the wait of a ticket with an error.
func (l *Lock) refuse(x *Input, t *Ticket, err error) {
	t.Refused = err
	x.do(Wake, &t.Call)
}

// ticketChecked takes in what a check says of one ticket.
func (l *Lock) ticketChecked(x *Input, t *Ticket, s *CheckState, behind int, mode string) {
	if s.Place >= 0 {
		t.Place = s.Place
	}
	switch s.State {
	case wire.StateGranted:
		t.heard = true
	case wire.StateEarlier:
		// It was granted before this check, whose reply has brought it the grant by now. The news of it, a message or another
		// reply, may still be on its way; if it does not come, this client does not hear (R10).
		if mode != wire.Deaf && l.Subscription.Confirmed && !t.heard {
			l.missing, l.missBy = t.Text, x.Now.Add(soonEnough)
			l.Arm(x, l.missBy)
		}
	case wire.StateAgain, wire.StateQueued:
		if s.State == wire.StateAgain && t.state == waiting {
			x.Add(Effect{Do: Rejoined, Text: t.Text})
			if l.tickets.Len() > checkBatch {
				l.all, l.Again = true, true // The server may have forgotten the others too.
			}
			if mode != wire.Deaf && l.Subscription.Confirmed {
				l.dropped(x, t)
			}
		}
		if t.Waits() {
			t.to(x, waiting)
			l.queued(x, t, behind)
		}
	case wire.StateGone:
		if t.Waits() {
			t.to(x, subscribing)
		}
	case wire.StateExcess:
		if t.Waits() {
			l.refuse(x, t, s.Err)
		}
	case wire.StateFull:
		if t.Waits() && t.Limit != 0 {
			l.refuse(x, t, s.Err)
		}
	}
}

// OnExcess takes in the message that a ticket asks for more than there is.
func (l *Lock) OnExcess(x *Input, ticket string, err error) {
	if t := l.tickets.Find(ticket); t != nil && t.Waits() {
		l.refuse(x, t, err)
	}
}

// A client that waits for thousands of names polls each of them every two seconds. Usually there is nothing to see: the
// ticket is in the queue, and the holder's lease goes on. So the usual checks of one client at one node that are due at one
// tick go together, in few scripts, which say only whether this is so. A name with anything else to say then gets a check of
// its own.

// BeginLook names tickets as a check does, for a script that looks at several names. If the name needs a check of its
// own, it begins that instead, and there are no tickets.
func (l *Lock) BeginLook(x *Input) []Named {
	r := l.newRound()
	tickets := r.next()
	alone := r.Mode != wire.Hears || l.all || l.Checking || len(tickets) == 0
	named := make([]Named, 0, len(tickets))
	for _, t := range tickets {
		alone = alone || t.state != waiting || t.Limit != 0
		named = append(named, Named{Ticket: t, Text: t.Text, Arrival: t.Arrival})
	}
	if alone {
		l.Poll(x)
		return nil
	}
	l.Sent(x.Now)
	return named
}

// OnLookReply takes in what such a script says: the places of the tickets that were named, and until when the present lease
// lasts, in µs of the server. more: only a check of its own can tell.
func (l *Lock) OnLookReply(x *Input, named []Named, places []int, more bool, now, until int64, f *Failure) {
	l.Answers.Over(f.Err == nil, x.Now)
	switch {
	case more:
		l.Poll(x)
	case f.Err != nil:
		l.checkFailed(x, f)
	case l.AnyWaits():
		l.Failures = 0
		for i, n := range named {
			if n.Ticket.Text == n.Text {
				n.Ticket.Place = places[i]
			}
		}
		// Not how many wait, which such a script does not say: 400 at most, for whom lookEvery is the longest pause anyway.
		v := SightOf(places[0], now, until, 0)
		for _, t := range l.tickets.All() {
			t.sees(&v)
		}
		l.CheckAt(x, l.NextPoll(x, &v))
	}
}
