package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Acquire waits its turn and returns the hold.
func (q Queue) Acquire(ctx context.Context) (*lease.Lease, error) {
	l, _, err := obtain(ctx, q, wire.Wait, nil)
	return l, err
}

// Try returns the hold if it can be had at once and nobody waits, and an error that wraps [lease.ErrBusy]
// otherwise. A client that only keeps what it held is called ([calls.Calling]).
func (q Queue) Try(ctx context.Context) (*lease.Lease, error) {
	return calls.Calling(ctx, func(ctx context.Context) (*lease.Lease, error) {
		l, _, err := obtain(ctx, q, wire.Try, nil)
		return l, err
	}, q.Acquire)
}

// Drain returns a hold on all permits that are free, and their number, if nobody waits for them.
func (q Queue) Drain(ctx context.Context) (*lease.Lease, int64, error) {
	return obtain(ctx, q.For(q.asks.Kind, 0), wire.Drain, nil)
}

// obtain is one call for a hold, which may be in transit.
func obtain(ctx context.Context, q Queue, mode string, from *lua.Transit) (*lease.Lease, int64, error) {
	ctx, free, err := calls.InTime(ctx, q.terms.MaxWait)
	if err != nil {
		return nil, 0, err
	}
	defer free()
	if l, err := q.ready(ctx); l != nil || err != nil {
		return l, 0, err
	}
	w := q.newWait(ctx, mode)
	w.from, w.ticket.Inherits = from, from != nil // Until the answer says.
	do, err := q.register(w.ticket, w)
	if err != nil {
		return nil, 0, err
	}
	w.ticket.teller.Asked(ctx)
	l, err := w.toTheEnd(do)
	if err != nil || mode != wire.Drain {
		return l, 0, err
	}
	w.entry.mu.Lock()
	defer w.entry.mu.Unlock()
	return l, w.ticket.Drained, nil
}

// ready returns what a call gets, or why it fails, before it asks for anything; nothing if it has to ask.
func (q Queue) ready(ctx context.Context) (*lease.Lease, error) {
	if err := q.usable(ctx); err != nil {
		return nil, err
	}
	return q.within(ctx)
}

// wait is one call on its way to a hold. Its core says what it does next: it asks, waits, and leaves if ctx ends first.
type wait struct {
	*ticket
	ctx   context.Context
	mode  string              // try or drain: it does not wait
	from  *lua.Transit        // where the hold is that it wants; nil: with whom the queue says
	ahead [1]*outItem[sender] // room for the releases that its request takes along
}

// begin makes the ticket of a call, and makes it known before anything is sent (R8).
func (q Queue) begin(ctx context.Context, mode string) (*wait, error) {
	w := q.newWait(ctx, mode)
	if _, err := q.register(w.ticket, nil); err != nil {
		return nil, err
	}
	w.ticket.teller.Asked(ctx)
	return w, nil
}

// newWait makes a call and its ticket, for the owner that its context names if holds can be entered. Both are one allocation,
// with what tells of the call if somebody looks.
func (q Queue) newWait(ctx context.Context, mode string) *wait {
	type call struct {
		wait
		own ticket
	}
	if q.client.notifier == nil || q.terms.Untold {
		c := &call{}
		c.wait = wait{ticket: q.init(ctx, mode, &c.own, nil), ctx: ctx, mode: mode}
		return &c.wait
	}
	c := &struct {
		call
		teller notify.Teller
	}{}
	c.wait = wait{ticket: q.init(ctx, mode, &c.own, &c.teller), ctx: ctx, mode: mode}
	return &c.wait
}

// init fills in the ticket of a call. room is for what tells of it.
func (q Queue) init(ctx context.Context, mode string, t *ticket, room *notify.Teller) *ticket {
	t.queue, t.Owner, t.Try = q.binding, t, mode != wire.Wait
	t.Deadline, _ = ctx.Deadline()
	q.newCaller(&t.caller, room, &t.Call)
	t.Options, t.Arrival, t.Limit, t.Joint = &q.asks, q.terms.Arrival, q.terms.QueueLimit, q.joint
	if q.nesting == Reenters {
		t.Behalf = ownerOf(ctx)
	}
	t.Named(q.client.id(), q.client.numbers.Add(1), q.client.opts.GrantLease)
	return t
}

// toTheEnd runs a wait, from the step that it has come to. Without a hold it begins the release of the ticket. It waits for
// the reply only if too few replicas knew of the hold.
func (w *wait) toTheEnd(do plan) (*lease.Lease, error) {
	l, err := w.run(do)
	if err != nil || w.joined {
		w.finish()
		w.ended(err)
	}
	if errors.Is(err, lease.ErrReplicas) {
		ctx, cancel := context.WithTimeout(w.ctx, conn.AnswerTime)
		defer cancel()
		w.awaitEnd(ctx)
	}
	return l, err
}

// finish ends the ticket of a call that does not hold.
func (w *wait) finish() {
	x := w.entry.begin()
	w.entry.lock.Finish(&x.Input, &w.ticket.Ticket)
	w.entry.end(x)
}

