// Package engine has what the engines that are not Redis share: the names of locks, the sessions and tickets of a client,
// what a call does between its attempts, and how a hold ends. What an attempt is, and what is sent, is theirs.
package engine

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

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
		if Rest(ctx, other, calls.Backoff(attempts)) != nil {
			return answer, attempts, err
		}
	}
}

// AllOver waits until the ends of some holds have been answered; each closes its channel then. It gives up when ctx ends,
// or the client's life.
func AllOver(ctx, life context.Context, ends []<-chan struct{}) error {
	for _, end := range ends {
		select {
		case <-end:
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return lease.ErrClosed
		}
	}
	return nil
}
