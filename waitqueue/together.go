package waitqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Several names, each for itself; and what calls for several names ask and release in one request.

// eachBatch is how many requests go in one round trip at the most, so that others come in between.
const eachBatch = 512

// AcquireEach asks for all of the queues in one round trip to each of their servers, and waits until each is held or has
// failed; ctx bounds all the waits. The outcomes are in the order of the queues. A name that is there twice fails with
// [lease.ErrDeadlock] the second time, unless several may hold it. A hold that is lost while others are waited for has
// failed with the cause of the loss.
//
// A call keeps what it holds while it waits for the rest: callers that want the same names can wait for each other for
// ever, unless ctx ends. Take all or none with package multilock.
func AcquireEach(ctx context.Context, queues ...Queue) []Outcome { return each(ctx, queues, wire.Wait) }

// TryEach takes the queues that can be had at once, in one round trip to each of their servers. The outcomes are
// in the order of the queues; the error of a lock that is held, or waited for, wraps [lease.ErrBusy].
func TryEach(ctx context.Context, queues ...Queue) []Outcome { return each(ctx, queues, wire.Try) }

func each(ctx context.Context, queues []Queue, mode string) []Outcome {
	calls.Given(ctx)
	m := newMulti(ctx, queues, mode)
	m.core.Each = true
	named := make(map[any]bool, len(queues))
	together := make(map[*conn.Node][]*part)
	asking := ctx // until the shortest of the waits is over: the others ask again by themselves then
	for i, q := range queues {
		p := m.parts[i]
		mine, free, err := calls.InTime(ctx, q.terms.MaxWait)
		if p.Err = err; err != nil {
			continue
		}
		defer free()
		if p.Lease, p.Err = q.ready(mine); p.Lease != nil || p.Err != nil {
			continue
		}
		if mode == wire.Wait && q.nesting != Independent && q.asks.Kind != wire.Read && !q.terms.Shared && named[q.held] {
			p.Err = lease.ErrDeadlock
			continue
		}
		named[q.held] = true
		if until, ok := mine.Deadline(); ok {
			if first, bounded := asking.Deadline(); !bounded || until.Before(first) {
				asking = mine
			}
		}
		switch {
		case !m.begin(mine, p):
		case p.entry.unsettled(): // It asks by itself, after those releases.
			go m.alone(p)
		default:
			n := p.entry.node()
			together[n] = append(together[n], p)
		}
	}
	for n, parts := range together {
		go m.askNode(asking, n, parts)
	}
	_ = m.await() // It does not fail.
	all, leases := make([]Outcome, len(queues)), make([]*lease.Lease, len(queues))
	for i, p := range m.parts {
		all[i], leases[i] = p.Outcome, p.Lease
	}
	for i, untold := range m.stayEach(leases) {
		switch l := leases[i]; {
		case l == nil:
		case untold != nil:
			all[i] = Outcome{Err: untold}
			_ = l.Release(calls.Over)
		case l.Context().Err() != nil:
			all[i] = Outcome{Err: context.Cause(l.Context())}
		default:
			Returned(l)
		}
	}
	return all
}

// stayEach is [multi.stay] for names that are each for itself. The wait for another name may have ended with the call's
// context, so it goes on for [conn.AnswerTime] after that.
func (m *multi) stayEach(leases []*lease.Lease) []error {
	ctx, end := context.WithCancelCause(context.WithoutCancel(m.ctx))
	defer end(nil)
	defer context.AfterFunc(m.ctx, func() {
		time.AfterFunc(conn.AnswerTime, func() { end(calls.WhyEnded(m.ctx)) })
	})()
	return m.stay(ctx, leases)
}

// ReleaseEach releases leases: the leases on one server in one round trip. The errors are in their order, and those of
// [lease.Lease.Release]: ctx may come from any of the holds, and each error names its hold; a lease that is nil, as in an
// [Outcome] with an error, is passed over. A server that does not answer holds up none of the others.
func ReleaseEach(ctx context.Context, leases ...*lease.Lease) []error {
	calls.Given(ctx)
	keepers := make([]*keeper.Keeper, len(leases))
	for i, l := range leases {
		keepers[i] = (*keeper.Keeper)(l)
	}
	ctx, free := keeper.Outlasting(ctx, keepers...) // Once for all: each that is given back ends what comes from it.
	defer free()
	return releaseAll(ctx, leases, false)
}

