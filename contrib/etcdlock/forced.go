package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

// ForceRelease frees m whoever holds it; the next in the queue holds. The holder's client is told at once: the hold's
// context ends with the cause [lease.ErrForced]. Until it has heard it may still act as the holder, so what the lock
// protects should look at fencing tokens.
//
// A token other than 0 limits this to the hold with that token. It returns what it freed, and [lease.ErrNotHeld] if
// there was nothing to free.
func (m *Mutex) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	w, err := m.line.force(ctx, token)
	return w, m.line.Failed("force release", err)
}

func (l *line) force(ctx context.Context, token uint64) (lease.Holder, error) {
	keys, _, err := l.keys(ctx, 1)
	if err != nil {
		return lease.Holder{}, err
	}
	switch {
	case len(keys) == 0:
		return lease.Holder{}, lease.ErrNotHeld
	case token != 0 && uint64(keys[0].CreateRevision) != token:
		return lease.Holder{}, fmt.Errorf("%w: it has %d", lease.ErrOtherToken, keys[0].CreateRevision)
	}
	freed := holderOf(l, keys[0])
	if err := l.remove(ctx, keys[0]); err != nil {
		return lease.Holder{}, err
	}
	return freed, nil
}

// remove takes a key away, whosever it is, and leaves its client a notice.
func (l *line) remove(ctx context.Context, kv *mvccpb.KeyValue) error {
	c, key, id := l.client, string(kv.Key), clientv3.LeaseID(kv.Lease)
	notice := clientv3.OpPut(c.notice(id), told(kv.CreateRevision, key), clientv3.WithLease(id))
	ctx = clientv3.WithRequireLeader(ctx)
	answer, err := c.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", kv.CreateRevision)).
		Then(clientv3.OpDelete(key), notice).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) || code(err) == codes.PermissionDenied {
		// Without a notice it is found a little later.
		answer, err = c.remove(ctx, key, kv.CreateRevision)
	}
	switch {
	case leaseGone(err):
		return lease.ErrNotHeld // The key went with its lease.
	case err != nil:
		return fmt.Errorf("it may have been freed or not: %w", err)
	case !answer.Succeeded:
		return lease.ErrNotHeld
	}
	return nil
}

// remove deletes a key of whomever, if it is still the one of that revision.
func (c *Client) remove(ctx context.Context, key string, revision int64) (*clientv3.TxnResponse, error) {
	return c.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", revision)).Then(clientv3.OpDelete(key)).Commit()
}

// notice is where the client with an etcd lease is told which of its keys was taken away.
func (c *Client) notice(id clientv3.LeaseID) string {
	return fmt.Sprintf("%snotice/%x", c.opts.Prefix, id)
}

// told is what the notice says: at which revision the key was created, a space, and the key.
func told(revision int64, key string) string { return fmt.Sprintf("%d %s", revision, key) }

// listen watches for notices until the session ends. What it misses, the next look at the lease finds: after a break it
// begins where it was, unless that is compacted.
func (s *session) listen(from int64) {
	c := s.client
	for tries := 0; calls.Rest(s.Ctx, calls.Backoff(tries)) == nil; tries++ {
		w, err := c.watch(c.notice(s.id), clientv3.WithRev(from), clientv3.WithFilterDelete())
		if err != nil {
			return // The client closes.
		}
		for answer := range w.answers(s.Ctx) {
			from = max(from, answer.CompactRevision)
			for _, event := range answer.Events {
				from, tries = event.Kv.ModRevision+1, 0
				s.heard(string(event.Kv.Value))
			}
		}
	}
}

// heard ends the hold that a notice names, and removes the notice; if this fails, a look at the lease does it.
func (s *session) heard(notice string) {
	c := s.client
	created, key, _ := strings.Cut(notice, " ")
	if revision, err := strconv.ParseInt(created, 10, 64); err == nil {
		c.core.Lock()
		if t := c.core.Tickets[key]; t != nil && t.Session == s {
			t.oustLocked(revision)
		}
		c.core.Unlock()
	}
	ctx, cancel := context.WithTimeout(s.Ctx, c.limit())
	defer cancel()
	_, _ = c.etcd.Delete(ctx, c.notice(s.id))
}

// oustLocked tells that the key of a revision is gone, which may have been an earlier one of the same name.
func (t *ticket) oustLocked(revision int64) {
	switch t.revision {
	case 0:
		t.ousted = revision // The answer that tells of the own is on its way.
	case revision:
		t.missedLocked()
	}
}
