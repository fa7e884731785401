package etcdlock

import (
	"context"
	"fmt"
	"math"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

// A Semaphore is the name of a number of permits, as one client sees it. It holds no state, and may be used by several
// goroutines at once.
type Semaphore struct {
	line  line
	limit int64
	key   any // finds its holds in a context
}

// MaxPermits is the largest number of permits, the same as package semaphore's.
const MaxPermits = 1<<53 - 1

// NewSemaphore names a semaphore of that many permits. Nothing is sent; what cannot be used is reported by the first call.
// All who use the name at a time have to state the same number: a call that finds another before it in the queue fails
// with [lease.ErrMismatch].
func NewSemaphore(c *Client, name string, permits int64, opts ...Option) *Semaphore {
	s := &Semaphore{c.line("semaphore", name, opts), permits, calls.Key(c, name)}
	s.line.shared = permits > 1
	switch {
	case s.line.Err != nil:
	case permits < 1:
		s.line.Err = fmt.Errorf("%w: a semaphore of %d permits", lease.ErrInvalid, permits)
	case permits > MaxPermits:
		s.line.Err = fmt.Errorf("%w: a semaphore of %d permits: at most %d are allowed", lease.ErrTooLarge, permits, int64(MaxPermits))
	}
	return s
}

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string { return s.line.Name }

// Acquire waits its turn for n permits and returns the lease on them.
//
// Calls are served in the order of the create revisions of their keys: a small request does not overtake a large one
// that waits. Errors are as with [Mutex.Lock]; more permits than there are is [lease.ErrTooLarge]. A look reads as
// many keys as there are permits, and one more, however many wait.
//
// With a context that comes from holds of the same semaphore, a request may be too large to be served before these end.
// It would wait for itself, so it fails at once with [lease.ErrDeadlock]. Any other request waits as if it came from elsewhere.
func (s *Semaphore) Acquire(ctx context.Context, n int64) (*lease.Lease, error) {
	l, err := s.acquire(ctx, n, false)
	return l, s.line.Failed(fmt.Sprintf("acquire %d of", n), err)
}

// TryAcquire returns the lease on n permits if n are free and nobody waits, and an error that wraps
// [lease.ErrBusy] otherwise. It leaves no trace when it fails.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (*lease.Lease, error) {
	l, err := s.acquire(ctx, n, true)
	return l, s.line.Failed(fmt.Sprintf("try acquire %d of", n), err)
}

func (s *Semaphore) acquire(ctx context.Context, n int64, try bool) (*lease.Lease, error) {
	switch {
	case s.line.Err != nil:
		return nil, s.line.Err
	case n < 1:
		return nil, fmt.Errorf("%w: %d permits", lease.ErrInvalid, n)
	case n > s.limit:
		return nil, fmt.Errorf("%w: %d permits of %d", lease.ErrTooLarge, n, s.limit)
	}
	calls.Given(ctx)
	if own := calls.Permits(ctx, s.key); !try && own > 0 && n > s.limit-own {
		return nil, fmt.Errorf("%w: %d permits of %d are asked for in addition to %d", lease.ErrDeadlock, n, s.limit, own)
	}
	var q queue = permits{&s.line, n, s.limit}
	if try {
		q = ifFit{permits{&s.line, n, s.limit}}
	}
	l, _, err := calls.Note(ctx, s.key, func(ctx context.Context) (*lease.Lease, int64, error) {
		l, err := s.line.acquire(ctx, q)
		return l, n, err
	})
	return l, err
}

// Do waits for n permits, calls f with the context of the hold, whose token [lease.Token] tells, and releases; see
// [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, n int64, f func(context.Context) error) error {
	return lease.Do(ctx, func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, n) }, f)
}

// Available returns how many permits nobody holds, at the moment of the answer.
func (s *Semaphore) Available(ctx context.Context) (int64, error) {
	info, _, err := s.read(ctx)
	if err != nil {
		return 0, s.line.Failed("available of", err)
	}
	return max(0, info.Limit-info.Used), nil
}

// Inspect tells who holds permits and who waits for some. It takes no place in any order.
func (s *Semaphore) Inspect(ctx context.Context) (lease.Info, error) {
	info, _, err := s.read(ctx)
	return info, s.line.Failed("inspect", err)
}

