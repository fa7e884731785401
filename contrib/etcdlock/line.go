package etcdlock

import (
	"context"
	"errors"
	"iter"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/lease"
)

// A line is one name as one client sees it, and its waiters: the keys below its prefix, in the order
// in which they were created. It is immutable.
type line struct {
	engine.Line
	client  *Client
	prefix  string
	shared  bool
	value   string      // of the keys
	changes bool        // the value may change while the key is there
	newest  clientv3.Op // reads the key that was created last
}

// lineKey finds the lease in the context of a hold.
type lineKey struct {
	client *Client
	prefix string
}

func (c *Client) line(kind, name string, opts []Option) line {
	l := line{Line: engine.NewLine("etcdlock", kind, name, nil, MaxLease, opts), client: c, value: c.who}
	// Escaped, a name has no slash, so none begins as another's keys do.
	l.prefix = c.opts.Prefix + kind + "/" + url.PathEscape(name) + "/"
	l.Key = lineKey{c, l.prefix}
	l.newest = clientv3.OpGet(l.prefix, clientv3.WithLastCreate()...)
	return l
}

// usable is why a call fails before anything is sent.
func (l *line) usable(ctx context.Context) error { return l.Usable(ctx, l.client.core.Life) }

// A turn is how things stand for a ticket.
type turn struct {
	held  bool
	ahead int    // how many are before it; -1 if that was not asked
	watch string // the key, or prefix, whose next event is a reason to look again
	below bool   // watch is a prefix
	puts  bool   // a change of the key is an event too
	after int64  // the revision of this look
	later bool   // the key was there before this look: somebody may have found it waiting
}

// A queue is how the calls of a kind ask and look.
type queue interface {
	// ask creates the ticket's key. A second ask, after an answer that did not come, finds it and changes nothing.
	ask(ctx context.Context, t *ticket) (turn, error)
	// look tells how things stand. A key that is not there is errGone.
	look(ctx context.Context, t *ticket) (turn, error)
	// got is called when a ticket holds that others may have found waiting.
	got(t *ticket)
}

// acquire waits in line.
func (l *line) acquire(ctx context.Context, q queue) (*lease.Lease, error) {
	return engine.Call{
		Line: &l.Line, Watch: l.client.core.Watch, Life: l.client.core.Life, Again: again, Trouble: l.client.core.Trouble,
		Once: func(ctx context.Context, begun time.Time, at *engine.Place) (*lease.Lease, error) {
			return l.once(ctx, q, begun, at)
		},
	}.Acquire(ctx)
}

// again reports whether a call whose ticket failed may have another, at the end of the line: the etcd lease was lost, or
// somebody removed the key.
func again(err error) bool {
	return errors.Is(err, errGone) || errors.Is(err, lease.ErrLost) || leaseGone(err) || transient(err)
}

// once waits with one ticket.
func (l *line) once(ctx context.Context, q queue, begun time.Time, at *engine.Place) (*lease.Lease, error) {
	core := l.client.core
	s, err := core.Current(ctx)
	if err == nil {
		err = core.BehindEnds(ctx, l.prefix)
	}
	if err != nil {
		return nil, err
	}
	t := l.client.ticket(s, l.prefix)
	now, err := q.ask(ctx, t)
	at.Answered = err == nil
	for err == nil && !now.held {
		if now.ahead >= 0 {
			at.Ahead = now.ahead
		}
		engine.Queued(ctx, now.ahead)
		if err = t.wait(ctx, q, now); err == nil {
			now, err = l.looked(ctx, q, t)
		}
	}
	if err == nil && now.later {
		q.got(t)
	}
	if err == nil {
		var held *lease.Lease
		if held, err = core.Hold(ctx, t, t.terms(l, begun), l.Limits); err == nil {
			return held, nil
		}
	}
	if leaseGone(err) {
		s.bury()
	}
	core.Leave(t)
	return nil, err
}

// looked looks until there is an answer.
func (l *line) looked(ctx context.Context, q queue, t *ticket) (turn, error) {
	during, cancel := t.during(ctx)
	defer cancel()
	now, _, err := repeat(during, l.client.limit(), func(ctx context.Context) (turn, error) { return q.look(ctx, t) })
	now.later = true
	if cause := context.Cause(t.Ctx); err != nil && cause != nil {
		err = cause
	}
	return now, err
}

