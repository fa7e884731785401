package waitqueue

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// A cohort is the calls of one client for one name that may pass a hold on among themselves. One of them, the leader,
// has a ticket or the hold; the others, its mates, wait for that one in the order of their calls, and the server knows
// nothing of them. A release passes the hold to the first mate: nothing is sent, and the lease goes on. After so many
// passes as the terms allow, or where no mate is left, the hold is given back. The first mate is then the next leader,
// and queues with the time of its call, in the same round trip: so a call of another client is overtaken by as many
// calls as one hold has passes, and by no more. To be queued it must hear, so the site subscribes once a mate has come
// whom the passes that are left do not reach.
//
// Each of them has a token, which is one higher than that of the one before: no higher than the server's clock has come
// since the grant, as far as a token of its own would be. So tokens rise also where the server has forgotten the last. The
// ticket says how many they may become, and the end of the hold how many it were.
//
// Source: the passing is that of Dice, Marathe, Shavit, "Lock Cohorting", PPoPP 2012, with the queue in Redis as the
// global lock.
type cohort struct {
	client *client
	site   *site
	queue  *binding // of a leader

	mu    sync.Mutex // guards the fields below; nothing is called under it
	led   bool       // there is a leader
	left  int        // passes of the leader's hold
	mates *list.List // of *mate, by their calls
}

// MaxCohort is how often a hold may be passed on at the most. Of one whose client does not say how often it was, because it
// died, the server takes that for granted: tokens are a millisecond ahead of the clock then.
const MaxCohort = 1 << 10

// A mate is a call that waits for the leader of its cohort.
type mate struct {
	ctx    context.Context
	begun  time.Time
	ticket *ticket       // with which it would lead; nil if there is none yet
	place  *list.Element // nil once it was called
	called chan struct{} // closed when it has the hold, is the leader, or failed; nil if it led at once

	lease *lease.Lease // the hold
	wait  *wait        // of a leader whose ask was sent already
	err   error
}

// cohesive reports whether calls for the queue may make a cohort.
func (q *binding) cohesive() bool {
	return q.terms.Cohort > 0 && q.terms.MaxHold == 0 && q.terms.Arrival == 0 && q.proto == lua.Fairlock
}

// inCohort waits for a hold as one of the cohort.
func (q Queue) inCohort(ctx context.Context) (*lease.Lease, error) {
	co, err := q.client.cohort(q.binding)
	if err != nil {
		return nil, err
	}
	return co.obtain(ctx)
}

// obtain is one call of the cohort.
func (co *cohort) obtain(ctx context.Context) (*lease.Lease, error) {
	m := &mate{ctx: ctx, begun: time.Now()}
	if co.client.notifier != nil {
		m.ticket = co.newTicket()
		m.ticket.asked(ctx)
	}
	co.mu.Lock()
	if !co.led {
		co.led, co.left = true, co.passes()
		co.mu.Unlock()
		return co.lead(m)
	}
	m.called = make(chan struct{})
	m.place = co.mates.PushBack(m)
	behind := co.mates.Len() > co.left
	co.mu.Unlock()
	if behind {
		co.site.subscribe()
	}
	select {
	case <-m.called:
	case <-ctx.Done():
		return nil, co.leave(m)
	}
	if m.lease == nil && m.err == nil {
		return co.lead(m)
	}
	return m.lease, m.err
}

// cohort returns the cohort of a queue, which it makes if there is none.
func (c *client) cohort(q *binding) (*cohort, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, lease.ErrClosed
	}
	s := c.siteLocked(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = time.Now()
	co := s.cohorts[q.terms]
	if co == nil {
		co = &cohort{client: c, site: s, queue: q.with(func(b *binding) { b.permits = int64(1 + q.terms.Cohort) }), mates: list.New()}
		if s.cohorts == nil {
			s.cohorts = make(map[Terms]*cohort)
		}
		s.cohorts[q.terms] = co
	}
	return co, nil
}

// passes is how often the hold of a leader may be passed on.
func (co *cohort) passes() int { return int(co.queue.permits) - 1 }

// busy reports whether there is a leader, with a ticket or about to have one.
func (co *cohort) busy() bool {
	co.mu.Lock()
	defer co.mu.Unlock()
	return co.led
}

func (co *cohort) newTicket() *ticket {
	t := co.queue.newTicket()
	t.site, t.cohort = co.site, co
	return t
}

// passes is how often the hold of a ticket may be passed on.
func (t *ticket) passes() int { return int(t.queue.permits) - 1 }

// lead waits for a hold as the leader.
func (co *cohort) lead(m *mate) (*lease.Lease, error) {
	w, err := m.wait, error(nil)
	if w == nil {
		if w, err = co.enter(m); err != nil {
			m.failed(err)
		}
	}
	var l *lease.Lease
	if err == nil {
		l, err = w.toTheEnd()
	}
	if err != nil {
		co.next()
	}
	return l, err
}

// enter makes a call known as a ticket. One that was a mate before has the place of its call, unless the server's clock has
// stepped back: then a new arrival could come before those given earlier.
func (co *cohort) enter(m *mate) (*wait, error) {
	t := m.ticket
	if t == nil {
		t = co.newTicket()
	}
	s, err := co.client.register(co.queue, t)
	if err != nil {
		return nil, err
	}
	if now, ok := s.node().Clock.Steady(); ok && m.called != nil {
		t.arrival = now.Add(-time.Since(m.begun)).UnixMicro() - t.headStart()
	}
	return &wait{
		ctx: m.ctx, ticket: t, site: s, begun: m.begun, budget: conn.AttemptTime, mode: lua.Wait,
	}, nil
}

