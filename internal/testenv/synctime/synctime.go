// Package synctime is for tests in bubbles of testing/synctest, whose clock stands still while anybody works.
package synctime

import "time"

// Pass lets time pass: the caller goes on d later by the bubble's clock, when all that was due before has
// begun. It panics outside of a bubble, where it would be a pause in the hope that something happens.
func Pass(d time.Duration) {
	if now := time.Now(); now.Year() >= longAfter {
		panic("synctime: time passes by itself at " + now.Format(time.RFC3339))
	}
	time.Sleep(d)
}

// longAfter is later than a test gets in a bubble, which begins in 2000, and earlier than any real clock.
const longAfter = 2020
