package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// errGone ends the wait of a ticket whose key is not there any more, and of which nobody has told.
var errGone = errors.New("the key of the waiting call was removed")

// A ticket is one call and the key that it has at the server: one of its own, so that two calls of one client exclude
// each other as those of two clients do.
type ticket struct {
	client  *Client
	session *session
	key     string
	number  uint64
	ctx     context.Context // ends when the key is known to be gone, or the session ends
	end     context.CancelCauseFunc

	// guarded by the client's mu
	clean     bool      // no request about the key is under way, or may still arrive: another may have its number
	put       time.Time // when the server was known to have the key
	revision  int64     // at which the key was created: the place in the order, and the token
	ousted    int64     // the revision of a key that was taken away before the own was known
	grip      engine.Grip
	cut       bool // a request that may create the key was given up: it may come yet
	abandoned bool // the call needs it no more
}

// ticket makes one for a call. Until it has a key it is known, so that the key is nobody's ghost.
//
// Numbers are used again: until its next compaction etcd goes through all keys that a name ever had, however long they
// have been gone, to find those that it has.
func (c *Client) ticket(s *session, prefix string) *ticket {
	t := &ticket{client: c, session: s}
	t.ctx, t.end = context.WithCancelCause(s.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := len(s.free) - 1; last >= 0 {
		t.number, s.free = s.free[last], s.free[:last]
	} else {
		t.number = c.numbers.Add(1)
	}
	t.key = fmt.Sprintf("%s%x-%x", prefix, s.id, t.number)
	c.tickets[t.key] = t
	return t
}

// dropLocked forgets a ticket whose key is not there.
func (t *ticket) dropLocked() {
	c := t.client
	if c.tickets[t.key] != t {
		return
	}
	delete(c.tickets, t.key)
	delete(c.ends, t.key)
	t.end(context.Canceled)
	if t.clean {
		t.clean = false
		t.session.free = append(t.session.free, t.number)
	}
}

// leavingLocked reports whether the ticket's key is to go, or may.
func (t *ticket) leavingLocked() bool { return t.abandoned || t.client.ends[t.key] != nil }

// missed tells that the key is gone, though the lease is not.
func (t *ticket) missed() {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	t.missedLocked()
}

func (t *ticket) missedLocked() {
	c := t.client
	if t.leavingLocked() || c.tickets[t.key] != t {
		return
	}
	delete(c.tickets, t.key)
	t.grip.Lose(lease.ErrForced)
	t.end(errGone)
}

// leave gives up the place or the hold, in the background.
func (t *ticket) leave() {
	c := t.client
	c.mu.Lock()
	defer c.mu.Unlock()
	t.abandoned = true
	if c.tickets[t.key] == t {
		c.sweepLocked(t)
	}
	t.end(context.Canceled)
}

// forget is for a ticket that has no key.
func (t *ticket) forget() {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	t.dropLocked()
}

// grace is for how long a request goes on whose call was given up. With an answer it is known what is to be removed.
const grace = 50 * time.Millisecond

// bounded is a context for a request: it ends with the spell, and so long after ctx has ended.
func bounded(spell, ctx context.Context, grace time.Duration) (context.Context, func()) {
	if ctx.Done() == nil {
		return spell, func() {}
	}
	during, cancel := context.WithCancel(spell)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return during, func() { stop(); cancel() }
}

// request sends what may create the ticket's key, and returns the answer. If ctx ends before, so it does within the
// grace, and the ticket has to leave.
//
// All is done on the caller's goroutine, and without a timer, because both would be seen in what a cycle takes.
func (t *ticket) request(ctx context.Context, send func(context.Context) (*clientv3.TxnResponse, error)) (*clientv3.TxnResponse, error) {
	c := t.client
	answer, attempts, err := insist(ctx, t.ctx, func() (*clientv3.TxnResponse, error) {
		c.mu.Lock()
		spell := t.session.spell
		c.mu.Unlock()
		during, end := bounded(spell, ctx, grace)
		defer end()
		answer, err := send(during)
		if err != nil && context.Cause(spell) == errLate {
			err = errLate
		}
		return answer, err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	t.clean = err == nil && attempts == 1
	t.cut = err != nil && (transient(err) || code(err) == codes.Canceled || errors.Is(err, context.Canceled))
	switch {
	case err == nil:
		t.put = time.Now()
		return answer, ctx.Err()
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case t.ctx.Err() != nil:
		return nil, context.Cause(t.ctx)
	}
	return nil, err
}

// sentOnce reports whether the answer to the request was that to its first attempt.
func (t *ticket) sentOnce() bool {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	return t.clean
}

// find asks for the revision of the ticket's key, if the answer that told it was lost.
func (t *ticket) find(ctx context.Context) error {
	if t.revision != 0 { // Nobody else sets it.
		return nil
	}
	own, err := t.client.etcd.Get(ctx, t.key, clientv3.WithKeysOnly())
	switch {
	case err != nil:
		return err
	case len(own.Kvs) == 0:
		return errGone
	}
	t.setRevision(own.Kvs[0].CreateRevision)
	return nil
}

func (t *ticket) setRevision(r int64) {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	t.revision = r
	if t.ousted == r {
		t.missedLocked()
	}
}

// own reads the ticket's key.
func (t *ticket) own() clientv3.Op { return clientv3.OpGet(t.key, clientv3.WithKeysOnly()) }

// before reads the key that was created before it.
func (t *ticket) before(prefix string) clientv3.Op {
	opts := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(t.revision-1), clientv3.WithKeysOnly())
	return clientv3.OpGet(prefix, opts...)
}

// hold makes the lease on what the ticket has got. It returns nil if the time of the session's lease is over, or the
// key gone.
func (t *ticket) hold(ctx context.Context, how lease.Terms, limits engine.Limits) *lease.Lease {
	c := t.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || t.ctx.Err() != nil || t.session.leftLocked() <= 0 {
		return nil
	}
	how.Token, how.Until, how.Release = uint64(t.revision), t.session.until, t.release
	return t.grip.Take(ctx, how, limits, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !t.leavingLocked() && t.grip.Over() {
			c.sweepLocked(t)
		}
	})
}

// release is what Release of the lease does, once. The lease's context has ended. It is tried until its time is over.
func (t *ticket) release(ctx context.Context) error {
	c := t.client
	c.mu.Lock()
	cause := t.grip.Ended()
	known := c.tickets[t.key] == t && c.ends[t.key] == nil
	clean := t.clean
	if known {
		t.clean = false // Until the answer is here.
	}
	spell := t.session.spell
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
	during, end := bounded(spell, ctx, 0)
	defer end()
	// The key is no other's, for numbers are used again only when nothing about them is under way. So the revision need
	// not be compared, which costs a twentieth of a cycle.
	answer, attempts, err := insist(during, during, func() (*clientv3.DeleteResponse, error) { return c.erase(during, t.key) })
	if err != nil {
		if spell.Err() != nil {
			err = context.Cause(spell)
		}
		return t.unconfirmed(ctx, err)
	}
	c.mu.Lock()
	t.clean = clean && attempts == 1 && c.ends[t.key] == nil
	t.dropLocked()
	c.mu.Unlock()
	if answer.Deleted == 0 && attempts == 1 { // Where there were more, an earlier one did it.
		return t.lostBy(lease.ErrForced)
	}
	return nil
}

// lostBy is the loss that a release has found, unless the end of the session explains it.
func (t *ticket) lostBy(cause error) error {
	if ended := context.Cause(t.session.ctx); errors.Is(ended, lease.ErrLost) {
		return ended
	}
	if t.client.life.Err() != nil {
		return lease.ErrClientClosed
	}
	return cause
}

// errSlow ends an attempt.
var errSlow = fmt.Errorf("no answer in a third of the lease: %w", context.DeadlineExceeded)

// erase is one attempt to delete a key. It ends in time for others before the lease does: that a member hangs is
// noticed by its connections later than that, and the next attempt goes to another one. As a spell it has no deadline.
func (c *Client) erase(ctx context.Context, key string) (*clientv3.DeleteResponse, error) {
	attempt, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer time.AfterFunc(c.opts.Lease/3, func() { end(errSlow) }).Stop()
	answer, err := c.etcd.Delete(attempt, key)
	if err != nil && context.Cause(attempt) == errSlow {
		err = errSlow
	}
	return answer, err
}

// unconfirmed leaves the release to the sweeper.
func (t *ticket) unconfirmed(ctx context.Context, err error) error {
	c := t.client
	c.mu.Lock()
	if c.tickets[t.key] == t {
		c.sweepLocked(t)
	}
	c.mu.Unlock()
	if ended := retry.WhyEnded(ctx); ended != nil {
		err = ended
	} else if c.life.Err() != nil {
		err = lease.ErrClosed
	}
	return fmt.Errorf("%w: %w", lease.ErrUnconfirmed, err)
}
