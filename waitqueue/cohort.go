package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// MaxPasses is how often a hold may be passed on at the most; see [Queue.Passing].
const MaxPasses = core.MaxPasses

// A Cohort is a queue whose calls pass a hold on to each other without asking the server, or keep it for each other.
// [core.Cohort] decides; this file performs its decisions.
type Cohort struct {
	Queue
	passes int
	keep   time.Duration
}

// Passing returns a queue whose calls pass a hold on, at most passes times. A hold that no call waits for is kept for a
// call that comes within keep, as long as nobody is known to wait for it; 0 is not at all. Calls are of one cohort if
// their clients, names, terms, passes and keep are the same.
func (q Queue) Passing(passes int, keep time.Duration) *Cohort {
	kind := byte(wire.Exclusive)
	if keep > 0 {
		kind = wire.Kept
	}
	return &Cohort{q.For(kind, core.Tokens(passes, keep)), passes, keep}
}

// Keeps reports whether holds are kept.
func (q *Cohort) Keeps() bool { return q.keep > 0 }

// Acquire waits for a hold as one of the cohort.
func (q *Cohort) Acquire(ctx context.Context) (*lease.Lease, error) {
	ctx, free, err := calls.InTime(ctx, q.terms.MaxWait)
	if err != nil {
		return nil, err
	}
	defer free()
	return q.join(ctx, wire.Wait)
}

// Try returns a hold if it can be had at once, and an error that wraps [lease.ErrBusy] otherwise; see [calls.Calling].
func (q *Cohort) Try(ctx context.Context) (*lease.Lease, error) {
	return calls.Calling(ctx, func(ctx context.Context) (*lease.Lease, error) { return q.join(ctx, wire.Try) }, q.Acquire)
}

// A cohort is the shell's part of a cohort: what the core does not know. The mu of its entry guards it.
type cohort struct {
	core.Cohort
	entry *lockEntry
	lent  *lent // the last hold
}

// cohortKey identifies a cohort of a name.
type cohortKey struct {
	terms  Terms
	passes int
	keep   time.Duration
}

// cohortLocked returns the cohort of a name.
func (q *Cohort) cohortLocked(e *lockEntry) *cohort {
	key := cohortKey{q.terms, q.passes, q.keep}
	if known := e.cohorts[key]; known != nil {
		return known.Owner.(*cohort)
	}
	if e.cohorts == nil {
		e.cohorts = make(map[cohortKey]*core.Cohort)
	}
	co := &cohort{entry: e}
	co.Owner = co
	e.lock.Begin(&co.Cohort, q.passes, q.keep)
	e.cohorts[key] = &co.Cohort
	return co
}

// lentLocked returns the hold of the cohort, and what the core wants to know of it; nothing while its leader waits.
func (co *cohort) lentLocked() (u *lent, v core.Leases) {
	if co.Hold == nil {
		return nil, v
	}
	return co.lent, co.lent.leases()
}

// A follower is a call of a cohort that does not find a kept hold.
type follower struct {
	claim
	place  core.Follower
	called chan struct{} // closed when it has the hold, leads, or has failed; nil if it led at once
	lease  *lease.Lease  // if it was passed the hold
	gone   error         // why its wait is over, if it is

	sent chan struct{} // closed when its acquire request is answered that goes with the release of the hold before
	err  error         // why it could not be made known
}

// join has a call use the kept hold, wait for its turn, or lead.
func (q *Cohort) join(ctx context.Context, mode string) (*lease.Lease, error) {
	if l, err := q.ready(ctx); l != nil || err != nil {
		return l, err
	}
	claim, c := newClaim(ctx, q.Queue, mode), q.client
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil, lease.ErrClosed
	}
	e := q.entryLocked()
	x := e.begin()
	c.mu.Unlock()
	e.act.Lock() // Before the input: effects look at who uses a hold.
	co := q.cohortLocked(e)
	u, v := co.lentLocked()
	turn := co.Join(&x.Input, c.servers.Doubtful(), v)
	if u != nil && turn != core.Later {
		co.unkept()
	}
	if turn == core.Uses {
		l := u.pass(x, &claim, u.teller.Note())
		e.endActing(x)
		return l, nil
	}
	claim.tells()
	f := &follower{claim: claim}
	waits := turn == core.Later && mode == wire.Wait
	if waits {
		f.place.Owner, f.called = f, make(chan struct{})
		co.Wait(&x.Input, &f.place)
	}
	e.endActing(x)
	switch {
	case waits:
		return co.await(f)
	case turn == core.Later:
		return nil, f.giveUp(lease.ErrBusy) // Another call of the client has it, or is about to.
	case u != nil:
		_ = u.giveBack(calls.Over, nil)
	}
	return co.lead(f)
}

