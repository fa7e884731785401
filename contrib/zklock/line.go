package zklock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// A line is one name as one client sees it, and its waiters: the nodes below its own, in the order in
// which they were numbered.
type line struct {
	client *Client
	kind   string // for the observer
	name   string
	parent string
	terms  terms
	past   *atomic.Pointer[past]
	err    error // why it cannot be used
}

// lineKey finds the lease in the context of a hold.
type lineKey struct {
	client *Client
	parent string
}

func (c *Client) line(kind, name string, opts []Option) line {
	l := line{client: c, kind: strings.Replace(kind, "mutex", "lock", 1), name: name, terms: with(opts), past: new(atomic.Pointer[past]), err: names.Check(name, unprintable)}
	if l.err == nil {
		l.err = l.terms.limits.Check(MaxLease)
	}
	l.parent = c.opts.Prefix + "/" + kind + "/" + escape(name)
	return l
}

// label is the name for messages.
func (l *line) label() string { return names.Label(l.name) }

// usable is why a call fails before anything is sent.
func (l *line) usable(ctx context.Context) error { return engine.Usable(ctx, l.client.life, l.err) }

// own is the lease on the name that ctx comes from, if that holds still.
func (l *line) own(ctx context.Context) bool {
	retry.Given(ctx)
	held, ok := ctx.Value(lineKey{l.client, l.parent}).(*lease.Lease)
	return ok && held.Context().Err() == nil
}

// acquire waits in line, or takes what is free.
func (l *line) acquire(ctx context.Context, try bool) (*lease.Lease, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	ctx, free, err := retry.InTime(ctx, l.terms.maxWait)
	if err != nil {
		return nil, err
	}
	defer free()
	begun := time.Now()
	return l.client.watch.Acquire(ctx, l.kind, l.name, func(ctx context.Context) (*lease.Lease, error) {
		return engine.Call{
			Life: l.client.life, Again: again, Trouble: l.client.trouble,
			Once: func(place *int) (*lease.Lease, error) { return l.once(ctx, try, begun, place) },
			Between: func(err error) {
				if errors.Is(err, errWorn) {
					l.renew(ctx)
				}
			},
		}.Acquire(ctx)
	})
}

// again reports whether a call whose ticket failed may have another, at the end of the line: the session was lost, or
// somebody removed the node.
func again(err error) bool {
	return errors.Is(err, errGone) || errors.Is(err, errWorn) || errors.Is(err, lease.ErrLost) || transient(err)
}

// renew removes the parent if the line is empty: the next one begins to count anew.
func (l *line) renew(ctx context.Context) {
	s, err := l.client.current(ctx)
	if err != nil {
		return
	}
	_, _ = do(ctx, l.client.life, l.client, func() (struct{}, error) { return struct{}{}, s.conn.Delete(l.parent, -1) })
}

// once waits with one ticket.
func (l *line) once(ctx context.Context, try bool, begun time.Time, place *int) (*lease.Lease, error) {
	c := l.client
	s, err := c.current(ctx)
	if err == nil {
		err = l.behindEnds(ctx)
	}
	if err != nil {
		return nil, err
	}
	if try {
		if err := l.free(ctx, s); err != nil {
			return nil, err
		}
	}
	t := c.ticket(s, l)
	now, err := t.request(ctx)
	if try && (err == nil && !now.held || errors.Is(err, errWorn)) {
		// Another came at the same time, and first.
		if _, gone := t.remove(ctx); gone == nil {
			c.mu.Lock()
			t.dropLocked()
			c.mu.Unlock()
		}
		err = lease.ErrBusy
	}
	for err == nil && !now.held {
		*place = now.ahead
		engine.Queued(ctx, now.ahead)
		now, err = t.next(ctx, now)
	}
	for err == nil {
		select {
		case <-t.seen:
		case <-ctx.Done():
			err = ctx.Err()
			continue
		case <-t.ctx.Done():
		}
		how := lease.Terms{Name: l.label(), Waited: time.Since(begun), Key: lineKey{c, l.parent}}
		if held := t.hold(ctx, how, l.terms.limits); held != nil {
			return held, nil
		}
		if err = context.Cause(t.ctx); err == nil {
			err = s.confirm(ctx)
		}
	}
	t.leave()
	return nil, err
}

// free is nil if nobody stands in line. A server may be behind what others have done, so that is asked for twice: the
// second time the leader sees to it that the server knows what it knows.
func (l *line) free(ctx context.Context, s *session) error {
	names, err := do(ctx, l.client.life, l.client, func() (names []string, err error) {
		for range 2 {
			_, err = repeat(ctx, l.client.life, func() error {
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
	case err != nil && (ctx.Err() != nil || l.client.life.Err() != nil || transient(err)):
		return err
	case err != nil:
		return advise(err, "listing "+l.parent)
	case len(inLine(names)) > 0:
		return lease.ErrBusy
	}
	return nil
}
