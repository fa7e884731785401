package waitqueue

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/renewals"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/timers"
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
	sites := make([]*site, 0, len(c.sites))
	for _, s := range c.sites {
		sites = append(sites, s)
	}
	layers := slices.Collect(maps.Values(c.layers))
	c.mu.Unlock()
	defer close(c.gone)
	for _, l := range layers {
		l.Close()
	}
	var o outbox.Outstanding
	now := time.Now()
	for _, s := range sites {
		s.close()
		o = s.owed(o, now)
	}
	gone := c.ends.Wait(ctx, func() time.Time { return o.Until(now) })
	err := o.Unconfirmed(now, gone, errNoAnswer)
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

// close ends the waits and the holds of the site, for a client that closes.
func (s *site) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tickets {
		if t.hold != nil {
			t.hold.loseLocked(lease.ErrClientClosed)
			continue
		}
		t.err = lease.ErrClosed
		if t.stop != nil {
			t.stop()
		}
		s.endLocked(t) // Here, not by the call that is woken: Close waits for the ends that have begun.
		t.pokeLocked()
	}
}

// owed takes in the ends of a site that a server could still need when its client closes: of tickets, and of grants to those
// that are not known any more.
func (s *site) owed(o outbox.Outstanding, now time.Time) outbox.Outstanding {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tickets {
		if t.owesLocked(now).After(now) {
			o = append(o, t)
		}
	}
	for d := range s.leaving {
		if d.owes.After(now) {
			o = append(o, d)
		}
	}
	return o
}

// Left is what the server may have of the ticket. One of which an answer has said since that there is nothing needs no end.
func (t *ticket) Left(begun time.Time) (until time.Time, hold bool, unended error) {
	t.site.mu.Lock()
	defer t.site.mu.Unlock()
	if t.state != ended {
		until = t.owesLocked(begun)
	}
	return until, t.hold != nil, t.unended
}

// Left is the same of a grant to a ticket that is not known any more.
func (d *end) Left(time.Time) (until time.Time, hold bool, unended error) {
	d.site.mu.Lock()
	defer d.site.mu.Unlock()
	if _, open := d.site.leaving[d]; open {
		until = d.owes
	}
	return until, false, d.unended
}

// owesLocked is until when the server may have something of the ticket that others wait for: what it holds, what a
// request without an answer may have taken for it or may yet take, and what it may be granted by message, now for the
// last time. It is zero if there is no such thing.
func (t *ticket) owesLocked(now time.Time) (until time.Time) {
	switch {
	case t.hold != nil:
		until = t.hold.owesLocked(now)
	case t.grant.token != 0:
		until = t.grant.from.Add(t.grant.lasts)
	case t.arrival != 0:
		until = now.Add(t.takes)
	}
	if t.inflight > 0 {
		until = timers.Later(until, now.Add(conn.AttemptTime+t.lease()))
	}
	if !t.ghost.IsZero() {
		until = timers.Later(until, t.ghost.Add(t.lease()))
	}
	return until
}

// owesLocked is until when the server may have the hold: to the end of its lease, or of what renewals without an
// answer may have made of it. A lease that has run out ends in the server by itself within its margin.
func (h *hold) owesLocked(now time.Time) time.Time {
	until := h.ghost
	if h.gone != lease.ErrExpired {
		until = timers.Later(until, h.lasts.Deadline.Add(renewals.Margin(h.spans)))
	}
	if h.renewing {
		until = timers.Later(until, now.Add(conn.AttemptTime+h.ticket.queue.terms.Lease))
	}
	return until
}
