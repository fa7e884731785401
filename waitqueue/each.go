package waitqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
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
	all := make([]Outcome, len(queues))
	waits := make([]*wait, len(queues))
	named := make(map[any]bool, len(queues))
	together := make(map[*conn.Node][]*wait)
	asking := ctx // until the shortest of the waits is over: the others ask again by themselves then
	for i, q := range queues {
		if all[i].Err = q.usable(ctx); all[i].Err != nil {
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
		mine, free, err := retry.InTime(ctx, q.terms.MaxWait)
		if err != nil {
			all[i].Err = err
			continue
		}
		defer free()
		if all[i].Err = q.terms.Admits(mine, mode); all[i].Err != nil {
			continue
		}
		if until, ok := mine.Deadline(); ok && earlier(until, asking) {
			asking = mine
		}
		w, err := q.begin(mine, mode)
		if err != nil {
			all[i].Err = err
			continue
		}
		waits[i] = w
		if !w.site.unsettled() { // Else it asks by itself, behind those ends.
			n := w.site.node()
			together[n] = append(together[n], w)
		}
	}
	askEach(asking, together)
	var rest sync.WaitGroup
	for i, w := range waits {
		switch {
		case w == nil:
		case w.settled():
			all[i].Lease, all[i].Err = w.toTheEnd()
		default:
			rest.Go(func() { all[i].Lease, all[i].Err = w.toTheEnd() })
		}
	}
	rest.Wait()
	for i, o := range all {
		if o.Lease != nil && o.Lease.Context().Err() != nil {
			all[i] = Outcome{Err: context.Cause(o.Lease.Context())}
		}
	}
	return all
}

// earlier reports whether a time comes before the deadline of a context.
func earlier(t time.Time, ctx context.Context) bool {
	until, ok := ctx.Deadline()
	return !ok || t.Before(until)
}

// settled reports whether a wait has nothing to wait for.
func (w *wait) settled() bool {
	w.site.mu.Lock()
	defer w.site.mu.Unlock()
	return w.ticket.state == held || w.ticket.refused != nil || w.ticket.err != nil
}

// askEach sends the first asks of many waits, those to one server together. What is not answered until ctx ends, or not
// at all, each wait asks for again by itself.
func askEach(ctx context.Context, together map[*conn.Node][]*wait) {
	var servers sync.WaitGroup
	for n, waits := range together {
		servers.Go(func() {
			for len(waits) > 0 && ctx.Err() == nil {
				batch := waits[:min(len(waits), eachBatch)]
				waits = waits[len(batch):]
				c := batch[0].site.client
				asks := make([]*ask, len(batch))
				for i, w := range batch {
					asks[i] = w.prepare(n)
				}
				answerEach(batch, c.sendFor(ctx, n, asks, nil, nil))
			}
		})
	}
	servers.Wait()
}

// answerEach tells the waits what the answers mean to them; none if nobody waited for the answers.
func answerEach(batch []*wait, answers []answer) {
	for i, a := range answers {
		if a.err != nil {
			continue
		}
		w := batch[i]
		if err := w.answered(&a); err != nil {
			w.site.mu.Lock()
			w.ticket.refused = err
			w.site.mu.Unlock()
		}
	}
}

// ReleaseEach releases leases: the leases on one server in one round trip. The errors are in their order, and those of
// [lease.Lease.Release]; a lease that is nil, as that of an [Outcome] with an error, is passed over. A server that does not
// answer holds up none of the others.
func ReleaseEach(ctx context.Context, leases ...*lease.Lease) []error {
	retry.Given(ctx)
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
		replies = append(replies, ends[0].site.client.sendFor(ctx, n, nil, ends, nil)...)
	}
	for i, e := range endings {
		h := e.share.hold
		errs[e.index] = h.conclude(ctx, &replies[i])
		h.released(e.held, errs[e.index])
	}
}

// An answer is what the call behind an ask or an end learns of the reply; what it says of the name, the site has taken in.
type answer struct {
	lua.Head
	drained int64 // how many permits a drain has
	refused error // why a try failed, or that there was no room
	err     error
}

// sendFor is [client.send] for a call whose context may end: what it does not wait for goes on in the background, and the
// answers are its error. over, if there is one, is called when all is answered, or nothing was sent.
func (c *client) sendFor(ctx context.Context, n *conn.Node, asks []*ask, ends []*end, over func()) []answer {
	if len(ends) > 0 {
		c.ends.Owe() // Close waits for it.
	}
	done := func() {
		if len(ends) > 0 {
			c.ends.Done(1)
		}
		if over != nil {
			over()
		}
	}
	answers, err := conn.InBackground(ctx, c.servers, func() ([]answer, error) {
		defer done()
		return c.send(n, asks, ends), nil
	})
	if err == nil {
		return answers
	}
	if errors.Is(err, lease.ErrClosed) { // Nothing was sent.
		for _, q := range asks {
			if q != nil {
				q.ticket.site.unsent(q.ticket)
			}
		}
		done()
	}
	answers = make([]answer, len(asks)+len(ends))
	for i := range answers {
		answers[i].err = err
	}
	return answers
}

// send sends asks, and ends behind them, in one round trip to one node, and takes in the answers. It returns them in the
// order of the requests; for an ask that is nil, as there was nothing to ask, a reply that says nothing.
//
// What is sent alone, for a call whose context may end, goes by [wait.send] and [site.sendEnd]; what one script asks or
// ends for several names, by package multilock.
func (c *client) send(n *conn.Node, asks []*ask, ends []*end) []answer {
	jobs := make([]conn.Job, 0, len(asks)+len(ends))
	for _, q := range asks {
		if q != nil {
			s := q.ticket.site
			jobs = append(jobs, s.job(s.proto.Ask, s.keys.All(), q.inFull(s.client)))
		}
	}
	c.stats.asks.Add(uint64(len(jobs)))
	c.stats.ends.Add(uint64(len(ends)))
	for _, d := range ends {
		jobs = append(jobs, d.job())
	}
	sent := conn.Sending()
	results := c.servers.RunAll(n, jobs)
	answers := make([]answer, len(asks)+len(ends))
	for i, q := range asks {
		if q != nil {
			answers[i] = q.ticket.site.replied(q, results[0])
			results = results[1:]
		}
	}
	for i, d := range ends {
		sent.Note = d.note()
		answers[len(asks)+i] = d.site.ended(d, sent, results[i])
	}
	return answers
}
