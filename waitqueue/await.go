package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/event"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// An Event is what [Queue.Await] waits for: something that happens to all waiters at once, such as the opening of a
// latch.
type Event struct {
	// Extras is what an ask says in addition to what all asks say. since is a time of the server in µs before which no
	// earlier ask of the same call can have run, or empty if all of them were answered; seen is the highest
	// generation that this client knows of.
	Extras func(since, seen string) []string
	// Act is run before the event by the call that the server names: its context ends with the call's, and if the event
	// cannot happen any more. Nil if there is nothing to run.
	Act func(ctx context.Context) error
	// Open is the script that reports to the server how Act ended.
	Open *lua.Script
}

// A party is the shell's part of one call that waits for an event.
type party struct {
	event.Waiter
	caller
	queue *binding // with the terms of its call
	watch *watch
	stop  func() // ends the action that it runs; guarded by act
}

// attendance is one call on its way past an event.
type attendance struct {
	ctx   context.Context
	event *Event
	party *party
	watch *watch
	begun time.Time
}

// Await waits for an event and returns what its scripts say of the call's place. If ctx ends first, it leaves
// and returns an error that wraps the context's and its cause.
func (q Queue) Await(ctx context.Context, e Event) (place int, err error) {
	if err := q.usable(ctx); err != nil {
		return 0, err
	}
	begun, p := time.Now(), &party{}
	p.init(q.binding)
	p.Begun = begun
	p.Deadline, _ = ctx.Deadline()
	w, err := p.register()
	if err != nil {
		return 0, err
	}
	p.teller.Asked(ctx)
	a := &attendance{ctx: ctx, event: &e, party: p, watch: w, begun: begun}
	err = errPanicked // Unless the call comes back.
	defer func() {
		x := w.begin()
		w.event.Finish(&x.Input, &p.Waiter)
		w.end(x)
		p.teller.Passed(time.Since(begun), false, err)
	}()
	if unentered := w.enter(ctx); unentered != nil {
		err = unentered
		return 0, err
	}
	err = a.run()
	return p.Place, err
}

// errPanicked is what an observer is told of a call whose action panicked.
var errPanicked = errors.New("its action panicked")

// init fills in a party.
func (p *party) init(q *binding) {
	var room *notify.Teller
	if q.client.notifier != nil && !q.terms.Untold {
		room = &notify.Teller{}
	}
	p.queue, p.Owner = q, p
	q.newCaller(&p.caller, room, &p.Call)
	p.Takes = min(q.client.opts.GrantLease.Truncate(time.Millisecond), p.Lease)
	p.Text = wire.Ticket{
		Client: q.client.id(), Number: q.client.numbers.Add(1), Vote: q.terms.Vote, Kind: q.asks.Kind, Permits: q.asks.Permits, Lease: p.Lease, Grant: p.Takes,
	}.String()
}

// run does what the core says until the event has come or cannot.
func (a *attendance) run() error {
	p, w := a.party, a.watch
	for {
		ended := a.ctx.Err() != nil
		x := w.begin()
		step := w.event.Next(&p.Waiter, ended)
		var wake <-chan struct{}
		place := p.Place
		if step.Do == core.Sleep {
			wake = w.waking(&p.caller)
		}
		w.end(x)
		switch step.Do {
		case core.Return:
			return nil
		case core.TimeOut:
			return a.failed(calls.WhyEnded(a.ctx))
		case core.Ask:
			step = a.ask()
		case core.Act:
			came, err := a.act()
			switch {
			case err != nil:
				return a.failed(err)
			case came:
				return nil
			}
		case core.Sleep:
			select {
			case <-wake:
			case <-a.ctx.Done():
			case <-a.tellLong(place):
			}
		}
		switch step.Do {
		case core.Fail:
			return a.failed(step.Err)
		case core.Pause:
			if err := w.client.servers.Rest(a.ctx, step.Rest); err != nil && a.ctx.Err() == nil {
				return a.failed(err)
			}
		}
	}
}

// failed adds to the error of a call its place and the time waited.
func (a *attendance) failed(err error) error {
	p, w := a.party, a.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Clean && p.Generation == 0 {
		return err // At once.
	}
	return &lease.WaitError{
		Place: -1, Waited: time.Since(a.begun), Last: cmp.Or(w.event.Last, p.Deafness), Err: err,
		Unanswered: p.Over && (p.Unanswered() || w.event.Silent(time.Now())),
	}
}

// tellLong reports a wait that lasts too long, and returns the channel that says when to look again; nil if nobody wants
// to know.
func (a *attendance) tellLong(place int) <-chan time.Time {
	if a.party.teller == nil {
		return nil
	}
	a.watch.act.Lock()
	defer a.watch.act.Unlock()
	if left, wanted := a.party.teller.Waits(place, time.Since(a.begun)); wanted {
		return time.After(left)
	}
	return nil
}