// askNode sends the first requests for parts at one server together. If a request has no answer, or none before ctx ends,
// its part sends its own. Each part goes on as soon as its own answer is there: nothing else renews what it was granted.
func (m *multi) askNode(ctx context.Context, n *conn.Node, parts []*part) {
	for batch := range slices.Chunk(parts, eachBatch) {
		if ctx.Err() == nil {
			asks := make([]request, len(batch))
			for i, p := range batch {
				asks[i] = asking{p.wait, p.prepare()}
			}
			for i, a := range batch[0].entry.client.sendFor(ctx, n, asks, func() {}) {
				if a.err == nil && a.step.Do == core.Fail {
					batch[i].fail(a.step.Err)
				}
			}
		}
		for _, p := range batch {
			m.goOn(p)
		}
	}
}

// fail ends the wait of a call with an error.
func (w *wait) fail(err error) {
	w.entry.mu.Lock()
	defer w.entry.mu.Unlock()
	w.entry.lock.Fail(&w.ticket.Ticket, err)
}

// askSlot asks for parts of one slot in one script, and repeats it until there is an answer, as a call for one name does.
// If not all are free, it takes the free ones, and a place in the queues of the rest. For that a client has to be subscribed for
// all: until then its first script is a try, which takes all or none. Without an answer each part learns by itself why its wait
// has ended.
func (m *multi) askSlot(parts []*part) {
	err := m.askTogether(parts)
	m.tried <- true
	for _, p := range parts {
		if err != nil {
			p.fail(err)
		}
		m.goOn(p)
	}
}

// askTogether does so, and returns why the call fails, if it does.
func (m *multi) askTogether(parts []*part) error {
	failed, mode := false, wire.Try
	if !m.core.Try && !slices.ContainsFunc(parts, (*part).deaf) {
		mode = wire.Wait
	}
	for len(parts) > 0 && m.waits.Err() == nil {
		busy, late, err := askOnce(m.waits, parts, mode)
		switch {
		case m.waits.Err() != nil:
		case err != nil:
			if !failed {
				failed = true
				m.tried <- false
			}
			var step core.Step
			for _, p := range parts { // Each is to know of the error.
				step = p.retry(err)
			}
			if step.Do == core.Fail || parts[0].entry.client.servers.Rest(m.waits, step.Rest) != nil {
				return step.Err
			}
		case late:
		case busy == nil || mode == wire.Wait:
			return nil
		case m.core.Try:
			return busy
		default:
			hear(parts)
			mode = wire.Wait
		}
	}
	return nil
}

// deaf reports whether the client is not subscribed for the name of a part.
func (p *part) deaf() bool {
	p.entry.mu.Lock()
	defer p.entry.mu.Unlock()
	return !p.entry.lock.Subscribed()
}

// askOnce sends one script for all parts that no message has granted first, and takes in the answers. busy says who has
// parts that cannot be had at once.
func askOnce(ctx context.Context, parts []*part, mode string) (busy error, late bool, err error) {
	var budget time.Duration
	for _, p := range parts {
		if err := p.afterEnds(ctx); err != nil {
			return nil, false, err
		}
		budget = max(budget, p.ticket.Budget)
	}
	c, t, a := parts[0].entry.client, &parts[0].queue.terms, parts[0].entry.node().Attempt(budget)
	var keys, tickets []string
	var asked []*part
	var asks []*ask
	for _, p := range parts {
		q := &ask{attempt: a}
		var ok bool
		x := p.entry.begin()
		q.Acquire, ok = p.entry.lock.BeginAcquire(&x.Input, &p.ticket.Ticket, mode, a.Sent)
		p.entry.end(x)
		if !ok {
			continue // A message was faster, or the ticket is ending.
		}
		if mode = q.Mode; p.asked.IsZero() {
			p.asked = a.Sent
		}
		asked, asks = append(asked, p), append(asks, q)
		keys = append(keys, p.entry.keys.All()...)
		tickets = append(tickets, q.Text, strconv.FormatInt(q.Acquire.Arrival, 10))
	}
	if len(asked) == 0 {
		return nil, false, nil
	}
	_, phase := t.first()
	args := append([]string{mode, a.NotAfter, strconv.FormatInt(t.headStart(), 10), c.highest(), c.servers.Counted(), phase}, tickets...)
	c.stats.AcquireRequests.Add(1)
	replies, err := lua.MultiAsk.DecodeAll(c.servers.RunFor(ctx, lua.MultiAsk, keys, args...), len(asked))
	late = err == nil && len(replies) == 1 && replies[0].Status == wire.Late
	var refused bool
	var holders []any
	for i, p := range asked {
		var r wire.Reply
		switch {
		case late:
			r = replies[0]
		case err == nil:
			r = replies[i]
			r.Complete(p.ticket.Lease, 0)
		}
		if late || r.Status == wire.Busy {
			p.asked = time.Time{} // Redis has nothing of it.
		}
		if r.Owner() != "" || r.Waiting > 0 { // Otherwise it is free, and only others are not.
			holders = append(holders, fmt.Errorf("%q: %w", p.queue.Label(), busyBy(&r)))
		}
		if r.Status == wire.Waiting {
			for _, other := range parts {
				other.came = r.Arrival
			}
		}
		refused = refused || r.Status == wire.Busy
		p.onAcquireReply(asks[i], &r, err, false)
	}
	if refused && len(holders) > 0 {
		busy = fmt.Errorf("%w"+strings.Repeat("; %w", len(holders)-1), holders...)
	} else if refused {
		busy = lease.ErrBusy
	}
	return busy, late, err
}

