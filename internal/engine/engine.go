// Package engine has what the engines that are not Redis share: how they name a client and check a name, how they try
// again, what a call does between its attempts, and how a hold ends. What an attempt is, and what is sent, is theirs.
package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// Limits end a hold though its client renews it; 0 is no such end.
type Limits struct {
	Hold  time.Duration // since the grant
	Stall time.Duration // since the last Progress
}

// Check says why a hold cannot have such ends.
func (l Limits) Check(most time.Duration) error {
	switch {
	case l.Hold < 0 || l.Hold > most:
		return fmt.Errorf("%w: WithMaxHold: a maximum hold of %v must be up to %v", lease.ErrInvalid, l.Hold, most)
	case l.Stall != 0 && (l.Stall < lease.MinLease || l.Stall > most):
		return fmt.Errorf("%w: WithMaxStall: a time without progress of %v must be from %v to %v", lease.ErrInvalid, l.Stall, lease.MinLease, most)
	}
	return nil
}

// WaitError says how far a call had come. last is what it met on its way, if anything.
func WaitError(place int, begun time.Time, last, why error) error {
	return &lease.WaitError{Place: place, Waited: time.Since(begun), Last: last, Err: why}
}

// Insist sends a request that may be sent twice until the answer is no error, or one that does not pass, or until the
// first of two contexts ends. Each attempt has to end by itself. The number of attempts tells whether an earlier one may have had
// its effect.
func Insist[T any](ctx, other context.Context, passes func(error) bool, send func() (T, error)) (answer T, attempts int, err error) {
	for {
		answer, err = send()
		attempts++
		if err == nil || !passes(err) {
			return answer, attempts, err
		}
		pause := time.NewTimer(retry.Backoff(attempts))
		select {
		case <-pause.C:
			continue
		case <-ctx.Done():
		case <-other.Done():
		}
		pause.Stop()
		return answer, attempts, err
	}
}

// AllOver waits until the ends of some holds have been answered, each of which is told by the end of a context. It gives up
// when ctx ends, or the client's life.
func AllOver(ctx, life context.Context, ends []context.Context) error {
	for _, end := range ends {
		select {
		case <-end.Done():
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return lease.ErrClosed
		}
	}
	return nil
}
