package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// A ticket is one call and the node that it has at the servers: one of its own, so that two calls of one client exclude
// each other as those of two clients do.
type ticket struct {
	client  *Client
	session *session
	line    *line
	id      string          // in the name of the node, by which it is found when the answer to its creation was lost
	ctx     context.Context // ends when the node is known to be gone, or the session ends
	end     context.CancelCauseFunc
	seen    chan struct{} // closed when the token is known
	before  *past         // what was known of the parent before the node was asked for

	// guarded by the client's mu
	path      string // of the node, when that is known
	number    int32  // the place in the order
	token     uint64
	view      past // of the last look
	asked     bool // for the token, or it is known
	guarded   bool // the node is watched, or is about to be
	grip      engine.Grip
	pending   bool // the node may be about to be made
	abandoned bool // the call needs it no more
}

// ticket makes one for a call.
func (c *Client) ticket(s *session, l *line) *ticket {
	t := &ticket{
		client: c, session: s, line: l, seen: make(chan struct{}), before: l.past.Load(),
		id: fmt.Sprintf("%s%016x", c.id, c.numbers.Add(1)),
	}
	t.ctx, t.end = context.WithCancelCause(s.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickets[t.id] = t
	return t
}

// leavingLocked reports whether the ticket's node is to go, or may.
func (t *ticket) leavingLocked() bool { return t.abandoned || t.client.ends[t.id] != nil }

// dropLocked forgets a ticket that has no node.
func (t *ticket) dropLocked() {
	delete(t.client.tickets, t.id)
	delete(t.client.ends, t.id)
}

// missedLocked tells that somebody has removed the node.
func (t *ticket) missedLocked() {
	t.dropLocked()
	t.grip.Lose(lease.ErrForced)
	t.end(errGone)
}

// leave gives up the place or the hold, in the background: when what may make the node has come to its end.
func (t *ticket) leave() {
	c := t.client
	c.mu.Lock()
	defer c.mu.Unlock()
	t.abandoned = true
	if !t.pending && c.tickets[t.id] == t {
		c.sweepLocked(t)
	}
	t.end(context.Canceled)
}

// request makes the node and tells how things stand. If ctx ends before, it returns at once, and the ticket has to leave;
// what came of the request is removed when its end is known.
//
// The list is asked for right behind the request that makes the node, without waiting for its answer: a server answers
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
			r.err = t.ctx.Err()
		}
		if r.err == nil {
			r.turn, r.err = t.look(&early)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		t.pending = false
		if t.abandoned && c.tickets[t.id] == t {
			c.sweepLocked(t)
		}
		replies <- r
	}
	c.mu.Lock()
	t.pending = true
	err := c.spawnLocked(func() {
		if c.spawn(func() { early = t.list(); answered() }) != nil {
			early.err = zk.ErrConnectionClosed
			answers.Add(1)
		}
		failed = t.make()
		answered()
	})
	if err != nil {
		t.pending = false
	}
	c.mu.Unlock()
	if err != nil {
		return turn{}, err
	}
	select {
	case r := <-replies:
		return r.turn, t.why(r.err)
	case <-ctx.Done():
		return turn{}, t.why(ctx.Err())
	case <-t.ctx.Done():
		return turn{}, t.why(t.ctx.Err())
	}
}

// why is the error of what was done for the ticket, if the ticket's own end does not explain it.
func (t *ticket) why(err error) error {
	if cause := context.Cause(t.ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// make makes the node, once: where an answer was lost, the node is looked for by its id before it is asked for again. The
// servers end a connection, and what came over it, before they let the session go on over another.
func (t *ticket) make() error {
	ctx, s, opts := t.ctx, t.session, &t.client.opts
	node, lost := t.line.parent+"/"+nodeStart(t.id), false
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
				t.client.mu.Lock()
				t.dropLocked()
				t.client.mu.Unlock()
			}
			return advise(err, "making a node below "+t.line.parent)
		}
		if ctx.Err() != nil {
			return ctx.Err() // The sweeper goes on looking.
		}
		if err != nil && retry.Rest(ctx, retry.Backoff(tries)) != nil {
			return ctx.Err()
		}
	}
}

