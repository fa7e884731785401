package core

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/wire"
)

const (
	// unheardEvery is how often a client without a subscription polls.
	unheardEvery = 100 * time.Millisecond
	// pollEvery is how long a client without subscriptions pauses between two polls at the least: the head of the queue,
	// and the n-th n times as long. As time goes by, that becomes a pollShare of how long nothing has changed. It is never
	// more than a pollShare of a grant lease, so that no grant runs out before it is seen, nor than pollMost: clients that
	// are called have a second to look.
	pollEvery = 2 * time.Millisecond
	pollShare = 4
	pollMost  = 500 * time.Millisecond
	// lookEvery is how long a client with waiting tickets pauses between two polls, give or take a quarter. Where more than
	// 400 clients wait it is a lookClient for each of them, so that all together make about 200 polls a second.
	lookEvery  = 2 * time.Second
	lookClient = 5 * time.Millisecond
	// lookTick is how far apart the moments are at which the polls of a client come together.
	lookTick = lookEvery / 32
	// frontRow is how many may be ahead of a ticket, the holder among them, for its client to poll when the present lease
	// ends.
	frontRow = 8
	// frontStep is how much later each of them polls than the one before.
	frontStep = 5 * time.Millisecond
	// freeAgain is when to poll for a lock that is free with a queue, and without a mark that says when.
	freeAgain = 20 * time.Millisecond
	// eventSpread is the time over which the polls of clients that wait for the same moment are spread.
	eventSpread = 50 * time.Millisecond
	// pingTime is how long a ping may take before the connection counts as broken.
	pingTime = time.Second
)

// A Subscription is whether a client is subscribed to the channel of a name, and whether it can rely on that (R10). It is
// wanted, then confirmed, then perhaps lost, and confirmed again. When a message is missed, or a grant or a lease runs out,
// it is suspicious: from then on the client counts as not subscribed, until a ping has come back over it.
type Subscription struct {
	Born          time.Time // of the client: its polls are at ticks that are counted from then
	Polls         bool      // nothing is subscribed to: frequent polls are all there is
	Wanted        bool      // the subscription was asked for
	Confirmed     bool      // it stands
	Confirmations int       // how often it was confirmed
	suspicious    bool
	verified      bool      // a ping came back, and no check has told the server so yet
	ping          string    // the nonce that is waited for
	PingBy        time.Time // when that is late; zero: none is waited for
	latePings     int       // in a row

	lastToken uint64    // the last that was seen
	Since     time.Time // when that has changed; of an event, when the newest call was told to wait
}

// Subscribed reports whether tickets may queue (R2).
func (s *Subscription) Subscribed() bool { return s.Polls || s.Confirmed && !s.suspicious }

// Listens reports whether the subscription was asked for.
func (s *Subscription) Listens() bool { return s.Wanted }

// Suspicious reports whether the client has to hear a ping first (R10).
func (s *Subscription) Suspicious() bool { return s.suspicious }

// Mode is what a check says of the subscription to the server.
func (s *Subscription) Mode() string {
	switch {
	case !s.Subscribed():
		return wire.Deaf
	case s.verified || s.Polls: // A poll proves all there is to be proved.
		return wire.Proven
	}
	return wire.Hears
}

// Want reports whether the subscription is to be made, because it was not wanted before.
func (s *Subscription) Want() bool {
	before := s.Wanted
	s.Wanted = !s.Polls
	return s.Wanted && !before
}

// Confirm notes that it stands, and reports whether for the first time: later it is news of a gap.
func (s *Subscription) Confirm() (first bool) {
	s.Confirmed = true
	s.Confirmations++
	return s.Confirmations == 1
}

// Drop notes that it is gone, and the ping with it.
func (s *Subscription) Drop() {
	s.Confirmed = false
	s.ping, s.PingBy = "", time.Time{}
}

// Suspect makes it suspicious, and reports whether it was not before.
func (s *Subscription) Suspect() bool {
	before := s.suspicious
	s.suspicious, s.verified = !s.Polls, false
	return s.suspicious && !before
}

// Expect notes that a ping was sent, and returns when it will be late: the more were late, the later.
func (s *Subscription) Expect(nonce string, now time.Time) time.Time {
	s.ping, s.PingBy = nonce, now.Add(pingTime<<min(s.latePings, 4))
	return s.PingBy
}

// PingLate notes that the ping has not come back.
func (s *Subscription) PingLate() {
	s.ping, s.PingBy = "", time.Time{}
	s.latePings++
}

// Verify ends the suspicion if the nonce is the one in the ping, and reports whether it is.
func (s *Subscription) Verify(nonce string) bool {
	if s.ping == "" || nonce != s.ping {
		return false
	}
	s.ping, s.PingBy = "", time.Time{}
	s.latePings, s.suspicious, s.verified = 0, false, true
	return true
}

// VerificationTold notes that a check has told the server that the subscription is verified.
func (s *Subscription) VerificationTold() { s.verified = false }

// Forget ends the subscription of a name that is retired.
func (s *Subscription) Forget() { *s = Subscription{Polls: s.Polls, Born: s.Born} }

