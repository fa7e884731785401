package waitqueue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
)

// Close ends waits with [lease.ErrClosed] and holds with [lease.ErrClientClosed], gives back what was held, and
// closes the connections if they are the client's own. It waits for the server to confirm that, until ctx ends, and
// with the server away for as long as there is something to give back: until the leases are over that the server may
// know of, and a few seconds longer after requests that were not answered. What was not confirmed is an error, and ends
// with its lease. A second call waits for the first, until its own ctx ends.
//
// On connections of the caller's that are being made at that moment, Close waits for rueidis to give that up, whatever ctx
// says: as long as the time-out of its Dialer or its ConnWriteTimeout.
func (c *Client) Close(ctx context.Context) error {
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
	var o outstanding
	now := time.Now()
	for _, s := range sites {
		s.close()
		o.collect(s, now)
	}
	err := o.unconfirmed(now, c.ends.Wait(ctx, func() time.Time {
		until, _, _, _ := o.look(now)
		return until
	}))
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

// An owed end is one that a server could still need when a client closes: of a ticket, or of a grant to one that is not
// known any more.
type owed struct {
	site   *site
	ticket *ticket
	grant  *end // if there is no ticket
	hold   bool // it is of a hold
}

// left is until when the server may have what the end is for, of what it may have had at a time; zero if it has nothing.
// The error is why the end was not confirmed, if it was given up. A ticket of which an answer has said since that the server
// has nothing needs no end.
func (o owed) left(begun time.Time) (until time.Time, unended error) {
	o.site.mu.Lock()
	defer o.site.mu.Unlock()
	if t := o.ticket; t != nil {
		if t.state != ended {
			until = t.owesLocked(begun)
		}
		return until, t.unended
	}
	if _, open := o.site.leaving[o.grant]; open {
		until = o.grant.owes
	}
	return until, o.grant.unended
}

// outstanding are the ends that are owed when a client closes.
type outstanding []owed

// collect takes in those of a site.
func (o *outstanding) collect(s *site, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tickets {
		if t.owesLocked(now).After(now) {
			*o = append(*o, owed{site: s, ticket: t, hold: t.hold != nil})
		}
	}
	for d := range s.leaving {
		if d.owes.After(now) {
			*o = append(*o, owed{site: s, grant: d})
		}
	}
}

// look says until when any of what was outstanding at a time is owed, how many of the ends are not confirmed, of holds and
// of calls without one, and why.
func (o outstanding) look(begun time.Time) (until time.Time, holds, calls int, why error) {
	for _, one := range o {
		left, unended := one.left(begun)
		until, why = timers.Later(until, left), cmp.Or(unended, why)
		switch {
		case unended == nil && left.IsZero():
		case one.hold:
			holds++
		default:
			calls++
		}
	}
	return until, holds, calls, why
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
// answer may have made of it.
func (h *hold) owesLocked(now time.Time) time.Time {
	until := timers.Later(h.lasts.Deadline.Add(margin(h.spans)), h.ghost)
	if h.renewing {
		until = timers.Later(until, now.Add(conn.AttemptTime+h.ticket.queue.terms.Lease))
	}
	return until
}

// unconfirmed says which ends were not confirmed, and why, of what was outstanding at a time. gone is the error of whoever
// waited for them, if any.
func (o outstanding) unconfirmed(begun time.Time, gone error) error {
	_, holds, calls, why := o.look(begun)
	if holds+calls == 0 {
		return nil
	}
	return fmt.Errorf("headwaiter: close: Redis did not confirm all ends (%d of holds, %d of calls without one): %w", holds, calls, cmp.Or(why, gone, errNoAnswer))
}
