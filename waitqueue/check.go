package waitqueue

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/trust"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// Every state that waits has a timer that ends in a check (I5). One check names the oldest tickets of its
// site, queues again what the server does not know, and serves the queue.

const (
	// checkBatch is how many tickets one check names.
	checkBatch = 100
	// checkFirst is how long after an ask a client looks at the latest: an ask tells how many tickets wait, and only a
	// check how many clients.
	checkFirst = 10 * time.Second
	// claimSlack is how long after the end of a grant lease the client looks that handed on.
	claimSlack = 20 * time.Millisecond
	// soonEnough is how much later than the check that found its grant a message may come without counting as lost.
	soonEnough = 250 * time.Millisecond
)

// checkAtLocked sets a time for a check, unless there is an earlier one.
func (s *site) checkAtLocked(at time.Time) {
	s.check = timers.First(s.check, at)
	s.armLocked(s.check)
}

// checkInLocked sets a check after a time, if a ticket waits for one.
func (s *site) checkInLocked(d time.Duration) {
	if s.anyWaits() {
		s.checkAtLocked(time.Now().Add(d))
	}
}

// await makes sure that a site is subscribed, and that a check is scheduled, after a ticket was told to wait; deaf says
// that it has no place in the queue, because the client is not known to hear. Only this ticket counts: the checks of
// the others were scheduled after their own replies, and there may be thousands.
func (s *site) await(t *ticket, v trust.Sight, deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.proto.Broadcast {
		s.trust.Since = now
	}
	t.sees(&v)
	s.checkAtLocked(timers.Earlier(s.nextCheckLocked(&v, now), now.Add(checkFirst)))
	if deaf && s.trust.Want() {
		s.subscribeLocked()
	} else if deaf && s.hearsLocked() && !s.proto.Broadcast {
		s.startCheckLocked() // The confirmation came between the ask and its answer.
	}
}

// sees adds a ticket that waits to what a look is for.
func (t *ticket) sees(v *trust.Sight) {
	switch {
	case !t.waits():
	case !t.site.proto.Broadcast:
		v.See(t.place, t.takes)
	case t.site.proto.End != nil:
		v.Keep(t.lease())
	}
}

// nextCheckLocked says when to look again.
func (s *site) nextCheckLocked(v *trust.Sight, now time.Time) time.Time {
	if s.proto.Broadcast {
		return now.Add(s.trust.NextOfEvent(v, now))
	}
	return now.Add(s.trust.Next(v, now))
}

// startCheckLocked runs a check in the background, or after the one that is under way.
func (s *site) startCheckLocked() {
	if s.again = s.checking; !s.checking {
		s.checking = s.client.servers.Spawn(s.runChecks)
	}
}

// lookLocked looks, and returns what is closed when there is nothing more to be seen at once.
func (s *site) lookLocked() <-chan struct{} {
	if s.looked == nil {
		s.looked = make(chan struct{})
	}
	s.startCheckLocked()
	return s.looked
}

// runChecks looks until there is nothing more to be seen at once.
func (s *site) runChecks() {
	for {
		s.mu.Lock()
		round, all := s.newRoundLocked(), s.all
		s.again, s.all = false, false
		s.mu.Unlock()
		var reply lua.Head
		var last trust.Sight
		var err error
		more, late := false, false
		for ok := true; ok; ok = err == nil && round.next() {
			reply, last, err = s.checkOnce(round)
			more, late = more || reply.Has(lua.More), late || reply.Status == lua.Late
		}
		s.mu.Lock()
		s.all = s.all || all && (late || err != nil) // Some were not named.
		switch {
		case err != nil:
			s.checkFailedLocked(err)
		case s.again || more || late:
			s.failures = 0
			s.mu.Unlock()
			continue
		case s.anyWaits():
			s.failures = 0
			for _, t := range s.tickets {
				t.sees(&last)
			}
			s.checkAtLocked(s.nextCheckLocked(&last, time.Now()))
		}
		s.checking = false
		if s.looked != nil {
			close(s.looked)
			s.looked = nil
		}
		s.mu.Unlock()
		return
	}
}

// checkFailedLocked ends the waits of all tickets after a check for which Redis has an error that no retry mends. Any
// other error is waited out by the waiters.
func (s *site) checkFailedLocked(err error) {
	s.answers.Last = conn.Advise(err)
	if s.failures++; conn.Mendable(err) {
		s.checkInLocked(retry.Backoff(s.failures - 1))
		return
	}
	for _, t := range s.tickets {
		if t.waits() {
			t.refuseLocked(s.answers.Last) // Also those that were not named: their keys are the same.
		}
	}
}

func (s *site) anyWaits() bool {
	for _, t := range s.tickets {
		if t.waits() {
			return true
		}
	}
	return false
}

