package etcdlock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

// An Election is the name of an election, as one client sees it. It may be used by several goroutines at once.
type Election struct{ line line }

// NewElection names an election. Nothing is sent; what cannot be used is reported by the first call.
func NewElection(c *Client, name string, opts ...Option) *Election {
	return &Election{c.line("election", name, opts)}
}

// Name returns the name of the election.
func (e *Election) Name() string { return e.line.Name }

// Campaign waits its turn and returns the leadership, with value proclaimed from its first moment on.
//
// Candidates lead in the order of the create revisions of their keys. The lease's context ends before another can lead;
// its Token is the create revision. Release resigns. Errors are as with [Mutex.Lock].
func (e *Election) Campaign(ctx context.Context, value string) (*lease.Lease, error) {
	l, err := e.campaign(ctx, value)
	return l, e.line.Failed("campaign", err)
}

func (e *Election) campaign(ctx context.Context, value string) (*lease.Lease, error) {
	if err := checkValue(value); err != nil {
		return nil, err
	}
	if e.line.Own(ctx) {
		return nil, lease.ErrDeadlock
	}
	candidate := e.line
	candidate.value, candidate.changes = e.line.told(value), true
	return candidate.acquire(ctx, inOrder{&candidate})
}

func checkValue(value string) error {
	if len(value) > lease.MaxValue {
		return fmt.Errorf("%w: a value of %d bytes, at most %d are allowed", lease.ErrTooLarge, len(value), lease.MaxValue)
	}
	return nil
}

// told is what the key of a candidate holds: who it is, which has no line feed, and what it proclaims.
func (l *line) told(value string) string { return l.client.who + "\n" + value }

func leaderOf(kv *mvccpb.KeyValue) lease.Leader {
	who, value, _ := strings.Cut(string(kv.Value), "\n")
	return lease.Leader{Value: value, Token: uint64(kv.CreateRevision), Who: who}
}

// Proclaim changes the value of the leader that holds l.
//
// It takes effect only while the leader's key is there, and a request that was given up never replaces a later one: each
// says on which revision of the key it follows. Where the key is gone the lease's context ends too, and the error is a
// [lease.ErrLost]. One that wraps [lease.ErrOutcomeUnknown] means that the value may be proclaimed or not.
func (e *Election) Proclaim(ctx context.Context, l *lease.Lease, value string) error {
	err := checkValue(value)
	if err == nil {
		err = e.proclaim(ctx, l, value)
	}
	return e.line.Failed("proclaim", err)
}

func (e *Election) proclaim(ctx context.Context, l *lease.Lease, value string) error {
	calls.Given(ctx)
	t := e.line.ticketOf(l)
	if l != nil && l.Context().Err() != nil {
		return context.Cause(l.Context())
	}
	if t == nil {
		return fmt.Errorf("%w: the lease is one of another name", lease.ErrNotHeld)
	}
	during, cancel := t.during(ctx)
	defer cancel()
	defer context.AfterFunc(l.Context(), cancel)()
	var sent atomic.Int64
	done, _, err := repeat(during, e.line.client.limit(), func(ctx context.Context) (bool, error) {
		return t.write(ctx, e.line.told(value), &sent)
	})
	switch {
	case err == nil && done:
		return nil
	case err == nil:
		t.missed()
		return context.Cause(l.Context())
	case l.Context().Err() != nil:
		err = context.Cause(l.Context())
	case ctx.Err() != nil:
		err = calls.WhyEnded(ctx)
	}
	if sent.Load() != 0 {
		err = fmt.Errorf("%w: %w", lease.ErrOutcomeUnknown, err)
	}
	return err
}

// write puts a value into the ticket's key, and returns false if that is gone. sent is the
// revision which the last attempt of the call wanted the key to have, and 0 ahead of the first: since then one may have had
// its effect.
func (t *ticket) write(ctx context.Context, value string, sent *atomic.Int64) (bool, error) {
	etcd := t.client.etcd
	for {
		found, err := etcd.Get(ctx, t.ID)
		if err != nil {
			return false, err
		}
		if len(found.Kvs) == 0 || found.Kvs[0].CreateRevision != t.revision {
			return false, nil
		}
		at := found.Kvs[0].ModRevision
		if before := sent.Load(); before != 0 && at > before && string(found.Kvs[0].Value) == value {
			return true, nil // An attempt before this one. Else it is written anew: what is late must find another revision.
		}
		sent.Store(at)
		answer, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(t.ID), "=", at)).
			Then(clientv3.OpPut(t.ID, value, clientv3.WithIgnoreLease())).Commit()
		if err != nil || answer.Succeeded {
			return err == nil, err
		}
	}
}

