// Package keeper is the engine's side of a lease. An engine is whatever gives holds to calls: package waitqueue, redlock,
// the engines of contrib.
//
// An engine makes a [Keeper] for each lease that it hands out, and converts it: (*lease.Lease)(k). Both are one object with
// two sets of methods. Those of a Lease are for its owner and are documented there; an engine finds its Keeper again by
// converting back. So a lease costs one allocation, and its owner cannot extend or end it by mistake.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/times"
)

// By which call a hold was released.
var (
	errByRelease  = fmt.Errorf("%w by Release", reason.ErrReleased)
	errByUnlock   = fmt.Errorf("%w by Unlock", reason.ErrReleased)
	errByDo       = fmt.Errorf("%w at the end of Do", reason.ErrReleased)
	errByHandOver = fmt.Errorf("%w by HandOver", reason.ErrReleased)
)

// Terms is what an engine knows when it makes a hold.
type Terms struct {
	// Name is what errors call the hold by, if not empty.
	Name string
	// Token is the fencing token: larger than that of every earlier hold of the same name, except that readers who
	// hold together may share one.
	Token uint64
	// Until is how long the hold is certain unless something extends it.
	Until Until
	// Waited is how long the caller waited for the hold.
	Waited time.Duration
	// Release gives the hold back. It is called at most once, by the first Release of the lease. With a context
	// that has ended it does not wait: the hold is given back in the background. It may be nil if Engine is a [Releaser].
	Release func(ctx context.Context) error
	// Unlock gives the hold back in the background: it returns at once, and what it sends is sent again until it is
	// answered or the lease is over. The first Unlock calls it, instead of Release. If it is nil, and Engine is no
	// [Releaser], Release is called with a context that has ended.
	Unlock func()
	// Stall, if not nil, ends the hold when nobody calls Progress for its time. The engine must call [Keeper.Lose] then.
	Stall *Stall
	// Shared: others may hold at the same time by other tokens, as with a semaphore of several permits.
	Shared bool
	// Parts are leases that make up this one: it is lost when one of them is, and lasts no longer than any.
	Parts []*Keeper
	// Engine is the engine's own record of the hold, which [Keeper.Engine] returns. It may be a [Giver]. With a method
	// Want(*Keeper) it can find out that somebody waits for the hold: the first [Keeper.Wanted] calls Want, which calls
	// [Keeper.Awaited] when somebody does, perhaps at once. If the lease has ended just before, Want does nothing.
	Engine any
	// Previous is how the hold before this one ended; the zero Ending says that nothing is known.
	Previous reason.Ending
	// Key, if not nil, makes the lease findable in its context: Context().Value(Key) is its Keeper.
	Key any
}

// A Releaser is an engine's side of a hold that has the functions Release and Unlock of [Terms] as methods. It costs no
// allocation.
type Releaser interface {
	ReleaseHold(ctx context.Context) error
	UnlockHold()
}

// release calls Release.
func (t *Terms) release(ctx context.Context) error {
	if t.Release != nil {
		return t.Release(ctx)
	}
	return t.Engine.(Releaser).ReleaseHold(ctx)
}

// Until is an end that is certain by the clocks of this machine, and what it means when it passes.
type Until struct {
	Deadline time.Time
	// Slept is what [Slept] said at the moment from which Deadline was counted.
	Slept time.Duration
	// Cause is how the hold is lost at the deadline; nil stands for [reason.ErrExpired].
	Cause error
}

// left is the time until the end, as if the machine had not been suspended meanwhile.
func (u Until) left() time.Duration {
	now, slept := Clocks()
	return u.Deadline.Sub(now) - (slept - u.Slept)
}

// A Keeper is a lease as its engine sees it. It is safe for use by several goroutines.
type Keeper struct {
	inner  context.Context // ends with the hold
	cancel context.CancelCauseFunc
	terms  Terms // their Until is guarded by mu; the rest does not change

	mu    sync.Mutex // guards the fields below; nothing is called while it is held
	given bool       // Release, Unlock or HandOver was called
	why   error      // the last error of its renewals, nil after one that succeeded
	since time.Time  // when the last renewal that succeeded was sent
	want  *want      // nil until somebody asks for it
}

