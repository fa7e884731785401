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
	// Release gives the hold back. It is called once, by the first Release of the lease or not at all. With a context
	// that has ended it does not wait: the hold is given back in the background.
	Release func(ctx context.Context) error
	// Unlock gives the hold back in the background: it comes back at once, and what it sends is sent again until it is
	// answered or the hold would be over. It is called instead of Release, by the first Unlock. Nil stands for Release with
	// a context that has ended.
	Unlock func()
	// Stall, if not nil, ends the hold when nobody calls Progress for its time. The engine must call [Keeper.Lose] then.
	Stall *Stall
	// Shared: others may hold at the same time by other tokens, as with a semaphore of several permits.
	Shared bool
	// Parts are leases that make up this one: it is lost when one of them is, and lasts no longer than any.
	Parts []*Keeper
	// Engine is what the maker of the lease wants to find again by it. It may be a [Giver]. If it has a method
	// Want(*Keeper), it can find out that somebody waits for what the hold has. The first [Keeper.Wanted] calls it with the
	// keeper, and it calls [Keeper.Awaited] then, perhaps at once. The lease may have ended just before: then Want does nothing.
	Engine any
	// Key, if not nil, makes the lease findable in its context: Context().Value(Key) is its Keeper.
	Key any
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
func (u Until) left() time.Duration { return time.Until(u.Deadline) - (Slept() - u.Slept) }

// A Keeper is a lease as its engine sees it. It is safe for use by several goroutines.
type Keeper struct {
	inner  context.Context // ends with the hold
	cancel context.CancelCauseFunc
	terms  Terms

	mu    sync.Mutex // guards the fields below; nothing is called while it is held
	until Until
	given bool      // back, or it is about to be
	why   error     // the last error of its renewals, since one went well
	since time.Time // when the last that went well was sent
	want  *want     // nil until somebody asks for it
}

// New makes a hold with the given terms. Its context has the values of ctx, but not its end: ctx bounds
// the wait for a lock, never the hold.
//
// The engine that calls New must call [Keeper.Lose] when the deadline passes without an extension.
// Until that call, a context that is asked by Err or Done notices the deadline by itself, so a process that was
// stopped past its lease sees the loss at the first look.
func New(ctx context.Context, t Terms) *Keeper {
	k := &Keeper{terms: t, until: t.Until, given: t.Release == nil}
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
	k.until, k.why = u, nil
	k.mu.Unlock()
	return true
}

// Overdue reports whether the hold has ended, because of its deadline or otherwise.
func (k *Keeper) Overdue() bool { return k.err() != nil }

// Failing notes why the hold is not extended, and since when nobody has answered: the loss will say so, if the lease
// runs out with that. An extension takes it back.
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

// Shared reports whether others may hold at the same time by other tokens.
func (k *Keeper) Shared() bool { return k.terms.Shared }

// Engine returns what the engine that made the lease has of it.
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

// Until returns the end that was last confirmed, and from when what the machine slept counts. It is for an engine
// that makes one hold of several leases: [Keeper.Deadline] regards parts and stalled work too.
func (k *Keeper) Until() Until {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.until
}

// String tells in one line, for logs, what is held, and for how long that is certain, or how it ended.
func (k *Keeper) String() string {
	state := fmt.Sprintf("held, certain for %v", times.Readable(time.Until(k.Deadline())))
	if k.err() != nil {
		state = context.Cause(k.inner).Error()
	}
	return fmt.Sprintf("%q, token %d: %s", k.terms.Name, k.terms.Token, state)
}

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