// read returns also the first keys of the line; those of the holders come first.
func (s *Semaphore) read(ctx context.Context) (lease.Info, []*mvccpb.KeyValue, error) {
	info := lease.Info{Limit: s.limit}
	keys, count, err := s.line.keys(ctx, min(s.limit, mostKeys)+inspectQueue)
	if err != nil {
		return info, nil, err
	}
	waits := false
	for _, kv := range keys {
		n, limit, client := parse(kv)
		if !waits && n <= limit-info.Used { // A sum may be more than a number holds.
			h := holderOf(&s.line, kv)
			h.Permits, h.Client, h.Who = n, client, client
			info.Holders = append(info.Holders, h)
			info.Used += n
			info.Token, info.Limit = h.Token, limit
			continue
		}
		waits = true
		if len(info.Queue) < inspectQueue {
			info.Queue = append(info.Queue, lease.Waiter{Client: client, Ticket: string(kv.Key[len(s.line.prefix):])})
		}
	}
	info.Waiting = int(count) - len(info.Holders)
	if info.Held = len(info.Holders) > 0; info.Held {
		info.Holder = info.Holders[0]
	}
	return info, keys, nil
}

// ForceRelease frees the permits that are held with a token, which Inspect tells, as [Mutex.ForceRelease] does. A token of
// 0 is [lease.ErrInvalid]: several may hold at once.
func (s *Semaphore) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	h, err := s.force(ctx, token)
	return h, s.line.Failed("force release", err)
}

func (s *Semaphore) force(ctx context.Context, token uint64) (lease.Holder, error) {
	if token == 0 {
		return lease.Holder{}, fmt.Errorf("%w: a token of 0, where several may hold: Inspect tells the token of each", lease.ErrInvalid)
	}
	info, keys, err := s.read(ctx)
	if err != nil {
		return lease.Holder{}, err
	}
	for i, h := range info.Holders {
		if h.Token == token {
			return h, s.line.remove(ctx, keys[i])
		}
	}
	return lease.Holder{}, lease.ErrNotHeld
}

// permits waits until it fits. A ticket holds when its permits and those of all keys created before it are not more than
// there are. What is before it only gets less, so who holds goes on to hold, and nothing but the order decides.
//
// Who is first of those that wait watches all keys for one that goes. Everybody else watches the key before the own,
// which goes, or is written once more when its ticket holds. So a release wakes one client, however many wait.
type permits struct {
	*line
	n, limit int64
}

// value is what a key of a semaphore holds.
func (q permits) value() string { return fmt.Sprintf("%d/%d %s", q.n, q.limit, q.client.who) }

// parse reads it. What is no such text counts as nothing.
func parse(kv *mvccpb.KeyValue) (n, limit int64, client string) {
	counts, client, _ := strings.Cut(string(kv.Value), " ")
	if _, err := fmt.Sscanf(counts, "%d/%d", &n, &limit); err != nil || n < 1 || n > limit || limit > MaxPermits {
		return 0, 1, string(kv.Value)
	}
	return n, limit, client
}

// mostKeys is more than any line has.
const mostKeys = math.MaxInt32

// decisive is how many keys decide, in their order: a ticket that comes later has more before it than there are permits.
func (q permits) decisive() int64 { return min(q.limit, mostKeys) + 1 }

// first reads these.
func (q permits) first() clientv3.Op {
	return clientv3.OpGet(q.prefix, clientv3.WithPrefix(), clientv3.WithLimit(q.decisive()),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
}

func (q permits) ask(ctx context.Context, t *ticket) (turn, error) {
	put := clientv3.OpPut(t.ID, q.value(), clientv3.WithLease(t.Session.id))
	answer, err := t.request(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return q.client.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(t.ID), "=", 0)).
			Then(put, q.first()).Commit()
	})
	if err != nil {
		return turn{}, err
	}
	if !answer.Succeeded {
		return q.line.looked(ctx, q, t) // The answer of an attempt before this one was lost on its way back.
	}
	t.setRevision(answer.Header.Revision)
	first := answer.Responses[1].GetResponseRange()
	now, found, err := q.judge(t, first.Kvs, answer.Header.Revision)
	if found || err != nil {
		return now, err
	}
	// Who comes so late asks once more, for the key to watch. To read that each time would keep all of the cluster
	// waiting, for it would be a part of the write.
	now, err = q.line.looked(ctx, q, t)
	now.ahead = int(first.Count) - 1
	return now, err
}

