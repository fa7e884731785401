package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// What a layer over the queue needs, such as internal/cohort and internal/several: to let calls wait for each other before
// they ask, to go step by step, and to let several calls use one hold, one after the other. A plain call comes by none of
// it.

// A Layer is what a package keeps beside the queues of a client.
type Layer interface {
	// Close ends what waits in the layer. The client calls it as it closes, before it ends its own calls and holds.
	Close()
}

// Layer returns what a package keeps for the client of the queue under a key, which it makes for the first call.
func (q Queue) Layer(key any, make func() Layer) (Layer, error) {
	c := q.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, lease.ErrClosed
	}
	l := c.layers[key]
	if l == nil {
		l = make()
		c.layers[key] = l
	}
	return l, nil
}

// Subscribe makes the client hear of the name before one of its calls has to wait.
func (q Queue) Subscribe() {
	c := q.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return
	}
	e := q.entryLocked()
	x := e.begin()
	e.lock.Listen(&x.Input)
	e.end(x)
}

// A Claim is a call for a hold that may wait for other calls of its client before it asks. The hold that it gets in the
// end has as many tokens as its queue asks for permits: that of its grant, and those after it ([Hold.Pass]).
type Claim struct {
	ctx     context.Context
	queue   *binding
	wait    wait          // its ticket is nil if nobody has needed one, its entry until it is known there
	arrival int64         // its place, if it has one already
	asked   time.Time     // when it first asked with others
	err     error         // why it could not be made known
	busy    error         // who has what it wants, if the last ask was a try that failed
	sent    chan struct{} // closed when the ask is answered that was sent for it; nil if it asks by itself
}

// Refuses is why calls with a context fail before they ask, if they do.
func (q Queue) Refuses(ctx context.Context) error {
	if err := q.usable(ctx); err != nil {
		return err
	}
	_, err := q.within(ctx)
	return err
}

// Caller begins a call that only takes up a hold that rests, if it can: it is told of when it does ([Hold.Pass]).
func (q Queue) Caller(ctx context.Context) (Claim, error) {
	return newClaim(ctx, q.binding, wire.Try), q.Refuses(ctx)
}