// A Sight is what a reply, and the tickets that it is for, say about when to poll again.
type Sight struct {
	Waiting    int    // tickets, or an estimate of the clients, that wait
	Now, Until int64  // server µs: of the reply, and of the end of the present lease; 0 if nothing ends
	Token      uint64 // the last, which is when the last grant was, in server µs; 0 if there was none

	place int           // the nearest to the head
	most  time.Duration // the longest pause of a client that polls
	keep  time.Duration // how long a place lasts that checks prolong; 0: none
}

// SightOf is what a reply says.
func SightOf(waiting int, now, until int64, token uint64) Sight {
	return Sight{Waiting: waiting, Now: now, Until: until, Token: token, place: waiting, most: pollMost}
}

// See adds a ticket at a place, if that is known, for which a grant waits so long.
func (v *Sight) See(place int, takes time.Duration) {
	if place >= 0 {
		v.place, v.most = min(v.place, place), min(v.most, takes/pollShare)
	}
}

// Keep adds a place that lasts so long.
func (v *Sight) Keep(lasts time.Duration) {
	if v.keep == 0 || lasts < v.keep {
		v.keep = lasts
	}
}

// left is how long after the reply the present lease ends.
func (v *Sight) left() time.Duration {
	return max(time.Duration(v.Until-v.Now)*time.Microsecond, 0)
}

// still is for how long nothing has been granted: the last token is the time of its grant, unless it is later than now.
func (s *Subscription) still(v *Sight, now time.Time) time.Duration {
	if v.Token != s.lastToken {
		s.lastToken, s.Since = v.Token, now
	}
	return max(now.Sub(s.Since), time.Duration(v.Now-int64(v.Token))*time.Microsecond)
}

// pause is how long to wait with the next poll: d for a client that is subscribed, less for one that is not, or that polls. still
// and most count only for one that polls: for how long nothing has changed, and the longest pause.
func (s *Subscription) pause(x *Input, d time.Duration, place int, still, most time.Duration) time.Duration {
	switch {
	case s.Polls:
		p := min(max(still/pollShare, time.Duration(max(place, 1))*pollEvery), most)
		return min(d, x.Jitter(p*3/4, p*5/4))
	case !s.Subscribed():
		return min(d, x.Jitter(unheardEvery, unheardEvery<<min(s.latePings+1, 4)))
	}
	return d
}

// usual is in how long to poll if nothing says sooner: at a tick, so that the polls of a client come together.
func (s *Subscription) usual(x *Input, v *Sight) (d, every time.Duration) {
	every = max(lookEvery, time.Duration(v.Waiting)*lookClient)
	d = x.Jitter(every*3/4+lookTick, every*5/4)
	return d - x.Now.Add(d).Sub(s.Born)%lookTick, every
}

// AtTick reports whether a poll at that time is a usual one.
func (s *Subscription) AtTick(at time.Time) bool { return at.Sub(s.Born)%lookTick == 0 }

// NextPoll is when to poll a queue again: about when the present lease ends if the tickets are in front, and in any case after
// a time that grows with the number of clients that wait.
func (s *Subscription) NextPoll(x *Input, v *Sight) time.Time {
	d, _ := s.usual(x, v)
	// Each hand-off ahead of the ticket takes half a pollEvery on average.
	d = s.pause(x, d, v.place, s.still(v, x.Now), v.most+time.Duration(v.place)*pollEvery/2)
	if v.place <= frontRow {
		left := freeAgain
		if v.Until > 0 {
			left = v.left()
		}
		d = min(d, left+time.Millisecond+x.Jitter(0, frontStep*time.Duration(v.place+1)))
	}
	return x.Now.Add(d)
}

// NextOfEvent is when to poll an event again: before the client's own place in it runs out, when another's does, and at
// the interval of a queue.
func (s *Subscription) NextOfEvent(x *Input, v *Sight) time.Time {
	d, every := s.usual(x, v)
	d = s.pause(x, d, 1, x.Now.Sub(s.Since), every)
	if v.keep > 0 {
		d = min(d, v.keep/3)
	}
	if v.Until > 0 {
		d = min(d, v.left()+time.Millisecond+x.Jitter(0, eventSpread))
	}
	return x.Now.Add(d)
}

// Answers is whether the server answers the requests for tickets: acquire requests and checks.
type Answers struct {
	Last error // the last error that was waited out; nil since an answer has come

	pending int       // requests without an answer
	since   time.Time // no answer has come since then, while there are any
}

// SlowAnswer is how long an answer takes at least that counts as late: a call does not wait for it on its own goroutine,
// and one that ends meanwhile says that the server does not answer.
const SlowAnswer = 250 * time.Millisecond

// Sent notes that a request was sent at a time.
func (a *Answers) Sent(at time.Time) {
	if a.pending == 0 {
		a.since = at
	}
	a.pending++
}

// Over notes that a request is over, and whether it was answered.
func (a *Answers) Over(answered bool, now time.Time) {
	a.pending--
	if answered {
		a.Last = nil
		if a.pending > 0 {
			a.since = now
		}
	}
}

// Silent reports whether the server does not answer: the last request has failed, or has waited for so long that a call
// should not wait for it.
func (a *Answers) Silent(now time.Time) bool {
	return a.Last != nil || a.pending > 0 && now.Sub(a.since) > SlowAnswer
}