// ended says how the wait of a call ended without a hold.
func (w *wait) ended(err error) { w.ticket.teller.Passed(time.Since(w.Begun), w.joined, err) }

// awaitEnd waits until a hold that no call gets is released, so that the next call finds the name free.
func (w *wait) awaitEnd(ctx context.Context) {
	select {
	case <-w.entry.ended(&w.ticket.caller):
	case <-ctx.Done():
	}
}

// A plan is what a call does next, and what it needs for that.
type plan struct {
	core.Step
	ask   *ask            // for Ask: the request, which has begun; nil if it has not
	wake  <-chan struct{} // for Sleep
	place int             // for Sleep: how many are before the call
	lease *lease.Lease    // for Take: what was taken; nil if it was not
}

// run does what the core says until the call holds or cannot. do is the first step, which has begun, or the zero plan.
func (w *wait) run(do plan) (*lease.Lease, error) {
	e := w.entry
	if err := e.enter(w.ctx); err != nil {
		if do.ask != nil {
			w.unsent()
		}
		return nil, w.failed(err)
	}
	for alone := false; ; {
		if do.Do == core.Go {
			ended := w.ctx.Err() != nil
			x := e.begin()
			do = w.nextLocked(x, ended, alone)
			e.end(x)
			alone = false
		}
		now := do
		do = plan{}
		switch now.Do {
		case core.Enter:
			l, err := e.reenter(w.ctx, ticketOf(&now.Hold.Ticket.Call).hold, w.queue)
			if l != nil || err != nil {
				w.joined = true
				return l, err
			}
			alone = true
		case core.TimeOut:
			return nil, w.failed(calls.WhyEnded(w.ctx))
		case core.Fail:
			return nil, w.failed(now.Err)
		case core.Ask:
			do = w.request(now.ask)
		case core.Confirm:
			do.Step = w.confirm()
		case core.Take:
			if now.lease == nil && w.ctx.Err() == nil {
				now.lease = w.take()
			}
			if now.lease != nil {
				return now.lease, nil
			}
		case core.Sleep:
			select {
			case <-now.wake:
			case <-w.ctx.Done():
			case <-w.tellLong(now.place):
			}
		case core.GiveWay:
			w.giveWay()
		case core.Pause:
			if err := e.client.servers.Rest(w.ctx, now.Rest); err != nil && w.ctx.Err() == nil {
				return nil, w.failed(err)
			}
		}
	}
}

// nextLocked returns the next step of the call and begins it, as part of an input. For ended and alone see [core.Lock.Next].
func (w *wait) nextLocked(x *turn, ended, alone bool) (do plan) {
	t, e := w.ticket, w.entry
	do.Step, do.place = e.lock.Next(&x.Input, &t.Ticket, ended, alone), t.Place
	switch {
	case do.Do == core.Sleep:
		do.wake = e.waking(&t.caller)
	case do.Do == core.Ask && e.followsLocked() == 0:
		do.ask = w.beginAskLocked(x)
	case do.Do == core.Take && !e.client.servers.Doubtful():
		do.lease = w.takeLocked(x)
	}
	return do
}

// request sends one acquire request, which may have begun, and returns what the call does next.
func (w *wait) request(q *ask) plan {
	do, err := w.send(q)
	if err != nil && w.ctx.Err() == nil {
		do.Step = w.retry(err)
	}
	return do
}

// retry returns what the call does after an acquire request has failed.
func (w *wait) retry(err error) core.Step {
	f := failure(err)
	x := w.entry.begin()
	defer w.entry.end(x)
	return w.entry.lock.Retry(&x.Input, &w.ticket.Ticket, &f)
}

// confirm asks by a renewal whether an old grant still holds, and for what else its terms want. It returns what the call does next.
func (w *wait) confirm() core.Step {
	t, e := w.ticket, w.entry
	_, err := conn.InBackground(w.ctx, e.client.servers, func() (struct{}, error) { return struct{}{}, w.confirmOnce() })
	f := failure(err)
	ended := w.ctx.Err() != nil
	x := e.begin()
	defer e.end(x)
	return e.lock.AfterConfirm(&x.Input, &t.Ticket, &f, ended)
}

// failed adds to the error of a call its place and the time waited.
func (w *wait) failed(err error) error {
	t, e := w.ticket, w.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if errors.Is(err, lease.ErrBusy) || t.Clean && t.Arrival == 0 && !t.Over {
		return err // At once.
	}
	return &lease.WaitError{
		Place: t.Place, Waited: time.Since(w.Begun), Last: cmp.Or(e.lock.Last, t.Deafness), Err: err,
		Unanswered: t.Over && (t.Unanswered() || e.lock.Silent(time.Now())),
	}
}

// tellLong reports a wait that lasts too long, and returns the channel that says when to look again; nil if nobody wants
// to know.
func (w *wait) tellLong(place int) <-chan time.Time {
	if w.ticket.teller == nil {
		return nil
	}
	w.entry.act.Lock()
	defer w.entry.act.Unlock()
	if left, wanted := w.ticket.teller.Waits(place, time.Since(w.Begun)); wanted {
		return time.After(left)
	}
	return nil
}
