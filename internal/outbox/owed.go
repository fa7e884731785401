package outbox

import (
	"cmp"
	"fmt"
	"time"
)

// An Owed is an end that a server could still need when a client closes.
type Owed interface {
	// Left is until when the server may have what the end is for, of what it may have had at a time, and whether that is a
	// hold; zero if it has nothing. The error is why the end was not confirmed, if it was given up.
	Left(begun time.Time) (until time.Time, hold bool, unended error)
}

// Outstanding are the ends that are owed when a client closes.
type Outstanding []Owed

// Until is until when any of what was outstanding at a time is owed.
func (o Outstanding) Until(begun time.Time) time.Time {
	until, _, _, _ := o.look(begun)
	return until
}

// look says beside that how many of the ends are not confirmed, of holds and of calls without one, and why.
func (o Outstanding) look(begun time.Time) (until time.Time, holds, calls int, why error) {
	for _, one := range o {
		left, hold, unended := one.Left(begun)
		if why = cmp.Or(unended, why); left.After(until) {
			until = left
		}
		switch {
		case unended == nil && left.IsZero():
		case hold:
			holds++
		default:
			calls++
		}
	}
	return until, holds, calls, why
}

// Unconfirmed says which ends were not confirmed, and why, of what was outstanding at a time: gone is the error of whoever
// waited for them, which may be nil, and silence what stands for no reason at all.
func (o Outstanding) Unconfirmed(begun time.Time, gone, silence error) error {
	_, holds, calls, why := o.look(begun)
	if holds+calls == 0 {
		return nil
	}
	return fmt.Errorf("headwaiter: close: Redis did not confirm %d release(s) and %d abandoned call(s), which end with their leases: %w", holds, calls, cmp.Or(why, gone, silence))
}