// await is a follower's wait for its turn.
func (co *cohort) await(f *follower) (*lease.Lease, error) {
	select {
	case <-f.called:
	case <-f.ctx.Done():
		co.entry.mu.Lock()
		left := co.Leave(&f.place)
		co.entry.mu.Unlock()
		if left {
			return nil, f.giveUp(nil)
		}
		<-f.called // Somebody is about to.
	}
	switch {
	case f.lease != nil:
		return f.lease, nil
	case f.gone != nil:
		return nil, f.giveUp(f.gone)
	}
	return co.lead(f)
}

// goOn lets a follower go on that leads now, or whose wait is over for a reason.
func (f *follower) goOn(why error) {
	f.gone = why
	close(f.called)
}

// giveUp ends a call that has not asked, and returns why, with the time that it has waited. Without a cause its context
// has ended; then the leader, which has asked for the others, knows whether the server answers.
func (f *follower) giveUp(cause error) error {
	silent := cause == nil && f.queue.Silent()
	cause = cmp.Or(cause, calls.WhyEnded(f.ctx))
	if errors.Is(cause, lease.ErrBusy) {
		return f.unasked(cause)
	}
	return f.unasked(&lease.WaitError{Place: -1, Waited: time.Since(f.begun), Err: cause, Unanswered: silent})
}

// lead asks for a hold, and waits for it.
func (co *cohort) lead(f *follower) (*lease.Lease, error) {
	own, err := f.ask()
	e := co.entry
	if err != nil {
		x := e.begin()
		co.OnFailed(&x.Input)
		e.end(x)
		return nil, err
	}
	h := f.ticket.hold
	if h.ticket.entry != e { // The client has another identity since, and the cohort has ended.
		return own, nil
	}
	u := &lent{hold: h, cohort: co}
	u.back = u.release
	x := e.begin()
	co.OnHold(&x.Input, &h.Hold)
	e.act.Lock()
	co.lent, h.cohort = u, co
	l := u.lend(own.Context(), own.Waited())
	if h.Gone != nil {
		u.use.keeper.Lose(h.Gone)
	}
	e.endActing(x)
	return l, nil
}

// ask asks for a hold, unless the release of the hold before has taken the request along, and waits for it.
func (f *follower) ask() (*lease.Lease, error) {
	if f.err == nil && (f.ticket == nil || f.entry == nil) {
		f.enter(f.called != nil)
	}
	if f.sent != nil {
		select {
		case <-f.sent:
		case <-f.ctx.Done():
		}
	}
	if f.err != nil {
		return nil, f.err
	}
	return f.toTheEnd(plan{})
}

// enter makes the call known, before it asks. A call that is late, because it has waited for others, has the place of the
// time of its call. It has no such place if the server's clock has stepped back: a new arrival could then come before
// ones that were given earlier.
func (f *follower) enter(late bool) {
	t := f.named()
	t.Joint = true
	if now, ok := f.queue.client.servers.NodeOf(f.queue.keys.Lock).Clock.Steady(); ok && late {
		t.Arrival = now.Add(-time.Since(f.begun)).UnixMicro() - f.queue.terms.headStart()
	}
	if _, err := f.queue.register(t, nil); err != nil {
		f.err = f.unasked(err)
	}
}

// A lent hold is one that the calls of a cohort use, one after the other. It has a lease of its own, which no call sees,
// and which lasts as long as the hold.
type lent struct {
	*hold
	cohort *cohort
	use    share                       // the lease of the call that has it
	back   func(context.Context) error // what the release of that does
}

// lend makes the lease of the call that uses the hold. Both mu and act are held.
func (u *lent) lend(ctx context.Context, waited time.Duration) *lease.Lease {
	q := u.ticket.queue
	u.use.keeper = keeper.New(ctx, keeper.Terms{
		Name: names.Label(q.name), Token: u.UseToken, Waited: waited, Release: u.back, Engine: u, Key: q.held, Shared: q.terms.Shared,
		Until: keeper.Until(u.Lasts), Previous: core.Previous(&u.Hold, false),
	})
	u.more = append(u.more[:0], &u.use)
	return (*lease.Lease)(u.use.keeper)
}

// pass makes the lease of the next call. note is for it, from the call before. Both mu and act are held.
func (u *lent) pass(x *turn, to *claim, note string) *lease.Lease {
	to.tells()
	ctx, waited := to.ctx, u.Since.Sub(to.begun)
	if t := to.ticket; t != nil {
		u.teller = t.teller
		ctx = u.teller.Granted(ctx, u.UseToken, waited, note, "")
	}
	u.remind(x.Now)
	u.ticket.entry.client.stats.Granted.Add(1)
	return u.lend(ctx, waited)
}