// A round is one look at the tickets of a site, in one or several checks.
type round struct {
	mode    string
	tickets []*ticket // of this check
	rest    []*ticket // of those after it
}

// newRoundLocked chooses the tickets of a look, the oldest first.
func (s *site) newRoundLocked() *round {
	r := &round{mode: s.trust.Mode()}
	for _, t := range s.tickets {
		if t.waits() {
			r.rest = append(r.rest, t)
		}
	}
	slices.SortFunc(r.rest, func(a, b *ticket) int { return cmp.Compare(a.arrival, b.arrival) })
	switch {
	case s.proto.Broadcast && s.proto.End == nil:
		// Nothing of them is in the server: those that wait for the same are alike.
		r.rest = slices.CompactFunc(r.rest, func(a, b *ticket) bool { return a.arrival == b.arrival })
	case s.proto.Broadcast:
		// The check is what keeps the place of each.
	case !s.all && len(r.rest) > checkBatch:
		// And those that have no place yet: their asks came before the subscription, and were answered after it.
		placeless := slices.DeleteFunc(slices.Clone(r.rest[checkBatch:]), func(t *ticket) bool { return t.state != subscribing })
		r.rest = append(r.rest[:checkBatch:checkBatch], placeless...)
	}
	r.next()
	return r
}

// next goes on to the next check of the round, and reports whether there is one.
func (r *round) next() bool {
	n := min(len(r.rest), checkBatch)
	r.tickets, r.rest = r.rest[:n], r.rest[n:]
	return n > 0
}

// checkOnce sends one check and takes in the reply.
func (s *site) checkOnce(round *round) (lua.Head, trust.Sight, error) {
	c := s.client
	a := s.node().Attempt(conn.AttemptTime)
	args := []string{s.id, round.mode, a.NotAfter, c.highest(), c.servers.Counted()}
	s.mu.Lock()
	named := round.tickets[:0:0]
	texts := make([]string, 0, len(round.tickets))
	for _, t := range round.tickets {
		if t.waits() {
			t.inflight++
			s.answers.Sent(a.Sent)
			named = append(named, t)
			texts = append(texts, t.text)
			args = append(args, t.text, t.bound.Brought(t.arrival, t.queue.terms.HeadStart()))
		}
	}
	s.mu.Unlock()
	if len(named) > 0 {
		args = append(args, named[0].queue.extras...)
	}

	c.stats.Checks.Add(1)
	j := s.job(s.proto.Check, s.keys.All(), args)
	r, v, err := s.read(s.proto.Check, a, c.servers.Run(j.Script, j.Keys, j.Args...), nil, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range named {
		s.landedLocked(t, texts[i], a, err)
		switch {
		case err != nil || i >= len(r.States) || t.text != texts[i]:
		case s.proto.Broadcast:
			s.eventCheckedLocked(t, r.States[i], v.Waiting)
		default:
			s.ticketCheckedLocked(t, r.States[i], v, round.mode)
		}
	}
	if err == nil && r.Status == lua.Done && round.mode == lua.Proven {
		s.trust.Proven = false
	}
	return r, v, err
}

// ticketCheckedLocked takes in what a check says of one ticket.
func (s *site) ticketCheckedLocked(t *ticket, state string, v trust.Sight, mode string) {
	state, place, _ := strings.Cut(state, " ")
	if n, err := strconv.Atoi(place); err == nil {
		t.place = n
	}
	switch state {
	case lua.StateGranted:
		t.told = true
	case lua.StateEarlier:
		// It was granted before this check, whose reply has brought it the grant by now (absorb). The news of it, a message
		// or another reply, may still be on its way; if it does not come, this client does not hear (R10).
		if mode != lua.Deaf && s.trust.Heard && !t.told {
			s.missing, s.missBy = t.text, time.Now().Add(soonEnough)
			s.armLocked(s.missBy)
		}
	case lua.StateAgain, lua.StateQueued:
		if state == lua.StateAgain && t.state == waiting {
			s.client.stats.Rejoined.Add(1)
			s.tell(observe.Observation{Moment: observe.Rejoined, Ticket: t.text})
			if len(s.tickets) > checkBatch {
				s.all, s.again = true, true // The server may have forgotten the others too.
			}
			if mode != lua.Deaf && s.trust.Heard {
				s.droppedLocked(t)
			}
		}
		if t.waits() {
			t.to(waiting)
			t.tellQueuedLocked(v.Waiting)
		}
	case lua.StateGone:
		if t.waits() {
			t.to(subscribing)
		}
	case lua.StateExcess:
		if t.waits() {
			t.refuseLocked(excess(t, place))
		}
	case lua.StateFull:
		if t.waits() && t.bound != 0 {
			t.refuseLocked(t.bound.Told(place, v.Now))
		}
	}
}
