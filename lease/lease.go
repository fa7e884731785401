// Package lease is one hold: the same handle from every primitive and every engine.
//
// A [Lease] is what a successful Lock or Acquire returns. It ends in one of two ways. Released, by its
// owner: the context's cause is [ErrReleased]. Lost, because the time ran out without a renewal, because
// somebody forced it, because the server forgot it, or because the client was closed: the cause is an
// error for which errors.Is(err, ErrLost) holds and which says which of these it was; a maximum hold that is over is one too.
//
// The package knows no engine and imports the standard library alone. What renews a hold and what takes
// it back is the business of whoever made it, through the [Keeper] that [New] returns.
package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Terms is what an engine knows when it makes a hold.
type Terms struct {
	// Name is what errors call the hold by, if not empty.
	Name string
	// Token is the fencing token: larger than every earlier hold's of the same name, except that readers that hold
	// together may share one.
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
	Parts []*Lease
	// Engine is what the maker of the lease wants to find again by it. It may be a [Giver]. If it has a method
	// Want(*Lease), it can find out that somebody waits for what the hold has. The first [Lease.Wanted] calls it with the
	// lease, and it calls [Keeper.Awaited] then, perhaps at once. The lease may have ended just before: then Want does nothing.
	Engine any
	// Key, if not nil, makes the lease findable in its context: Context().Value(Key) is the lease.
	Key any
}

// Until is an end that is certain by the clocks of this machine, and what it means when it passes.
type Until struct {
	Deadline time.Time
	// Slept is what [Slept] said at the moment from which Deadline was counted.
	Slept time.Duration
	// Cause is how the hold is lost at the deadline; nil stands for [ErrExpired].
	Cause error
}

// left is the time until the end, as if the machine had not been suspended meanwhile.
func (u Until) left() time.Duration {
	now, slept := Clocks()
	return u.Deadline.Sub(now) - (slept - u.Slept)
}

