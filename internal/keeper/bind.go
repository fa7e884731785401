package keeper

import (
	"context"
	"errors"
	"time"
)

// Bind returns a context that ends with the hold or with ctx.
func (k *Keeper) Bind(ctx context.Context) context.Context {
	if ctx == nil {
		panic("lease: Bind: nil context")
	}
	b := k.bind(ctx)
	if ctx.Done() != nil {
		context.AfterFunc(b.Context, b.free)
	}
	return b
}

// Do calls f with a context that ends with the hold or with ctx, and releases the hold, also if f panics. It returns the error
// of f, joined with that of the release if f has not returned that itself.
func (k *Keeper) Do(ctx context.Context, f func(context.Context) error) (err error) {
	b := k.bind(ctx)
	// The values of the hold are those of ctx, and what a tracer has added. Its end is none of them.
	b.first, b.second = context.WithoutCancel(k.inner), b.Context
	defer b.free()
	// The caller's context may have ended, which is no reason to keep the others waiting.
	defer func() {
		if ended := k.release(context.WithoutCancel(ctx), errByDo); ended != nil && !errors.Is(err, ended) {
			err = errors.Join(err, ended)
		}
	}()
	return f(b)
}

func (k *Keeper) bind(ctx context.Context) *boundContext {
	b := &boundContext{keeper: k, other: ctx}
	b.Context, b.cancel = context.WithCancelCause(ctx)
	b.first, b.second = b.Context, k.inner
	b.stop = context.AfterFunc(k.Context(), b.look)
	return b
}

// boundContext is a context that ends with a hold and with another one. Both may know that they have ended before
// anybody has told their children: a lease looks at the clock.
type boundContext struct {
	context.Context // a child of the other one, whose Err may be one or the other; the Err of a hold is always Canceled
	cancel          context.CancelCauseFunc
	stop            func() bool // ends the watch over the hold
	keeper          *Keeper
	other           context.Context
	first, second   context.Context // where values are looked up; context.Cause must find Context first
}

func (b *boundContext) free() {
	b.stop()
	b.look()
}

// look sees that it has ended if one of the two has.
func (b *boundContext) look() {
	if b.keeper.err() != nil {
		b.cancel(context.Cause(b.keeper.inner))
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
	if own := b.keeper.own(key); own != nil {
		return own
	}
	if v := b.first.Value(key); v != nil {
		return v
	}
	return b.second.Value(key)
}

func (b *boundContext) String() string { return "lease.Bind" }
