package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/lease"
)

// A Mutex is the name of a lock, as one client sees it. It holds no state, and may be used by several goroutines at
// once: they exclude each other.
type Mutex struct{ line line }

// New names a lock. Nothing is sent; a name or an option that cannot be used is reported by the first call.
func New(c *Client, name string, opts ...Option) *Mutex {
	return &Mutex{c.line("mutex", name, opts)}
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.line.Name }

// Lock waits its turn for m and returns the lease on it.
//
// Calls are served in the order of the create revisions of their keys, across all clients. If ctx ends first, Lock
// gives up its place and returns an error that wraps the context's and its cause ([lease.WaitError]). A call whose
// etcd lease runs out while it waits goes on at the end of the queue. The lease is renewed until it is released or lost;
// see [lease.Lease.Context]. Its Token is the create revision.
//
// With a context that comes from a hold of the same lock, Lock fails at once with [lease.ErrDeadlock].
func (m *Mutex) Lock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.lock(ctx, inOrder{&m.line})
	return l, m.line.Failed("lock", err)
}

// TryLock returns the lease on m if nobody holds it and nobody waits for it, and an error that wraps
// [lease.ErrBusy] otherwise: it never overtakes a waiter. It leaves no trace when it fails.
func (m *Mutex) TryLock(ctx context.Context) (*lease.Lease, error) {
	l, err := m.lock(ctx, ifFree{&m.line})
	return l, m.line.Failed("try lock", err)
}

func (m *Mutex) lock(ctx context.Context, q queue) (*lease.Lease, error) {
	if m.line.Own(ctx) {
		return nil, lease.ErrDeadlock
	}
	return m.line.acquire(ctx, q)
}

// Do waits for m, calls f with the context of the hold, whose token [lease.Token] tells, and releases. It returns what f
// returned, joined with the loss if the lock was lost before f came back: then f may have run while another client held.
//
// The context that f gets ends when the hold does and also when ctx does. Do releases even if f panics.
func (m *Mutex) Do(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.Lock, f)
}

// inOrder waits for the one key that was created before the own.
type inOrder struct{ *line }

func (q inOrder) ask(ctx context.Context, t *ticket) (turn, error) {
	var fresh []clientv3.Cmp
	if q.changes {
		// An attempt that comes late would set the value back. Where that never changes, a second put does nothing: the
		// key keeps the revision at which it was created. Not to compare saves a fortieth of a cycle.
		fresh = []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(t.ID), "=", 0)}
	}
	put := clientv3.OpPut(t.ID, q.value, clientv3.WithLease(t.Session.id))
	answer, err := t.request(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return q.client.etcd.Txn(ctx).If(fresh...).Then(q.newest, put).Commit()
	})
	if err != nil {
		return turn{}, err
	}
	if !answer.Succeeded || !t.sentOnce() {
		return q.line.looked(ctx, q, t) // The key may have been there before.
	}
	t.setRevision(answer.Header.Revision)
	ahead := answer.Responses[0].GetResponseRange()
	if len(ahead.Kvs) == 0 {
		return turn{held: true}, nil
	}
	return turn{watch: string(ahead.Kvs[0].Key), ahead: int(ahead.Count), after: answer.Header.Revision}, nil
}

func (q inOrder) look(ctx context.Context, t *ticket) (turn, error) {
	if err := t.find(ctx); err != nil {
		return turn{}, err
	}
	answer, err := q.client.etcd.Txn(ctx).Then(t.own(), t.before(q.prefix)).Commit()
	if err != nil {
		return turn{}, err
	}
	own, ahead := answer.Responses[0].GetResponseRange().Kvs, answer.Responses[1].GetResponseRange().Kvs
	if len(own) == 0 || own[0].CreateRevision != t.revision {
		return turn{}, errGone
	}
	if len(ahead) == 0 {
		return turn{held: true}, nil
	}
	return turn{watch: string(ahead[0].Key), ahead: -1, after: answer.Header.Revision}, nil
}

func (inOrder) got(*ticket) {}

// ifFree takes what nobody has and nobody waits for.
type ifFree struct{ *line }

func (q ifFree) ask(ctx context.Context, t *ticket) (turn, error) {
	answer, err := t.request(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return q.client.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(q.prefix), "=", 0).WithPrefix()).
			Then(clientv3.OpPut(t.ID, q.value, clientv3.WithLease(t.Session.id))).
			Else(clientv3.OpGet(t.ID)).Commit()
	})
	if err != nil {
		return turn{}, err
	}
	if answer.Succeeded {
		t.setRevision(answer.Header.Revision)
		return turn{held: true}, nil
	}
	if own := answer.Responses[0].GetResponseRange().Kvs; len(own) > 0 {
		t.setRevision(own[0].CreateRevision) // The answer of an attempt before was lost.
		return turn{held: true}, nil
	}
	t.forget()
	return turn{}, lease.ErrBusy
}

func (q ifFree) look(context.Context, *ticket) (turn, error) { return turn{}, lease.ErrBusy }
func (ifFree) got(*ticket)                                   {}