// A Lease is one hold. It is safe for use by several goroutines.
type Lease struct {
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

// A Keeper is the engine's side of a hold: it extends it, or tells its owner that it is lost.
type Keeper struct{ lease Lease }

// New makes a hold with the given terms. Its context has the values of ctx, but not its end: ctx bounds
// the wait for a lock, never the hold.
//
// The engine that calls New must call [Keeper.Lose] when the deadline passes without an extension.
// Until that call, a context that is asked by Err or Done notices the deadline by itself, so a process that was
// stopped past its lease sees the loss at the first look.
func New(ctx context.Context, t Terms) *Keeper {
	k := &Keeper{}
	l := &k.lease
	l.terms, l.until, l.given = t, t.Until, t.Release == nil
	l.inner, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return k
}

// Lease returns the handle for the owner of the hold.
func (k *Keeper) Lease() *Lease { return &k.lease }

// Extend moves the end. A hold that has ended, or whose deadline has passed, stays ended: Extend then
// returns false.
func (k *Keeper) Extend(u Until) bool {
	l := &k.lease
	if l.err() != nil {
		return false
	}
	l.mu.Lock()
	l.until, l.why = u, nil
	l.mu.Unlock()
	return true
}

// Overdue reports whether the hold has ended, because of its deadline or otherwise.
func (k *Keeper) Overdue() bool { return k.lease.err() != nil }

// Failing notes why the hold is not extended, and since when nobody has answered: the loss will say so, if the lease
// runs out with that. An extension takes it back.
func (k *Keeper) Failing(since time.Time, why error) {
	l := &k.lease
	l.mu.Lock()
	l.since, l.why = since, why
	l.mu.Unlock()
}

// Lose ends the hold with the given cause, unless it has ended already or its deadline has passed: then that is the
// cause. The cause should be one for which errors.Is(cause, ErrLost) holds; what the context ends with wraps it, and
// names the hold.
func (k *Keeper) Lose(cause error) {
	if l := &k.lease; l.err() == nil {
		l.cancel(l.loss(cause))
	}
}

// End ends the hold as released, unless it has ended already.
func (k *Keeper) End() { k.lease.cancel(ErrReleased) }

// Context ends when the hold does: at its release or at its loss, whichever comes first.
// context.Cause tells which: [ErrReleased], or an error for which errors.Is(err, ErrLost) holds.
//
// Its values are those of the context that Lock was called with. It has no deadline of its own, because
// the hold's moves with each renewal. When the time runs out it ends before the server gives the lock to
// anybody else, by the clock of this machine. A release by force, and a server that has lost its state, are
// told after the fact: at once where a message comes through, and else with the next renewal.
func (l *Lease) Context() context.Context { return (*holdContext)(l) }

// Token returns the fencing token of the hold, larger than every earlier hold's of the same name, except that readers
// that hold together may share one. Package fence says which failures of a server can break this.
// Send it with each write to what the lock protects, and let that refuse a token lower than one it has
// seen: no lease by itself can stop a holder that was paused from writing late.
//
// Source: Kleppmann, "How to do distributed locking", 2016.
func (l *Lease) Token() uint64 { return l.terms.Token }

// Shared reports whether others may hold at the same time by other tokens, as with a semaphore of several permits. A
// resource that refuses all but the highest token it has seen would then refuse some who hold. Readers of a
// read-write lock share their token instead.
func (l *Lease) Shared() bool { return l.terms.Shared }

// Engine returns what the engine that made the lease has of it. It is for the engine itself.
func (l *Lease) Engine() any { return l.terms.Engine }

// Deadline returns the local time until which the hold is certain if nothing renews it any more, and nobody calls Progress.
func (l *Lease) Deadline() time.Time {
	deadline := l.terms.Stall.Earlier(l.Until().Deadline)
	for _, part := range l.terms.Parts {
		if d := part.Deadline(); d.Before(deadline) {
			deadline = d
		}
	}
	return deadline
}

// Until returns the end that was last confirmed, and from when what the machine slept counts. It is for an engine
// that makes one hold of several leases: [Lease.Deadline] regards parts and stalled work too.
func (l *Lease) Until() Until {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Waited returns how long the caller waited for the hold.
func (l *Lease) Waited() time.Duration { return l.terms.Waited }

// String tells in one line, for logs, what is held, by which token, and for how long that is certain before the next
// renewal, or how it ended.
func (l *Lease) String() string {
	state := fmt.Sprintf("held, certain for %v", readable(time.Until(l.Deadline())))
	if l.err() != nil {
		state = context.Cause(l.inner).Error()
	}
	return fmt.Sprintf("%q, token %d: %s", l.terms.Name, l.terms.Token, state)
}

// Release ends the lease's context and gives the hold back; the head of the queue holds next.
//
// It returns nil when the hold was given back in time, an error for which errors.Is(err, ErrLost) holds
// when it was lost before, [ErrReleased] when it had been released before, and an error that wraps
// [ErrUnconfirmed] when ctx ended or the client gave up before an answer came: then the hold ends at the
// latest when its lease does. The context has ended in every case. Errors name the hold.
//
// If ctx is the hold's context, or comes from it, also by way of another hold, Release ignores that it ends with the
// hold, but not its deadline.
//
// Release panics without a context, as package context does, and then nothing has changed.
func (l *Lease) Release(ctx context.Context) error {
	if ctx == nil {
		panic("lease: Release: nil context")
	}
	ctx, free := Outlasting(ctx, l)
	defer free()
	return l.release(ctx, errByRelease)
}

// Outlasting returns a context for the release of leases, for engines. It is ctx, unless that comes from one of the holds, also
// by way of another hold: such a context ends before anything is sent. Then it lasts until the deadline of ctx or, without
// one, until the leases are over. A nil lease is left out. Should ctx panic, nothing has changed.
func Outlasting(ctx context.Context, leases ...*Lease) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return ctx, func() {}
	}
	until, bounded := ctx.Deadline()
	within := false
	for _, l := range leases {
		if l == nil {
			continue
		}
		within = within || ctx.Value(withinKey{l}) != nil
		if d := l.Until().Deadline; !bounded && d.After(until) {
			until = d
		}
	}
	if !within {
		return ctx, func() {}
	}
	return context.WithDeadline(context.WithoutCancel(ctx), until)
}

// release gives the hold back and waits for the server's word.
func (l *Lease) release(ctx context.Context, by error) error {
	first := l.give(by)
	cause := context.Cause(l.inner)
	if !first {
		return l.named(cause)
	}
	if err := l.terms.Release(ctx); errors.Is(cause, ErrReleased) {
		return l.named(err)
	}
	return cause
}

// Unlock ends the lease's context with [ErrReleased] and gives the hold back without waiting for the server's word, as
// the Unlock of a [sync.Mutex] does; the head of the queue holds next. What has to be sent is sent at once, and again
// until it is answered or the lease is over. On Redis there is one exception: a hold that was got without waiting, and
// that lasted for less than 5 ms, may be given back together with the client's next call for the name, within 5 ms. A
// later call of the same client for the same name never overtakes it.
//
// It does nothing on a nil lease, after Release or Unlock, and after a loss. Release after it returns ErrReleased.
//
// Nobody learns whether the hold was given back in time: where that matters, or where another process is to go on by what
// the caller tells it, use Release. It is lost if the process ends first, and then the hold ends with its lease: the
// client's Close waits for it, so defer that above. A short program uses Release.
func (l *Lease) Unlock() {
	switch {
	case l == nil || !l.give(errByUnlock):
	case l.terms.Unlock != nil:
		l.terms.Unlock()
	default:
		_ = l.terms.Release(l.inner) // Which has ended: nobody waits for the answer.
	}
}

