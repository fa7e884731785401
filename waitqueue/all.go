package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Several names at once. All tickets of a call come into their queues in one script for all names of a slot, which
// outside a cluster are all. So two such calls stand in the same order everywhere, and neither waits for the other
// in a circle. What one name grants before the others do is held for a bounded time; then it is given back, and asked
// for again with its old arrival, so at the head of its queue, when one of the others is there. What is lost meanwhile
// counts as given back.

// DefaultBound is how long a call holds some of its names while it waits for others.
const DefaultBound = time.Second

// whole is one call for several names.
type whole struct {
	ctx    context.Context
	client *client
	mode   string
	bound  time.Duration
	begun  time.Time
	parts  []*part
	asked  int // how many of them, from the first, it has got to
}

// A part is one of its names.
type part struct {
	queue   *binding
	wait    *wait
	sent    time.Time    // when it was first asked for
	arrival int64        // 0 until it is given up
	lease   *lease.Lease // while it is held
	waiting bool         // a goroutine waits for it
}

// AcquireAll waits its turn for all of the names, which must be of one client, on the same terms and of the fair lock,
// and returns one lease on all of them: lost when one of them is, released at once. It holds some of them while it
// waits for others for bound at the most; 0 stands for [DefaultBound]. A name that is there twice is [lease.ErrInvalid].
func AcquireAll(ctx context.Context, queues []Queue, bound time.Duration) (*lease.Lease, error) {
	return acquireAll(ctx, queues, bound, lua.Wait)
}

// TryAll returns a lease on all of the names if they can be had at once and nobody waits for any, and an error that
// wraps [lease.ErrBusy] otherwise.
func TryAll(ctx context.Context, queues []Queue) (*lease.Lease, error) {
	return acquireAll(ctx, queues, 0, lua.Try)
}

func acquireAll(ctx context.Context, queues []Queue, bound time.Duration, mode string) (*lease.Lease, error) {
	retry.Given(ctx)
	w := &whole{ctx: ctx, mode: mode, bound: bound, begun: time.Now()}
	switch {
	case mode == lua.Try:
		w.bound = lease.MaxLease // Nobody is waited for.
	case bound == 0:
		w.bound = DefaultBound
	}
	var terms Terms // of the last, as of all
	for _, q := range queues {
		if err := q.usable(ctx); err != nil {
			return nil, err
		}
		if _, err := q.within(ctx); err != nil {
			return nil, err
		}
		w.client, terms = q.client, q.terms
		w.parts = append(w.parts, &part{queue: q.binding})
	}
	var free context.CancelFunc
	var err error
	if w.ctx, free, err = retry.InTime(ctx, terms.MaxWait); err != nil {
		return nil, err
	}
	defer free()
	// Slot by slot, always in the same order: where one slot has to be waited for while others are held, nobody waits
	// the other way round.
	slices.SortFunc(w.parts, func(a, b *part) int {
		return cmp.Or(cmp.Compare(w.slot(a), w.slot(b)), cmp.Compare(a.queue.name, b.queue.name))
	})
	for i := 1; i < len(w.parts); i++ {
		if q := w.parts[i].queue; q.name == w.parts[i-1].queue.name {
			return nil, fmt.Errorf("%w: %q is there twice", lease.ErrInvalid, names.Label(q.name))
		}
	}
	for rest := w.parts; len(rest) > 0; {
		n := 1
		for n < len(rest) && w.slot(rest[n]) == w.slot(rest[0]) {
			n++
		}
		if err := w.take(rest[:n]); err != nil {
			w.leave(err)
			return nil, err
		}
		rest = rest[n:]
	}
	return w.lease(time.Since(w.begun)), nil
}

// slot is that of a part in a cluster; elsewhere all are alike.
func (w *whole) slot(p *part) uint16 {
	if !w.client.servers.Clustered() {
		return 0
	}
	return lua.Slot(p.queue.keys.Lock)
}

// take gets the parts of one slot: all at once, or each in its turn.
func (w *whole) take(parts []*part) error {
	for _, p := range parts {
		if err := w.enter(p); err != nil {
			return err
		}
		w.asked++
	}
	if err := w.ask(parts, lua.Try); err != nil {
		return err
	}
	if refused(parts) {
		if w.mode == lua.Try {
			w.have(parts)
			return lease.ErrBusy
		}
		w.hear(parts)
		if err := w.ask(parts, lua.Wait); err != nil {
			return err
		}
	}
	w.have(parts)
	return w.await()
}

// refused reports whether the last answer was that some parts cannot be had at once.
func refused(parts []*part) bool {
	return slices.ContainsFunc(parts, func(p *part) bool { return p.wait.clean })
}

