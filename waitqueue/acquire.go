package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/terms"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Acquire waits its turn and returns the hold.
func (q Queue) Acquire(ctx context.Context) (*lease.Lease, error) {
	l, _, err := obtain(ctx, q, lua.Wait, nil)
	return l, err
}

// Try returns the hold if it can be had at once and nobody waits, and an error that wraps [lease.ErrBusy]
// otherwise. A client that only keeps what it held is called ([retry.Calling]).
func (q Queue) Try(ctx context.Context) (*lease.Lease, error) {
	return retry.Calling(ctx, func(ctx context.Context) (*lease.Lease, error) {
		l, _, err := obtain(ctx, q, lua.Try, nil)
		return l, err
	}, q.Acquire)
}

// Drain returns a hold on all permits that are free, and their number, if nobody waits for them.
func (q Queue) Drain(ctx context.Context) (*lease.Lease, int64, error) {
	return obtain(ctx, q.For(q.kind, 0), lua.Drain, nil)
}

// obtain is one call for a hold, which may be in transit.
func obtain(ctx context.Context, q Queue, mode string, from *lua.Transit) (*lease.Lease, int64, error) {
	ctx, free, err := retry.InTime(ctx, q.terms.MaxWait)
	if err != nil {
		return nil, 0, err
	}
	defer free()
	if err := q.usable(ctx); err != nil {
		return nil, 0, err
	}
	if l, err := q.within(ctx); l != nil || err != nil {
		return l, 0, err
	}
	w, err := q.begin(ctx, mode)
	if err != nil {
		return nil, 0, err
	}
	w.from, w.ticket.inherits = from, from != nil // Until the answer says.
	l, err := w.toTheEnd()
	return l, w.taken, err
}

// begin makes the ticket of a call, and makes it known before anything is sent (R8).
func (q Queue) begin(ctx context.Context, mode string) (*wait, error) {
	begun, t := time.Now(), q.newTicket(ctx)
	s, err := q.client.register(q.binding, t)
	if err != nil {
		return nil, err
	}
	t.teller.Asked(ctx)
	return &wait{ctx: ctx, ticket: t, site: s, begun: begun, budget: conn.AttemptTime, mode: mode}, nil
}

// toTheEnd runs a wait and leaves nothing of it behind where there is no hold.
func (w *wait) toTheEnd() (*lease.Lease, error) {
	l, err := w.run()
	if err != nil || w.joined || w.event != nil {
		w.site.finish(w.ticket, w.clean)
		w.ended(err)
	}
	if errors.Is(err, lease.ErrReplicas) {
		ctx, cancel := context.WithTimeout(w.ctx, conn.AnswerTime)
		defer cancel()
		w.awaitEnd(ctx)
	}
	return l, err
}

