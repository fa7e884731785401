// Package countdown is a latch between processes: it is set to a count, each CountDown takes one off, and when
// nothing is left all who wait go on.
//
// Waiters have no order and hold nothing; each client hears of the opening by one message, however
// many of its calls wait. How waits survive lost messages and broken connections is explained in package
// waitqueue.
package countdown

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// MaxCount is the largest count: what Lua can count.
const MaxCount = 1<<53 - 1

// DefaultLifetime is for how long a latch outlives its last use where [WithLifetime] does not say otherwise.
const DefaultLifetime = 24 * time.Hour

// repeatFor is how long a change is repeated that is not answered. The server remembers for a minute more that it
// has counted.
const repeatFor = 5 * time.Minute

var (
	// ErrUnset: nobody has set the latch, or it was forgotten after its lifetime, or removed.
	ErrUnset = errors.New("the latch is not set")
	// ErrGone: the latch that the call waited for is not there any more and was not seen open. It was removed,
	// or the server has lost its state.
	ErrGone = errors.New("the latch is gone")
)

// A Latch is the name of a latch, as one client sees it. It holds no state, and may be used by several
// goroutines at once.
type Latch struct {
	own
	queue   waitqueue.Queue
	maxWait time.Duration
	err     error // why it cannot be used
}

// Option sets how a [Latch] behaves: [headwaiter.WithMaxWait], [WithEarlyWait] and [WithLifetime].
type Option interface{ option.Countdown }

// own are the options of this package.
type own struct {
	lifetime time.Duration
	early    bool // Wait may come before the latch is set
}

// WithLifetime sets for how long a latch that this client sets outlives its last use, from a minute to a year:
// also an open one is there for so long, for late callers. The default is [DefaultLifetime].
func WithLifetime(d time.Duration) Option {
	return option.Set(func(o *own) { o.lifetime = d })
}

// WithEarlyWait lets Wait come before anybody has set the latch. Wait then waits for the first [Latch.TrySetCount], and
// until that count is at 0. Until then CountDown and Count are ErrUnset as before. The early wait is forgotten after
// the lifetime that this client states, unless a call waits.
func WithEarlyWait() Option { return option.Set(func(o *own) { o.early = true }) }

// New names a latch. Nothing is sent; a name or an option that cannot be used is reported by the first call.
func New(c *headwaiter.Client, name string, opts ...Option) *Latch {
	l := &Latch{own: option.Apply(own{lifetime: DefaultLifetime}, opts), maxWait: waitqueue.With(opts).MaxWait}
	l.queue = (*waitqueue.Client)(c).Queue(lua.Countdown, name, waitqueue.DefaultTerms()).For(wire.Party, 1).
		Says(waitqueue.Verdicts{wire.Unset: ErrUnset, wire.Refused: ErrGone, wire.Broken: ErrGone})
	l.err = waitqueue.CheckLifetime(l.lifetime)
	return l
}

// Name returns the name of the latch.
func (l *Latch) Name() string { return l.queue.Name() }

// TrySetCount sets the latch to n, which must be at least 1, and reports whether it did: not if it is closed already.
// Unlike Java's, an open latch can be set again, and none begins open. Calls that waited for the earlier opening pass
// all the same.
func (l *Latch) TrySetCount(ctx context.Context, n int64) (bool, error) {
	err := l.err
	switch {
	case err != nil:
	case n < 1:
		err = fmt.Errorf("%w: a count of %d: at least 1 is needed", lease.ErrInvalid, n)
	case n > MaxCount:
		err = fmt.Errorf("%w: a count of %d: at most %d can be counted", lease.ErrTooLarge, n, int64(MaxCount))
	}
	if err != nil {
		return false, l.wrap("set", err)
	}
	r, err := waitqueue.Call(ctx, l.queue, lua.LatchSet, repeatFor, func(waitqueue.Attempt) []string {
		return []string{strconv.FormatInt(n, 10), strconv.FormatInt(l.lifetime.Milliseconds(), 10)}
	})
	return err == nil && r.Status == wire.Done, l.wrap("set", err)
}

