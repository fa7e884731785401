package waitqueue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
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
func AcquireEach(ctx context.Context, queues ...Queue) []Outcome { return each(ctx, queues, wire.Wait) }

// TryEach takes the queues that can be had at once, in one round trip to each of their servers. The outcomes are
// in the order of the queues; the error of a lock that is held, or waited for, wraps [lease.ErrBusy].
func TryEach(ctx context.Context, queues ...Queue) []Outcome { return each(ctx, queues, wire.Try) }

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
		if mode == wire.Wait && q.nesting != Independent && q.kind != wire.Read && !q.terms.Shared && named[q.held] {
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
		w.join()
		one := oneOf{w, &all[i]}
		if w.entry.unsettled() { // It asks by itself, behind those ends.
			rest.Go(one.toTheEnd)
			continue
		}
		n := w.entry.node()
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
		patient, free := lingering(ctx, mode != wire.Wait)
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

// join notes that the call of a wait asks for other names too.
func (w *wait) join() {
	w.entry.mu.Lock()
	defer w.entry.mu.Unlock()
	w.ticket.Joint = true
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
			asks := make([]request, len(batch))
			for i, w := range batch {
				asks[i] = asking{w.wait, w.prepare(n)}
			}
			answers := batch[0].entry.client.sendFor(ctx, n, asks, func() {})
			for i := range answers { // None if nobody waited for them.
				batch[i].told(&answers[i])
			}
		}
		for _, w := range batch {
			w.goOn(rest)
		}
	}
}

// told is what the answer to a request that went with others means to a wait.
func (w oneOf) told(a *answer) {
	if a.err == nil && a.step.Do == core.Fail {
		w.entry.mu.Lock()
		defer w.entry.mu.Unlock()
		w.entry.lock.Fail(&w.ticket.Ticket, a.step.Err)
	}
}

// goOn takes what was granted, and ends a wait that has failed. What has to wait, for its turn or for another word of the
// server, does so beside the others.
func (w oneOf) goOn(rest *sync.WaitGroup) {
	w.entry.mu.Lock()
	failed := w.ticket.Refused != nil || w.ticket.WaitErr != nil
	w.entry.mu.Unlock()
	if failed || w.ctx.Err() != nil {
		w.toTheEnd()
		return
	}
	if w.outcome.Lease = w.entry.newHold(w.ctx, w.ticket, time.Since(w.begun)); w.outcome.Lease == nil {
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
		n := sh.hold.ticket.entry.node()
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
		room, ends := make([]owned, len(batch)), make([]request, len(batch))
		for i, e := range batch {
			t := e.share.hold.ticket
			t.entry.own(&room[i], t, nil)
			ends[i] = &room[i].sender
		}
		replies = append(replies, batch[0].share.hold.ticket.entry.client.sendFor(ctx, n, ends, func() {})...)
	}
	for i, e := range endings {
		h := e.share.hold
		err := h.conclude(ctx, &replies[i])
		errs[e.index] = e.share.keeper.Named(err)
		h.released(e.held, err)
	}
}