// enter gives a part a new ticket.
func (w *whole) enter(p *part) error {
	t := p.queue.newTicket()
	t.arrival = cmp.Or(p.arrival, t.arrival)
	s, err := w.client.enter(w.ctx, p.queue, t)
	if err != nil {
		return err
	}
	p.wait = &wait{ctx: w.ctx, ticket: t, site: s, begun: w.begun, budget: conn.AttemptTime, mode: w.mode}
	return nil
}

// giveUp notes that a part is not held any more, and the place with which it is asked for again.
func (p *part) giveUp() {
	s, t := p.wait.site, p.wait.ticket
	s.mu.Lock()
	p.arrival = t.arrival
	s.mu.Unlock()
	if p.arrival == 0 {
		// It was granted at once, or by a message after an ask whose answer was lost: nobody has told.
		if earliest := s.node().Clock.AtLeast(p.sent); earliest > 0 {
			p.arrival = earliest - t.headStart()
		}
	}
	p.lease, p.wait = nil, nil
}

// hear waits until the client hears of all parts that are to be asked for, so that all can queue in one script; but not
// for long, as each can also queue by itself.
func (w *whole) hear(parts []*part) {
	timer := time.NewTimer(conn.SlowAnswer)
	defer timer.Stop()
	for _, p := range parts {
		s := p.wait.site
		for {
			s.mu.Lock()
			if !p.wait.ticket.asksLocked() {
				s.mu.Unlock()
				break // It is granted, or the client was closed.
			}
			p.wait.ticket.to(idling) // It is poked when the site hears.
			if s.trust.want() {
				s.subscribeLocked()
			}
			hears, wake := s.hearsLocked(), p.wait.ticket.waking()
			s.mu.Unlock()
			if hears {
				break
			}
			select {
			case <-wake:
			case <-timer.C:
				return
			case <-w.ctx.Done():
				return
			}
		}
	}
}

// ask asks for all parts of a slot in one script, and again until there is an answer.
func (w *whole) ask(parts []*part, mode string) error {
	budget, begun := conn.AttemptTime, time.Now()
	var last error
	for tries := 0; ; tries++ {
		if w.ctx.Err() != nil {
			return w.failed(retry.WhyEnded(w.ctx), last)
		}
		late, err := w.askOnce(parts, mode, budget)
		switch {
		case err == nil && !late:
			return w.failure(parts)
		case err == nil:
			budget = min(2*budget, conn.LongestAttempt)
		case !conn.Transient(err) || w.mode == lua.Try && tries > 0 && time.Since(w.begun) > tryTime:
			return conn.Advise(err)
		default:
			if d, ok := w.ctx.Deadline(); !ok || time.Now().Before(d) {
				last = conn.Advise(err) // Else it is the call's own deadline that has ended the request.
			}
			if time.Since(begun) > w.bound {
				w.yield() // What other slots have granted.
			}
			if err := w.client.servers.Rest(w.ctx, retry.Backoff(tries)); err != nil {
				return w.failed(err, last)
			}
		}
	}
}

// failed wraps why the call ends before there was an answer.
func (w *whole) failed(err, last error) error {
	return &lease.WaitError{Place: -1, Waited: time.Since(w.begun), Last: last, Err: err}
}

func (w *whole) askOnce(parts []*part, mode string, budget time.Duration) (late bool, err error) {
	for _, p := range parts {
		if err := p.wait.site.afterEnds(w.ctx, w.mode); err != nil {
			return false, err
		}
	}
	c, n := w.client, parts[0].wait.site.node()
	a := n.Attempt(budget)
	first := parts[0].wait.ticket
	head := int64(first.queue.terms.Priority) * PriorityStep.Microseconds()
	var keys, tickets []string
	var asked []*part
	var asks []*ask
	for _, p := range parts {
		s, t := p.wait.site, p.wait.ticket
		s.mu.Lock()
		if !t.asksLocked() {
			s.mu.Unlock()
			continue // A message was faster, or the ticket is ending.
		}
		if mode == lua.Wait && !s.hearsLocked() {
			mode = lua.Look
		}
		t.to(asking)
		t.inflight++
		if p.sent.IsZero() {
			p.sent = a.Sent
		}
		asked = append(asked, p)
		asks = append(asks, &ask{Attempt: a, text: t.text, hearing: s.trust.confirmed})
		keys = append(keys, s.keys.All()...)
		tickets = append(tickets, t.text, strconv.FormatInt(t.arrival, 10))
		s.mu.Unlock()
	}
	if len(asked) == 0 {
		return false, nil
	}
	args := append([]string{mode, a.NotAfter, strconv.FormatInt(head, 10), c.highest(), c.servers.Counted(), first.phase(), c.who}, tickets...)
	c.stats.asks.Add(1)
	replies, err := lua.MultiAsk.DecodeAll(c.servers.RunFor(w.ctx, lua.MultiAsk, keys, args...), len(asked))
	if err == nil && len(replies) == 1 && replies[0].Status == lua.Late {
		replies, late = slices.Repeat(replies, len(asked)), true
	}
	for i, p := range asked {
		var r lua.Reply
		if err == nil {
			r = replies[i]
			if late || r.Status == lua.Busy {
				p.sent = time.Time{} // Nothing of it is there.
			}
		}
		p.wait.clean = r.Status == lua.Busy
		p.wait.site.taken(p.wait.ticket, asks[i], &r, err)
	}
	return late, err
}

