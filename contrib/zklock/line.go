package zklock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/lease"
)

// A line is one name as one client sees it, and its waiters: the nodes below its own, in the order in
// which they were numbered.
type line struct {
	engine.Line
	client *Client
	parent string
	past   *atomic.Pointer[past]
}

// lineKey finds the lease in the context of a hold.
type lineKey struct {
	client *Client
	parent string
}

func (c *Client) line(kind, name string, opts []Option) line {
	l := line{
		Line: engine.NewLine("zklock", kind, name, unprintable, MaxLease, opts), client: c,
		parent: c.opts.Prefix + "/" + kind + "/" + escape(name), past: new(atomic.Pointer[past]),
	}
	l.Key = lineKey{c, l.parent}
	return l
}

// acquire waits in line, or takes what is free.
func (l *line) acquire(ctx context.Context, try bool) (*lease.Lease, error) {
	core := l.client.core
	return engine.Call{
		Line: &l.Line, Watch: core.Watch, Life: core.Life, Again: again, Trouble: l.client.trouble,
		Once: func(ctx context.Context, begun time.Time, at *engine.Place) (*lease.Lease, error) {
			return l.once(ctx, try, begun, at)
		},
		Between: func(ctx context.Context, err error) {
			if errors.Is(err, errWorn) {
				l.renew(ctx)
			}
		},
	}.Acquire(ctx)
}

// again reports whether a call whose ticket failed may have another, at the end of the line: the session was lost, or
// somebody removed the node.
func again(err error) bool {
	return errors.Is(err, errGone) || errors.Is(err, errWorn) || errors.Is(err, lease.ErrLost) || transient(err)
}

// renew removes the parent if the line is empty: the next one begins to count anew.
func (l *line) renew(ctx context.Context) {
	s, err := l.client.core.Current(ctx)
	if err != nil {
		return
	}
	_, _ = do(ctx, l.client.core.Life, l.client, func() (struct{}, error) { return struct{}{}, s.conn.Delete(l.parent, -1) })
}

// once waits with one ticket.
func (l *line) once(ctx context.Context, try bool, begun time.Time, at *engine.Place) (*lease.Lease, error) {
	core := l.client.core
	s, err := core.Current(ctx)
	if err == nil {
		err = core.BehindEnds(ctx, l.parent)
	}
	if err == nil && try {
		err = l.free(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	t := l.client.ticket(s, l)
	now, err := t.request(ctx)
	if try && (err == nil && !now.held || errors.Is(err, errWorn)) {
		// Another came at the same time, and first.
		if _, gone := t.remove(ctx); gone == nil {
			core.Lock()
			core.DropLocked(t)
			core.Unlock()
		}
		err = lease.ErrBusy
	}
	at.Answered = err == nil
	for err == nil && !now.held {
		at.Ahead = now.ahead
		engine.Queued(ctx, now.ahead)
		now, err = t.next(ctx, now)
	}
	if err == nil {
		var held *lease.Lease
		if held, err = t.hold(ctx, begun); err == nil {
			return held, nil
		}
	}
	core.Leave(t)
	return nil, err
}

// free is nil if nobody stands in line. A server may lag behind what others have done, so that is asked for twice: the
// second time the leader sees to it that the server knows what it knows.
func (l *line) free(ctx context.Context, s *session) error {
	names, err := do(ctx, l.client.core.Life, l.client, func() (names []string, err error) {
		for range 2 {
			_, err = repeat(ctx, l.client.core.Life, func() error {
				names, _, err = s.conn.Children(l.parent)
				return err
			})
			if err == zk.ErrNoNode {
				return nil, nil
			}
			if err != nil || len(inLine(names)) == 0 {
				break
			}
			_, _ = s.conn.Sync(l.parent) // Without it, the second look may be as old as the first.
		}
		return names, err
	})
	switch {
	case err != nil && (ctx.Err() != nil || l.client.core.Life.Err() != nil || transient(err)):
		return err
	case err != nil:
		return advise(err, "listing "+l.parent)
	case len(inLine(names)) > 0:
		return lease.ErrBusy
	}
	return nil
}
