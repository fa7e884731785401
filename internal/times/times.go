// Package times has what is reckoned with times: which of several comes first, and how long to pause between attempts. It reads
// no clock and draws no random number.
package times

import (
	"math/bits"
	"time"
)

// First returns the earliest of the times that are set; zero if none is.
func First(all ...time.Time) (first time.Time) {
	for _, at := range all {
		if first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	return first
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

const (
	// FirstBackoff is the shortest time from an attempt that failed to the next.
	FirstBackoff = 10 * time.Millisecond
	// LongestBackoff is the longest.
	LongestBackoff = time.Second
)

// Backoff is how long to wait before the nth repeat, from 0. It doubles, with half of it left to chance, so that requests which
// failed together are not repeated together.
func Backoff(tries int, chance uint64) time.Duration {
	d := min(FirstBackoff<<min(tries, 10), LongestBackoff)
	return Jitter(d/2, d, chance)
}

// Jitter returns a time between two others, from the first on. chance is a number from the whole range.
func Jitter(from, to time.Duration, chance uint64) time.Duration {
	if to <= from {
		return from
	}
	part, _ := bits.Mul64(chance, uint64(to-from))
	return from + time.Duration(part)
}

// Readable makes a duration readable: three digits are enough.
func Readable(d time.Duration) time.Duration {
	for unit := time.Duration(1); unit <= time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d
}
