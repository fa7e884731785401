package zklock

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// A ticket is one call and the node that it has at the servers. Its ID is in the name of the node, by which that is found
// when the answer to its creation was lost.
type ticket struct {
	engine.Ticket[*session]
	client *Client
	line   *line
	seen   chan struct{} // closed when the token is known
	before *past         // what was known of the parent before the node was asked for

	// guarded by the client's core
	path    string // of the node, when that is known
	number  int32  // the place in the order
	token   uint64
	view    past // of the last look
	asked   bool // for the token, or it is known
	guarded bool // the node is watched, or is about to be
}

// ticket makes one for a call.
func (c *Client) ticket(s *session, l *line) *ticket {
	t := &ticket{
		Ticket: engine.NewTicket(s, fmt.Sprintf("%s%016x", c.id, c.numbers.Add(1)), l.parent),
		client: c, line: l, seen: make(chan struct{}), before: l.past.Load(),
	}
	c.core.Lock()
	defer c.core.Unlock()
	c.core.Tickets[t.ID] = t
	return t
}

// request makes the node and tells how things stand. If ctx ends before, it returns at once, and the ticket has to leave;
// what came of the request is removed when its end is known.
//
// The list is asked for right after the request that makes the node, without waiting for its answer: a server answers
// what comes over one connection in order. Should the list overtake the node, that is not in it, and it is asked for
// again. The one of the two that is answered last goes on.
func (t *ticket) request(ctx context.Context) (turn, error) {
	type reply struct {
		turn turn
		err  error
	}
	c := t.client
	replies := make(chan reply, 1)
	var early list
	var failed error
	var answers atomic.Int32
	answered := func() {
		if answers.Add(1) < 2 {
			return
		}
		r := reply{err: failed}
		if r.err == nil {
			r.err = t.Ctx.Err()
		}
		if r.err == nil {
			r.turn, r.err = t.look(&early)
		}
		c.core.Lock()
		defer c.core.Unlock()
		c.core.SettledLocked(t)
		replies <- r
	}
	c.core.Lock()
	t.Pending = true
	err := c.core.SpawnLocked(func() {
		if c.core.Spawn(func() { early = t.list(); answered() }) != nil {
			early.err = zk.ErrConnectionClosed
			answers.Add(1)
		}
		failed = t.make()
		answered()
	})
	if err != nil {
		t.Pending = false
	}
	c.core.Unlock()
	if err != nil {
		return turn{}, err
	}
	select {
	case r := <-replies:
		return r.turn, t.why(r.err)
	case <-ctx.Done():
		return turn{}, t.why(ctx.Err())
	case <-t.Ctx.Done():
		return turn{}, t.why(t.Ctx.Err())
	}
}

