// Package calls has what all calls do, whatever the engine: what their contexts say and when they end, the pauses between their
// attempts, and how much the holds have that they come from.
package calls

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/lease"
)

// Given panics where there is no context, as package context does: at once, when nothing is locked or changed yet.
func Given(ctx context.Context) {
	if ctx == nil {
		panic("nil context")
	}
}

// Over is a context that has ended: what is given back on it goes out in the background, and nobody waits for the answer.
var Over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

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

// InTime returns the context of a call that may wait for d at the most, as headwaiter.WithMaxWait says, and what frees it;
// 0 is for as long as ctx lasts.
func InTime(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc, error) {
	Given(ctx)
	if d == 0 {
		return ctx, func() {}, nil
	}
	if d < time.Millisecond || d > lease.MaxLease {
		return nil, nil, fmt.Errorf("%w: WithMaxWait: %v must be from 1ms to 365 days, or 0 for no bound", lease.ErrInvalid, d)
	}
	ctx, free := context.WithTimeoutCause(ctx, d, lease.ErrWaitTimeout)
	return ctx, free, nil
}

// TryTime is how long a call that does not wait for its turn waits out errors that pass by themselves.
const TryTime = 3 * time.Second

// FirstBackoff and LongestBackoff are the shortest and the longest pause.
const (
	FirstBackoff   = times.FirstBackoff
	LongestBackoff = times.LongestBackoff
)

// Backoff is [times.Backoff] with a random number.
func Backoff(tries int) time.Duration { return times.Backoff(tries, rand.Uint64()) }

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

// SlowAnswer is how long an answer takes at least that counts as late: a call does not wait for it on its own goroutine,
// and one that ends meanwhile says that the server does not answer.
const SlowAnswer = 250 * time.Millisecond

// Last is the last error that a call has waited out. If the call's own deadline ended the last request, it is the error
// before.
func Last(ctx context.Context, err, before error) error {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return before
	}
	return err
}

// Jitter is [times.Jitter] with a random number.
func Jitter(from, to time.Duration) time.Duration { return times.Jitter(from, to, rand.Uint64()) }

// Calling tries. Where a client may only keep what is wanted for its next call, it is called: then the try waits in the
// queue, for 50 ms at most.
func Calling(ctx context.Context, try, wait func(context.Context) (*lease.Lease, error)) (*lease.Lease, error) {
	l, err := try(ctx)
	var busy *lease.BusyError
	if !errors.As(err, &busy) || !busy.Kept || busy.Waiting > 0 {
		return l, err
	}
	short, cancel := context.WithTimeoutCause(ctx, calledTime, errCalled)
	defer cancel()
	l, called := wait(short)
	switch {
	case called == nil:
		return l, nil
	case short.Err() != nil || errors.Is(called, lease.ErrQueueFull) || errors.Is(called, lease.ErrWaitTimeout):
		return nil, err // It does not say that it has waited, as it has not for long.
	}
	return nil, called
}

// calledTime is how long a try waits for a client that is called because it may only keep what it held.
const calledTime = 50 * time.Millisecond

var errCalled = errors.New("called")

// CloseTime is how long the Close of a client waits for what it gives back: within the time that a service has to stop.
const CloseTime = 5 * time.Second
