package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/terms"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Many names at a time, each for itself: what is asked of one server goes in one round trip.

// eachBatch is how many requests go in one round trip at the most, so that others come in between.
const eachBatch = 512

// An Outcome is what became of one of several calls: a lease, or the reason why there is none.
type Outcome struct {
	Lease *lease.Lease
	Err   error
}

// AcquireEach asks for all of the queues in one round trip to each of their servers, and waits until each is held or has
// failed; ctx bounds all the waits. The outcomes are in the order of the queues. A name that is there twice fails with
// [lease.ErrDeadlock] the second time, where it is not for several holders. What is lost while others are waited for has failed
// with the cause of the loss.
//
// What is held while others are waited for is kept: callers who want the same names can wait for each other for ever,
// unless ctx ends. Take all or none with package multilock.
func AcquireEach(ctx context.Context, queues ...Queue) []Outcome { return each(ctx, queues, lua.Wait) }

// TryEach takes the queues that can be had at once, in one round trip to each of their servers. The outcomes are
// in the order of the queues; the error of a lock that is held, or waited for, wraps [lease.ErrBusy].
func TryEach(ctx context.Context, queues ...Queue) []Outcome { return each(ctx, queues, lua.Try) }

func each(ctx context.Context, queues []Queue, mode string) []Outcome {
	retry.Given(ctx)
	begun, all := time.Now(), make([]Outcome, len(queues))
	named := make(map[any]bool, len(queues))
	together := make(map[*conn.Node][]oneOf)
	asking := ctx // until the shortest of the waits is over: the others ask again by themselves then
	var rest sync.WaitGroup
	for i, q := range queues {
		mine, free, err := retry.InTime(ctx, q.terms.MaxWait)
		if err != nil {
			all[i].Err = err
			continue
		}
		defer free()
		if all[i].Err = q.usable(mine); all[i].Err != nil {
			continue
		}
		if all[i].Lease, all[i].Err = q.within(ctx); all[i].Lease != nil || all[i].Err != nil {
			continue
		}
		if mode == lua.Wait && q.nesting != Independent && q.kind != lua.Read && !q.terms.Shared && named[q.held] {
			all[i].Err = lease.ErrDeadlock
			continue
		}
		named[q.held] = true
		if until, ok := mine.Deadline(); ok && earlier(until, asking) {
			asking = mine
		}
		w, err := q.begin(mine, mode)
		if err != nil {
			all[i].Err = err
			continue
		}
		w.ticket.joint = true
		one := oneOf{w, &all[i]}
		if w.site.unsettled() { // It asks by itself, behind those ends.
			rest.Go(one.toTheEnd)
			continue
		}
		n := w.site.node()
		together[n] = append(together[n], one)
	}
	for n, waits := range together {
		rest.Go(func() { askEach(asking, n, waits, &rest) })
	}
	rest.Wait()
	untold := make([]error, len(all))
	if slices.ContainsFunc(queues, func(q Queue) bool { return q.terms.MinHold > 0 }) {
		held := make([]*lease.Lease, len(all))
		for i, o := range all {
			held[i] = o.Lease
		}
		patient, free := lingering(ctx, mode != lua.Wait)
		defer free()
		untold = Stay(patient, begun, held)
	}
	for i := range all {
		switch l := all[i].Lease; {
		case l == nil:
		case untold[i] != nil:
			all[i] = Outcome{Err: untold[i]}
			_ = l.Release(retry.Over)
		case l.Context().Err() != nil:
			all[i] = Outcome{Err: context.Cause(l.Context())}
		default:
			Returned(l)
		}
	}
	return all
}

// lingering is the context for what is left to do when all waits are over. The wait for another name may have ended with ctx, so
// it ends [conn.AnswerTime] later than ctx. That of a try ends after [retry.TryTime] too.
func lingering(ctx context.Context, try bool) (context.Context, context.CancelFunc) {
	lives, end := context.WithCancelCause(context.WithoutCancel(ctx))
	timer := time.AfterFunc(retry.TryTime, func() { end(ErrUntold) })
	if !try {
		timer.Stop()
	}
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(conn.AnswerTime):
			end(retry.WhyEnded(ctx))
		case <-lives.Done():
		}
	})
	return lives, func() { stop(); timer.Stop(); end(nil) }
}

// earlier reports whether a time comes before the deadline of a context.
func earlier(t time.Time, ctx context.Context) bool {
	until, ok := ctx.Deadline()
	return !ok || t.Before(until)
}

// A oneOf is the wait for one of several queues, and where its outcome goes.
type oneOf struct {
	*wait
	outcome *Outcome
}

func (w oneOf) toTheEnd() { w.outcome.Lease, w.outcome.Err = w.wait.toTheEnd() }

// askEach sends the first asks of many waits at one server together. What is not answered until ctx ends, or not
// at all, each wait asks for again by itself. Each goes on as soon as its own answer is there: nothing else renews what
// it was granted.
func askEach(ctx context.Context, n *conn.Node, waits []oneOf, rest *sync.WaitGroup) {
	for batch := range slices.Chunk(waits, eachBatch) {
		if ctx.Err() == nil {
			asks := make([]*ask, len(batch))
			for i, w := range batch {
				asks[i] = w.prepare(n)
			}
			answers := batch[0].site.client.sendFor(ctx, n, asks, nil, func() {})
			for i := range answers { // None if nobody waited for them.
				batch[i].told(&answers[i])
			}
		}
		for _, w := range batch {
			w.goOn(rest)
		}
	}
}

