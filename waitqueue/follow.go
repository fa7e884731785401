package waitqueue

import (
	"context"
	"strconv"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// Follow returns a channel of what look returns, which it calls at first and again whenever the queue's event has got
// another generation than look returned. What is like the one before is left out.
//
// The channel keeps the newest state alone: one that nobody has received is replaced, so nothing waits for a slow
// receiver, and the last state is never missed. It is closed when ctx ends, and after an error that no retry mends,
// which failed turns into the last state. The goroutine behind it is the client's, which waits for its end.
func Follow[T comparable](ctx context.Context, q Queue, look func(context.Context) (T, int64, error), failed func(error) T) <-chan T {
	retry.Given(ctx)
	states := make(chan T, 1)
	put := func(state T) {
		select {
		case <-states:
		default:
		}
		states <- state // There is room: nobody else sends.
	}
	fail := func(err error) {
		if ctx.Err() == nil {
			put(failed(err))
		}
		close(states)
	}
	if q.err != nil {
		fail(q.err)
		return states
	}
	if !q.client.servers.Spawn(func() { fail(follow(ctx, q, look, put)) }) {
		fail(lease.ErrClosed)
	}
	return states
}

// follow puts one state after the other, until an error.
func follow[T comparable](ctx context.Context, q Queue, look func(context.Context) (T, int64, error), put func(T)) error {
	var last T
	for first := true; ; first = false {
		state, generation, err := look(ctx)
		if err != nil {
			return err
		}
		if first || state != last {
			put(state)
		}
		last = state
		seen := strconv.FormatInt(generation, 10)
		if _, err := q.Await(ctx, Event{Extras: func(_, _ string) []string { return []string{seen} }}); err != nil {
			return err
		}
	}
}
