package prometheus

import (
	"context"
	"errors"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// other is the class of names that have none, and the cause of losses that are of no known kind.
const other = "other"

// How an attempt ends.
const (
	granted = iota
	entered
	passed
	busy
	full
	timeout
	cancelled
	closed
	failed
)

var outcomes = [...]string{
	granted: "granted", entered: "entered", passed: "passed", busy: "busy", full: "full", timeout: "timeout", cancelled: "cancelled",
	closed: "closed", failed: "error",
}

// outcomeOf is how an attempt ended that failed.
func outcomeOf(err error) int {
	switch {
	case errors.Is(err, lease.ErrBusy):
		return busy
	case errors.Is(err, lease.ErrQueueFull):
		return full
	case errors.Is(err, lease.ErrClosed):
		return closed
	case errors.Is(err, context.DeadlineExceeded):
		return timeout
	case errors.Is(err, context.Canceled):
		return cancelled
	}
	return failed
}

// gaveUp reports whether the caller would have waited longer for what ended so, had it had the time.
func gaveUp(outcome int) bool { return outcome == timeout || outcome == cancelled }

// The causes of a loss; the last is any other.
var causes = [...]struct {
	err   error
	label string
}{
	{lease.ErrExpired, "expired"},
	{lease.ErrForced, "forced"},
	{lease.ErrReplaced, "replaced"},
	{lease.ErrForgotten, "forgotten"},
	{lease.ErrMaxHold, "max_hold"},
	{lease.ErrStalled, "stalled"},
	{lease.ErrClientClosed, "closed"},
	{nil, other},
}

// causeOf is the place of a loss among the causes.
func causeOf(err error) int {
	last := len(causes) - 1
	for i, cause := range causes[:last] {
		if errors.Is(err, cause.err) {
			return i
		}
	}
	return last
}

// How a release ends that is no loss.
const (
	confirmed = iota
	unwoken
	unconfirmed
	handedOver
)

var releases = [...]string{confirmed: "confirmed", unwoken: "unwoken", unconfirmed: "unconfirmed", handedOver: "handed_over"}

// releaseOf is how a release ended.
func releaseOf(by observe.EventKind, err error) int {
	switch {
	case err == nil && by == observe.HandedOver:
		return handedOver
	case err == nil:
		return confirmed
	case errors.Is(err, lease.ErrUnwoken):
		return unwoken
	}
	return unconfirmed
}
