// Package multilock takes several locks at once: all or none.
//
// The locks are those of package fairlock with the same names, so a multilock and a fairlock of one name exclude each
// other. Outside a cluster all names are asked for in one script, which takes all if all are free and nobody waits,
// and else takes what is free and keeps a place in the queues of the rest: two multilocks stand in the same order in all the queues that they have in
// common, so they cannot wait for each other in a circle. In a cluster that holds for the names of one slot; slots
// are gone through in their order.
//
// What one queue grants before the others do is held for a bounded time ([WithBound]). Then it is given back, and
// taken up again, at its old place and so at the head of its queue, when one of the others is there. So is what is lost
// meanwhile, by its maximum or by force: what a call returns is held. Nobody else waits for a lock that is held for
// nothing for longer than that, or than the two seconds after which a node counts as silent. The price: where every holder of two locks keeps them for
// longer than the bound, a multilock of both may have to try several times.
package multilock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// MaxNames is how many names one lock may have: one script works on all of them.
const MaxNames = 128

// Option sets how a [Lock] is asked for and held. It takes all options of package headwaiter except WithQueueLimit, for each of
// the names, and [WithBound].
type Option interface{ option.Multilock }

// bound is for how long a call holds some of the names.
type bound time.Duration

// WithBound sets for how long a call holds some of the names while it waits for others, at the most; from 1 ms on. It
// should be many round trips: a name that is given back and taken up again costs several. The default is
// a second, or the maximum of [headwaiter.WithMaxHold] where that is less.
func WithBound(d time.Duration) Option { return option.Set(func(b *bound) { *b = bound(d) }) }

// A Lock is several names, as one client sees them. It holds no state, and may be used by several goroutines at once.
type Lock struct {
	queues []waitqueue.Queue
	bound  time.Duration
	err    error
}

// New names a lock on all of the names. A name that is there twice counts once. Nothing is sent; what cannot be used
// is reported by the first call.
func New(c *headwaiter.Client, names []string, opts ...Option) *Lock {
	m := &Lock{bound: time.Duration(option.Apply(bound(waitqueue.DefaultBound), opts))}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	switch {
	case len(names) == 0:
		m.err = fmt.Errorf("%w: no names", lease.ErrInvalid)
	case len(names) > MaxNames:
		m.err = fmt.Errorf("%w: %d names, at most %d are possible", lease.ErrTooLarge, len(names), MaxNames)
	case m.bound < time.Millisecond:
		m.err = fmt.Errorf("%w: a bound of %v must be 1ms at least", lease.ErrInvalid, m.bound)
	}
	for _, name := range names {
		m.queues = append(m.queues, (*waitqueue.Client)(c).Queue(lua.Fairlock, name, waitqueue.With(opts)))
	}
	return m
}

// Names returns the names, sorted, each once.
func (m *Lock) Names() []string {
	names := make([]string, len(m.queues))
	for i, q := range m.queues {
		names[i] = q.Name()
	}
	return names
}

// Lock waits its turn for all names and returns one lease on all of them: its context ends when one of them is lost,
// and its Release gives all of them back, in one script for those of a slot. Its token is the highest of theirs, so it
// is above those of all earlier holds of each name, and Release raises the names' own to it: a resource guarded by any of
// them may look at it. In a cluster a hold that is lost raises none: after it a name's next token is higher if the clocks
// of the nodes differ by less than the time since the grant.
//
// If ctx ends first, Lock gives up all its places and returns an error that wraps the context's and its cause. With a
// context that comes from a hold of one of the names it fails at once with [lease.ErrDeadlock].
func (m *Lock) Lock(ctx context.Context) (*lease.Lease, error) {
	var l *lease.Lease
	err := m.err
	if err == nil {
		l, err = waitqueue.AcquireAll(ctx, m.queues, m.bound)
	}
	if err != nil {
		return nil, fmt.Errorf("multilock: lock %s: %w", waitqueue.Labels(m.queues), err)
	}
	return l, nil
}

// TryLock returns the lease on all names if nobody holds or waits for any of them, and an error that wraps
// [lease.ErrBusy] otherwise. It leaves no trace when it fails.
func (m *Lock) TryLock(ctx context.Context) (*lease.Lease, error) {
	var l *lease.Lease
	err := m.err
	if err == nil {
		l, err = waitqueue.TryAll(ctx, m.queues)
	}
	if err != nil {
		return nil, fmt.Errorf("multilock: try lock %s: %w", waitqueue.Labels(m.queues), err)
	}
	return l, nil
}

// ForceRelease frees the hold with a token on that one of the names which it is the token of; the token of a lease on all is
// one of them. The lease is lost with it: its context ends with the cause [lease.ErrForced], and its client gives the other
// names back, which rest with [headwaiter.WithMinHold]. A hold that is over and rests is one hold for each name: free them
// one by one, by the tokens that Inspect of package fairlock tells. It returns what it freed; a token of 0 is
// [lease.ErrInvalid].
//
// The holder is told at once if it has held for 250 ms, else by its next renewal, and may
// act until then. [lease.ErrNotHeld]: nobody held with that token. [lease.ErrUnwoken]: it is free, and the waiters find that
// out by themselves.
func (m *Lock) ForceRelease(ctx context.Context, token uint64) (lease.Holder, error) {
	freed, err := lease.Holder{}, m.err
	if err == nil && token == 0 {
		err = fmt.Errorf("%w: a token of 0, where several names may be held: Inspect of each tells its token", lease.ErrInvalid)
	}
	if err == nil {
		freed, err = m.force(ctx, token)
	}
	if err != nil {
		return freed, fmt.Errorf("multilock: force release %s: %w", waitqueue.Labels(m.queues), err)
	}
	return freed, nil
}

// force tries one name after the other. Tokens of different names may be the same by chance; the first is freed.
func (m *Lock) force(ctx context.Context, token uint64) (lease.Holder, error) {
	for _, q := range m.queues {
		freed, err := q.ForceRelease(ctx, token)
		if err == nil || !errors.Is(err, lease.ErrNotHeld) && !errors.Is(err, lease.ErrOtherToken) {
			return freed, err
		}
	}
	return lease.Holder{}, lease.ErrNotHeld
}

// Do waits for all names, calls f with the context of the hold, whose token [lease.Token] tells, and releases, also if f
// panics. It returns what f returned, joined with the loss if one of the names was lost before f came back. The release is
// waited for also where ctx has ended: from a server that does not answer, until two seconds after the lease is over.
func (m *Lock) Do(ctx context.Context, f func(context.Context) error) error {
	return lease.Do(ctx, m.Lock, f)
}
