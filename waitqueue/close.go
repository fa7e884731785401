package waitqueue

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/core"
)

// Close is [Client.Shutdown] for at most 5 s, so that it can be deferred.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), calls.CloseTime)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown ends waits and holds, gives back what was held, and closes the client's own connections. It waits for the server
// to confirm that, until ctx ends; package headwaiter says more.
func (c *Client) Shutdown(ctx context.Context) error {
	calls.Given(ctx)
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		select {
		case <-c.gone:
			return nil
		case <-ctx.Done():
			return calls.WhyEnded(ctx)
		}
	}
	c.closing = true
	entries := make([]use, 0, len(c.entries))
	for _, s := range c.entries {
		entries = append(entries, s)
	}
	c.mu.Unlock()
	defer close(c.gone)
	var o outstanding
	now := time.Now()
	for _, s := range entries {
		o = s.close(o, now)
	}
	gone := c.ends.wait(ctx, func() time.Time { return o.Until(now) })
	err := o.Unconfirmed(now, gone, core.ErrNoAnswer)
	c.shut()
	return err
}

// shut stops what runs in the background and waits for it.
func (c *client) shut() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.identity.Close()
	c.servers.Close()
	c.notifier.Stop()
}

// An unconfirmed is a release that a server could still need when a client closes.
type unconfirmed interface {
	// Left is the latest time at which the server can still have something to release, of what it may have had at a time,
	// and whether that is a hold; zero if it has nothing. The error is why the release was not confirmed, if it was given
	// up.
	Left(begun time.Time) (until time.Time, hold bool, unended error)
}

// outstanding are the releases that are unconfirmed when a client closes.
type outstanding []unconfirmed

// Until is the latest time at which anything that was outstanding at a time can remain.
func (o outstanding) Until(begun time.Time) time.Time {
	until, _, _, _ := o.look(begun)
	return until
}

// look also says how many of the releases are not confirmed, of holds and of calls without one, and why.
func (o outstanding) look(begun time.Time) (until time.Time, holds, calls int, why error) {
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

// Unconfirmed says which releases were not confirmed, and why, of those outstanding at a time. gone is the error of the
// caller that waited for them, which may be nil; silence is the reason if there is no other.
func (o outstanding) Unconfirmed(begun time.Time, gone, silence error) error {
	_, holds, calls, why := o.look(begun)
	if holds+calls == 0 {
		return nil
	}
	return fmt.Errorf("headwaiter: close: Redis did not confirm %d release(s) and %d abandoned call(s), which end with their leases: %w", holds, calls, cmp.Or(why, gone, silence))
}