// Claim begins a call, which may be a try. It sends nothing.
func (q Queue) Claim(ctx context.Context, try bool) (*Claim, error) {
	c, err := q.Caller(ctx)
	if err != nil {
		return nil, err
	}
	if !try {
		c.wait.mode = wire.Wait
	}
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

// GiveUp ends a claim that has not asked, and returns why, with the time that it has waited. No cause stands for the end
// of its context; then the call that has asked for the others tells whether the server answers.
func (c *Claim) GiveUp(cause error) error {
	silent := cause == nil && Queue{c.queue}.Silent()
	cause = cmp.Or(cause, retry.WhyEnded(c.ctx))
	if errors.Is(cause, lease.ErrBusy) {
		return c.failed(cause)
	}
	return c.failed(&lease.WaitError{Place: -1, Waited: time.Since(c.wait.begun), Err: cause, Unanswered: silent})
}

// failed tells of a claim that has ended before its client knew its ticket.
func (c *Claim) failed(err error) error {
	if c.wait.ticket != nil {
		c.wait.ended(err)
	}
	return err
}

// Wait asks for the hold and waits for it. A claim that is late, because it has waited for others, has the place of the
// time at which it was made.
func (c *Claim) Wait(late bool) (*Hold, error) {
	switch {
	case c.err != nil:
	case c.sent == nil:
		_ = c.enter(late)
	default:
		select {
		case <-c.sent:
		case <-c.ctx.Done():
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	l, err := c.Await(c.ctx)
	if err != nil {
		return nil, err
	}
	return &Hold{hold: c.wait.ticket.hold, ctx: l.Context(), waited: l.Waited(), parts: []*lease.Lease{l}}, nil
}

// Await asks for the hold of a claim that is known, and waits for it within ctx.
func (c *Claim) Await(ctx context.Context) (*lease.Lease, error) {
	c.wait.ctx = ctx
	return c.wait.toTheEnd()
}

// enter makes the claim known. A late one has no place of its own where the server's clock has stepped back: a new arrival
// could then come before those given earlier.
func (c *Claim) enter(late bool) error {
	servers := c.queue.client.servers
	if now, ok := servers.NodeOf(c.queue.keys.Lock).Clock.Steady(); ok && late {
		c.arrival = now.Add(-time.Since(c.wait.begun)).UnixMicro() - c.queue.terms.headStart()
	}
	return c.Enter(c.wait.begun)
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
	e, err := t.register()
	if err != nil {
		c.err = c.failed(err)
	}
	c.wait.entry = e
	return c.err
}

// A Hold is a hold whose leases a layer makes, one for each call that uses it. Its methods are called one at a time.
type Hold struct {
	hold *hold

	ctx    context.Context // of the call that uses it
	waited time.Duration
	parts  []*lease.Lease // the lease of the hold itself, which each of theirs ends with
}

// Context ends with the hold.
func (h *Hold) Context() context.Context { return h.hold.first.keeper.Lease().Context() }

// Lease makes the lease of the call that uses the hold. It ends with the hold, as far as anybody looks at it; who waits
// for its end the layer tells, when [Hold.Context] has ended. It leaves what a release does to the layer, and what Wanted
// does to its engine.
func (h *Hold) Lease(release func(context.Context) error, engine any) *lease.Keeper {
	q := h.hold.ticket.queue
	return lease.New(h.ctx, lease.Terms{
		Name: names.Label(q.name), Token: h.hold.UseToken, Waited: h.waited, Release: release, Engine: engine, Key: q.held, Shared: q.terms.Shared,
		Until: lease.Until{Deadline: time.Now().Add(lease.MaxLease), Slept: lease.Slept()},
		Parts: h.parts,
	})
}

// Want asks to be told when somebody waits for the hold: tell is called then, in the background.
func (h *Hold) Want(tell func()) { h.hold.want(tell) }

// Pass lets the call of a claim use the hold after the one that had it, by the next token, and reports whether
// it does; not if somebody is known to wait in the queue, unless it may barge. Nothing is sent. The next token is one of
// those that the claim reserved which got the hold, and it is above the first by at most the microseconds that have passed
// since the grant: so the next hold has a higher one also where the server has forgotten the last. A hold whose end is near,
// or in doubt, is not passed on.
func (h *Hold) Pass(to *Claim, barges bool) bool {
	o, e := h.hold, h.hold.ticket.entry
	c := e.client
	x := e.begin()
	if !e.lock.MayPass(&x.Input, &o.Hold, barges, c.servers.Doubtful(), o.leases()) {
		e.end(x)
		return false
	}
	e.act.Lock()
	note := o.told.Note()
	o.released(o.held(), nil)
	to.tells()
	e.lock.Pass(&x.Input, &o.Hold)
	if o.told = o.ticket.teller; to.wait.ticket != nil {
		o.told = to.wait.ticket.teller
	}
	o.remind(x.Now)
	h.ctx, h.waited = to.wait.ctx, o.Since.Sub(to.wait.begun)
	if to.wait.ticket != nil {
		h.ctx = to.wait.ticket.teller.Granted(h.ctx, o.UseToken, h.waited, note)
	}
	c.stats.Granted.Add(1)
	e.endActing(x)
	return true
}

// Rest keeps the hold of a call that has released it, until a call takes it up or d has passed: then what was given to
// Want is called, as if somebody waited. It reports false, and does nothing, where somebody does, or no call could take it
// up. Nothing is sent; renewals are for the grant lease from then on.
func (h *Hold) Rest(d time.Duration) bool {
	o, e := h.hold, h.hold.ticket.entry
	x := e.begin()
	held := o.held()
	kept := e.lock.Keep(&x.Input, &o.Hold, d, e.client.servers.Doubtful(), o.leases())
	e.act.Lock()
	if kept {
		o.told.Ended(observe.Released, o.UseToken, held, nil)
	}
	e.endActing(x)
	return kept
}

// Release gives the hold back, with the last token that was used, and returns what [lease.Terms] wants of a release. The
// claim that asks next, if there is one, can wait from the call of ready on. Its ask goes in the same round trip, ahead of
// the end, so it is in the queue when that is served; where there is nothing to send, or nobody to wait for it, it asks by
// itself.
func (h *Hold) Release(ctx context.Context, next *Claim, ready func()) error {
	sh, ended := &h.hold.first, ctx.Err() != nil
	if !sh.keeper.Overdue() {
		sh.keeper.End()
	}
	todo := sh.takeOff(ended)
	if next == nil {
		return sh.finish(ctx, todo, ended)
	}
	if todo.last && !ended && next.enter(true) == nil {
		_ = next.queue.client.servers.Overtake(ctx, next.queue.keys.Lock)
		next.sent = make(chan struct{})
		ready()
		a := h.relay(ctx, next)
		err := h.hold.conclude(ctx, &a)
		h.hold.released(todo.held, err)
		return err
	}
	ready()
	return sh.finish(ctx, todo, ended)
}

// relay sends the ask of a claim and the end of the hold, and takes in both answers. Both go on if ctx ends.
func (h *Hold) relay(ctx context.Context, next *Claim) answer {
	t, n := h.hold.ticket, next.wait.entry.node()
	d := &owned{}
	t.entry.own(d, t, nil)
	a := t.entry.client.sendFor(ctx, n, []request{asking{&next.wait, next.wait.prepare(n)}, &d.sender}, func() { close(next.sent) })[1]
	if errors.Is(a.err, lease.ErrClosed) {
		return t.entry.sendEnd(ctx, t, nil)
	}
	return a
}