// New makes a hold with the given terms. Its context has the values of ctx, but not its end: ctx bounds
// the wait for a lock, never the hold.
//
// The engine that calls New must call [Keeper.Lose] when the deadline passes without an extension.
// Until that call, a context that is asked by Err or Done notices the deadline by itself, so a process that was
// stopped past its lease sees the loss at the first look.
func New(ctx context.Context, t Terms) *Keeper { return new(Keeper).Init(ctx, t) }

// Init is [New] in memory of the caller's, which it may use once.
func (k *Keeper) Init(ctx context.Context, t Terms) *Keeper {
	k.terms = t
	if t.Release == nil {
		_, gives := t.Engine.(Releaser)
		k.given = !gives
	}
	k.inner, k.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return k
}

// Extend moves the end. A hold that has ended, or whose deadline has passed, stays ended: Extend then
// returns false.
func (k *Keeper) Extend(u Until) bool {
	if k.err() != nil {
		return false
	}
	k.mu.Lock()
	k.terms.Until, k.why = u, nil
	k.mu.Unlock()
	return true
}

// Overdue reports whether the hold has ended, because of its deadline or otherwise.
func (k *Keeper) Overdue() bool { return k.err() != nil }

// Failing notes why the hold is not extended, and since when nobody has answered. If the lease runs out before the next
// Extend, the loss says so.
func (k *Keeper) Failing(since time.Time, why error) {
	k.mu.Lock()
	k.since, k.why = since, why
	k.mu.Unlock()
}

// Lose ends the hold with the given cause, unless it has ended already or its deadline has passed: then that is the
// cause. errors.Is(cause, reason.ErrLost) should be true. What the context ends with wraps the cause, and names the hold.
func (k *Keeper) Lose(cause error) {
	if k.err() == nil {
		k.cancel(k.loss(cause))
	}
}

// End ends the hold as released, unless it has ended already.
func (k *Keeper) End() { k.cancel(reason.ErrReleased) }

// Token returns the fencing token of the hold.
func (k *Keeper) Token() uint64 { return k.terms.Token }

// Previous returns how the hold before ended.
func (k *Keeper) Previous() reason.Ending { return k.terms.Previous }

// Shared reports whether others may hold at the same time by other tokens.
func (k *Keeper) Shared() bool { return k.terms.Shared }

// Engine returns the engine's own record of the hold.
func (k *Keeper) Engine() any { return k.terms.Engine }

// Waited returns how long the caller waited for the hold.
func (k *Keeper) Waited() time.Duration { return k.terms.Waited }

// Deadline returns the local time until which the hold is certain if nothing renews it any more, and nobody calls Progress.
func (k *Keeper) Deadline() time.Time {
	deadline := k.terms.Stall.Earlier(k.Until().Deadline)
	for _, part := range k.terms.Parts {
		if d := part.Deadline(); d.Before(deadline) {
			deadline = d
		}
	}
	return deadline
}

// Until returns the end that was confirmed last. It is for an engine that makes one hold of several leases;
// [Keeper.Deadline] also regards parts and stalled work.
func (k *Keeper) Until() Until {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.terms.Until
}

// String tells in one line, for logs, what is held, and for how long that is certain, or how it ended.
func (k *Keeper) String() string {
	state := fmt.Sprintf("held, certain for %v", times.Readable(time.Until(k.Deadline())))
	if k.err() != nil {
		state = context.Cause(k.inner).Error()
	}
	return fmt.Sprintf("%q, token %d: %s", k.terms.Name, k.terms.Token, state)
}

// Release ends the lease's context, gives the hold back and waits for the answer.
func (k *Keeper) Release(ctx context.Context) error {
	if ctx == nil {
		panic("lease: Release: nil context")
	}
	ctx, free := Outlasting(ctx, k)
	defer free()
	return k.release(ctx, errByRelease)
}