// awaitEnd waits until a hold that nobody gets is given back, so that the next call finds it free.
func (w *wait) awaitEnd(ctx context.Context) {
	over, _ := w.site.verdict(w.ticket)
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// wait is one call on its way: to a hold, or past an event. It is the one loop behind every call that blocks:
// ask, wait, check, and leave if ctx ends first.
type wait struct {
	ctx    context.Context
	event  *Event // nil: it waits for a hold
	ticket *ticket
	site   *site
	begun  time.Time
	mode   string               // try or drain: it does not wait
	from   *lua.Transit         // where the hold is that it wants; nil: with whom the queue says
	budget time.Duration        // of the next ask
	tries  int                  // repeats since the last answer
	over   bool                 // its time is, by its context or the limit of a try
	clean  bool                 // the last answer says that the server has nothing of the ticket
	joined bool                 // it entered the hold of another ticket
	taken  int64                // how many permits a drain has
	ahead  [1]*outbox.Item[end] // room for those that its ask takes along
}

// run goes from state to state until the ticket holds, or has passed, or cannot.
func (w *wait) run() (*lease.Lease, error) {
	t, s := w.ticket, w.site
	for {
		s.mu.Lock()
		st, place, failure := t.state, t.place, errors.Join(t.err, t.refused)
		other := s.heldByLocked(t)
		var wake <-chan struct{}
		switch st {
		case passed, idling, asking, confirming, held, acting:
		default:
			wake = t.waking()
		}
		s.mu.Unlock()
		if other != nil {
			if l, err := s.reenter(w.ctx, other, t.queue); l != nil || err != nil {
				w.joined = true
				return l, err
			}
		}
		switch {
		case st == passed:
			return nil, nil
		case failure != nil:
			return nil, w.failed(failure)
		case w.ctx.Err() != nil:
			w.over = true
			return nil, w.failed(retry.WhyEnded(w.ctx))
		case st == idling || st == asking:
			if err := w.ask(); err != nil {
				return nil, w.failed(err)
			}
		case st == confirming:
			if err := w.confirm(); err != nil {
				return nil, w.failed(err)
			}
		case st == held:
			if l := s.grasp(w.ctx, t, time.Since(w.begun)); l != nil {
				return l, nil
			}
		case st == acting:
			switch came, err := w.act(); {
			case err != nil:
				return nil, w.failed(err)
			case came:
				return nil, nil
			}
		default:
			select {
			case <-wake:
			case <-w.ctx.Done():
			case <-w.tellLong(place):
			}
		}
	}
}

// ask sends one ask. An error that will pass is waited out here; any other ends the call.
func (w *wait) ask() error {
	a := w.send()
	err := a.err
	w.clean = false
	switch {
	case err == nil:
		return w.answered(&a)
	case w.ctx.Err() != nil:
		return nil // The loop says how.
	}
	passes := w.passes(err)
	if w.over = passes && w.tryIsOver(); w.over || !passes {
		return conn.Advise(err)
	}
	return w.pause(err)
}

// tryIsOver reports whether a call that does not wait for its turn has waited out errors for long enough.
func (w *wait) tryIsOver() bool { return w.mode != lua.Wait && time.Since(w.begun) > retry.TryTime }

// noted keeps an error for what the call says when it ends.
func (w *wait) noted(err error) {
	last := retry.Last(w.ctx, conn.Advise(err), nil) // First: a context may wait for the lock.
	w.site.mu.Lock()
	defer w.site.mu.Unlock()
	w.site.answers.Last = cmp.Or(last, w.site.answers.Last)
}

// pause notes an error that the call waits out, and rests the longer the more there were.
func (w *wait) pause(err error) error {
	w.noted(err)
	w.tries++
	return w.rest(retry.Backoff(w.tries - 1))
}

// passes reports whether the call waits for an error to pass.
func (w *wait) passes(err error) bool {
	w.site.mu.Lock()
	defer w.site.mu.Unlock()
	return w.ticket.passesLocked(err)
}

// busyBackoffs is how often the backoff doubles between the asks of a call for which there is no room yet: it lasts
// as long as somebody else's action.
const busyBackoffs = 4

// answered is what the answer to an ask means to the call.
func (w *wait) answered(a *answer) error {
	switch a.Status {
	case 0: // Not sent: a message was faster.
	case lua.Late:
		// The reply has corrected the clock. If it was the way to the server that took long, more helps.
		w.budget = min(2*w.budget, conn.LongestAttempt)
		return nil
	case lua.Busy, lua.Full:
		if w.event != nil { // Not now, but soon.
			w.tries++
			return w.rest(retry.Backoff(min(w.tries-1, busyBackoffs)))
		}
		w.clean = true
		return a.refused
	case lua.Granted, lua.Waiting, lua.Acting:
		w.taken = a.drained
	default:
		w.clean = true
		if w.from != nil {
			return terms.Unadopted(a.States)
		}
		return w.ticket.verdict(a.Status, a.States)
	}
	w.tries = 0
	return nil
}

// rest waits, but not beyond the context.
func (w *wait) rest(d time.Duration) error {
	if err := w.site.client.servers.Rest(w.ctx, d); w.ctx.Err() == nil {
		return err
	}
	return nil // The loop says how.
}

// confirm asks by a renewal whether an old grant still holds, and for what else its terms want. Behind a restart it does so
// until the server is old enough, and then lets those go first who came first. An error that will pass is waited out here, by a
// try for as long as by its ask.
func (w *wait) confirm() error {
	t, s := w.ticket, w.site
	_, err := conn.InBackground(w.ctx, s.client.servers, func() (lua.Reply, error) { return s.confirm(t) })
	s.mu.Lock()
	if err == nil {
		s.answers.Last = nil
	}
	left := time.Until(t.believed)
	if left > 0 && w.mode != lua.Wait {
		t.refused = fmt.Errorf("%w: %w", lease.ErrBusy, lease.ErrRestarted)
	}
	waited := t.state == held && !t.believed.IsZero()
	if waited {
		t.believed = time.Time{}
	}
	s.mu.Unlock()
	if waited && w.mode == lua.Wait {
		w.giveWay()
	}
	if left > 0 && err == nil && w.mode == lua.Wait {
		_ = w.rest(min(left, t.queue.terms.Lease/3)) // The hold, which nobody has yet, is renewed meanwhile.
	}
	if err == nil || w.ctx.Err() != nil {
		return nil
	}
	if w.over = w.passes(err) && w.tryIsOver(); w.over {
		w.noted(err)
		return conn.Advise(err)
	}
	_ = w.pause(err) // ErrClosed is in the ticket too.
	return nil
}

// failed wraps why the call ends with how far it came.
func (w *wait) failed(err error) error {
	if errors.Is(err, lease.ErrBusy) || w.clean && w.ticket.arrival == 0 {
		return err // At once.
	}
	t, s := w.ticket, w.site
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &lease.WaitError{Place: t.place, Waited: time.Since(w.begun), Last: cmp.Or(s.answers.Last, t.deafness), Err: err}
	e.Unanswered = w.over && (!t.answered || s.answers.Silent())
	if w.event != nil {
		e.Place = -1
	}
	return e
}
