package waitqueue

import (
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/trust"
	"github.com/headwaiter/headwaiter/lua"
)

// What a site does about its subscription. The listener has the connection; a site only knows whether its
// channel is confirmed, and whether what it hears can be relied on (R10).

const (
	// spread is how long the checks after a reconnect are spread over, at most and for each site.
	spread     = 100 * time.Millisecond
	spreadSite = 200 * time.Microsecond
)

// Channel is the wake channel of the client at the site.
func (s *site) Channel() string { return s.channel }

// Key is a key in the slot of the site.
func (s *site) Key() string { return s.keys.Lock }

// Confirmed is called by a listener when the channel's subscription is confirmed. A message may have been missed before,
// so a check follows. n is the number of channels of the connection.
//
// The listener calls without its lock, so this call may be stale: another listener, or a newer connection, may have
// reported since. So the present state is asked for again.
func (s *site) Confirmed(from conn.Ears, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.trust.Wanted || s.ears != from || !from.Hears(s) {
		return
	}
	first := s.trust.Confirm()
	for _, t := range s.tickets {
		t.rejoined = false
		if t.state == idling {
			t.pokeLocked() // It waits to hear before it asks.
		}
	}
	s.wishAgainLocked()
	if s.trust.Deaf {
		s.sendEchoLocked()
		return
	}
	s.all = true
	if first {
		s.startCheckLocked()
		return
	}
	s.checkAtLocked(time.Now().Add(retry.Jitter(0, min(spread, time.Duration(n)*spreadSite))))
}

// subscribeLocked subscribes at the node that has the site's slot.
func (s *site) subscribeLocked() {
	s.ears = s.client.servers.Ears(s.slot)
	s.ears.Want(s)
}

// Rehome is called by a listener whose node has not the site's slot any more.
func (s *site) Rehome(from conn.Ears) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.trust.Wanted || s.ears != from {
		return
	}
	s.trust.Lose()
	from.Drop(s)
	s.subscribeLocked()
	s.checkInLocked(retry.Jitter(trust.DeafEvery, 2*trust.DeafEvery))
}

// Unheard is called by a listener when the subscription is gone, perhaps late, as Confirmed is.
func (s *site) Unheard(from conn.Ears) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ears != from || from.Hears(s) {
		return
	}
	s.trust.Lose()
	s.checkInLocked(retry.Jitter(trust.DeafEvery, 2*trust.DeafEvery))
}

// Refused is called by the listener when the server refuses the subscription for good. The waits go on by
// their own checks, and say why if they end.
func (s *site) Refused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tickets {
		if t.waits() {
			t.deafness = conn.Unusable(err)
		}
	}
}

// doubtLocked treats the subscription as broken: a new connection, and an echo on it, before tickets queue again.
func (s *site) doubtLocked() {
	if !s.trust.Doubt() {
		return
	}
	if s.trust.Wanted {
		s.ears.Reconnect()
		s.client.servers.DoubtSlots()
	}
	s.checkInLocked(retry.Jitter(trust.DeafEvery, 2*trust.DeafEvery))
}

// droppedLocked takes in that a ticket was not in the queue any more, though the subscription stands. Once that is a
// server that has forgotten it. When it is so again, and no subscription was confirmed in between, the server that is
// asked may count none: it is at another one, which was the master before, or its connection died and nobody has
// noticed.
func (s *site) droppedLocked(t *ticket) {
	if t.rejoined {
		s.doubtLocked()
	}
	t.rejoined = !t.rejoined
}

// suspectedLocked takes in that a lease of this client ran out: of a grant that it did not take, or of a hold.
func (s *site) suspectedLocked(text string) {
	s.suspect()
	if t := s.tickets[text]; t != nil {
		switch {
		case t.hold != nil:
			t.hold.hurryLocked()
		case t.waits() && !s.proto.Broadcast: // An event grants nothing that could run out.
			t.lapsedLocked(waiting)
		}
	}
	s.doubtLocked()
	s.checkAtLocked(time.Now())
}

// sendEchoLocked publishes to the channel of this client.
func (s *site) sendEchoLocked() {
	c := s.client
	nonce := strconv.FormatUint(c.numbers.Add(1), 10)
	s.armLocked(s.trust.Expect(nonce, time.Now()))
	c.servers.Spawn(func() { c.servers.Publish(s.channel, lua.EchoMessage(nonce)) }) // An error shows as an echo that does not come.
}