// why is the error of what was done for the ticket, if the ticket's own end does not explain it.
func (t *ticket) why(err error) error {
	if cause := context.Cause(t.Ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// make makes the node, once: where an answer was lost, the node is looked for by its id before it is asked for again.
func (t *ticket) make() error {
	ctx, s, opts := t.Ctx, t.Session, &t.client.opts
	node, lost := t.line.parent+"/"+nodeStart(t.ID), false
	for tries := 0; ; tries++ {
		var made string
		var err error
		if lost {
			made, err = t.find()
			lost = err != nil
		}
		if made == "" && err == nil {
			made, err = s.conn.Create(node, []byte(t.client.who), zk.FlagEphemeralSequential, opts.ACL)
			lost = transient(err)
		}
		switch {
		case made != "":
			return t.made(made)
		case err == zk.ErrNoNode:
			err = s.parents(t.line.parent)
		}
		if err != nil && !transient(err) {
			if !lost {
				t.client.core.Lock()
				t.client.core.DropLocked(t)
				t.client.core.Unlock()
			}
			return advise(err, "making a node below "+t.line.parent)
		}
		if ctx.Err() != nil {
			return ctx.Err() // The sweeper goes on looking.
		}
		if err != nil && calls.Rest(ctx, calls.Backoff(tries)) != nil {
			return ctx.Err()
		}
	}
}

// made takes in what the node is called.
func (t *ticket) made(node string) error {
	n, is := number(node)
	t.client.core.Lock()
	t.path, t.number = node, n
	t.client.core.Unlock()
	if !is || n < 0 || n > maxNumber {
		return errWorn
	}
	return nil
}

// find looks for the node by its id. There may be none. Where the session goes on at another server, what the leader was
// asked before that may not be agreed on yet, or not be known there: a sync is answered after it.
func (t *ticket) find() (string, error) {
	if _, err := t.Session.conn.Sync(t.line.parent); err != nil {
		return "", err
	}
	names, _, err := t.Session.conn.Children(t.line.parent)
	if err == zk.ErrNoNode {
		return "", nil
	}
	for _, name := range names {
		if err == nil && nodeID(name) == t.ID {
			return t.line.parent + "/" + name, nil
		}
	}
	return "", err
}

// parents makes what is missing above the nodes of a name: containers, which the servers remove when nothing is left in
// them.
func (s *session) parents(node string) error {
	for at := 1; at > 0; {
		end := strings.IndexByte(node[at:], '/')
		part := node
		if end >= 0 {
			part = node[:at+end]
		}
		at = len(part) + 1
		if end < 0 {
			at = 0
		}
		if there, _, err := s.conn.Exists(part); err != nil {
			return err
		} else if there {
			continue
		}
		_, err := s.conn.CreateContainer(part, nil, zk.FlagContainer, s.client.opts.ACL)
		if err == zk.ErrNoNode {
			return nil // The one above has gone again. The next attempt makes it.
		}
		if err != nil && err != zk.ErrNodeExists {
			return err
		}
	}
	return nil
}

// hold makes the lease on what the ticket has got, when its token is known.
func (t *ticket) hold(ctx context.Context, begun time.Time) (*lease.Lease, error) {
	select {
	case <-t.seen:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-t.Ctx.Done():
		return nil, context.Cause(t.Ctx)
	}
	l := t.line
	how := keeper.Terms{Name: l.Label(), Waited: time.Since(begun), Key: l.Key, Token: t.token, Release: t.release}
	return t.client.core.Hold(ctx, t, how, l.Limits)
}

// releaseTime is for how long a release is tried after the deadline of what it releases.
const releaseTime = time.Second

// release is what Release of the lease does, once. The lease's context has ended.
func (t *ticket) release(ctx context.Context) error {
	core := t.client.core
	core.Lock()
	limit := t.Session.LeftLocked() + releaseTime
	err := core.ReleasingLocked(ctx, t)
	core.Unlock()
	if err != nil {
		return err
	}
	defer t.End(context.Canceled)
	during, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	removed, err := t.remove(during)
	switch {
	case err != nil && t.Session.Over():
		return core.LostBy(t, nil)
	case err != nil:
		return core.Unconfirmed(ctx, t, advise(err, "deleting "+t.path))
	}
	core.Lock()
	core.DropLocked(t)
	core.Unlock()
	if !removed {
		return core.LostBy(t, lease.ErrForced)
	}
	t.view.removed++
	t.line.past.Store(&t.view)
	return nil
}

// remove deletes the node. It returns false if another has.
func (t *ticket) remove(ctx context.Context) (removed bool, err error) {
	return do(ctx, t.Ctx, t.client, func() (bool, error) {
		attempts, err := repeat(ctx, t.Ctx, func() error { return t.Session.conn.Delete(t.path, -1) })
		if err == zk.ErrNoNode {
			return attempts > 1, nil // Where there were more, an earlier one did it.
		}
		return true, err
	})
}

// erase deletes the node once, in the background. It returns an error if it is to be tried again.
func (t *ticket) erase() error {
	c := t.client
	c.core.Lock()
	node := t.path
	c.core.Unlock()
	var err error
	if node == "" {
		node, err = t.find()
	}
	if err == nil && node != "" {
		err = t.Session.conn.Delete(node, -1)
	}
	if err != nil && err != zk.ErrNoNode {
		return err // Whatever it is: the node is not to stay.
	}
	c.core.Lock()
	defer c.core.Unlock()
	c.core.DropLocked(t)
	t.End(context.Canceled)
	return nil
}
