package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Several names in one script, for internal/several: all tickets of a call come into their queues at once.

// AskAll asks for all claims, which are of one slot and of the protocol of the fair lock, in one script, and again until
// there is an answer; waiting is called before each pause. Where keep is true and all of them can hear, those that are not
// granted have their places then. It reports whether one of them cannot be had without a place.
func AskAll(ctx context.Context, claims []*Claim, keep bool, waiting func()) (refused bool, err error) {
	first := claims[0]
	budget, begun := conn.AttemptTime, first.wait.begun
	failed := func(err, last error) error {
		return &lease.WaitError{Place: -1, Waited: time.Since(begun), Last: last, Err: err}
	}
	mode := lua.Try
	if keep {
		mode = lua.Wait
	}
	var last error
	for tries := 0; ; tries++ {
		if ctx.Err() != nil {
			return false, failed(retry.WhyEnded(ctx), last)
		}
		refused, late, err := askAll(ctx, claims, mode, budget)
		switch {
		case err == nil && !late:
			return refused, failureOf(claims)
		case err == nil:
			budget = min(2*budget, conn.LongestAttempt)
		case !conn.Transient(err) || first.wait.mode == lua.Try && tries > 0 && time.Since(begun) > retry.TryTime:
			return false, conn.Advise(err)
		default:
			if d, ok := ctx.Deadline(); !ok || time.Now().Before(d) {
				last = conn.Advise(err) // Else it is the call's own deadline that has ended the request.
			}
			waiting()
			if err := first.queue.client.servers.Rest(ctx, retry.Backoff(tries)); err != nil {
				return false, failed(err, last)
			}
		}
	}
}

// failureOf is why one of the claims will never hold, if one will not.
func failureOf(claims []*Claim) error {
	for _, c := range claims {
		c.wait.site.mu.Lock()
		err := errors.Join(c.wait.ticket.err, c.wait.ticket.refused)
		c.wait.site.mu.Unlock()
		if err != nil {
			return c.wait.failed(err)
		}
	}
	return nil
}

// askAll sends one script for all claims that no message was faster for, and takes in the answers.
func askAll(ctx context.Context, claims []*Claim, mode string, budget time.Duration) (refused, late bool, err error) {
	for _, c := range claims {
		if err := c.wait.site.afterEnds(ctx, c.wait.mode); err != nil {
			return false, false, err
		}
	}
	first := claims[0].wait.ticket
	c, n := claims[0].queue.client, claims[0].wait.site.node()
	a := n.Attempt(budget)
	var keys, tickets []string
	var asked []*Claim
	var asks []*ask
	for _, p := range claims {
		s, t := p.wait.site, p.wait.ticket
		s.mu.Lock()
		if !t.asksLocked() {
			s.mu.Unlock()
			continue // A message was faster, or the ticket is ending.
		}
		q := &ask{Attempt: a}
		mode = q.beginLocked(t, mode)
		if p.asked.IsZero() {
			p.asked = a.Sent
		}
		asked, asks = append(asked, p), append(asks, q)
		keys = append(keys, s.keys.All()...)
		tickets = append(tickets, t.text, strconv.FormatInt(t.arrival, 10))
		s.mu.Unlock()
	}
	if len(asked) == 0 {
		return false, false, nil
	}
	args := append([]string{mode, a.NotAfter, strconv.FormatInt(first.queue.terms.HeadStart(), 10), c.highest(), c.servers.Counted(), first.phase()}, tickets...)
	c.stats.asks.Add(1)
	replies, err := lua.MultiAsk.DecodeAll(c.servers.RunFor(ctx, lua.MultiAsk, keys, args...), len(asked))
	late = err == nil && len(replies) == 1 && replies[0].Status == lua.Late
	for i, p := range asked {
		var r lua.Reply
		if late {
			r = replies[0]
		} else if err == nil {
			r = replies[i]
		}
		p.wait.clean = r.Status == lua.Busy
		if p.busy = nil; r.Owner() != "" || r.Waiting > 0 { // Else it is free, and only others are not.
			p.busy = busyBy(&r)
		}
		refused = refused || p.wait.clean
		if late || p.wait.clean {
			p.asked = time.Time{} // Nothing of it is there.
		}
		p.wait.site.taken(asks[i], &r, err)
	}
	return refused, late, err
}

