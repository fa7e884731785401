//go:build !linux

package keeper

import "time"

// started has both clocks: where there is no clock that runs on in a suspended machine, the wall clock
// stands in for it, and a step of the wall clock forward counts as sleep.
var started = time.Now()

// Slept returns for how long this machine has been suspended since the process started.
func Slept() time.Duration {
	_, slept := Clocks()
	return slept
}

// Clocks returns the time, and for how long this machine had been suspended by then.
func Clocks() (now time.Time, slept time.Duration) {
	now = time.Now()
	slept = now.Round(0).Sub(started.Round(0)) - now.Sub(started)
	return now, max(slept, 0)
}