func (q permits) look(ctx context.Context, t *ticket) (turn, error) {
	if err := t.find(ctx); err != nil {
		return turn{}, err
	}
	answer, err := q.client.etcd.Txn(ctx).Then(q.first(), t.own(), t.before(q.prefix)).Commit()
	if err != nil {
		return turn{}, err
	}
	now, found, err := q.judge(t, answer.Responses[0].GetResponseRange().Kvs, answer.Header.Revision)
	if found || err != nil {
		return now, err
	}
	own, before := answer.Responses[1].GetResponseRange().Kvs, answer.Responses[2].GetResponseRange().Kvs
	if len(own) == 0 || own[0].CreateRevision != t.revision || len(before) == 0 {
		return turn{}, errGone
	}
	return turn{watch: string(before[0].Key), puts: true, ahead: -1, after: answer.Header.Revision}, nil
}

// agrees tells whether the number of permits is the first key's number, which counts: an error if it is not. A later key
// with another number is of a call that has failed for it and has yet to leave.
func (q permits) agrees(first []*mvccpb.KeyValue) error {
	for _, kv := range first {
		if n, limit, _ := parse(kv); n > 0 {
			if limit != q.limit {
				return fmt.Errorf("%w: it is in use with %d permits: state the same here, or wait until nobody uses it", lease.ErrMismatch, limit)
			}
			return nil
		}
	}
	return nil
}

// takes is how many permits a key takes. Nobody passes one with another number: should those before it leave first, its
// number would count.
func (q permits) takes(kv *mvccpb.KeyValue) int64 {
	n, limit, _ := parse(kv)
	if n > 0 && limit != q.limit {
		return q.limit + 1
	}
	return n
}

// judge tells how things stand for a ticket, if its key is among the first.
func (q permits) judge(t *ticket, first []*mvccpb.KeyValue, revision int64) (now turn, found bool, err error) {
	if err := q.agrees(first); err != nil {
		return turn{}, false, err
	}
	left, fits, before := q.limit, true, "" // A sum may be more than a number holds.
	for i, kv := range first {
		n := q.takes(kv)
		switch {
		case string(kv.Key) != t.ID || kv.CreateRevision != t.revision:
			before, fits = string(kv.Key), fits && n <= left
			left -= min(n, left)
		case fits && n <= left:
			return turn{held: true}, true, nil
		case fits:
			return turn{watch: q.prefix, below: true, ahead: i, after: revision}, true, nil
		default:
			return turn{watch: before, puts: true, ahead: i, after: revision}, true, nil
		}
	}
	return turn{}, false, nil
}

// got writes the key of a ticket that waited once more, for who watches it. If that comes to nothing, he looks by himself
// some time later.
func (q permits) got(t *ticket) {
	_ = q.client.core.Spawn(func() {
		_, _, _ = repeat(t.Ctx, q.client.limit(), func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return q.client.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(t.ID), "=", t.revision)).
				Then(clientv3.OpPut(t.ID, "", clientv3.WithIgnoreValue(), clientv3.WithIgnoreLease())).Commit()
		})
	})
}

// ifFit takes permits that nobody has and nobody waits for.
type ifFit struct{ permits }

func (q ifFit) ask(ctx context.Context, t *ticket) (turn, error) {
	for {
		keys, _, err := q.keys(ctx, q.decisive())
		if err != nil {
			return turn{}, err
		}
		if err := q.agrees(keys); err != nil {
			t.forget()
			return turn{}, err
		}
		left, fits, newest := q.limit-q.n, true, int64(0)
		for _, kv := range keys {
			n := q.takes(kv)
			fits, newest = fits && n <= left, kv.CreateRevision
			left -= min(n, left)
		}
		if !fits {
			t.forget()
			return turn{}, lease.ErrBusy
		}
		done, err := q.put(ctx, t, newest)
		if done || err != nil {
			return turn{held: true}, err
		}
	}
}

// put creates the key if none has been created since the newest that was seen. It returns false if one has.
func (q ifFit) put(ctx context.Context, t *ticket, newest int64) (bool, error) {
	answer, err := t.request(ctx, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return q.client.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(q.prefix), "<", newest+1).WithPrefix()).
			Then(clientv3.OpPut(t.ID, q.value(), clientv3.WithLease(t.Session.id))).
			Else(clientv3.OpGet(t.ID)).Commit()
	})
	if err != nil {
		return false, err
	}
	if answer.Succeeded {
		t.setRevision(answer.Header.Revision)
		return true, nil
	}
	own := answer.Responses[0].GetResponseRange().Kvs
	if len(own) > 0 {
		t.setRevision(own[0].CreateRevision) // The answer of an attempt before was lost.
	}
	return len(own) > 0, nil
}