// Again returns a claim in place of one that has ended: for the same call, and with the same place in the queue.
func (c *Claim) Again() *Claim {
	s, t := c.wait.site, c.wait.ticket
	s.mu.Lock()
	arrival := t.arrival
	s.mu.Unlock()
	if arrival == 0 && !c.asked.IsZero() {
		// It was granted at once, or by a message after an ask whose answer was lost: nobody has told.
		if earliest := s.node().Clock.AtLeast(c.asked); earliest > 0 {
			arrival = earliest - t.queue.terms.HeadStart()
		}
	}
	again := newClaim(c.ctx, c.queue, c.wait.mode)
	again.tells()
	again.arrival = arrival
	return &again
}

// Busy says who has what the claim wants, if its last ask was a try that failed.
func (c *Claim) Busy() error { return c.busy }

// Hear reports whether the client hears of the name, or the claim needs that no more; else the channel tells when to
// look again. It makes the client subscribe.
func (c *Claim) Hear() (hears bool, changed <-chan struct{}) {
	s, t := c.wait.site, c.wait.ticket
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.asksLocked() {
		return true, nil // It is granted, or the client was closed.
	}
	t.to(idling) // It is poked when the site hears.
	if s.trust.want() {
		s.subscribeLocked()
	}
	return s.hearsLocked(), t.waking()
}

// Granted reports whether the claim was granted. Where its client hears of nothing, it looks before it says no.
func (c *Claim) Granted(ctx context.Context) bool {
	s, t := c.wait.site, c.wait.ticket
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.waits() && s.trust.polls {
		looked := s.lookLocked()
		s.mu.Unlock()
		select {
		case <-looked:
		case <-ctx.Done():
		case <-s.client.servers.Ended():
		}
		s.mu.Lock()
	}
	return t.state == held || t.state == confirming
}

// Take returns the lease of a claim that was granted, or nil.
func (c *Claim) Take() *lease.Lease {
	return c.wait.site.grasp(c.ctx, c.wait.ticket, time.Since(c.wait.begun))
}

// Leave ends a claim that has asked, and leaves nothing of it behind.
func (c *Claim) Leave(err error) {
	c.wait.site.finish(c.wait.ticket, c.wait.clean)
	c.wait.ended(err)
}

// Below says that a hold is a part of one with a higher token: whoever holds the name next gets a token above that one,
// however the hold ends here.
func Below(l *lease.Lease) {
	t := l.Engine().(*share).hold.ticket
	t.site.mu.Lock()
	defer t.site.mu.Unlock()
	t.used = l.Token()
}

// ReleaseAll releases leases of one slot, of the protocol of the fair lock, in one script, and returns the first error.
func ReleaseAll(ctx context.Context, leases []*lease.Lease) (err error) {
	var holds []*hold
	var keys, tickets []string
	for _, l := range leases {
		sh := l.Engine().(*share)
		if !sh.let() {
			err = cmp.Or(err, l.Release(ctx))
			continue
		}
		t := sh.hold.ticket
		holds = append(holds, sh.hold)
		tickets = append(tickets, t.text)
		keys = append(keys, t.site.keys.All()...)
	}
	if len(holds) == 0 {
		return err
	}
	c := holds[0].ticket.site.client
	c.ends.Owe() // Close waits for it.
	defer c.ends.Done(1)
	a := conn.Sending()
	c.stats.ends.Add(1)
	args := append([]string{c.highest(), c.servers.Counted()}, tickets...)
	replies, failed := lua.MultiEnd.DecodeAll(c.servers.RunFor(ctx, lua.MultiEnd, keys, args...), len(holds))
	for i, h := range holds {
		s, ended := h.ticket.site, lease.ErrUnconfirmed
		var head lua.Head
		if failed == nil {
			s.absorb(a, &replies[i], false)
			head = replies[i].Head()
		}
		d := h.ticket.end()
		s.endAnswered(&d, a, &head, failed)
		switch {
		case failed == nil:
			ended = h.outcome(&head)
		case err == nil:
			ended = h.outlast(ctx)
		}
		h.released(h.held(), ended)
		err = cmp.Or(err, ended)
	}
	return err
}
