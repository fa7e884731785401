// Package barrier is a cyclic barrier between processes: a number of parties wait for each other, go on together, and may
// meet again.
//
// Each meeting is a generation. It takes in exactly as many arrivals as there are parties, and ends in one of
// two ways, the same for all of them: it trips, when the last has come and the action is done; or it is broken,
// because one of them gave up, died, or the action failed. A broken barrier stays broken until Reset. The place
// of a party that waits has a lease, which its client prolongs: it is how soon the others learn of its death.
//
// How waits survive lost messages and broken connections is explained in package waitqueue.
package barrier

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// MaxParties is the largest number of parties: the scripts do work for each of them.
const MaxParties = 10_000

// DefaultLifetime is for how long the state of a barrier outlives its last use where [WithLifetime] does not
// say otherwise.
const DefaultLifetime = 24 * time.Hour

// resetFor is how long a Reset is repeated that is not answered. The server remembers it for a minute more.
const resetFor = 5 * time.Minute

// ErrBroken: the barrier is broken. A party gave up or died, the action failed, somebody called Reset, or the
// server has lost its state. A party whose replies are lost while the others go on to the generation after the
// next gets it too: what became of it is not known any more.
var ErrBroken = errors.New("the barrier is broken")

// errForgotten: it cannot be known what became of a party.
var errForgotten = fmt.Errorf("%w: the server knows nothing of this party any more", ErrBroken)

// A Barrier is the name of a barrier, as one client sees it. It holds no state, and may be used by several
// goroutines at once.
type Barrier struct {
	own
	queue   waitqueue.Queue
	parties int
	terms   waitqueue.Terms
	err     error // why it cannot be used
}

// Option sets how a [Barrier] behaves: [headwaiter.WithLease], [WithAction] and [WithLifetime].
type Option interface{ option.Barrier }

// own are the options of this package.
type own struct {
	action   func(context.Context) error
	lifetime time.Duration
}

// WithAction sets what the last party to arrive runs before the others go on. They wait for it; if it returns
// an error or panics, the barrier is broken, and Await returns the error to that party. Its context ends
// with the context of the call, and if the barrier is broken meanwhile.
func WithAction(action func(context.Context) error) Option {
	return option.Set(func(o *own) { o.action = action })
}

// WithLifetime sets for how long the state of the barrier, a broken one's above all, outlives its last use,
// from a minute to a year. The default is [DefaultLifetime].
func WithLifetime(d time.Duration) Option {
	return option.Set(func(o *own) { o.lifetime = d })
}

// New names a barrier and states how many parties meet there, from 1 to [MaxParties]. Nothing is sent; what
// cannot be used is reported by the first call. The first client that uses the barrier makes it; one that
// states another number then gets an error that wraps [lease.ErrMismatch].
func New(c *headwaiter.Client, name string, parties int, opts ...Option) *Barrier {
	b := &Barrier{own: option.Apply(own{lifetime: DefaultLifetime}, opts), parties: parties, terms: waitqueue.With(opts)}
	b.queue = (*waitqueue.Client)(c).Queue(lua.Barrier, name, b.terms).For(wire.Party, 1).
		Says(waitqueue.Verdicts{wire.Broken: ErrBroken, wire.Refused: errForgotten})
	switch {
	case parties < 1:
		b.err = fmt.Errorf("%w: a barrier of %d parties: at least 1 is needed", lease.ErrInvalid, parties)
	case parties > MaxParties:
		b.err = fmt.Errorf("%w: a barrier of %d parties: at most %d are possible", lease.ErrTooLarge, parties, MaxParties)
	default:
		b.err = waitqueue.CheckLifetime(b.lifetime)
	}
	return b
}

// Name returns the name of the barrier.
func (b *Barrier) Name() string { return b.queue.Name() }

// Parties returns how many meet.
func (b *Barrier) Parties() int { return b.parties }

// Await waits until all parties have come, and returns the place of this one: Parties()-1 for the first to come, 0 for
// the last, as Java's CyclicBarrier does.
//
// If ctx ends first, Await returns an error that wraps the error and the cause of ctx. This breaks the barrier: the
// other parties return [ErrBroken], and so does every call until a Reset. If the last party comes at that very moment,
// the others may pass instead. If a party dies while it waits, the others return ErrBroken when its lease has ended.
//
// If ctx ends before Redis has answered, the call may still arrive: within three seconds, or within a minute where
// Redis was late before. It breaks the barrier when it arrives. So wait that long before a Reset. Otherwise the call
// may arrive after the Reset, and count as a party of the new generation until the client has taken it back.
//
// A generation takes as many calls as there are parties; a further call belongs to the next one. Calls that come while
// an action runs wait for its end, in no order. With an error that wraps [lease.ErrOutcomeUnknown] the action has run,
// but it is not known whether the others have passed.
func (b *Barrier) Await(ctx context.Context) (index int, err error) {
	if b.err != nil {
		return 0, b.wrap("await", b.err)
	}
	act := "0"
	if b.action != nil {
		act = "1"
	}
	index, err = b.queue.Await(ctx, waitqueue.Event{
		Extras: func(since, seen string) []string {
			lifetime := strconv.FormatInt(b.lifetime.Milliseconds(), 10)
			return []string{strconv.Itoa(b.parties), act, since, lifetime, seen}
		},
		Act:  b.action,
		Open: lua.BarrierOpen,
	})
	if err != nil {
		return 0, b.wrap("await", err)
	}
	return index, nil
}

// Reset breaks the barrier for its waiters, if there are any, and lets it begin anew. With [lease.ErrUnwoken] it
// has done so, and the waiters find out by themselves.
func (b *Barrier) Reset(ctx context.Context) error {
	if b.err != nil {
		return b.wrap("reset", b.err)
	}
	r, err := waitqueue.Call(ctx, b.queue, lua.BarrierReset, resetFor, func(waitqueue.Attempt) []string { return nil })
	if err == nil && r.Has(wire.Unwoken) {
		err = b.queue.Unwoken()
	}
	return b.wrap("reset", err)
}

// Broken reports whether the barrier is broken, also by a party whose lease is over.
func (b *Barrier) Broken(ctx context.Context) (bool, error) {
	info, err := b.Inspect(ctx)
	return info.State == wire.StateBroken, err
}

// Waiting returns how many parties wait.
func (b *Barrier) Waiting(ctx context.Context) (int, error) {
	info, err := b.Inspect(ctx)
	return info.Waiting, err
}

// Inspect tells who has come, and whether the barrier is broken. It changes nothing.
func (b *Barrier) Inspect(ctx context.Context) (lease.Info, error) {
	if b.err != nil {
		return lease.Info{}, b.wrap("inspect", b.err)
	}
	info, err := b.queue.Inspect(ctx)
	return info, b.wrap("inspect", err)
}

func (b *Barrier) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("barrier: %s %q: %w", verb, b.queue.Label(), err)
}