// give ends the context, and reports whether the hold is the caller's to give back: the first one's.
func (l *Lease) give(by error) (first bool) {
	l.err() // A deadline that has passed is a loss, however late anybody looks.
	l.cancel(by)
	l.mu.Lock()
	defer l.mu.Unlock()
	first, l.given = !l.given, true
	return first
}

// named is the error of a release, with the name of the hold.
func (l *Lease) named(err error) error {
	switch {
	case err == nil || l.terms.Name == "":
		return err
	case errors.Is(err, ErrLost):
		return l.loss(err)
	}
	var part *unreleased
	if errors.As(err, &part) {
		return err // It names the part of the hold that failed.
	}
	return &unreleased{l.terms.Name, err}
}

// Named is the error of a release that the engine does without [Lease.Release], with the name of the hold.
func (k *Keeper) Named(err error) error { return k.lease.named(err) }

// unreleased is the error of a release that failed.
type unreleased struct {
	name  string
	cause error
}

func (e *unreleased) Error() string { return fmt.Sprintf("lease: release %q: %v", e.name, e.cause) }
func (e *unreleased) Unwrap() error { return e.cause }

// loss is the cause of a loss with what is known of it.
func (l *Lease) loss(cause error) error {
	var told *lost
	if errors.As(cause, &told) || !errors.Is(cause, ErrLost) {
		return cause
	}
	e := &lost{name: l.terms.Name, cause: cause}
	if errors.Is(cause, ErrExpired) {
		l.mu.Lock()
		if l.why != nil {
			e.why, e.after = l.why, readable(time.Since(l.since))
		}
		l.mu.Unlock()
	}
	if e.name == "" && e.why == nil {
		return cause
	}
	return e
}

// err is the context's error. It looks at the deadline too, because the timer that watches it may be
// late: the process was stopped, or its machine.
func (l *Lease) err() error {
	if err := l.inner.Err(); err != nil {
		return err
	}
	for _, part := range l.terms.Parts {
		if part.err() != nil {
			l.cancel(context.Cause(part.inner))
			return l.inner.Err()
		}
	}
	until := l.Until()
	left, cause := until.left(), l.terms.Stall.err()
	switch {
	case cause != nil:
	case left > 0:
		return nil
	case until.Cause != nil:
		cause = until.Cause
	default:
		cause = fmt.Errorf("%w: its deadline passed %v ago", ErrExpired, (-left).Round(time.Millisecond))
	}
	l.cancel(l.loss(cause))
	return l.inner.Err()
}

// holdContext is a lease as its context. Its channel and its values are those of the context that is cancelled at the
// end of the hold, so the standard library attaches children to that one without a goroutine.
type holdContext Lease

func (c *holdContext) lease() *Lease { return (*Lease)(c) }

func (c *holdContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *holdContext) Err() error                  { return c.lease().err() }

func (c *holdContext) Done() <-chan struct{} {
	_ = c.lease().err()
	return c.inner.Done()
}

// contextKey finds the innermost lease of a context.
type contextKey struct{}

// withinKey finds out whether a context comes from a lease's, whatever other holds it comes from.
type withinKey struct{ lease *Lease }

// FromContext returns the lease whose context ctx is, or comes from; the innermost where there are several.
func FromContext(ctx context.Context) (*Lease, bool) {
	l, ok := ctx.Value(contextKey{}).(*Lease)
	return l, ok
}

// Token returns the fencing token of that lease; 0, which every guard of package fence refuses, if there is none.
func Token(ctx context.Context) uint64 {
	if l, ok := FromContext(ctx); ok {
		return l.terms.Token
	}
	return 0
}

// own is the lease that a key of its context stands for: itself, or a part. It is nil for all other keys.
func (l *Lease) own(key any) *Lease {
	if key == (contextKey{}) || key == (withinKey{l}) || l.terms.Key != nil && key == l.terms.Key {
		return l
	}
	for _, part := range l.terms.Parts {
		if part.terms.Key != nil && key == part.terms.Key {
			return part
		}
	}
	return nil
}

func (c *holdContext) Value(key any) any {
	if own := c.lease().own(key); own != nil {
		return own
	}
	_ = c.lease().err() // Up to Go 1.25 context.Cause asks for the cause before it asks for the error.
	return c.inner.Value(key)
}

func (c *holdContext) String() string { return "lease.Context" }