// ask sends the request of the call, and returns what the call does next.
func (a *attendance) ask() core.Step {
	w, c := a.watch, a.watch.client
	n := w.node()
	attempted := n.Attempt(a.party.Budget)
	x := w.begin()
	q, ok := w.event.BeginAcquire(&x.Input, &a.party.Waiter, attempted.Sent)
	w.end(x)
	if !ok {
		return core.Step{} // A message was faster, or the call is ending.
	}
	args := a.args(n, &q, &attempted)
	c.stats.AcquireRequests.Add(1)
	j := w.job(w.proto.Ask, w.keys.All(), args)
	var step core.Step
	var err error
	if a.ctx.Done() == nil || !n.Sluggish() {
		step, err = a.replied(&q, &attempted, c.servers.RunBehind(a.ctx, nil, j.Script, j.Keys, j.Args...))
	} else {
		begun := false
		step, err = conn.InBackground(a.ctx, c.servers, func() (core.Step, error) {
			begun = true
			if a.ctx.Err() != nil {
				a.unsent()
				return core.Step{}, a.ctx.Err()
			}
			return a.replied(&q, &attempted, c.servers.Patiently(n, nil, j.Script, j.Keys, j.Args))
		})
		if errors.Is(err, lease.ErrClosed) && !begun {
			a.unsent()
		}
	}
	if err == nil || a.ctx.Err() != nil {
		return step
	}
	f := failure(err)
	x = w.begin()
	defer w.end(x)
	return w.event.Retry(&x.Input, &a.party.Waiter, &f)
}

func (a *attendance) unsent() {
	x := a.watch.begin()
	a.watch.event.Unsent(&x.Input, &a.party.Waiter)
	a.watch.end(x)
}

// args are what the script of the request gets.
func (a *attendance) args(n *conn.Node, q *event.Acquire, attempted *conn.Attempt) []string {
	queue := a.party.queue
	c, since := queue.client, ""
	if !q.LostSince.IsZero() {
		earliest := n.Clock.AtLeast(q.LostSince)
		if since = strconv.FormatInt(earliest, 10); earliest == 0 {
			attempted.NotAfter = "0" // Of a node that has not answered yet it is first asked what time it is.
		}
	}
	_, phase := queue.terms.first()
	args := []string{
		q.Text, q.Mode, attempted.NotAfter, strconv.FormatInt(q.Generation, 10), strconv.FormatInt(queue.terms.headStart(), 10), c.highest(),
		c.servers.Counted(), phase, c.who,
	}
	args = append(args, queue.extras...)
	if a.event.Extras != nil {
		args = append(args, a.event.Extras(since, strconv.FormatInt(q.Seen, 10))...)
	}
	return args
}

// replied takes in the answer to the request, or its lack.
func (a *attendance) replied(q *event.Acquire, attempted *conn.Attempt, res rueidis.RedisResult) (core.Step, error) {
	w := a.watch
	r, err := w.proto.DecodeEvent(w.proto.Ask, res)
	var refusal error
	if err == nil {
		w.client.observeHeader(w.node(), *attempted, w.proto, w.name, r.Head, 0)
		switch r.Status {
		case wire.Granted, wire.Waiting, wire.Acting, wire.Late, wire.Busy, wire.Full:
		default:
			refusal = a.party.queue.verdict(r.Status, r.States)
		}
	}
	f := failure(err)
	x := w.begin()
	defer w.end(x)
	return w.event.OnReply(&x.Input, q, attempt(attempted), &r, &f, refusal), err
}

// act runs the action of a call, reports to the server how it ended, and returns whether the event has come with that.
func (a *attendance) act() (came bool, err error) {
	p, w := a.party, a.watch
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	stops := func(stop func()) (goesOn bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.act.Lock()
		defer w.act.Unlock()
		if goesOn = p.MayAct(); goesOn || stop == nil {
			p.stop = stop
		}
		return goesOn
	}
	if !stops(cancel) {
		return false, nil // The loop says how.
	}
	ok := false
	var failure error
	defer func() {
		if !ok && failure == nil {
			_, _ = a.open(false) // It panicked, and goes on to.
		}
	}()
	failure = a.event.Act(ctx)
	ok = failure == nil
	goesOn := stops(nil) // Before open: what is heard of that is this call's own doing.
	r, err := a.open(ok)
	switch {
	case !goesOn:
		return false, nil // The loop says how.
	case failure != nil:
		a.cleanIf(err == nil)
		return false, failure
	case err != nil:
		return false, err
	case r.Status != wire.Granted:
		a.cleanIf(true)
		return false, p.queue.verdict(r.Status, r.States)
	}
	x := w.begin()
	w.event.Acted(&x.Input, &p.Waiter, r.Index)
	w.end(x)
	return true, nil
}

// cleanIf notes whether the server has forgotten the call.
func (a *attendance) cleanIf(clean bool) {
	a.watch.mu.Lock()
	defer a.watch.mu.Unlock()
	a.party.Clean = clean
}

// open reports to the server how the action ended. The other parties wait for it, so it outlasts the call's context by
// some time.
func (a *attendance) open(ok bool) (wire.EventReply, error) {
	p, result := a.party, "0"
	if ok {
		result = "1"
	}
	q := p.queue
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), q.terms.Lease)
	defer cancel()
	_, r, err := q.call(ctx, q.keys.All(), a.event.Open, 0, conn.Mendable, func(at Attempt) []string {
		return []string{p.Text, strconv.FormatInt(p.Generation, 10), result, at.NotAfter}
	})
	return q.proto.Event(&r), err
}
