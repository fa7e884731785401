package lease

import (
	"context"
	"errors"
	"time"
)

// Bind returns a context for work that is done under the hold and for ctx, such as a request: it is done when the hold
// ends or when ctx does, and context.Cause is the cause of whichever came first. So is Err, also for what is derived from it:
// [context.DeadlineExceeded] where the deadline of ctx has passed.
//
// Its deadline and its values are those of ctx; what ctx has no value for is looked up in [Lease.Context]. [FromContext]
// finds the hold in it, and a Lock with it enters the hold again, or fails with [ErrDeadlock]. Err and Done look at the
// clock, as those of Context do.
//
// It releases nothing: where ctx ends first, the hold goes on until Release. What it takes is freed when either ends.
func (l *Lease) Bind(ctx context.Context) context.Context {
	if ctx == nil {
		panic("lease: Bind: nil context")
	}
	b := l.bind(ctx)
	if ctx.Done() != nil {
		context.AfterFunc(b.Context, b.free)
	}
	return b
}

// Do is what the Do of every primitive does. It waits for a hold, calls f with a context that ends with the hold and with
// ctx (see [Lease.Bind]), and releases, also if f panics. It returns what f returned, joined with the error of the release
// if f has not returned that itself: the loss, if the hold was lost before f came back.
func Do(ctx context.Context, lock func(context.Context) (*Lease, error), f func(context.Context) error) (err error) {
	if ctx == nil {
		panic("lease: Do: nil context")
	}
	l, err := lock(ctx)
	if err != nil {
		return err
	}
	b := l.bind(ctx)
	// The values of the hold are those of ctx, and what a tracer has added. Its end is none of them.
	b.first, b.second = context.WithoutCancel(l.inner), b.Context
	defer b.free()
	// The caller's context may have ended, which is no reason to keep the others waiting.
	defer func() {
		if ended := l.release(context.WithoutCancel(ctx), errByDo); ended != nil && !errors.Is(err, ended) {
			err = errors.Join(err, ended)
		}
	}()
	return f(b)
}

func (l *Lease) bind(ctx context.Context) *boundContext {
	b := &boundContext{lease: l, other: ctx}
	b.Context, b.cancel = context.WithCancelCause(ctx)
	b.first, b.second = b.Context, l.inner
	b.stop = context.AfterFunc(l.Context(), b.look)
	return b
}

// boundContext is a context that ends with a hold and with another one. Both may know that they have ended before
// anybody has told their children: a lease looks at the clock.
type boundContext struct {
	context.Context // a child of the other one, whose Err may be one or the other; the Err of a hold is always Canceled
	cancel          context.CancelCauseFunc
	stop            func() bool // ends the watch over the hold
	lease           *Lease
	other           context.Context
	first, second   context.Context // where values are looked up; context.Cause must find Context first
}

func (b *boundContext) free() {
	b.stop()
	b.look()
}

// look sees that it has ended if one of the two has.
func (b *boundContext) look() {
	if b.lease.err() != nil {
		b.cancel(context.Cause(b.lease.inner))
	}
	_ = b.other.Err() // The Err of another hold looks at the clock, and tells its children.
}

func (b *boundContext) Deadline() (time.Time, bool) { return b.other.Deadline() }

func (b *boundContext) Done() <-chan struct{} {
	b.look()
	return b.Context.Done()
}

func (b *boundContext) Err() error {
	b.look()
	return b.Context.Err()
}

func (b *boundContext) Value(key any) any {
	b.look() // Up to Go 1.25 context.Cause asks for the cause before it asks for the error.
	if own := b.lease.own(key); own != nil {
		return own
	}
	if v := b.first.Value(key); v != nil {
		return v
	}
	return b.second.Value(key)
}

func (b *boundContext) String() string { return "lease.Bind" }
