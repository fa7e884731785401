package waitqueue

import (
	"time"

	"github.com/headwaiter/headwaiter/lua"
)

// echoTime is how long an echo may take before the connection counts as deaf.
const echoTime = time.Second

// trust is whether a site is subscribed, and whether it can rely on what it hears (R10). A subscription is wanted, then
// confirmed, then perhaps lost, and confirmed again. When a message is missed or a lease runs out, it is in doubt: from
// then on the site counts as deaf until a message from itself, the echo, has come over it. trust sends nothing and
// sets no timer; its site does. The lock of the site guards it.
type trust struct {
	wanted    bool      // the site has asked for the subscription
	heard     bool      // it is confirmed, and was not lost since
	confirmed int       // how often it was confirmed
	deaf      bool      // it is in doubt
	echo      string    // the nonce of the echo that is waited for
	echoBy    time.Time // when that is late
	late      int       // echoes that did not come, in a row
	proven    bool      // an echo came, and no check has told the server so yet
}

// hears reports whether tickets may queue (R2).
func (u *trust) hears() bool { return u.heard && !u.deaf }

// mode is what a check says of it to the server.
func (u *trust) mode() string {
	switch {
	case !u.hears():
		return lua.Deaf
	case u.proven:
		return lua.Proven
	}
	return lua.Hears
}

// want reports whether the subscription was not wanted before.
func (u *trust) want() bool {
	before := u.wanted
	u.wanted = true
	return !before
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
	u.deaf, u.proven = true, false
	return !before
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