// during is a context for requests of a waiting ticket: it ends with ctx, the key and the session.
func (t *ticket) during(ctx context.Context) (context.Context, context.CancelFunc) {
	during, cancel := context.WithCancel(t.Ctx)
	stop := context.AfterFunc(ctx, cancel)
	return during, func() { stop(); cancel() }
}

// wait waits for a reason to look again: an event, the end of the watch, or that so much time has passed that the
// event may have been missed. It returns an error if there is nothing to look for any more.
func (t *ticket) wait(ctx context.Context, q queue, now turn) error {
	during, cancel := t.during(ctx)
	defer cancel()
	doubt := time.NewTimer(2 * t.client.opts.Lease)
	defer doubt.Stop()
	stop := context.AfterFunc(during, func() { doubt.Reset(0) })
	defer stop()
	w, err := t.client.watch(now.watch, now.options()...)
	if err != nil {
		return err
	}
	defer w.stop()
	var events clientv3.WatchChan
	for {
		var answer clientv3.WatchResponse
		open := true
		select {
		case events = <-w.made:
			continue
		case answer, open = <-events:
		case <-doubt.C:
			open = false
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case t.Ctx.Err() != nil:
			return context.Cause(t.Ctx)
		case !open || answer.Err() != nil:
			// A compaction, or a member without leader. The look that follows waits for an answer.
			return calls.Rest(during, calls.FirstBackoff)
		case len(answer.Events) > 0:
			return nil
		case answer.Created && answer.Header.Revision > now.after:
			if over, err := t.over(during, q, now); over || err != nil {
				return err
			}
		}
	}
}

// A watch is one at the server that is begun and ended in the background. etcd's client forgets a watch that is given up
// before the server has confirmed it, and the server keeps that until the connection ends: so it is waited for, and then
// ended.
type watch struct {
	made chan clientv3.WatchChan // brings the channel of its answers
	over chan struct{}           // closed when nobody wants it any more
}

// watch begins one, which goes on until it is stopped or the client closes. The connection may be the caller's, and
// outlive the client.
func (c *Client) watch(key string, opts ...clientv3.OpOption) (*watch, error) {
	w := &watch{made: make(chan clientv3.WatchChan), over: make(chan struct{})}
	err := c.core.Spawn(func() {
		ctx, end := bounded(context.WithoutCancel(c.core.Life), c.core.Life, grace)
		defer end()
		events := c.etcd.Watch(ctx, key, opts...) // It returns when the server has confirmed it.
		select {
		case w.made <- events:
			<-w.over
		case <-w.over:
		}
	})
	return w, err
}

// stop ends the watch.
func (w *watch) stop() { close(w.over) }

// answers are those of the watch until it ends, or ctx does. Then it is stopped.
func (w *watch) answers(ctx context.Context) iter.Seq[clientv3.WatchResponse] {
	return func(yield func(clientv3.WatchResponse) bool) {
		defer w.stop()
		var events clientv3.WatchChan
		for {
			select {
			case events = <-w.made:
			case answer, open := <-events:
				if !open || !yield(answer) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// options are those of the watch that is to tell of a turn.
//
// It begins with the present, not where the look ended: etcd looks for what came in between only every 100 ms. Whether
// there was something is asked for when the watch is there.
func (now turn) options() []clientv3.OpOption {
	opts := []clientv3.OpOption{clientv3.WithCreatedNotify()}
	if now.below {
		opts = append(opts, clientv3.WithPrefix())
	}
	if !now.puts {
		opts = append(opts, clientv3.WithFilterPut())
	}
	return opts
}

// over reports whether what is waited for came before the watch.
func (t *ticket) over(ctx context.Context, q queue, now turn) (bool, error) {
	if now.below {
		then, err := q.look(ctx, t)
		return doubt(ctx, then.held || then.watch != now.watch, err)
	}
	found, err := t.client.etcd.Get(ctx, now.watch, clientv3.WithKeysOnly())
	if err != nil {
		return doubt(ctx, true, err)
	}
	over := len(found.Kvs) == 0 || found.Kvs[0].CreateRevision > now.after || now.puts && found.Kvs[0].ModRevision > now.after
	return over, nil
}

// doubt is what comes of a look that may have failed. After an error that passes, another is sure.
func doubt(ctx context.Context, over bool, err error) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return false, nil // The watch ends too.
	case err != nil && !transient(err):
		return false, err
	}
	return over || err != nil, nil
}
