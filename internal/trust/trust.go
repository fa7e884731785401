// Package trust keeps whether a client hears of a name: whether it is subscribed, and whether what it hears can be relied on;
// and from that when it looks.
package trust

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// DeafEvery is how often a client looks that cannot hear.
	DeafEvery = 100 * time.Millisecond
	// pollEvery is how long a client without subscriptions pauses between two looks at the least: the head of the queue, and
	// the n-th n times as long. As time goes by, that becomes a pollShare of how long nothing has changed, but no more of a
	// grant lease, so that no grant runs out before it is seen, and no more than pollMost: clients that are called have a
	// second to look.
	pollEvery = 2 * time.Millisecond
	pollShare = 4
	pollMost  = 500 * time.Millisecond
	// lookEvery is how often a client with waiting tickets looks at the least; with many clients each looks
	// so much more rarely that all together make about 200 looks a second.
	lookEvery  = 2 * time.Second
	lookClient = 5 * time.Millisecond
	// lookTick is how far apart the moments are at which the looks of a client come together.
	lookTick = lookEvery / 32
	// frontRow is how many places from the head look at the moment the present lease ends.
	frontRow = 8
	// frontStep is how much later each of them looks than the one before.
	frontStep = 5 * time.Millisecond
	// freeAgain is when to look at a lock that is free with a queue, and without a mark that says when.
	freeAgain = 20 * time.Millisecond
	// eventSpread is how long the looks of all clients are spread over that wait for the same time.
	eventSpread = 50 * time.Millisecond
	// EchoTime is how long an echo may take before the connection counts as deaf.
	EchoTime = time.Second
)

// Trust is whether a site is subscribed, and whether it can rely on what it hears (R10). A subscription is wanted, then
// confirmed, then perhaps lost, and confirmed again. When a message is missed, or a grant or a lease runs out, it is in doubt: from
// then on the site counts as deaf until a message from itself, the echo, has come over it. Trust sends nothing and
// sets no timer; its site does. The lock of the site guards it.
type Trust struct {
	Born      time.Time // of the client: from then on its looks are at ticks
	Polls     bool      // nothing is subscribed to: frequent looks are all that the site hears
	last      int64     // the last token that was seen
	Since     time.Time // and since when; of an event, when the newest call was told to wait
	Wanted    bool      // the site has asked for the subscription
	Heard     bool      // it is confirmed, and was not lost since
	Confirmed int       // how often it was confirmed
	Deaf      bool      // it is in doubt
	echo      string    // the nonce of the echo that is waited for
	EchoBy    time.Time // when that is late
	late      int       // echoes that did not come, in a row
	Proven    bool      // an echo came, and no check has told the server so yet
}

// still is for how long nothing has been granted: the last token is the time of its grant, unless it is ahead of the clock.
func (u *Trust) still(v *Sight, now time.Time) time.Duration {
	if v.last != u.last {
		u.last, u.Since = v.last, now
	}
	return max(now.Sub(u.Since), time.Duration(v.Now-v.last)*time.Microsecond)
}

// pause is how long to wait with the next look, d where the site hears. Of one that polls, still is for how long nothing has
// changed, and most the longest pause.
func (u *Trust) pause(d time.Duration, place int, still, most time.Duration) time.Duration {
	switch {
	case u.Polls:
		p := min(max(still/pollShare, time.Duration(max(place, 1))*pollEvery), most)
		return min(d, retry.Jitter(p*3/4, p*5/4))
	case !u.Hears():
		return min(d, retry.Jitter(DeafEvery, DeafEvery<<min(u.late+1, 4)))
	}
	return d
}

// Hears reports whether tickets may queue (R2).
func (u *Trust) Hears() bool { return u.Polls || u.Heard && !u.Deaf }

// Mode is what a check says of it to the server.
func (u *Trust) Mode() string {
	switch {
	case !u.Hears():
		return lua.Deaf
	case u.Proven || u.Polls: // A look proves all there is to be proved.
		return lua.Proven
	}
	return lua.Hears
}

// Want reports whether the subscription is to be made, since it was not wanted before.
func (u *Trust) Want() bool {
	before := u.Wanted
	u.Wanted = !u.Polls
	return u.Wanted && !before
}

