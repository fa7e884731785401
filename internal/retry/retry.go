// Package retry has what a call does between two attempts, and what it says when its context ends.
package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Given panics where there is no context, as package context does: at once, when nothing is locked or changed yet.
func Given(ctx context.Context) {
	if ctx == nil {
		panic("nil context")
	}
}

// WhyEnded is the error of a context, which wraps its cause too; nil if it has not ended.
func WhyEnded(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case err == nil || cause == nil:
		return err
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Within returns ctx, or where d is not 0 one that ends after d with a cause at the latest; and what frees it.
func Within(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	if d == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, cause)
}

const (
	// FirstBackoff is the shortest time from an attempt that failed to the next.
	FirstBackoff = 10 * time.Millisecond
	// LongestBackoff is the longest.
	LongestBackoff = time.Second
)

// Backoff is how long to wait before the nth repeat, from 0. It doubles, with half of it left to chance, so
// that those who failed together do not come back together.
func Backoff(tries int) time.Duration {
	d := min(FirstBackoff<<min(tries, 10), LongestBackoff)
	return d/2 + rand.N(d/2)
}

// Rest waits for d, or less if ctx ends, and then returns why.
func Rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