// release is what the release of a lease does.
func (u *lent) release(ctx context.Context) error {
	co, e := u.cohort, u.ticket.entry
	c := e.client
	var excess *core.Cohort
	x := e.begin()
	e.act.Lock() // Before the input, as in join.
	token, held, v := u.UseToken, u.held(), u.leases()
	turn, next := co.OnRelease(&x.Input, &u.Hold, c.servers.Doubtful(), v)
	u.more = u.more[:0]
	var f *follower
	if next != nil {
		f = next.Owner.(*follower)
	}
	switch turn {
	case core.Uses:
		note := u.teller.Note()
		u.teller.Ended(observe.Released, token, held, nil)
		f.lease = u.pass(x, &f.claim, note)
		f.goOn(nil)
	case core.Later:
		u.teller.Ended(observe.Released, token, held, nil)
		c.kept.mu.Lock()
		excess = c.kept.Add(&co.Cohort)
		c.kept.mu.Unlock()
	}
	e.endActing(x)
	if turn == core.Leads {
		return u.giveBack(ctx, f)
	}
	if excess != nil {
		excess.Owner.(*cohort).recall()
	}
	return nil
}

func (co *cohort) unkept() {
	k := &co.entry.client.kept
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Remove(&co.Cohort)
}

func (co *cohort) recall() {
	x := co.entry.begin()
	u, _ := co.lentLocked()
	back := co.Recall()
	if back {
		co.unkept()
	}
	co.entry.end(x)
	if back {
		_ = u.giveBack(calls.Over, nil)
	}
}

// Want is what the first Wanted of a lease does. It does nothing for a lease that was released since: the hold may be
// kept, or be used by another call by now.
func (u *lent) Want(of *keeper.Keeper) {
	e := u.ticket.entry
	x := e.begin()
	if len(u.more) > 0 && u.use.keeper == of {
		u.cohort.Want(&x.Input)
	}
	e.end(x)
}

// giveBack releases the hold, with the last token that was used, and returns what [keeper.Terms] wants of a release. The
// follower that leads next, if there is one, goes on meanwhile. Its acquire request goes in the same round trip, before
// the release, so it is in the queue when the queue is served. If there is nothing to send, or nobody waits for the
// release, the follower sends its request itself.
func (u *lent) giveBack(ctx context.Context, next *follower) error {
	sh, ended := &u.first, ctx.Err() != nil
	if !sh.keeper.Overdue() {
		sh.keeper.End()
	}
	todo := sh.takeOff(ended)
	if next != nil && todo.last && !ended {
		if next.enter(true); next.err == nil {
			_ = next.queue.client.servers.Overtake(ctx, next.queue.keys.Lock)
			next.sent = make(chan struct{})
			next.goOn(nil)
			a := u.relay(ctx, next)
			err := u.conclude(ctx, &a)
			u.released(todo.held, err)
			return err
		}
	}
	if next != nil {
		next.goOn(nil)
	}
	return sh.finish(ctx, todo, ended)
}

// relay sends the acquire request of a follower and the release of the hold, and takes in both answers. Both go on if ctx ends.
func (u *lent) relay(ctx context.Context, next *follower) answer {
	t, n := u.ticket, next.entry.node()
	d := &owned{}
	t.entry.own(d, t, nil)
	a := t.entry.client.sendFor(ctx, n, []request{asking{&next.wait, next.prepare()}, &d.sender}, func() { close(next.sent) })[1]
	if errors.Is(a.err, lease.ErrClosed) {
		return t.entry.sendEnd(ctx, t, nil)
	}
	return a
}

// kept are the cohorts of a client whose holds are kept.
type kept struct {
	mu sync.Mutex // nothing is called under it
	core.Kept
}

// A claim is a call for a hold that may wait for other calls of its client before it asks.
type claim struct {
	wait        // its ticket is nil if nobody has needed one
	queue Queue // with the terms of the call
	begun time.Time
}

func newClaim(ctx context.Context, q Queue, mode string) claim {
	return claim{queue: q, begun: time.Now(), wait: wait{ctx: ctx, mode: mode}}
}

// tells makes the ticket of the claim, if an observer or a log wants it.
func (c *claim) tells() {
	if c.queue.client.notifier != nil && c.ticket == nil {
		c.named().teller.Asked(c.ctx)
	}
}

// named returns the ticket of the claim, which it makes if there is none.
func (c *claim) named() *ticket {
	if c.ticket == nil {
		c.ticket = c.queue.newWait(c.ctx, c.mode).ticket
		c.ticket.Begun = c.begun
	}
	return c.ticket
}

// unasked tells of a claim that has ended before its client knew its ticket.
func (c *claim) unasked(err error) error {
	if c.ticket != nil {
		c.ended(err)
	}
	return err
}
