// Package trust keeps whether a client hears of a name: whether it is subscribed, and whether what it hears can be relied on.
package trust

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lua"
)

const (
	// DeafEvery is how often a client looks that cannot hear.
	DeafEvery = 100 * time.Millisecond
	// PollEvery is how long a client without subscriptions pauses between two looks at the least: the head of the queue, and
	// the n-th n times as long. As time goes by, that becomes a PollShare of how long nothing has changed, but no more of a
	// grant lease, so that no grant runs out before it is seen, and no more than PollMost: clients that are called have a
	// second to look.
	PollEvery = 2 * time.Millisecond
	PollShare = 4
	PollMost  = 500 * time.Millisecond
	// EchoTime is how long an echo may take before the connection counts as deaf.
	EchoTime = time.Second
)

// Trust is whether a site is subscribed, and whether it can rely on what it hears (R10). A subscription is wanted, then
// confirmed, then perhaps lost, and confirmed again. When a message is missed or a lease runs out, it is in doubt: from
// then on the site counts as deaf until a message from itself, the echo, has come over it. Trust sends nothing and
// sets no timer; its site does. The lock of the site guards it.
type Trust struct {
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

// Still is for how long nothing has been granted, by the last token in a reply of a server time: it is the time of its grant,
// unless it is ahead of the clock.
func (u *Trust) Still(last, at int64, now time.Time) time.Duration {
	if last != u.last {
		u.last, u.Since = last, now
	}
	return max(now.Sub(u.Since), time.Duration(at-last)*time.Microsecond)
}

// Pause is how long to wait with the next look, d where the site hears. Of one that polls, still is for how long nothing has
// changed, and most the longest pause.
func (u *Trust) Pause(d time.Duration, place int, still, most time.Duration) time.Duration {
	switch {
	case u.Polls:
		p := min(max(still/PollShare, time.Duration(max(place, 1))*PollEvery), most)
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

// Overdue notes that the echo has not come.
func (u *Trust) Overdue() {
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
