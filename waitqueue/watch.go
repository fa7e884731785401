package waitqueue

import (
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/event"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// A watch is a name whose event can be waited for.
type watch struct {
	entry
	event *event.Event // guarded by mu
}

func newWatch(c *client, q *binding) *watch {
	w := &watch{}
	w.init(c, q.proto, q.name, q.keys, w)
	x := w.begin()
	w.event = event.New(&x.Input, event.Config{Places: q.proto.End != nil, Latest: q.proto.Latest}, c.unused())
	w.core = w.event
	w.end(x)
	return w
}

// do performs an effect on an event. act is held.
func (w *watch) do(_ *turn, f *core.Effect) {
	if stop := partyOf(f.Call).stop; f.Do == core.StopAction && stop != nil {
		stop()
	}
}

func partyOf(c *core.Call) *party { return c.Owner.(*party) }

// forced does nothing: no watch has a hold.
func (w *watch) forced(string) {}

// runChecks polls until another poll would find nothing at once.
func (w *watch) runChecks() {
	w.mu.Lock()
	check := w.event.BeginChecks(time.Now())
	w.mu.Unlock()
	for w.checkOnce(check) {
	}
	w.lookOver()
}

// checkOnce sends a check, takes in the reply, and reports whether another one follows, which is then in check.
func (w *watch) checkOnce(check *event.Check) (more bool) {
	c, n := w.client, w.node()
	a := n.Attempt(conn.AttemptTime)
	args := []string{w.id, check.Mode, a.NotAfter, c.highest(), c.servers.Counted()}
	errs := make([]event.Errors, len(check.Named))
	w.mu.Lock()
	for i, p := range check.Named {
		q := partyOf(&p.Call).queue
		args = append(args, p.Text, strconv.FormatInt(p.Generation, 10))
		errs[i] = event.Errors{Broken: q.verdict(wire.Broken, nil), Forgotten: q.verdict(wire.Refused, []string{wire.StateForgotten})}
	}
	w.mu.Unlock()
	if len(check.Named) > 0 {
		args = append(args, partyOf(&check.Named[0].Call).queue.extras...)
	}
	c.stats.Checks.Add(1)
	j := w.job(w.proto.Check, w.keys.All(), args)
	r, err := w.proto.DecodeEvent(w.proto.Check, c.servers.Run(j.Script, j.Keys, j.Args...))
	if err == nil {
		c.observeHeader(n, a, w.proto, w.name, r.Head, 0)
	}
	f := failure(err)
	x := w.begin()
	defer w.end(x)
	return w.event.OnCheckReply(&x.Input, check, attempt(&a), &r, errs, &f)
}

// answered takes in the answer to the release of a waiter, or its lack.
func (w *watch) answered(d *sender, sent conn.Attempt, res rueidis.RedisResult) answer {
	r, err := w.proto.DecodeEvent(d.script(), res)
	if err == nil {
		w.client.observeHeader(w.node(), sent, w.proto, w.name, r.Head, 0)
	}
	f := failure(err)
	x := w.begin()
	w.event.OnReleaseReply(&x.Input, &partyOf(d.release.Call).Waiter, d.release, sent.Sent, &f)
	w.end(x)
	return answer{Head: r.Head, err: err}
}

// Message takes in what was heard on the wake channel. It runs on the reader of the connection.
func (w *watch) Message(text string, _ time.Time) {
	m, ok := w.heard(text)
	if !ok {
		return
	}
	x := w.begin()
	switch m.Kind {
	case wire.MessageOpen, wire.MessageBroken:
		w.event.OnMessage(&x.Input, m.Generation, m.Kind == wire.MessageOpen, func(p *event.Waiter) error {
			return partyOf(&p.Call).queue.verdict(wire.Broken, nil)
		})
	case wire.MessageSuspect:
		w.event.OnSuspected(&x.Input)
	case wire.MessageLook:
		w.event.Poll(&x.Input)
	case wire.MessageEcho:
		w.event.OnPing(&x.Input, m.Nonce)
	}
	w.end(x)
}

// register makes a call that waits for an event known.
func (p *party) register() (*watch, error) {
	q := p.queue
	c := q.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, lease.ErrClosed
	}
	w, _ := c.entries[q.keys.Entry].(*watch)
	if w == nil {
		w = newWatch(c, q)
		c.useLocked(w)
	}
	p.watch = w
	w.mu.Lock()
	w.event.Register(&p.Waiter)
	w.mu.Unlock()
	return w, nil
}

func (w *watch) close(o outstanding, now time.Time) outstanding {
	x := w.begin()
	defer w.end(x)
	w.event.Close(&x.Input)
	w.event.Outstanding(now, func(p *event.Waiter) { o = append(o, partyOf(&p.Call)) })
	return o
}

// Left is the latest time at which the server can still have something of the call.
func (p *party) Left(begun time.Time) (until time.Time, hold bool, unended error) {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	return p.Waiter.Left(begun), false, p.Unended
}