// hear waits until the client is subscribed for all parts that are to be asked for, so that all can queue in one script.
// It does not wait long, as each can also queue by itself.
func hear(parts []*part) {
	late := time.After(conn.SlowAnswer)
	for i := 0; i < len(parts); {
		p := parts[i]
		x := p.entry.begin()
		hears, changed := p.entry.lock.Hear(&x.Input, &p.ticket.Ticket), p.entry.waking(&p.ticket.caller)
		p.entry.end(x)
		if hears {
			i++
			continue
		}
		select {
		case <-changed:
		case <-late:
			return
		case <-p.ctx.Done():
			return
		}
	}
}

// A freeing is one of several releases.
type freeing struct {
	*share
	owned
	index int // of its lease
	held  time.Duration
}

// releaseAll releases leases, and returns their errors: the leases of a slot in one script, or those of a node in one round trip.
// What cannot go with others, as a name that stays taken ([Terms].MinHold), goes by itself. All go at the same time, so a server
// that does not answer holds up none of the others.
func releaseAll(ctx context.Context, leases []*lease.Lease, inScript bool) []error {
	errs := make([]error, len(leases))
	together := make(map[any][]*freeing)
	var rest sync.WaitGroup
	for i, l := range leases {
		if l == nil {
			continue
		}
		sh, ok := shareBehind(l)
		if !ok || ctx.Err() != nil || !sh.let() {
			rest.Go(func() { errs[i] = l.Release(ctx) })
			continue
		}
		f, t := &freeing{share: sh, index: i, held: sh.hold.held()}, sh.hold.ticket
		t.entry.own(&f.owned, t, nil)
		at := any(t.entry.node())
		if inScript {
			at = t.entry.slot
		}
		together[at] = append(together[at], f)
	}
	for at, all := range together {
		rest.Go(func() {
			var answers []answer
			if n, ok := at.(*conn.Node); ok {
				answers = endAtNode(ctx, n, all)
			} else {
				answers = endInSlot(ctx, all)
			}
			for i, f := range all {
				err := f.hold.conclude(ctx, &answers[i])
				f.hold.released(f.held, err)
				if errs[f.index] = err; !inScript {
					errs[f.index] = f.keeper.Named(err)
				}
			}
		})
	}
	rest.Wait()
	return errs
}

// endAtNode sends releases to one server.
func endAtNode(ctx context.Context, n *conn.Node, all []*freeing) (answers []answer) {
	for batch := range slices.Chunk(all, eachBatch) {
		ends := make([]request, len(batch))
		for i, f := range batch {
			ends[i] = &f.sender
		}
		answers = append(answers, batch[0].entry.client.sendFor(ctx, n, ends, func() {})...)
	}
	return answers
}

// endInSlot sends one script that ends holds of one slot.
func endInSlot(ctx context.Context, all []*freeing) (answers []answer) {
	c := all[0].entry.client
	args := []string{c.highest(), c.servers.Counted()}
	var keys []string
	for _, f := range all {
		keys, args = append(keys, f.entry.keys.All()...), append(args, strings.TrimSuffix(f.Text+" "+f.How, " "))
	}
	a := conn.Sending()
	c.stats.ReleaseRequests.Add(1)
	replies, err := lua.MultiEnd.DecodeAll(c.servers.RunFor(ctx, lua.MultiEnd, keys, args...), len(all))
	for i, f := range all {
		var r wire.Reply
		if err == nil {
			r = replies[i]
		}
		answers = append(answers, f.hold.ticket.entry.onReleaseReply(&f.sender, a, &r, err))
	}
	return answers
}
