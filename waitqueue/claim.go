package waitqueue

import (
	"cmp"
	"context"
	"time"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// A Claim is a call for a hold that goes step by step: it may wait for other calls of its client before it asks, and asks with
// others. It is for internal/several, and for cohorts. A plain call does not come by this file.
type Claim struct {
	ctx     context.Context
	queue   *binding
	wait    wait      // its ticket is nil if nobody has needed one, its entry until it is known there
	arrival int64     // its place, if it has one already
	asked   time.Time // when it first asked with others
	busy    error     // who has what it wants, if the last ask was a try that failed
}

// Refuses is why calls with a context fail before they ask, if they do.
func (q Queue) Refuses(ctx context.Context) error {
	if err := q.usable(ctx); err != nil {
		return err
	}
	_, err := q.within(ctx)
	return err
}

// Claim begins a call, which may be a try. It sends nothing.
func (q Queue) Claim(ctx context.Context, try bool) (*Claim, error) {
	if err := q.Refuses(ctx); err != nil {
		return nil, err
	}
	mode := wire.Wait
	if try {
		mode = wire.Try
	}
	c := newClaim(ctx, q.binding, mode)
	c.tells()
	return &c, nil
}

func newClaim(ctx context.Context, q *binding, mode string) Claim {
	return Claim{ctx: ctx, queue: q, wait: wait{ctx: ctx, begun: time.Now(), mode: mode}}
}

// tells makes the ticket that tells of the claim, where somebody is told.
func (c *Claim) tells() {
	if c.queue.client.notifier != nil && c.wait.ticket == nil {
		c.wait.ticket = c.queue.newTicket(c.ctx)
		c.wait.ticket.teller.Asked(c.wait.ctx)
	}
}

// failed tells of a claim that has ended before its client knew its ticket.
func (c *Claim) failed(err error) error {
	if c.wait.ticket != nil {
		c.wait.ended(err)
	}
	return err
}

// Await asks for the hold of a claim that is known, and waits for it within ctx.
func (c *Claim) Await(ctx context.Context) (*lease.Lease, error) {
	c.wait.ctx = ctx
	return c.wait.toTheEnd()
}

// Enter makes the claim, of a call that began at a time, known to the client before it asks.
func (c *Claim) Enter(begun time.Time) error {
	c.wait.begun = begun
	if c.wait.ticket == nil {
		c.wait.ticket = c.queue.newTicket(c.ctx)
	}
	t := c.wait.ticket
	t.Begun, t.Try = begun, c.wait.mode != wire.Wait
	t.Deadline, _ = c.wait.ctx.Deadline()
	t.Arrival = cmp.Or(c.arrival, t.Arrival)
	t.Joint = true
	e, err := c.queue.client.register(c.queue, t)
	if err != nil {
		return c.failed(err)
	}
	c.wait.entry = e
	return nil
}