// leave ends the call of a mate whose context has ended. What it has become at the same moment is undone in the
// background.
func (co *cohort) leave(m *mate) error {
	co.mu.Lock()
	waits := m.place != nil
	if waits {
		co.mates.Remove(m.place)
		m.place = nil
	}
	co.mu.Unlock()
	if !waits { // It was called at the same moment. Its ask may be on its way, for which nobody waits here.
		if !co.client.servers.Spawn(func() { co.undo(m) }) {
			co.undo(m)
		}
		return m.gaveUp(retry.WhyEnded(m.ctx))
	}
	return m.failed(m.gaveUp(retry.WhyEnded(m.ctx)))
}

// undo ends what a mate has become whose call has ended, and tells the observer of it.
func (co *cohort) undo(m *mate) {
	<-m.called
	switch {
	case m.err != nil:
	case m.lease == nil:
		_, _ = co.lead(m) // Its context has ended: it leaves.
	default:
		_ = m.lease.Release(context.WithoutCancel(m.ctx))
	}
}

func (m *mate) gaveUp(err error) error {
	return &lease.WaitError{Place: -1, Waited: time.Since(m.begun), Err: err}
}

// failed tells of a call that ended without a hold, and returns why.
func (m *mate) failed(err error) error {
	if m.ticket != nil {
		m.ticket.tell(observe.Observation{Moment: observe.Failed, Waited: time.Since(m.begun), Err: err})
	}
	return err
}

// call takes the first mate out of the queue, to be passed the hold if stays, else to lead. Where there is none, there is
// no leader any more, unless stays.
func (co *cohort) call(stays bool) *mate {
	co.mu.Lock()
	defer co.mu.Unlock()
	first := co.mates.Front()
	if first == nil {
		co.led = co.led && stays
		return nil
	}
	m := co.mates.Remove(first).(*mate)
	m.place = nil
	co.left--
	if !stays {
		co.left = co.passes()
	}
	return m
}

// next makes the first mate the leader. It may be called on nil, where there is no cohort.
func (co *cohort) next() {
	if co == nil {
		return
	}
	if m := co.call(false); m != nil {
		close(m.called)
	}
}

// close ends the calls of all mates, for a client that closes.
func (co *cohort) close() {
	for m := co.call(true); m != nil; m = co.call(true) {
		m.err = m.failed(m.gaveUp(lease.ErrClosed))
		close(m.called)
	}
}

// fence is the token of the present lease on a hold.
func (h *hold) fence() uint64 { return h.token + uint64(h.passed) }

// passable reports whether one more pass is not too many, and its token is one that the server's clock has come to, for
// certain, since it gave the first.
func (h *hold) passable() bool {
	since := time.Since(h.begun)
	return h.passed < h.ticket.passes() && int64(h.passed) < (since-since/conn.Drift).Microseconds()
}

// passLocked gives the hold to the first mate and returns it, to be called without the site's lock. There is none if
// that would be one pass too many, or if there is doubt whether the hold lasts.
func (h *hold) passLocked() *mate {
	co := h.ticket.cohort
	if co == nil || !h.passable() || h.ticket.doubted || h.failures > 0 ||
		time.Until(h.deadline) < h.spans/4 {
		return nil
	}
	m := co.call(true)
	if m == nil {
		return nil
	}
	s, note := h.ticket.site, h.note()
	h.released(h.held(), nil)
	h.passed++
	s.client.raise(h.fence())
	h.open--
	h.since, h.tooLong, h.first, h.caller = time.Now(), false, share{}, m.ticket
	if s.client.opts.HeldTooLong > 0 {
		s.client.servers.Timers.Before(&h.entry, h.tellLongLocked(h.since, h.deadline))
	}
	ctx, waited := m.ctx, h.since.Sub(m.begun)
	if m.ticket != nil {
		ctx = m.ticket.tellGrantedLocked(ctx, h.fence(), waited, note)
	}
	m.lease = h.grantLocked(ctx, &h.first, co.queue, waited)
	if h.unlooked { // While it was being released: it may have no timer.
		h.unlooked = false
		h.hurryLocked()
	}
	s.client.stats.granted.Add(1)
	return m
}

// end ends the ticket of the leader. Where there is a mate, it leads from then on, and its ask goes in the same round
// trip, ahead of the end: it is in the queue when that is served. Both go on if ctx ends.
func (co *cohort) end(ctx context.Context, t *ticket) answer {
	m := co.call(false)
	if m == nil {
		return t.site.sendEnd(ctx, t)
	}
	w, err := co.enter(m)
	if err != nil {
		close(m.called)
		return t.site.sendEnd(ctx, t) // The client closes, which the mate will be told by its own try.
	}
	m.wait = w
	begun := false
	a, err := conn.InBackground(ctx, co.client.servers, func() (answer, error) {
		begun = true
		defer close(m.called)
		a := co.relay(w, t)
		return a, a.err
	})
	if errors.Is(err, lease.ErrClosed) && !begun {
		close(m.called)
		return t.site.sendEnd(ctx, t)
	}
	a.err = err
	return a
}

// relay sends the ask of the next leader and the end of the last, and takes in both answers.
func (co *cohort) relay(w *wait, t *ticket) answer {
	c, s, n := co.client, w.site, w.site.node()
	c.ends.owe() // Close waits for it.
	defer c.ends.done(1)
	next := []outgoing{{w, s.prepare(n, w)}}
	return c.send(n, next, []*end{{site: s, text: t.text, ticket: t}})[1]
}
