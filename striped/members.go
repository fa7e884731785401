package striped

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// permitsEach tells numbers of stripes apart: a semaphore for n stripes has n times as many permits. That is more
// than there are clients, so nobody waits for one; the number of the client that made it counts,
// which tells the stripes apart.
const permitsEach = 1_000_000

// members is a client's statement of how many stripes a name has.
type members struct {
	key     memberKey
	stripes int
	permits *semaphore.Semaphore
}

// memberKey says whose statement it is, and about what: one for all that a client makes of a name, as that may be
// one for each call.
type memberKey struct {
	client *headwaiter.Client
	name   string
}

// member is the permit that a client has.
type member struct {
	stripes int
	permit  *lease.Lease
}

// joined has the members of this process. A permit that ends, with its client at the latest, takes itself out.
var joined sync.Map // of member, by memberKey

func membersOf(c *headwaiter.Client, name string, stripes int, opts []Option) members {
	locks, t := waitqueue.With(opts), waitqueue.DefaultTerms()
	// Twice: a permit then always has more than a lease of a lock left, also just before it is renewed, if all that
	// the client makes of the name have leases of one length.
	t.Lease = min(2*max(locks.Lease, lease.DefaultLease), lease.MaxLease)
	t.Fixed = true  // Another number is another set of locks.
	t.Untold = true // A permit lasts as long as its client, and is no hold of the caller's.
	t.Replicas, t.ReplicasTimeout, t.OnDisk, t.SafeRestart = locks.Replicas, locks.ReplicasTimeout, locks.OnDisk, locks.SafeRestart
	exactly := option.Set(func(of *waitqueue.Terms) { *of = t })
	return members{memberKey{c, name}, stripes, semaphore.New(c, name+":stripes", int64(stripes)*permitsEach, exactly)}
}

// join sees to it that the client has a permit that says how many stripes there are. A try does not wait for it.
func (m members) join(ctx context.Context, try bool) error {
	if found, ok := joined.Load(m.key); ok {
		if x := found.(member); x.permit.Context().Err() == nil {
			return m.agrees(x.stripes)
		}
	}
	take := m.permits.Acquire
	if try {
		take = m.permits.TryAcquire
	}
	permit, err := take(valueless{ctx}, 1)
	err = cmp.Or(errors.Unwrap(err), err) // Without what package semaphore puts before it: the caller has asked for a lock.
	if errors.Is(err, lease.ErrMismatch) {
		return m.mismatch(ctx, err)
	}
	if err != nil {
		return caused(ctx, err)
	}
	mine := member{m.stripes, permit}
	for {
		found, there := joined.LoadOrStore(m.key, mine)
		if !there {
			break
		}
		if x := found.(member); x.permit.Context().Err() == nil {
			// Another call was first. One permit is enough; if the other cannot be given back, it ends with the client.
			_ = permit.Release(ctx)
			return m.agrees(x.stripes)
		}
		joined.CompareAndDelete(m.key, found)
	}
	context.AfterFunc(permit.Context(), func() { joined.CompareAndDelete(m.key, mine) })
	return nil
}

func (m members) agrees(stripes int) error {
	if stripes == m.stripes {
		return nil
	}
	return fmt.Errorf("%w: %d stripes here, %d elsewhere: all have to use the same number; to change it, see package striped", lease.ErrMismatch, m.stripes, stripes)
}

// mismatch is what it means that another number counts, with that number if it can be had.
func (m members) mismatch(ctx context.Context, err error) error {
	info, asked := m.permits.Inspect(ctx)
	if asked != nil || info.Limit%permitsEach != 0 || info.Limit == int64(m.stripes)*permitsEach {
		return fmt.Errorf("%d stripes here, another number elsewhere: %w", m.stripes, err)
	}
	return m.agrees(int(info.Limit / permitsEach))
}

// caused adds the cause of ctx, if it has ended: a context without values does not tell it.
func caused(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// valueless is a context without its values, which a permit would keep for as long as its client lives.
type valueless struct{ context.Context }

func (valueless) Value(any) any { return nil }
