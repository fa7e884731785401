package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/wire"
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
	unanswered := false // the last ask
	failed := func(err, last error) error {
		return &lease.WaitError{Place: -1, Waited: time.Since(begun), Last: last, Err: err, Unanswered: unanswered && err != lease.ErrClosed}
	}
	mode := wire.Try
	if keep {
		mode = wire.Wait
	}
	var last error
	for tries := 0; ; tries++ {
		if ctx.Err() != nil {
			return false, failed(retry.WhyEnded(ctx), last)
		}
		refused, late, err := askAll(ctx, claims, mode, budget)
		unanswered = err != nil
		switch {
		case err == nil && !late:
			return refused, failureOf(claims)
		case err == nil:
			budget = min(2*budget, conn.LongestAttempt)
		case !first.passes(err):
			return false, conn.Advise(err)
		case ctx.Err() != nil:
			last = retry.Last(ctx, conn.Advise(err), last)
		case first.wait.mode == wire.Try && tries > 0 && time.Since(begun) > retry.TryTime:
			return false, failed(conn.Advise(err), nil)
		default:
			last = retry.Last(ctx, conn.Advise(err), last)
			waiting()
			if err := first.queue.client.servers.Rest(ctx, retry.Backoff(tries)); err != nil {
				return false, failed(err, last)
			}
		}
	}
}

// passes reports whether the call of a claim without a place waits for an error to pass.
func (c *Claim) passes(err error) bool {
	c.wait.entry.mu.Lock()
	defer c.wait.entry.mu.Unlock()
	return conn.Transient(err) || c.wait.ticket.Arrival != 0 && conn.Mendable(err)
}

// failureOf is why one of the claims will never hold, if one will not.
func failureOf(claims []*Claim) error {
	for _, c := range claims {
		c.wait.entry.mu.Lock()
		err := errors.Join(c.wait.ticket.WaitErr, c.wait.ticket.Refused)
		c.wait.entry.mu.Unlock()
		if err != nil {
			return c.wait.failed(err)
		}
	}
	return nil
}

// askAll sends one script for all claims that no message was faster for, and takes in the answers.
func askAll(ctx context.Context, claims []*Claim, mode string, budget time.Duration) (refused, late bool, err error) {
	for _, c := range claims {
		if err := c.wait.afterEnds(ctx); err != nil {
			return false, false, err
		}
	}
	first := claims[0].wait.ticket
	c, n := claims[0].queue.client, claims[0].wait.entry.node()
	a := n.Attempt(budget)
	var keys, tickets []string
	var asked []*Claim
	var asks []*ask
	for _, p := range claims {
		e, t := p.wait.entry, p.wait.ticket
		q := &ask{attempt: a}
		var ok bool
		x := e.begin()
		if q.Acquire, ok = e.lock.BeginAcquire(&x.Input, &t.Ticket, mode, a.Sent); ok {
			mode = q.Mode
		}
		e.end(x)
		if !ok {
			continue // A message was faster, or the ticket is ending.
		}
		if p.asked.IsZero() {
			p.asked = a.Sent
		}
		asked, asks = append(asked, p), append(asks, q)
		keys = append(keys, e.keys.All()...)
		tickets = append(tickets, q.Text, strconv.FormatInt(q.Acquire.Arrival, 10))
	}
	if len(asked) == 0 {
		return false, false, nil
	}
	_, phase := first.queue.terms.first()
	args := append([]string{mode, a.NotAfter, strconv.FormatInt(first.queue.terms.headStart(), 10), c.highest(), c.servers.Counted(), phase}, tickets...)
	c.stats.Asks.Add(1)
	replies, err := lua.MultiAsk.DecodeAll(c.servers.RunFor(ctx, lua.MultiAsk, keys, args...), len(asked))
	late = err == nil && len(replies) == 1 && replies[0].Status == wire.Late
	for i, p := range asked {
		var r wire.Reply
		if late {
			r = replies[0]
		} else if err == nil {
			r = replies[i]
		}
		busy := r.Status == wire.Busy
		if p.busy = nil; r.Owner() != "" || r.Waiting > 0 { // Else it is free, and only others are not.
			p.busy = busyBy(&r)
		}
		refused = refused || busy
		if late || busy {
			p.asked = time.Time{} // Nothing of it is there.
		}
		p.wait.took(asks[i], &r, err)
	}
	return refused, late, err
}