// Confirm notes that it is confirmed, and reports whether that is the first time: later it is news of a gap.
func (u *Trust) Confirm() (first bool) {
	u.Heard = true
	u.Confirmed++
	return u.Confirmed == 1
}

// Lose notes that it is gone, and the echo with it.
func (u *Trust) Lose() {
	u.Heard = false
	u.echo, u.EchoBy = "", time.Time{}
}

// Doubt makes it deaf, and reports whether it was not before.
func (u *Trust) Doubt() bool {
	before := u.Deaf
	u.Deaf, u.Proven = !u.Polls, false
	return u.Deaf && !before
}

// Expect notes that an echo was sent, and returns when it will be late: the more of them are, the later.
func (u *Trust) Expect(nonce string, now time.Time) time.Time {
	u.echo, u.EchoBy = nonce, now.Add(EchoTime<<min(u.late, 4))
	return u.EchoBy
}

// EchoLate notes that the echo has not come.
func (u *Trust) EchoLate() {
	u.echo, u.EchoBy = "", time.Time{}
	u.late++
}

// Echoed ends the doubt if the nonce is that of the echo, and reports whether it is.
func (u *Trust) Echoed(nonce string) bool {
	if u.echo == "" || nonce != u.echo {
		return false
	}
	u.echo, u.EchoBy = "", time.Time{}
	u.late, u.Deaf, u.Proven = 0, false, true
	return true
}

// A Sight is what a reply, and the tickets that it is for, say of when to look again.
type Sight struct {
	Waiting    int   // tickets, or an estimate of the clients, that wait
	Now, until int64 // server µs: of the reply, and of the end of the present lease; 0 if nothing ends
	last       int64 // the last token, which is when the last grant was, in server µs; 0 if there are none

	place int           // the nearest to the head
	most  time.Duration // the longest pause of one that polls
	keep  time.Duration // how long a place lasts that the looks keep; 0: none is kept
}

// SightOf is what a reply says.
func SightOf(waiting int, now, until int64, token uint64) Sight {
	return Sight{Waiting: waiting, Now: now, until: until, last: int64(token), place: waiting, most: pollMost}
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
	return max(time.Duration(v.until-v.Now)*time.Microsecond, 0)
}

// usual is in how long to look if nothing says sooner: at a tick, so that the looks of a client come together.
func (u *Trust) usual(v *Sight, now time.Time) (d, every time.Duration) {
	every = max(lookEvery, time.Duration(v.Waiting)*lookClient)
	d = retry.Jitter(every*3/4+lookTick, every*5/4)
	return d - now.Add(d).Sub(u.Born)%lookTick, every
}

// AtTick reports whether a look at that time is such a usual one.
func (u *Trust) AtTick(at time.Time) bool { return at.Sub(u.Born)%lookTick == 0 }

// Next is in how long to look again at a queue: about when the present lease ends if the tickets are in front, and in any
// case after a time that grows with the number of clients that wait.
func (u *Trust) Next(v *Sight, now time.Time) time.Duration {
	d, _ := u.usual(v, now)
	// A hand-off takes half a pollEvery in the mean, and so many are ahead.
	d = u.pause(d, v.place, u.still(v, now), v.most+time.Duration(v.place)*pollEvery/2)
	if v.place <= frontRow {
		left := freeAgain
		if v.until > 0 {
			left = v.left()
		}
		d = min(d, left+time.Millisecond+retry.Jitter(0, frontStep*time.Duration(v.place+1)))
	}
	return d
}

// NextOfEvent is in how long to look again for an event: before the lease of a place in it runs out, when that of another
// does, and after a time as for a queue.
func (u *Trust) NextOfEvent(v *Sight, now time.Time) time.Duration {
	d, every := u.usual(v, now)
	d = u.pause(d, 1, now.Sub(u.Since), every)
	if v.keep > 0 {
		d = min(d, v.keep/3)
	}
	if v.until > 0 {
		d = min(d, v.left()+time.Millisecond+retry.Jitter(0, eventSpread))
	}
	return d
}
