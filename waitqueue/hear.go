package waitqueue

import (
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
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
	if !s.trust.wanted || s.ears != from || !from.Hears(s) {
		return
	}
	first := s.trust.confirm()
	for _, t := range s.tickets {
		t.rejoined = false
		if t.state == idling {
			t.pokeLocked() // It waits to hear before it asks.
		}
	}
	s.wishAgainLocked()
	if s.trust.deaf {
		s.sendEchoLocked()
		return
	}
	s.all = true
	if first {
		s.startCheckLocked()
		return
	}
	s.checkAtLocked(time.Now().Add(jitter(0, min(spread, time.Duration(n)*spreadSite))))
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
	if !s.trust.wanted || s.ears != from {
		return
	}
	s.trust.lose()
	from.Drop(s)
	s.subscribeLocked()
	s.checkInLocked(jitter(deafEvery, 2*deafEvery))
}

// Unheard is called by a listener when the subscription is gone, perhaps late, as Confirmed is.
func (s *site) Unheard(from conn.Ears) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ears != from || from.Hears(s) {
		return
	}
	s.trust.lose()
	s.checkInLocked(jitter(deafEvery, 2*deafEvery))
}

// Refused is called by the listener when the server refuses the subscription for good. The waits go on by
// their own checks, and say why if they end.
func (s *site) Refused(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tickets {
		if t.waits() {
			t.unheard = conn.Advise(err)
		}
	}
}

// doubtLocked treats the subscription as broken: a new connection, and an echo on it, before tickets queue again.
func (s *site) doubtLocked() {
	if !s.trust.doubt() {
		return
	}
	if s.trust.wanted {
		s.ears.Reconnect()
		s.client.servers.Doubt()
	}
	s.checkInLocked(jitter(deafEvery, 2*deafEvery))
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
	s.armLocked(s.trust.expect(nonce, time.Now()))
	c.servers.Spawn(func() { c.servers.Publish(s.channel, lua.EchoMessage(nonce)) }) // An error shows as an echo that does not come.
}

// echoTime is how long an echo may take before the connection counts as deaf.
const echoTime = time.Second

// trust is whether a site is subscribed, and whether it can rely on what it hears (R10). A subscription is wanted, then
// confirmed, then perhaps lost, and confirmed again. When a message is missed or a lease runs out, it is in doubt: from
// then on the site counts as deaf until a message from itself, the echo, has come over it. trust sends nothing and
// sets no timer; its site does. The lock of the site guards it.
type trust struct {
	polls     bool      // nothing is subscribed to: frequent looks are all that the site hears
	last      int64     // the last token that was seen
	since     time.Time // and since when; of an event, when the newest call was told to wait
	wanted    bool      // the site has asked for the subscription
	heard     bool      // it is confirmed, and was not lost since
	confirmed int       // how often it was confirmed
	deaf      bool      // it is in doubt
	echo      string    // the nonce of the echo that is waited for
	echoBy    time.Time // when that is late
	late      int       // echoes that did not come, in a row
	proven    bool      // an echo came, and no check has told the server so yet
}

// still is for how long nothing has been granted: the last token is the time of its grant, unless it is ahead of the clock.
func (u *trust) still(v sight, now time.Time) time.Duration {
	if v.last != u.last {
		u.last, u.since = v.last, now
	}
	return max(now.Sub(u.since), time.Duration(v.now-v.last)*time.Microsecond)
}

// pause is how long to wait with the next look, d where the site hears. Of one that polls, still is for how long nothing has
// changed, and most the longest pause.
func (u *trust) pause(d time.Duration, place int, still, most time.Duration) time.Duration {
	switch {
	case u.polls:
		p := min(max(still/pollShare, time.Duration(max(place, 1))*pollEvery), most)
		return min(d, jitter(p*3/4, p*5/4))
	case !u.hears():
		return min(d, jitter(deafEvery, deafEvery<<min(u.late+1, 4)))
	}
	return d
}

// hears reports whether tickets may queue (R2).
func (u *trust) hears() bool { return u.polls || u.heard && !u.deaf }

// mode is what a check says of it to the server.
func (u *trust) mode() string {
	switch {
	case !u.hears():
		return lua.Deaf
	case u.proven || u.polls: // A look proves all there is to be proved.
		return lua.Proven
	}
	return lua.Hears
}

// want reports whether the subscription is to be made, since it was not wanted before.
func (u *trust) want() bool {
	before := u.wanted
	u.wanted = !u.polls
	return u.wanted && !before
}

// confirm notes that it is confirmed, and reports whether that is the first time: later it is news of a gap.
func (u *trust) confirm() (first bool) {
	u.heard = true
	u.confirmed++
	return u.confirmed == 1
}

// lose notes that it is gone, and the echo with it.
func (u *trust) lose() {
	u.heard = false
	u.echo, u.echoBy = "", time.Time{}
}

// doubt makes it deaf, and reports whether it was not before.
func (u *trust) doubt() bool {
	before := u.deaf
	u.deaf, u.proven = !u.polls, false
	return u.deaf && !before
}

// expect notes that an echo was sent, and returns when it will be late: the more of them are, the later.
func (u *trust) expect(nonce string, now time.Time) time.Time {
	u.echo, u.echoBy = nonce, now.Add(echoTime<<min(u.late, 4))
	return u.echoBy
}

// overdue notes that the echo has not come.
func (u *trust) overdue() {
	u.echo, u.echoBy = "", time.Time{}
	u.late++
}

// echoed ends the doubt if the nonce is that of the echo, and reports whether it is.
func (u *trust) echoed(nonce string) bool {
	if u.echo == "" || nonce != u.echo {
		return false
	}
	u.echo, u.echoBy = "", time.Time{}
	u.late, u.deaf, u.proven = 0, false, true
	return true
}
