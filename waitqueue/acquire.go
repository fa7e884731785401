package waitqueue

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// tryTime is how long a try waits out errors that pass by themselves.
const tryTime = 3 * time.Second

// Acquire waits its turn and returns the hold. It is the one loop behind every blocking call: ask, wait,
// check, and leave if ctx ends first.
func (q Queue) Acquire(ctx context.Context) (*lease.Lease, error) {
	return q.acquire(ctx, false)
}

// Try returns the hold if nobody has it and nobody waits for it, and an error that wraps [ErrBusy]
// otherwise.
func (q Queue) Try(ctx context.Context) (*lease.Lease, error) {
	return q.acquire(ctx, true)
}

func (q *Queue) acquire(ctx context.Context, try bool) (*lease.Lease, error) {
	if q.err != nil {
		return nil, q.err
	}
	if q.termsErr != nil {
		return nil, q.termsErr
	}
	if ctx.Err() != nil {
		return nil, &WaitError{Place: -1, Err: whyEnded(ctx)}
	}
	if l, ok := ctx.Value(q.held).(*lease.Lease); ok && l.Context().Err() == nil {
		return nil, ErrDeadlock
	}
	t := q.client.newTicket(q.terms)
	s, err := q.client.enter(q, t)
	if err != nil {
		return nil, err
	}
	w := wait{ctx: ctx, ticket: t, site: s, begun: time.Now(), budget: attemptTime, try: try}
	l, err := w.run(q.held)
	if err != nil {
		s.finish(t, errors.Is(err, ErrBusy))
		return nil, err
	}
	return l, nil
}

// wait is one call on its way to a hold.
type wait struct {
	ctx    context.Context
	ticket *ticket
	site   *site
	begun  time.Time
	try    bool
	budget time.Duration // of the next ask
	tries  int           // repeats since the last answer
	last   error         // the last error that was waited out
}

// run goes from state to state until the ticket holds, or cannot.
func (w *wait) run(key any) (*lease.Lease, error) {
	t, s := w.ticket, w.site
	for {
		s.mu.Lock()
		st, failure := t.state, errors.Join(t.err, t.refused)
		s.mu.Unlock()
		switch {
		case failure != nil:
			return nil, w.failed(failure)
		case w.ctx.Err() != nil:
			return nil, w.failed(whyEnded(w.ctx))
		case st == idling || st == asking:
			if err := w.ask(); err != nil {
				return nil, w.failed(err)
			}
		case st == confirming:
			w.confirm()
		case st == held:
			if l := s.grasp(w.ctx, t, key, time.Since(w.begun)); l != nil {
				return l, nil
			}
		default:
			select {
			case <-t.wake:
			case <-w.ctx.Done():
			}
		}
	}
}

// ask sends one ask. An error that will pass is waited out here; any other ends the call.
func (w *wait) ask() error {
	t := w.ticket
	reply, err := w.site.ask(w.ctx, t, w.try, w.budget)
	switch {
	case err == nil && reply.Status == lua.Busy:
		return ErrBusy
	case err == nil && reply.Status == lua.Late:
		// The reply has corrected the clock. If it was the way to the server that took long, more helps.
		w.budget = min(2*w.budget, longestAttempt)
		return nil
	case err == nil:
		w.tries, w.last = 0, nil
		return nil
	case w.ctx.Err() != nil:
		return nil // The loop says how.
	case !transient(err) || (w.try && time.Since(w.begun) > tryTime):
		return advise(err)
	}
	w.last = err
	w.tries++
	return w.rest(pause(w.tries - 1))
}

// rest waits, but not beyond the context.
func (w *wait) rest(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	case <-w.site.client.life.Done():
		return ErrClosed
	}
	return nil
}

// confirm asks by a renewal whether an old grant still holds.
func (w *wait) confirm() {
	t, s := w.ticket, w.site
	_, err := inBackground(w.ctx, s.client, func() (lua.Reply, error) { return s.confirm(t) })
	if err != nil && w.ctx.Err() == nil {
		w.last = err
		w.tries++
		_ = w.rest(pause(w.tries - 1)) // ErrClosed is in the ticket too.
	}
}

// failed wraps why the call ends with how far it came.
func (w *wait) failed(err error) error {
	if errors.Is(err, ErrBusy) {
		return err
	}
	w.site.mu.Lock()
	place, last := w.ticket.place, w.last
	for _, err := range []error{w.ticket.last, w.ticket.unheard} {
		if last == nil {
			last = err
		}
	}
	w.site.mu.Unlock()
	return &WaitError{Place: place, Waited: time.Since(w.begun), Last: last, Err: err}
}

// inBackground runs f, and comes back early if ctx ends; f then goes on by itself. Where ctx cannot end,
// f runs on the caller's goroutine.
func inBackground[T any](ctx context.Context, c *Client, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	var none T
	if !c.spawn(func() {
		v, err := f()
		done <- answer{v, err}
	}) {
		return none, ErrClosed
	}
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// ask sends one ask of a ticket and takes in the reply.
func (s *site) ask(ctx context.Context, t *ticket, try bool, budget time.Duration) (lua.Reply, error) {
	c := s.client
	a := c.attempt(budget)
	s.mu.Lock()
	if t.state != idling && t.state != asking {
		s.mu.Unlock()
		return lua.Reply{}, nil // A message was faster, or the ticket is ending.
	}
	mode := lua.Look
	switch {
	case try:
		mode = lua.Try
	case s.hears():
		mode = lua.Wait
	}
	t.state = asking
	t.inflight++
	text, arrival := t.text, t.arrival
	s.mu.Unlock()

	c.stats.asks.Add(1)
	head := int64(t.terms.Priority) * PriorityStep.Microseconds()
	r, err := s.proto.Ask.Decode(c.runFor(ctx, s.proto.Ask, s.keys, text, mode, a.notAfter,
		strconv.FormatInt(arrival, 10), strconv.FormatInt(head, 10), c.highest(), c.counted(), t.phase, c.who))

	s.mu.Lock()
	s.landed(t, a, err)
	if err == nil && r.Status == lua.Waiting && t.arrival == 0 {
		t.arrival = r.Arrival // Also if a message was faster: a grant may lapse, the place stays.
	}
	if err == nil && r.Status == lua.Waiting && t.state == asking {
		t.place = r.Place
		t.state = waiting
		if r.Place < 0 {
			t.state = subscribing
		}
	}
	if err == nil && r.Status == lua.Granted {
		s.offer(lua.Grant{Ticket: text, Token: r.Token, At: r.Now, Until: r.Until}, a.sent, a.slept)
	}
	s.mu.Unlock()
	if err == nil {
		s.absorb(a, &r, false)
		if r.Status == lua.Waiting {
			s.await(&r)
		}
	}
	return r, err
}
