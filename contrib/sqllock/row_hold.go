package sqllock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// retryTime is how long after a renewal that failed the next is due.
const retryTime = 200 * time.Millisecond

// A rowHold is the hold of a leased lock.
type rowHold struct {
	ticket *ticket
	token  int64
	keeper *keeper.Keeper

	mu    sync.Mutex // guards the fields below; the client's is taken after it
	timer *time.Timer
	sure  time.Time // when it was granted, or the last renewal that was answered was sent
	told  bool      // that it was taken away by force, which the next renewal shows
	over  bool      // somebody ends it
}

// beginLocked starts the hold's timer: for its renewals, and for its end.
func (h *rowHold) beginLocked(from time.Time, u keeper.Until) {
	h.sure = from
	// A third: two renewals may fail before the lease is in doubt. It also is what makes a grant a lease.
	h.timer = time.AfterFunc(time.Until(u.Deadline)/3, h.fired)
}

// fired is the hold's appointment: time for a renewal, or the end.
func (h *rowHold) fired() {
	if h.keeper.Overdue() {
		h.lose(lease.ErrExpired)
		return
	}
	h.ticket.client.renew(h)
	h.again(retryTime)
}

// again makes the next appointment, at the deadline at the latest.
func (h *rowHold) again(d time.Duration) {
	left := time.Until(h.keeper.Deadline())
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		h.timer.Reset(max(min(d, left), 0))
	}
}

// doubt asks the server about a hold that somebody says was taken away: anybody who may connect may say so.
func (h *rowHold) doubt() {
	h.mu.Lock()
	h.told = true
	h.mu.Unlock()
	h.ticket.client.renew(h)
}

// missed is the loss of a hold that the server does not have any more.
func (h *rowHold) missed() {
	h.mu.Lock()
	cause := lease.ErrForgotten
	if h.told {
		cause = lease.ErrForced
	}
	h.mu.Unlock()
	h.lose(cause)
}

// failing notes why a renewal was not answered.
func (h *rowHold) failing(why error) {
	h.mu.Lock()
	since := h.sure
	h.mu.Unlock()
	h.keeper.Failing(since, why)
}

// renewed is what a renewal is answered with, which was sent at the given moment.
func (h *rowHold) renewed(sent time.Time, u keeper.Until) {
	h.mu.Lock()
	h.told, h.sure = false, sent
	h.mu.Unlock()
	if h.keeper.Extend(u) {
		h.again(time.Until(u.Deadline) / 3)
	}
}

// take makes the caller the one that ends the hold, unless there is one.
func (h *rowHold) take() bool {
	h.mu.Lock()
	was := h.over
	h.over = true
	h.timer.Stop()
	h.mu.Unlock()
	if !was {
		h.ticket.client.forget(h)
	}
	return !was
}

// lose ends the hold as lost. The server is told too: what it may still have of it is in nobody's hand.
func (h *rowHold) lose(cause error) {
	h.keeper.Lose(cause)
	c := h.ticket.client
	if errors.Is(context.Cause(h.keeper.Context()), lease.ErrReleased) || c.enter() != nil {
		return // Its owner, or Close, ends it.
	}
	if !h.take() {
		c.work.Done()
		return
	}
	go func() {
		defer c.work.Done()
		_, _, _ = c.endAlways(h.ticket)
	}()
}

// release is what Release of the lease does, once. It does not wait for longer than the hold would have lasted. What comes
// to no answer goes on in the background.
func (h *rowHold) release(ctx context.Context) error {
	c := h.ticket.client
	if err := c.enter(); err != nil {
		return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, lease.ErrClosed)
	}
	defer c.work.Done()
	if !h.take() {
		return lease.ErrForgotten
	}
	ctx, cancel := context.WithDeadlineCause(ctx, h.keeper.Deadline(), errNoAnswer)
	defer cancel()
	type result struct {
		was  int
		sure bool
		err  error
	}
	done := make(chan result, 1)
	c.work.Go(func() {
		was, sure, err := c.endAlways(h.ticket)
		done <- result{was, sure, err}
	})
	select {
	case r := <-done:
		if r.err != nil {
			return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, r.err)
		}
		return h.verdict(r.was, r.sure)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, calls.WhyEnded(ctx))
	}
}

// verdict is what the answer to a release means. If one that was sent before may have done it, a ticket that is not there any
// more is one that it has ended.
func (h *rowHold) verdict(was int, sure bool) error {
	switch {
	case was == 2, was == 0 && !sure && time.Now().Before(h.keeper.Deadline()):
		return nil
	case was == 3:
		return lease.ErrExpired
	}
	return lease.ErrForgotten
}

// close ends the hold with its client.
func (h *rowHold) close() {
	h.keeper.Lose(lease.ErrClientClosed)
	if h.take() {
		_, _, _ = h.ticket.client.endAlways(h.ticket)
	}
}

// renew renews a hold, with all others that are due.
func (c *Client) renew(h *rowHold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due[h] = struct{}{}
	if c.renewing || c.closed {
		return
	}
	c.renewing = true
	c.work.Add(1)
	go c.renewAll()
}

// renewAll renews until nothing is due.
func (c *Client) renewAll() {
	defer c.work.Done()
	for {
		c.mu.Lock()
		due := c.due
		if len(due) == 0 || c.closed {
			c.renewing = false
			c.mu.Unlock()
			return
		}
		c.due = map[*rowHold]struct{}{}
		c.mu.Unlock()
		c.renewBatch(due)
	}
}

// renewBatch renews holds by one statement. Those that it does not find are lost; where it fails, they are due again.
func (c *Client) renewBatch(due map[*rowHold]struct{}) {
	const query = `UPDATE headwaiter_ticket t SET until = clock_timestamp() + t.lease, claimed = true
		FROM unnest($1::text[], $2::bigint[]) AS due (ticket, token)
		WHERE t.ticket = due.ticket AND t.token = due.token AND t.until > clock_timestamp()
		RETURNING t.ticket, t.lease`
	var ids []string
	var tokens []int64
	limit := attemptTime
	for h := range due {
		ids, tokens = append(ids, h.ticket.id), append(tokens, h.token)
		limit = min(limit, max(time.Until(h.keeper.Deadline())/2, shortAttempt))
	}
	ctx, cancel := context.WithTimeout(c.last, limit)
	defer cancel()
	sent, slept := time.Now(), keeper.Slept()
	found := map[string]time.Duration{}
	rows, err := c.pool.Query(ctx, query, ids, tokens)
	if err == nil {
		var id string
		var lasts time.Duration
		_, err = pgx.ForEachRow(rows, []any{&id, &lasts}, func() error {
			found[id] = lasts
			return nil
		})
	}
	c.watch.Request(c.last, sent, err, passes)
	if err != nil && code(err) == "" {
		c.pool.Reset() // What happened to this connection may have happened to all that are idle.
	}
	for h := range due {
		if err != nil {
			h.failing(err)
			continue
		}
		if lasts, is := found[h.ticket.id]; is {
			h.renewed(sent, until(sent, lasts, slept))
		} else {
			h.missed()
		}
	}
}