// made takes in what the node is called.
func (t *ticket) made(node string) error {
	n, is := number(node)
	t.client.mu.Lock()
	t.path, t.number = node, n
	t.client.mu.Unlock()
	if !is || n < 0 || n > maxNumber {
		return errWorn
	}
	return nil
}

// find looks for the node by its id. There may be none.
func (t *ticket) find() (string, error) {
	names, _, err := t.session.conn.Children(t.line.parent)
	if err == zk.ErrNoNode {
		return "", nil
	}
	for _, name := range names {
		if err == nil && nodeID(name) == t.id {
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

// hold makes the lease on what the ticket has got. It returns nil if the session's time is over, or the node gone.
func (t *ticket) hold(ctx context.Context, how lease.Terms, limits engine.Limits) *lease.Lease {
	c := t.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || t.ctx.Err() != nil || t.session.leftLocked() <= 0 {
		return nil
	}
	how.Token, how.Until, how.Release = t.token, t.session.until, t.release
	return t.grip.Take(ctx, how, limits, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !t.leavingLocked() && t.grip.Over() {
			c.sweepLocked(t)
		}
	})
}

// releaseTime is for how long a release is tried after the deadline of what it releases.
const releaseTime = time.Second

// release is what Release of the lease does, once. The lease's context has ended.
func (t *ticket) release(ctx context.Context) error {
	c := t.client
	c.mu.Lock()
	cause := t.grip.Ended()
	known := c.tickets[t.id] == t && c.ends[t.id] == nil
	limit := t.session.leftLocked() + releaseTime
	if known && (!errors.Is(cause, lease.ErrReleased) || ctx.Err() != nil) {
		// It was lost, or nobody can wait for the answer, which is no reason to keep the lock.
		c.sweepLocked(t)
	}
	t.abandoned = true
	c.mu.Unlock()
	switch {
	case !errors.Is(cause, lease.ErrReleased):
		return cause
	case !known:
		return t.lostBy(lease.ErrForced)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, retry.WhyEnded(ctx))
	}
	defer t.end(context.Canceled)
	during, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	removed, err := t.remove(during)
	switch {
	case err != nil && t.session.over():
		return t.lostBy(nil)
	case err != nil:
		return t.unconfirmed(ctx, err)
	}
	c.mu.Lock()
	t.dropLocked()
	c.mu.Unlock()
	if !removed {
		return t.lostBy(lease.ErrForced)
	}
	t.view.removed++
	t.line.past.Store(&t.view)
	return nil
}

// remove deletes the node. It returns false if another has.
func (t *ticket) remove(ctx context.Context) (removed bool, err error) {
	return do(ctx, t.ctx, t.client, func() (bool, error) {
		attempts, err := repeat(ctx, t.ctx, func() error { return t.session.conn.Delete(t.path, -1) })
		if err == zk.ErrNoNode {
			return attempts > 1, nil // Where there were more, an earlier one did it.
		}
		return true, err
	})
}

// erase deletes the node once, in the background. It returns an error if it is to be tried again.
func (t *ticket) erase() error {
	c := t.client
	c.mu.Lock()
	node := t.path
	c.mu.Unlock()
	var err error
	if node == "" {
		node, err = t.find()
	}
	if err == nil && node != "" {
		err = t.session.conn.Delete(node, -1)
	}
	if err != nil && err != zk.ErrNoNode {
		return err // Whatever it is: the node is not to stay.
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t.dropLocked()
	t.end(context.Canceled)
	return nil
}

// lostBy is the loss that a release has found, unless the end of the session explains it.
func (t *ticket) lostBy(cause error) error {
	if t.session.over() {
		return context.Cause(t.session.ctx)
	}
	if t.client.life.Err() != nil {
		return lease.ErrClientClosed
	}
	return cause
}

// unconfirmed leaves the release to the sweeper.
func (t *ticket) unconfirmed(ctx context.Context, err error) error {
	c := t.client
	c.mu.Lock()
	if c.tickets[t.id] == t {
		c.sweepLocked(t)
	}
	c.mu.Unlock()
	switch ended := retry.WhyEnded(ctx); {
	case ended != nil:
		err = ended
	case c.life.Err() != nil:
		err = lease.ErrClosed
	default:
		err = advise(err, "deleting "+t.path)
	}
	return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, err)
}