// Outlasting returns a context for the release of leases. It is ctx, unless that comes from one of the holds, also
// by way of another hold: such a context ends before anything is sent. Then it lasts until the deadline of ctx or, without
// one, until the leases are over. A nil Keeper is left out. Should ctx panic, nothing has changed.
func Outlasting(ctx context.Context, leases ...*Keeper) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return ctx, func() {}
	}
	until, bounded := ctx.Deadline()
	within := false
	for _, k := range leases {
		if k == nil {
			continue
		}
		within = within || ctx.Value(withinKey{k}) != nil
		if d := k.Until().Deadline; !bounded && d.After(until) {
			until = d
		}
	}
	if !within {
		return ctx, func() {}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), until)
}

// release gives the hold back and waits for the server's word.
func (k *Keeper) release(ctx context.Context, by error) error {
	first := k.give(by)
	cause := context.Cause(k.inner)
	if !first {
		return k.named(cause)
	}
	if err := k.terms.release(ctx); errors.Is(cause, reason.ErrReleased) {
		return k.named(err)
	}
	return cause
}

// Unlock ends the lease's context and gives the hold back without waiting for the answer.
func (k *Keeper) Unlock() {
	if k == nil || !k.give(errByUnlock) {
		return
	}
	if r, ok := k.terms.Engine.(Releaser); ok && k.terms.Release == nil {
		r.UnlockHold()
		return
	}
	if k.terms.Unlock != nil {
		k.terms.Unlock()
		return
	}
	_ = k.terms.Release(k.inner) // Which has ended: nobody waits for the answer.
}

// give ends the context, and reports whether the hold is the caller's to give back: the first one's.
func (k *Keeper) give(by error) (first bool) {
	k.err() // A deadline that has passed is a loss, however late anybody looks.
	k.cancel(by)
	k.mu.Lock()
	defer k.mu.Unlock()
	first, k.given = !k.given, true
	return first
}

// named is the error of a release, with the name of the hold.
func (k *Keeper) named(err error) error {
	switch {
	case err == nil || k.terms.Name == "":
		return err
	case errors.Is(err, reason.ErrLost):
		return k.loss(err)
	}
	var part *unreleased
	if errors.As(err, &part) {
		return err // It names the part of the hold that failed.
	}
	return &unreleased{k.terms.Name, err}
}

// Named is the error of a release that the engine does without [Lease.Release], with the name of the hold.
func (k *Keeper) Named(err error) error { return k.named(err) }

// unreleased is the error of a release that failed.
type unreleased struct {
	name  string
	cause error
}

func (e *unreleased) Error() string { return fmt.Sprintf("lease: release %q: %v", e.name, e.cause) }
func (e *unreleased) Unwrap() error { return e.cause }

// err is the context's error. It looks at the deadline too, because the timer that watches it may be
// late: the process was stopped, or its machine.
func (k *Keeper) err() error {
	if err := k.inner.Err(); err != nil {
		return err
	}
	for _, part := range k.terms.Parts {
		if part.err() != nil {
			k.cancel(context.Cause(part.inner))
			return k.inner.Err()
		}
	}
	until := k.Until()
	left, cause := until.left(), k.terms.Stall.err()
	switch {
	case cause != nil:
	case left > 0:
		return nil
	case until.Cause != nil:
		cause = until.Cause
	default:
		cause = fmt.Errorf("%w: its deadline passed %v ago", reason.ErrExpired, (-left).Round(time.Millisecond))
	}
	k.cancel(k.loss(cause))
	return k.inner.Err()
}

// loss is the cause of a loss with what is known of it.
func (k *Keeper) loss(cause error) error {
	var told *lost
	if errors.As(cause, &told) || !errors.Is(cause, reason.ErrLost) {
		return cause
	}
	e := &lost{name: k.terms.Name, cause: cause}
	if errors.Is(cause, reason.ErrExpired) {
		k.mu.Lock()
		if k.why != nil {
			e.why, e.after = k.why, times.Readable(time.Since(k.since))
		}
		k.mu.Unlock()
	}
	if e.name == "" && e.why == nil {
		return cause
	}
	return e
}