// Again returns a claim in place of one that has ended: for the same call, and with the same place in the queue.
func (c *Claim) Again() *Claim {
	e, t := c.wait.entry, c.wait.ticket
	e.mu.Lock()
	arrival := t.Arrival
	e.mu.Unlock()
	if arrival == 0 && !c.asked.IsZero() {
		// It was granted at once, or by a message after an ask whose answer was lost: nobody has told.
		if earliest := e.node().Clock.AtLeast(c.asked); earliest > 0 {
			arrival = earliest - t.queue.terms.headStart()
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
	e, t := c.wait.entry, c.wait.ticket
	x := e.begin()
	defer e.end(x)
	if hears = e.lock.Hear(&x.Input, &t.Ticket); !hears {
		changed = e.waking(&t.caller)
	}
	return hears, changed
}

// Granted reports whether the claim was granted. Where its client hears of nothing, it looks before it says no.
func (c *Claim) Granted(ctx context.Context) bool {
	e, t := c.wait.entry, c.wait.ticket
	x := e.begin()
	var looked <-chan struct{}
	if t.Waits() && e.lock.Polls {
		looked = e.look(x)
	}
	granted := t.Ticket.Granted()
	e.end(x)
	if looked == nil {
		return granted
	}
	select {
	case <-looked:
	case <-ctx.Done():
	case <-e.client.servers.Ended():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return t.Ticket.Granted()
}

// Take returns the lease of a claim that was granted, or nil.
func (c *Claim) Take() *lease.Lease {
	return c.wait.entry.newHold(c.ctx, c.wait.ticket, time.Since(c.wait.begun))
}

// Leave ends a claim that has asked, and leaves nothing of it behind.
func (c *Claim) Leave(err error) {
	c.wait.finish()
	c.wait.ended(err)
}

// AwaitEnd waits, within ctx, until what a claim that has ended was granted is given back.
func (c *Claim) AwaitEnd(ctx context.Context) {
	if c.wait.entry != nil {
		c.wait.awaitEnd(ctx)
	}
}

// Below says that a hold is a part of one with a higher token: whoever holds the name next gets a token above that one,
// however the hold ends here.
func Below(l *lease.Lease) {
	h := l.Engine().(*share).hold
	h.ticket.entry.mu.Lock()
	defer h.ticket.entry.mu.Unlock()
	h.Below(l.Token())
}

// ReleaseAll releases leases of one slot, of the protocol of the fair lock, and returns the first error: in one script, and side by
// side those that a script for all cannot end, as those whose names stay taken ([Terms].MinHold).
func ReleaseAll(ctx context.Context, leases []*lease.Lease) (err error) {
	var holds []*hold
	var keys, tickets []string
	var alone sync.WaitGroup
	errs := make([]error, len(leases))
	defer func() {
		alone.Wait()
		err = cmp.Or(err, cmp.Or(errs...))
	}()
	for i, l := range leases {
		sh := l.Engine().(*share)
		if !sh.let() {
			alone.Go(func() { errs[i] = l.Release(ctx) })
			continue
		}
		t := sh.hold.ticket
		holds = append(holds, sh.hold)
		tickets = append(tickets, t.Text)
		keys = append(keys, t.entry.keys.All()...)
	}
	if len(holds) == 0 {
		return err
	}
	c := holds[0].ticket.entry.client
	a := conn.Sending()
	c.stats.Ends.Add(1)
	args := append([]string{c.highest(), c.servers.Counted()}, tickets...)
	replies, failed := lua.MultiEnd.DecodeAll(c.servers.RunFor(ctx, lua.MultiEnd, keys, args...), len(holds))
	answers := make([]answer, len(holds))
	for i, h := range holds {
		var r wire.Reply
		if failed == nil {
			r = replies[i]
		}
		d := &owned{}
		h.ticket.entry.own(d, h.ticket, nil)
		answers[i] = h.ticket.entry.took(&d.sender, a, &r, failed)
	}
	for i, h := range holds {
		ended := h.conclude(ctx, &answers[i])
		h.released(h.held(), ended)
		err = cmp.Or(err, ended)
	}
	return err
}