// told is what the answer to an ask that went with others means to a wait.
func (w oneOf) told(a *answer) {
	if a.err != nil {
		return
	}
	if err := w.answered(a); err != nil {
		w.site.mu.Lock()
		w.ticket.refused = err
		w.site.mu.Unlock()
	}
}

// goOn takes what was granted, and ends a wait that has failed. What has to wait, for its turn or for another word of the
// server, does so beside the others.
func (w oneOf) goOn(rest *sync.WaitGroup) {
	w.site.mu.Lock()
	failed := w.ticket.refused != nil || w.ticket.err != nil
	w.site.mu.Unlock()
	if failed || w.ctx.Err() != nil {
		w.toTheEnd()
		return
	}
	if w.outcome.Lease = w.site.grasp(w.ctx, w.ticket, time.Since(w.begun)); w.outcome.Lease == nil {
		rest.Go(w.toTheEnd)
	}
}

// ReleaseEach releases leases: the leases on one server in one round trip. The errors are in their order, and those of
// [lease.Lease.Release]: ctx may come from any of the holds, and each error names its hold; a lease that is nil, as that of an [Outcome] with an error, is passed over. A server that does not
// answer holds up none of the others.
func ReleaseEach(ctx context.Context, leases ...*lease.Lease) []error {
	retry.Given(ctx)
	ctx, free := lease.Outlasting(ctx, leases...) // Once for all: each that is given back ends what comes from it.
	defer free()
	errs := make([]error, len(leases))
	var rest sync.WaitGroup
	together := make(map[*conn.Node][]freeing)
	for i, l := range leases {
		if l == nil {
			continue
		}
		sh, ok := l.Engine().(*share)
		if !ok || ctx.Err() != nil || !sh.let() {
			rest.Go(func() { errs[i] = l.Release(ctx) })
			continue
		}
		n := sh.hold.ticket.site.node()
		together[n] = append(together[n], freeing{sh, i, sh.hold.held()})
	}
	for n, endings := range together {
		rest.Go(func() { releaseAt(ctx, n, endings, errs) })
	}
	rest.Wait()
	return errs
}

// A freeing is one of several releases.
type freeing struct {
	share *share
	index int // of its error
	held  time.Duration
}

// releaseAt sends the ends of leases on one server, and then waits for those that were not answered.
func releaseAt(ctx context.Context, n *conn.Node, endings []freeing, errs []error) {
	var replies []answer
	for batch := range slices.Chunk(endings, eachBatch) {
		room, ends := make([]end, len(batch)), make([]*end, len(batch))
		for i, e := range batch {
			room[i] = e.share.hold.ticket.end()
			ends[i] = &room[i]
		}
		replies = append(replies, ends[0].site.client.sendFor(ctx, n, nil, ends, func() {})...)
	}
	for i, e := range endings {
		h := e.share.hold
		err := h.conclude(ctx, &replies[i])
		errs[e.index] = e.share.Keeper.Named(err)
		h.released(e.held, err)
	}
}

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
		unanswered = err != nil
		switch {
		case err == nil && !late:
			return refused, failureOf(claims)
		case err == nil:
			budget = min(2*budget, conn.LongestAttempt)
		case !first.wait.passes(err):
			return false, conn.Advise(err)
		case ctx.Err() != nil:
			last = retry.Last(ctx, conn.Advise(err), last)
		case first.wait.mode == lua.Try && tries > 0 && time.Since(begun) > retry.TryTime:
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
		if err := c.wait.afterEnds(ctx); err != nil {
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
	c.stats.Asks.Add(1)
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
			p.busy = terms.BusyBy(&r)
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
	if s.trust.Want() {
		s.subscribeLocked()
	}
	return s.hearsLocked(), t.waking()
}

// Granted reports whether the claim was granted. Where its client hears of nothing, it looks before it says no.
func (c *Claim) Granted(ctx context.Context) bool {
	s, t := c.wait.site, c.wait.ticket
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.waits() && s.trust.Polls {
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

// AwaitEnd waits, within ctx, until what a claim that has ended was granted is given back.
func (c *Claim) AwaitEnd(ctx context.Context) {
	if c.wait.site != nil {
		c.wait.awaitEnd(ctx)
	}
}

// Below says that a hold is a part of one with a higher token: whoever holds the name next gets a token above that one,
// however the hold ends here.
func Below(l *lease.Lease) {
	t := l.Engine().(*share).hold.ticket
	t.site.mu.Lock()
	defer t.site.mu.Unlock()
	t.used = l.Token()
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
		tickets = append(tickets, t.text)
		keys = append(keys, t.site.keys.All()...)
	}
	if len(holds) == 0 {
		return err
	}
	c := holds[0].ticket.site.client
	a := conn.Sending()
	c.stats.Ends.Add(1)
	args := append([]string{c.highest(), c.servers.Counted()}, tickets...)
	replies, failed := lua.MultiEnd.DecodeAll(c.servers.RunFor(ctx, lua.MultiEnd, keys, args...), len(holds))
	answers := make([]answer, len(holds))
	for i, h := range holds {
		if answers[i].err = failed; failed == nil {
			h.ticket.site.absorb(a, &replies[i], false)
			answers[i].Head = replies[i].Head()
		}
		d := h.ticket.end()
		d.site.endAnswered(&d, a, &answers[i].Head, failed)
	}
	for i, h := range holds {
		ended := h.conclude(ctx, &answers[i])
		h.released(h.held(), ended)
		err = cmp.Or(err, ended)
	}
	return err
}