// CountDown takes one off the count and returns what is left. At 0 it opens the latch, and all waiters go on; on an
// open latch it does nothing. A latch that is not set is [ErrUnset]. With [lease.ErrUnwoken] it has counted and the latch is open:
// the waiters find that out by themselves.
//
// A request without an answer is sent again, and counts once all the same: what is returned is the count that it left, or
// found. CountDown gives up when ctx ends, or after five minutes without an answer. With an error that wraps
// [lease.ErrOutcomeUnknown] it may have counted, or may count still: no later than the next call of the same client about
// the latch returns.
func (l *Latch) CountDown(ctx context.Context) (remaining int64, err error) {
	if l.err != nil {
		return 0, l.wrap("count down", l.err)
	}
	r, err := waitqueue.Call(ctx, l.queue, lua.LatchDown, repeatFor, func(waitqueue.Attempt) []string { return nil })
	switch {
	case err != nil:
	case r.Status != wire.Done:
		err = l.queue.Verdict(&r.Head)
	case r.Has(wire.Unwoken):
		err = l.queue.Unwoken()
	}
	return r.Left, l.wrap("count down", err)
}

// Count returns what is left: 0 if the latch is open. One that is not set is [ErrUnset].
func (l *Latch) Count(ctx context.Context) (int64, error) {
	info, err := l.inspect(ctx)
	if err == nil && info.State == wire.StateUnset {
		err = ErrUnset
	}
	return info.Used, l.wrap("count", err)
}

// Wait returns when the latch is open; at once if it is already.
//
// A latch that is not set, or was forgotten after its lifetime, is [ErrUnset] at once, unless [WithEarlyWait] lets Wait
// come first. If the latch goes while Wait waits for it, because it was removed or the server has lost its state, the
// error is [ErrGone]: that is no opening. If ctx ends first, the error wraps the error and the cause of ctx.
func (l *Latch) Wait(ctx context.Context) error {
	if l.err != nil {
		return l.wrap("wait", l.err)
	}
	ctx, free, err := calls.InTime(ctx, l.maxWait)
	if err != nil {
		return l.wrap("wait", err)
	}
	defer free()
	var e waitqueue.Event
	if l.early {
		e.Extras = func(_, _ string) []string { return []string{strconv.FormatInt(l.lifetime.Milliseconds(), 10)} }
	}
	_, err = l.queue.Await(ctx, e)
	return l.wrap("wait", err)
}

// Remove forgets the latch, and reports whether there was one. Its waiters get [ErrGone]. What is set
// while Remove runs may stay. With true and [lease.ErrUnwoken] it is removed, and the waiters find out by
// themselves.
func (l *Latch) Remove(ctx context.Context) (bool, error) {
	info, err := l.inspect(ctx)
	if err != nil || info.State == wire.StateUnset {
		return false, l.wrap("remove", err)
	}
	// By its generation, so that a repetition removes no later one. If it finds this one gone, an earlier
	// attempt whose reply was lost has removed it, or somebody else.
	r, err := waitqueue.Call(ctx, l.queue, lua.LatchRemove, repeatFor, func(waitqueue.Attempt) []string {
		return []string{strconv.FormatUint(info.Token, 10)}
	})
	removed := err == nil
	if removed && r.Has(wire.Unwoken) {
		err = l.queue.Unwoken()
	}
	return removed, l.wrap("remove", err)
}

// Inspect tells the count that was set, the one that is left, and how many clients wait. It changes nothing.
func (l *Latch) Inspect(ctx context.Context) (lease.Info, error) {
	info, err := l.inspect(ctx)
	return info, l.wrap("inspect", err)
}

func (l *Latch) inspect(ctx context.Context) (lease.Info, error) {
	if l.err != nil {
		return lease.Info{}, l.err
	}
	return l.queue.Inspect(ctx)
}

func (l *Latch) wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("countdown: %s %q: %w", verb, l.queue.Label(), err)
}
