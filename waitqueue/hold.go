package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// A hold is the shell's part of a hold: its leases and its timer, which the core does not know. The leases change under
// both mu and act of its entry, so either lets them be read.
type hold struct {
	core.Hold
	ticket *ticket
	first  share         // the lease of the call that got the hold
	more   []*share      // of calls that entered it again
	lease  keeper.Keeper // of the first

	entry    timers.Timer
	long     *timers.Timer  // of telling that it lasts for longer than it should; nil before it is set
	listener conn.Listener  // that was asked to hear of a release by force; nil before that; guarded by act
	teller   *notify.Teller // of the call that uses it; nil: nobody looks
	stall    *keeper.Stall
	stays    chan error // gets the answer to a renewal that tells for how long the name stays taken; guarded by act

	cohort lender // whose calls use it, if it is not one call's; set once, under both
}

// A lender is what a hold needs to know of its cohort.
type lender interface {
	// recall gives a kept hold back, unless a call uses it by now.
	recall()
	// unkept notes that no hold is kept any more.
	unkept()
}

// take makes the lease of a ticket that was granted. It returns nil if the grant is too old to be used without asking the
// server; the ticket is then to be confirmed.
func (w *wait) take() *lease.Lease {
	e := w.entry
	_ = e.client.servers.Overtake(w.ctx, e.keys.Lock) // What this client gave up since the call began is not to end it.
	x := e.begin()
	defer e.end(x)
	return w.takeLocked(x)
}

// takeLocked is the same within an input.
func (w *wait) takeLocked(x *turn) *lease.Lease {
	t, e := w.ticket, w.entry
	if wanting := t.Acknowledgement() && w.durability() != (conn.Durability{}); !e.lock.MayTake(&x.Input, &t.Ticket, x.slept, wanting) {
		return nil
	}
	g, waited := t.Grant(), x.Now.Sub(t.Begun)
	h := &hold{ticket: t, teller: t.teller, stall: keeper.NewStall(t.queue.terms.MaxStall)}
	if t.Joint {
		h.stall.Pause()
	}
	e.lock.Take(&x.Input, &t.Ticket, &h.Hold, h.leases())
	e.act.Lock()
	defer e.act.Unlock()
	l := h.grant(h.teller.Granted(w.ctx, g.Token, waited, g.Note, g.Before), &h.first, t.queue, waited)
	h.entry.Target, t.hold = h, h
	e.client.stats.Granted.Add(1)
	h.remind(x.Now)
	return l
}

// never is after every deadline.
var never = time.Unix(1<<40, 0)

// leases is what the core wants to know of the leases.
func (h *hold) leases() core.Leases {
	v := core.Leases{Over: h.overdue()}
	if at := h.stall.Earlier(never); at != never {
		v.StallBy = at
	}
	v.Releasing = h.releasing() // After that: one that was released just now is not lost.
	return v
}

// Fired is called by the hold's timer: it is time for a renewal, or for the end.
func (h *hold) Fired(time.Time) {
	e := h.ticket.entry
	x := e.begin()
	e.lock.OnHoldTimer(&x.Input, &h.Hold, h.leases())
	e.end(x)
}

// expire ends a hold whose lease had ended when it was to be extended.
func (h *hold) expire() {
	e := h.ticket.entry
	x := e.begin()
	e.lock.LoseOver(&x.Input, &h.Hold, h.leases())
	e.end(x)
}

// do performs an effect on the hold. act is held.
func (h *hold) do(x *turn, f *core.Effect) {
	e := h.ticket.entry
	c := e.client
	switch f.Do {
	case core.HoldTimer:
		if f.Flag {
			c.servers.Timers.Remove(&h.entry)
		}
		c.servers.Timers.Before(&h.entry, f.At)
	case core.StopHold:
		c.servers.Timers.Remove(&h.entry)
		if h.long != nil {
			c.servers.Timers.Remove(h.long)
		}
		if h.listener != nil {
			h.listener.Leave()
			h.listener = nil
		}
	case core.Attend:
		// Also where the slot of its name has moved and the routes know that.
		if at := c.servers.Listener(e.slot); h.listener != at {
			if h.listener != nil {
				h.listener.Leave()
			}
			h.listener = at
			at.Attend()
		}
	case core.Renew:
		c.renewals.Add(h)
	case core.Extend:
		if !h.extend(keeper.Until(f.Until)) {
			x.then = append(x.then, h.expire)
		}
	case core.Lose:
		for sh := range h.open {
			sh.keeper.Lose(f.Err)
		}
		if f.Flag {
			c.stats.Lost.Add(1)
			h.tellLost(f.Err)
		} else {
			h.cohort.unkept()
		}
	case core.Failing:
		for sh := range h.open {
			sh.keeper.Failing(f.At, f.Err)
		}
	case core.Awaited:
		for sh := range h.open {
			sh.keeper.Awaited()
		}
		if f.Flag {
			h.teller.Tell(observe.Observation{Event: observe.Wanted, Token: h.UseToken, Held: h.held()})
		}
	case core.Recall:
		c.servers.Spawn(h.cohort.recall)
	case core.Stays:
		h.stays <- f.Err
	case core.Renewed:
		h.teller.Tell(observe.Observation{Event: observe.Renewed, Token: h.UseToken, Margin: f.Left, Lease: f.Lease})
	case core.RenewalFailed:
		h.teller.Tell(observe.Observation{Event: observe.RenewalFailed, Token: h.UseToken, Margin: f.Left, Lease: f.Lease, Count: f.Count, Err: f.Err})
	}
}