// failure is why one of the parts will never be held, if one will not.
func (w *whole) failure(parts []*part) error {
	for _, p := range parts {
		s := p.wait.site
		s.mu.Lock()
		err := errors.Join(p.wait.ticket.err, p.wait.ticket.refused)
		s.mu.Unlock()
		if err != nil {
			return p.wait.failed(err)
		}
	}
	return nil
}

// have takes the leases of the parts that are held.
func (w *whole) have(parts []*part) {
	for _, p := range parts {
		p.lease = p.wait.site.grasp(w.ctx, p.wait.ticket, time.Since(w.begun))
	}
}

// outcome is how the wait for one part ended.
type outcome struct {
	part  *part
	lease *lease.Lease
	err   error
}

// crew is the goroutines that wait for parts, each for one.
type crew struct {
	ctx      context.Context
	outcomes chan outcome
	running  int
}

func (c *crew) begin(p *part) {
	c.running++
	p.waiting = true
	p.wait.ctx = c.ctx
	go func() {
		l, err := p.wait.toTheEnd()
		c.outcomes <- outcome{p, l, err}
	}()
}

// ended takes in an outcome.
func (c *crew) ended(o outcome) {
	c.running--
	p := o.part
	p.waiting = false
	if p.lease = o.lease; p.lease == nil {
		p.wait = nil
	}
}

// await waits until all parts so far are held. Each waits on a goroutine of its own, and await for all of these.
func (w *whole) await() error {
	if missing, _ := w.missing(); len(missing) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	c := &crew{ctx: ctx, outcomes: make(chan outcome)}
	defer func() {
		cancel(context.Cause(w.ctx))
		for c.running > 0 {
			c.ended(<-c.outcomes)
		}
	}()
	for _, p := range w.parts[:w.asked] {
		if p.lease == nil && p.wait != nil {
			c.begin(p)
		}
	}
	patience := time.NewTimer(w.patience())
	defer patience.Stop()
	for {
		missing, holds := w.missing()
		switch {
		case len(missing) > 0 && w.mode == lua.Try:
			return lease.ErrBusy // One was lost already.
		case len(missing) > 0 && (holds || c.running == 0):
			// One of the others is there: come back to the places that were given up.
			for _, p := range missing {
				if err := w.enter(p); err != nil {
					return err
				}
				c.begin(p)
			}
			patience.Reset(w.patience())
		case c.running == 0:
			return nil
		}
		select {
		case o := <-c.outcomes:
			c.ended(o)
			if o.err != nil {
				return o.err
			}
			if !holds {
				patience.Reset(w.patience())
			}
		case <-patience.C:
			w.yield()
			patience.Reset(w.patience())
		}
	}
}

// patience is for how long some names are held while others are waited for: the bound at the most. Half of it is left to
// chance: two calls that hold what the other waits for, and have begun to at the same moment, would else give it back at
// the same moment, get what the other had, and go on so for good.
func (w *whole) patience() time.Duration { return jitter(w.bound/2, w.bound) }

// missing are the parts, of those that the call has got to, that are not held and that nobody waits for. What has ended
// while others were waited for is not held any more. holds says whether any is held.
func (w *whole) missing() (missing []*part, holds bool) {
	for _, p := range w.parts[:w.asked] {
		if p.lease != nil && p.lease.Context().Err() != nil {
			p.giveUp()
		}
		if p.lease == nil && !p.waiting {
			missing = append(missing, p)
		}
		holds = holds || p.lease != nil
	}
	return missing, holds
}

// Names is how several names are shown in an error.
func Names(queues []Queue) string {
	const most = 3
	shown := make([]string, 0, most)
	for _, q := range queues[:min(len(queues), most)] {
		shown = append(shown, strconv.Quote(q.Label()))
	}
	text := fmt.Sprint(shown)
	if len(queues) > most {
		text = fmt.Sprintf("%s and %d more", text, len(queues)-most)
	}
	return text
}
