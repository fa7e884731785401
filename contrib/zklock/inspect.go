package zklock

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

// inspectQueue is how many an inspection names.
const inspectQueue = 100

// Inspect tells who holds m and who waits for it. It takes no place in any order. How long ago somebody came and how
// long a lease lasts is not told: ZooKeeper's times are those of its servers.
func (m *Mutex) Inspect(ctx context.Context) (lease.Info, error) {
	info, err := m.inspect(ctx)
	return info, m.line.Failed("inspect", err)
}

func (m *Mutex) inspect(ctx context.Context) (lease.Info, error) {
	info := lease.Info{Limit: 1}
	names, holder, err := m.line.head(ctx)
	if err != nil || len(names) == 0 {
		return info, err
	}
	info.Held, info.Used, info.Holder, info.Holders = true, 1, holder, []lease.Holder{holder}
	info.Token, info.Waiting = holder.Token, len(names)-1
	for _, name := range names[1:min(len(names), inspectQueue+1)] {
		info.Queue = append(info.Queue, lease.Waiter{Client: clientOf(name), Ticket: name})
	}
	return info, nil
}

// clientOf is the half of a node's id that its client has in common with all it makes.
func clientOf(name string) string {
	id := nodeID(name)
	return id[:len(id)/2]
}

// head is the line, and who is the first in it.
func (l *line) head(ctx context.Context) (names []string, holder lease.Holder, err error) {
	if err := l.Usable(ctx, l.client.core.Life); err != nil {
		return nil, holder, err
	}
	begun := time.Now()
	s, err := l.client.core.Current(ctx)
	if err != nil {
		return nil, holder, l.gaveUp(ctx, begun, err)
	}
	type state struct {
		names []string
		data  []byte
		stat  *zk.Stat
	}
	var now state
	now, err = do(ctx, l.client.core.Life, l.client, func() (now state, err error) {
		_, err = repeat(ctx, l.client.core.Life, func() (err error) {
			if _, err = s.conn.Sync(l.parent); err == nil {
				now.names, now.data, now.stat, err = l.read(s)
			}
			return err
		})
		return now, err
	})
	if ctx.Err() != nil && err != nil {
		return nil, holder, l.gaveUp(ctx, begun, calls.WhyEnded(ctx))
	}
	if err != nil && l.client.core.Life.Err() != nil {
		return nil, holder, lease.ErrClosed
	}
	if err != nil || len(now.names) == 0 {
		return nil, holder, err
	}
	return now.names, lease.Holder{
		Client: clientOf(now.names[0]), Ticket: now.names[0], Who: string(now.data),
		Permits: 1, Entries: 1, Token: uint64(now.stat.Czxid),
	}, nil
}

// gaveUp is why a question has no answer.
func (l *line) gaveUp(ctx context.Context, begun time.Time, why error) error {
	return &lease.WaitError{Place: -1, Waited: time.Since(begun), Last: l.client.trouble(), Err: why, Unanswered: ctx.Err() != nil}
}

// read reads the line and its first node.
func (l *line) read(s *session) ([]string, []byte, *zk.Stat, error) {
	for {
		names, _, err := s.conn.Children(l.parent)
		if err == zk.ErrNoNode {
			return nil, nil, nil, nil
		}
		if err != nil {
			return nil, nil, nil, advise(err, "listing "+l.parent)
		}
		if names = inLine(names); len(names) == 0 {
			return nil, nil, nil, nil
		}
		data, stat, err := s.conn.Get(l.parent + "/" + names[0])
		switch err {
		case nil:
			return names, data, stat, nil
		case zk.ErrNoNode: // It has just gone.
		default:
			return nil, nil, nil, advise(err, "reading "+names[0])
		}
	}
}

// ForceRelease frees m whoever holds it; the next in the queue holds. The holder is told as soon as its server tells its
// client, but not before the next may hold: what it protects should look at fencing tokens. Its context ends with the
// cause [lease.ErrForced].
//
// A token other than 0 limits this to the hold with that token. It returns what it freed, and [lease.ErrNotHeld] if
// there was nothing to free.
func (m *Mutex) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	w, err := m.line.force(ctx, token)
	return w, m.line.Failed("force release", err)
}

func (l *line) force(ctx context.Context, token uint64) (lease.Holder, error) {
	names, holder, err := l.head(ctx)
	if err != nil {
		return lease.Holder{}, err
	}
	switch {
	case len(names) == 0:
		return lease.Holder{}, lease.ErrNotHeld
	case token != 0 && holder.Token != token:
		return lease.Holder{}, fmt.Errorf("%w: it has %d", lease.ErrOtherToken, holder.Token)
	}
	s, err := l.client.core.Current(ctx)
	if err != nil {
		return lease.Holder{}, err
	}
	_, err = do(ctx, l.client.core.Life, l.client, func() (struct{}, error) {
		return struct{}{}, s.conn.Delete(l.parent+"/"+names[0], -1)
	})
	switch {
	case err == zk.ErrNoNode:
		return lease.Holder{}, lease.ErrNotHeld
	case err != nil && (ctx.Err() != nil || l.client.core.Life.Err() != nil || transient(err)):
		return lease.Holder{}, fmt.Errorf("it may have been freed or not: %w", err)
	case err != nil:
		return lease.Holder{}, advise(err, "deleting "+names[0])
	}
	return holder, nil
}
