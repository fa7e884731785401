package waitqueue

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// Close is [Client.Shutdown] for at most 5 s, so that it can be deferred.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lease.CloseTime)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown ends waits with [lease.ErrClosed] and holds with [lease.ErrClientClosed], gives back what was held, and
// closes the connections if they are the client's own. It waits for the server to confirm that, until ctx ends, and
// with the server away for as long as there is something to give back: until the leases are over that the server may
// know of, and a few seconds longer after requests that were not answered. What was not confirmed is an error, and ends
// with its lease. A second call waits for the first, until its own ctx ends.
//
// On connections of the caller's that are being made at that moment, Shutdown waits for rueidis to give that up, whatever ctx
// says: as long as the time-out of its Dialer or its ConnWriteTimeout. On the client's own it ends that; a DialCtxFn of the
// caller's is to return when its context ends.
func (c *Client) Shutdown(ctx context.Context) error {
	retry.Given(ctx)
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		select {
		case <-c.gone:
			return nil
		case <-ctx.Done():
			return retry.WhyEnded(ctx)
		}
	}
	c.closing = true
	sites := make([]known, 0, len(c.sites))
	for _, s := range c.sites {
		sites = append(sites, s)
	}
	c.mu.Unlock()
	defer close(c.gone)
	var o outbox.Outstanding
	now := time.Now()
	for _, s := range sites {
		o = s.close(o, now)
	}
	gone := c.ends.Wait(ctx, func() time.Time { return o.Until(now) })
	err := o.Unconfirmed(now, gone, core.ErrNoAnswer)
	c.shut()
	return err
}

// shut stops what runs in the background and waits for it.
func (c *client) shut() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.servers.Close()
	c.notifier.Stop()
}
