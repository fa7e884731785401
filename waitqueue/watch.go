package waitqueue

import (
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/event"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A watch is a name whose event can be waited for.
type watch struct {
	site
	event *event.Event // guarded by mu
}

func newWatch(c *client, q *binding) *watch {
	w := &watch{}
	w.init(c, q)
	w.tick.Target = timers.Func(w.ticked)
	x := w.begin()
	w.event = event.New(&x.Input, event.Config{Places: q.proto.End != nil, Latest: q.proto.Latest}, c.unused())
	w.end(x)
	return w
}

// end performs the effects of an input, which ends it.
func (w *watch) end(x *turn) {
	defer x.over()
	if len(x.Effects) == 0 {
		w.mu.Unlock()
		return
	}
	w.act.Lock()
	defer w.act.Unlock()
	w.mu.Unlock()
	for i := range x.Effects {
		if f := &x.Effects[i]; !w.perform(f, w) {
			w.do(f)
		}
	}
}

// do does what of an effect concerns events. act is held.
func (w *watch) do(f *core.Effect) {
	switch f.Do {
	case core.Poll:
		w.client.servers.Spawn(w.runChecks)
	case core.Retire:
		w.retire(w, func() (over, subscribed bool) {
			x := w.begin()
			over, subscribed = w.event.Retire(&x.Input)
			w.end(x)
			return over, subscribed
		})
	case core.Send:
		w.sending(f.Release).push(f.Flag)
	case core.SendLater:
		w.sending(f.Release).later(f.At)
	case core.StopAction:
		if stop := callerOf(f).party.stop; stop != nil {
			stop()
		}
	}
}

// sending returns what sends the release of a waiter.
func (w *watch) sending(r *core.Release) *sender {
	d, ok := r.Owner.(*sender)
	if !ok {
		d = &sender{watch: w, release: r}
		r.Owner = d
	}
	return d
}

// runChecks polls until there is nothing more to be seen at once.
func (w *watch) runChecks() {
	w.mu.Lock()
	check := w.event.BeginChecks(time.Now())
	w.mu.Unlock()
	for w.checkOnce(check) {
	}
	w.lookOver()
}

// checkOnce sends a check, takes in the reply, and reports whether another one follows, which is in its place then.
func (w *watch) checkOnce(check *event.Check) (more bool) {
	c, n := w.client, w.node()
	a := n.Attempt(conn.AttemptTime)
	args := []string{w.id, check.Mode, a.NotAfter, c.highest(), c.servers.Counted()}
	errs := make([]event.Errors, len(check.Named))
	w.mu.Lock()
	for i, p := range check.Named {
		q := p.Owner.(*caller).queue
		args = append(args, p.Text, strconv.FormatInt(p.Generation, 10))
		errs[i] = event.Errors{Broken: q.verdict(wire.Broken, nil), Forgotten: q.verdict(wire.Refused, []string{wire.StateForgotten})}
	}
	w.mu.Unlock()
	if len(check.Named) > 0 {
		args = append(args, check.Named[0].Owner.(*caller).queue.extras...)
	}
	c.stats.Checks.Add(1)
	j := w.job(w.proto.Check, w.keys.All(), args)
	r, err := w.proto.DecodeEvent(w.proto.Check, c.servers.Run(j.Script, j.Keys, j.Args...))
	if err == nil {
		c.saw(n, a, w.proto, w.name, r.Head, 0)
	}
	f := failure(err)
	x := w.begin()
	defer w.end(x)
	return w.event.OnCheckReply(&x.Input, check, attempt(&a), &r, errs, &f)
}

// left takes in the answer to the release of a waiter, or its lack.
func (w *watch) left(d *sender, sent conn.Attempt, res rueidis.RedisResult) answer {
	r, err := w.proto.DecodeEvent(d.script(), res)
	if err == nil {
		w.client.saw(w.node(), sent, w.proto, w.name, r.Head, 0)
	}
	f := failure(err)
	x := w.begin()
	w.event.OnReleaseReply(&x.Input, &d.release.Call.Owner.(*caller).party.Waiter, d.release, sent.Sent, &f)
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
			return p.Owner.(*caller).queue.verdict(wire.Broken, nil)
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

// Confirmed is called by a listener when the channel's subscription is confirmed. n is the number of channels of the connection.
func (w *watch) Confirmed(from conn.Ears, n int) {
	x := w.begin()
	if w.event.Wanted && w.listensAt(from) && from.Hears(w) {
		w.event.OnSubscribed(&x.Input, n, w.client.nonce())
	}
	w.end(x)
}

// Unheard is called by a listener when the subscription is gone.
func (w *watch) Unheard(from conn.Ears) {
	x := w.begin()
	if w.listensAt(from) && !from.Hears(w) {
		w.event.OnUnsubscribed(&x.Input)
	}
	w.end(x)
}

// Rehome is called by a listener whose node has not the site's slot any more.
func (w *watch) Rehome(from conn.Ears) {
	x := w.begin()
	if w.event.Wanted && w.listensAt(from) {
		x.Add(core.Effect{Do: core.Subscribe})
		w.event.OnUnsubscribed(&x.Input)
		from.Drop(w)
	}
	w.end(x)
}

// Refused is called by the listener when the server refuses the subscription for good.
func (w *watch) Refused(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.event.OnSubscribeRefused(conn.Unusable(err))
}

// ticked is called by the timer.
func (w *watch) ticked(time.Time) {
	x := w.begin()
	w.event.OnTimer(&x.Input)
	w.end(x)
}

func (w *watch) close(o outstanding, now time.Time) outstanding {
	x := w.begin()
	defer w.end(x)
	w.event.Close(&x.Input)
	w.event.Outstanding(now, func(p *event.Waiter) { o = append(o, p.Owner.(*caller).party) })
	return o
}

func (w *watch) abandon() {
	x := w.begin()
	subscribed := w.event.Abandon(&x.Input)
	w.end(x)
	if subscribed {
		w.drop(w)
	}
}

func (w *watch) silent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.event.Silent(time.Now())
}

// Left is what the server may have of the call.
func (p *party) Left(begun time.Time) (until time.Time, hold bool, unended error) {
	p.watch.mu.Lock()
	defer p.watch.mu.Unlock()
	return p.Waiter.Left(begun), false, p.Unended
}