// letGo sends the release of a hold. ended says that ctx had ended before, and the release goes in the background.
func (h *hold) letGo(ctx context.Context, ended bool) error {
	if ended {
		return h.outlast(ctx)
	}
	a := h.ticket.entry.sendEnd(ctx, h.ticket, nil)
	return h.conclude(ctx, &a)
}

// conclude is what the reply to the release of a hold means to its caller. Without a reply it waits for the repetitions
// in the background.
func (h *hold) conclude(ctx context.Context, a *answer) error {
	if a.err != nil {
		return h.outlast(ctx)
	}
	return h.ticket.queue.explained(a.outcome)
}

// outlast waits for the end of a release that did not succeed at once. The reply to a repetition says what has become of
// the hold, if the server refused all attempts before. If an attempt had no reply, any reply is success: if the ticket is
// not the owner any more, that attempt has released it.
func (h *hold) outlast(ctx context.Context) error {
	t := h.ticket
	over := t.entry.ended(&t.caller)
	why := t.outcome()
	if why != nil {
		return why
	}
	timer := time.NewTimer(time.Until(h.lastsUntil()) + conn.AnswerTime)
	defer timer.Stop()
	select {
	case <-over:
		return t.outcome()
	case <-ctx.Done():
		why = h.lastFailure(calls.WhyEnded(ctx))
	case <-t.entry.client.servers.Ended():
		why = lease.ErrClosed
	case <-timer.C:
		why = h.lastFailure(core.ErrNoAnswer)
	}
	return core.Unconfirmed(why)
}

// outcome is what the end of a ticket means to its releaser, if something went wrong.
func (t *ticket) outcome() error {
	t.entry.mu.Lock()
	defer t.entry.mu.Unlock()
	return t.queue.explained(cmp.Or(t.ReleaseErr, t.Refused))
}

// lastsUntil is the local end of what is confirmed.
func (h *hold) lastsUntil() time.Time {
	h.ticket.entry.mu.Lock()
	defer h.ticket.entry.mu.Unlock()
	return h.Lasts.Deadline
}

// lastFailure adds to an error the last one with which the server has refused its release.
func (h *hold) lastFailure(why error) error {
	h.ticket.entry.mu.Lock()
	defer h.ticket.entry.mu.Unlock()
	if f := h.ReleaseFailure; f != nil && f.Answered {
		return fmt.Errorf("%w (last error: %w)", why, f.Advice)
	}
	return why
}

// held is how long the present call has had it, by the clock of this machine.
func (h *hold) held() time.Duration { return time.Since(h.Since) }

// released reports how the release of a hold went, and for how long it was held.
func (h *hold) released(held time.Duration, err error) { h.ended(observe.Released, held, err) }

// ended reports how a hold ended that its holder released.
func (h *hold) ended(by observe.EventKind, held time.Duration, err error) {
	if h.Idle.IsZero() { // Else no call had it.
		h.teller.Ended(by, h.UseToken, held, err)
	}
}

// tellLost reports a loss, with the cause that the holder sees: a lease may have ended by itself before.
func (h *hold) tellLost(cause error) {
	if h.teller == nil {
		return
	}
	for sh := range h.open {
		if seen := sh.cause(); errors.Is(seen, lease.ErrLost) {
			cause = seen
		}
	}
	h.teller.Tell(observe.Observation{Event: observe.Lost, Token: h.UseToken, Held: h.held(), Err: cause})
}

// remind reports a hold that lasts too long, and sets the timer for the next time. act is held.
func (h *hold) remind(now time.Time) {
	if !h.Idle.IsZero() {
		return
	}
	if left, wanted := h.teller.Holds(h.UseToken, now.Sub(h.Since)); wanted {
		if h.long == nil {
			h.long = &timers.Timer{Target: timers.Func(h.tellLong)}
		}
		h.ticket.entry.client.servers.Timers.Before(h.long, now.Add(left))
	}
}

func (h *hold) tellLong(now time.Time) {
	e := h.ticket.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	e.act.Lock()
	defer e.act.Unlock()
	if h.ticket.Held() && !h.releasing() {
		h.remind(now)
	}
}

// A hold that goes to another process (R11). To hand over is the release of a ticket, to adopt is an acquire request; both are requests
// of one script.

// Gives reports whether the hold can be handed over. The leases of a cohort cannot.
func (sh *share) Gives() bool { return sh.hold.ticket.queue.proto == lua.Fairlock }

// HandOver is what HandOver of a lease does, once. The lease's context has ended.
func (sh *share) HandOver(ctx context.Context) (text string, err error) {
	h := sh.hold
	t, e := h.ticket, h.ticket.entry
	todo := sh.takeOff(false)
	if !todo.last {
		return "", todo.gone
	}
	x := lua.NewTransit(e.keys.Lock, e.id, min(e.client.opts.GrantLease, t.Lease))
	if a := e.sendEnd(ctx, t, &x); a.err != nil {
		err = h.conclude(ctx, &a)
	}
	e.mu.Lock()
	if h.Gone != nil {
		err = h.Gone // The server's word, whenever it came.
	}
	e.mu.Unlock()
	h.ended(observe.HandedOver, todo.held, err)
	if err != nil && !errors.Is(err, lease.ErrUnconfirmed) {
		return "", err
	}
	return x.Text(), err
}

// Adopt takes a hold of the name out of transit.
func (q Queue) Adopt(ctx context.Context, x lua.Transit) (*lease.Lease, error) {
	calls.Given(ctx)
	if q.err == nil && q.keys.Lock != x.Lock {
		return nil, fmt.Errorf("%w: it is for %.80q, and this client has the prefix %q", lease.ErrNotGenuine, x.Lock, q.client.opts.Prefix)
	}
	l, _, err := obtain(ctx, q, wire.Wait, &x)
	return l, err
}
