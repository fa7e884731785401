package lease

import (
	"context"
	"errors"
)

// Within calls f with the context of a lease, and releases it, also if f panics. The context that f gets ends
// when the lease does and also when ctx does. Within returns what f returned, and what Release did: the
// loss, if the hold was lost before f came back and f has not returned that itself.
func Within(ctx context.Context, l *Lease, f func(context.Context) error) (err, ended error) {
	if ctx == nil {
		panic("lease: nil context")
	}
	// The caller's context may have ended, which is no reason to keep the others waiting.
	defer func() {
		if ended = l.Release(context.WithoutCancel(ctx)); ended != nil && errors.Is(err, ended) {
			ended = nil
		}
	}()
	held, cancel := context.WithCancelCause(l.Context())
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	return f(&withinContext{held, cancel, l.Context(), ctx}), nil
}

// withinContext is a context of a hold that ends with another one too. Both may know that they have ended before
// anybody has told the child of the hold's: a lease looks at the clock.
type withinContext struct {
	context.Context // a child of the hold's
	cancel          context.CancelCauseFunc
	hold, other     context.Context
}

// look sees that it has ended if one of the two has.
func (c *withinContext) look() {
	if c.hold.Err() == nil && c.other.Err() != nil {
		c.cancel(context.Cause(c.other))
	}
}

func (c *withinContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *withinContext) Err() error {
	c.look()
	return c.Context.Err()
}

func (c *withinContext) Value(key any) any {
	c.look() // Up to Go 1.25 context.Cause asks for the cause before it asks for the error.
	return c.Context.Value(key)
}
