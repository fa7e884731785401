package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

// errGone ends the wait of a ticket whose key is gone though no notice has come.
var errGone = errors.New("the key of the waiting call was removed")

// A ticket is one call and the key that it has at the server. Its ID is the key.
type ticket struct {
	engine.Ticket[*session]
	client *Client
	number uint64

	// guarded by the client's core
	clean    bool      // no request about the key is under way, or may still arrive: another may have its number
	put      time.Time // when the server was known to have the key
	revision int64     // at which the key was created: the place in the order, and the token
	ousted   int64     // the revision of a key that was taken away before the own was known
	cut      bool      // a request that may create the key was given up: it may come yet
}

// ticket makes one for a call. Until it has a key it is known, so that the key is nobody's ghost.
//
// Numbers are used again: until its next compaction etcd goes through all keys that a name ever had, however long they
// have been gone, to find those that it has.
func (c *Client) ticket(s *session, prefix string) *ticket {
	t := &ticket{client: c}
	c.core.Lock()
	defer c.core.Unlock()
	if last := len(s.free) - 1; last >= 0 {
		t.number, s.free = s.free[last], s.free[:last]
	} else {
		t.number = c.numbers.Add(1)
	}
	t.Ticket = engine.NewTicket(s, fmt.Sprintf("%s%x-%x", prefix, s.id, t.number), prefix)
	c.core.Tickets[t.ID] = t
	return t
}

// dropLocked forgets a ticket whose key is not there.
func (t *ticket) dropLocked() {
	core := t.client.core
	if !core.KnownLocked(t) {
		return
	}
	core.DropLocked(t)
	t.End(context.Canceled)
	if t.clean {
		t.clean = false
		t.Session.free = append(t.Session.free, t.number)
	}
}

// missed tells that the key is gone, though the lease is not.
func (t *ticket) missed() {
	t.client.core.Lock()
	defer t.client.core.Unlock()
	t.missedLocked()
}

func (t *ticket) missedLocked() { t.client.core.MissedLocked(t, errGone) }

// forget is for a ticket that has no key.
func (t *ticket) forget() {
	t.client.core.Lock()
	defer t.client.core.Unlock()
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
	answer, attempts, err := insist(ctx, t.Ctx, func() (*clientv3.TxnResponse, error) {
		c.core.Lock()
		spell := t.Session.spell
		c.core.Unlock()
		during, end := bounded(spell, ctx, grace)
		defer end()
		answer, err := send(during)
		if err != nil && context.Cause(spell) == errLate {
			err = errLate
		}
		return answer, err
	})
	c.core.Lock()
	defer c.core.Unlock()
	t.clean = err == nil && attempts == 1
	t.cut = err != nil && (transient(err) || code(err) == codes.Canceled || errors.Is(err, context.Canceled))
	switch {
	case err == nil:
		t.put = time.Now()
		return answer, ctx.Err()
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case t.Ctx.Err() != nil:
		return nil, context.Cause(t.Ctx)
	}
	return nil, err
}

// sentOnce reports whether the answer to the request was that to its first attempt.
func (t *ticket) sentOnce() bool {
	t.client.core.Lock()
	defer t.client.core.Unlock()
	return t.clean
}

// find asks for the revision of the ticket's key, if the answer that told it was lost.
func (t *ticket) find(ctx context.Context) error {
	if t.revision != 0 { // Nobody else sets it.
		return nil
	}
	own, err := t.client.etcd.Get(ctx, t.ID, clientv3.WithKeysOnly())
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
	t.client.core.Lock()
	defer t.client.core.Unlock()
	t.revision = r
	if t.ousted == r {
		t.missedLocked()
	}
}

// own reads the ticket's key.
func (t *ticket) own() clientv3.Op { return clientv3.OpGet(t.ID, clientv3.WithKeysOnly()) }

// before reads the key that was created before it.
func (t *ticket) before(prefix string) clientv3.Op {
	opts := append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(t.revision-1), clientv3.WithKeysOnly())
	return clientv3.OpGet(prefix, opts...)
}

// terms are those of the lease on what the ticket has got.
func (t *ticket) terms(l *line, begun time.Time) keeper.Terms {
	return keeper.Terms{
		Name: l.Label(), Waited: time.Since(begun), Key: l.Key, Shared: l.shared, Token: uint64(t.revision), Release: t.release,
	}
}

// release is what Release of the lease does, once. The lease's context has ended. It is tried until its time is over.
func (t *ticket) release(ctx context.Context) error {
	core := t.client.core
	core.Lock()
	err := core.ReleasingLocked(ctx, t)
	clean, spell := t.clean, t.Session.spell
	t.clean = false // Until the answer is here.
	core.Unlock()
	if err != nil {
		return err
	}
	during, end := bounded(spell, ctx, 0)
	defer end()
	// The key is no other's, for numbers are used again only when nothing about them is under way. So the revision need
	// not be compared, which costs a twentieth of a cycle.
	answer, attempts, err := insist(during, during, func() (*clientv3.DeleteResponse, error) { return t.client.delete(during, t.ID) })
	if err != nil {
		if spell.Err() != nil {
			err = context.Cause(spell)
		}
		return core.Unconfirmed(ctx, t, err)
	}
	core.Lock()
	t.clean = clean && attempts == 1 && !core.EndsLocked(t)
	t.dropLocked()
	core.Unlock()
	if answer.Deleted == 0 && attempts == 1 { // Where there were more, an earlier one did it.
		return core.LostBy(t, lease.ErrForced)
	}
	return nil
}

// errSlow ends an attempt.
var errSlow = fmt.Errorf("no answer in a third of the lease: %w", context.DeadlineExceeded)

// delete is one attempt to delete a key. It ends in time for others before the lease does: that a member hangs is
// noticed by its connections later than that, and the next attempt goes to another one. As a spell it has no deadline.
func (c *Client) delete(ctx context.Context, key string) (*clientv3.DeleteResponse, error) {
	attempt, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer time.AfterFunc(c.opts.Lease/3, func() { end(errSlow) }).Stop()
	answer, err := c.etcd.Delete(attempt, key)
	if err != nil && context.Cause(attempt) == errSlow {
		err = errSlow
	}
	return answer, err
}
