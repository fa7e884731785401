package zklock

import (
	"context"

	"github.com/headwaiter/headwaiter/lease"
)

// mostIdle is how many goroutines of a client wait for something to do. A new one begins with a small stack, which a
// request of the library outgrows twice; to copy it each time took a tenth of what a lock costs its client.
const mostIdle = 8

// spawn runs f on a goroutine that Close waits for, so f has to end with the client's life or the session's connection.
func (c *Client) spawn(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spawnLocked(f)
}

func (c *Client) spawnLocked(f func()) error {
	if c.closed {
		return lease.ErrClosed
	}
	select {
	case c.idle <- f:
	default:
		c.work.Go(func() { c.serve(f) })
	}
	return nil
}

// serve does f, and then what else there is to do.
func (c *Client) serve(f func()) {
	for {
		f()
		if c.rest.Add(1) > mostIdle {
			c.rest.Add(-1)
			return
		}
		select {
		case f = <-c.idle:
			c.rest.Add(-1)
		case <-c.life.Done():
			return
		}
	}
}

// do runs a request, which nothing can stop, beside the call, and returns when it is answered, or when ctx or until
// ends, for the cause of that. Requests end with the connection at the latest.
func do[T any](ctx, until context.Context, c *Client, request func() (T, error)) (T, error) {
	type reply struct {
		answer T
		err    error
	}
	replies := make(chan reply, 1)
	var r reply
	if err := c.spawn(func() {
		answer, err := request()
		replies <- reply{answer, err}
	}); err != nil {
		return r.answer, err
	}
	select {
	case r = <-replies:
		return r.answer, r.err
	case <-ctx.Done():
		return r.answer, ctx.Err()
	case <-until.Done():
		return r.answer, context.Cause(until)
	}
}