// ticketOf returns the ticket of a lease on the name, if it has not ended.
func (l *line) ticketOf(of *lease.Lease) *ticket {
	c := l.client
	c.core.Lock()
	defer c.core.Unlock()
	for _, t := range c.core.Tickets {
		if t.Grip.Keeper != nil && (*lease.Lease)(t.Grip.Keeper) == of && t.Root == l.prefix {
			return t
		}
	}
	return nil
}

// Leader returns who leads, or [lease.ErrNoLeader]. The answer is of the moment. Since when is not told: etcd keeps no
// times.
func (e *Election) Leader(ctx context.Context) (lease.Leader, error) {
	l, _, err := e.look(ctx)
	if err == nil && l.Token == 0 {
		err = lease.ErrNoLeader
	}
	return l, e.line.Failed("leader", err)
}

// look tells who leads, and in which revision.
func (e *Election) look(ctx context.Context) (lease.Leader, int64, error) {
	if err := e.line.usable(ctx); err != nil {
		return lease.Leader{}, 0, err
	}
	answer, err := ask(ctx, e.line.client, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return e.line.client.etcd.Get(ctx, e.line.prefix, clientv3.WithFirstCreate()...)
	})
	if err != nil {
		return lease.Leader{}, 0, err
	}
	if len(answer.Kvs) == 0 {
		return lease.Leader{}, answer.Header.Revision, nil
	}
	return leaderOf(answer.Kvs[0]), answer.Header.Revision, nil
}

// Observe returns a channel of who leads: at first who does now, then each change, be it of the leader or of its value.
// Nobody is the zero Leader.
//
// The channel keeps the newest alone: a slow receiver misses what is over, and never the last. It is closed when ctx
// ends. Where the client is closed, or etcd has an error that no retry mends, the last Leader says so in Err.
func (e *Election) Observe(ctx context.Context) <-chan lease.Leader {
	calls.Given(ctx)
	news := make(chan lease.Leader, 1)
	err := e.line.client.core.Spawn(func() {
		defer close(news)
		e.observe(ctx, news)
	})
	if err != nil {
		news <- e.over(err)
		close(news)
	}
	return news
}

func (e *Election) over(err error) lease.Leader {
	return lease.Leader{Err: e.line.Failed("observe", err)}
}

func (e *Election) observe(ctx context.Context, news chan lease.Leader) {
	c := e.line.client
	during, cancel := context.WithCancel(c.core.Life)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	var last lease.Leader
	for first := true; ; first = false {
		now, revision, err := e.look(during)
		switch {
		case ctx.Err() != nil:
			return
		case c.core.Life.Err() != nil:
			replace(news, e.over(lease.ErrClosed))
			return
		case err != nil:
			replace(news, e.over(err))
			return
		}
		if first || now != last {
			replace(news, now)
			last = now
		}
		e.change(during, now, revision)
	}
}

// change waits until there may be another leader, or value.
func (e *Election) change(ctx context.Context, now lease.Leader, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, observeDoubt)
	defer cancel()
	w, err := e.line.client.watch(e.line.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1))
	if err != nil {
		return // The client closes, and the next look says so.
	}
	for answer := range w.answers(ctx) {
		if slices.ContainsFunc(answer.Events, func(e *clientv3.Event) bool { return counts(e, now) }) {
			return
		}
	}
	// The watch ended: a compaction, a member without leader, or nothing for a long time.
	_ = calls.Rest(ctx, calls.FirstBackoff)
}

// counts reports whether an event may change who leads, or the value. One that comes while somebody leads changes nothing.
func counts(e *clientv3.Event, now lease.Leader) bool {
	return e.Type == mvccpb.Event_DELETE || now.Token == 0 || uint64(e.Kv.CreateRevision) == now.Token
}

// observeDoubt is after how long an observer looks though there was no event.
const observeDoubt = time.Minute

// replace puts the newest into the channel, instead of what was not received. It is the only sender.
func replace(news chan lease.Leader, l lease.Leader) {
	for {
		select {
		case news <- l:
			return
		default:
		}
		select {
		case <-news:
		default:
		}
	}
}

// ForceRelease ends the leadership, as [Mutex.ForceRelease] does.
func (e *Election) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	w, err := e.line.force(ctx, token)
	return w, e.line.Failed("force release", err)
}
