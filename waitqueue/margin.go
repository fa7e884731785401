package waitqueue

import (
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// margin is what a holder keeps for itself of a lease, for clocks that run apart and for the time that it
// takes to notice: a hundredth, at least 2 ms where the lease has them to spare.
func margin(d time.Duration) time.Duration {
	return max(d/100, min(2*time.Millisecond, d/4))
}

// until returns the end of a hold that the server counts from at least the given local time on.
func until(from time.Time, lasts, slept time.Duration, cause error) lease.Until {
	return lease.Until{Deadline: from.Add(lasts - margin(lasts)), Slept: slept, Cause: cause}
}
