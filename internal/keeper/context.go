package keeper

import (
	"context"
	"time"
)

// Context returns the context that ends with the hold.
func (k *Keeper) Context() context.Context { return (*holdContext)(k) }

// holdContext is a lease as its context. Its channel and its values are those of the context that is cancelled at the
// end of the hold, so the standard library attaches children to that one without a goroutine.
type holdContext Keeper

func (c *holdContext) keeper() *Keeper { return (*Keeper)(c) }

func (c *holdContext) Deadline() (time.Time, bool) { return time.Time{}, false }
func (c *holdContext) Err() error                  { return c.keeper().err() }

func (c *holdContext) Done() <-chan struct{} {
	_ = c.keeper().err()
	return c.inner.Done()
}

// contextKey finds the innermost lease of a context.
type contextKey struct{}

// withinKey finds out whether a context comes from that of a lease, whatever other holds it comes from.
type withinKey struct{ keeper *Keeper }

// FromContext returns the Keeper of the lease whose context ctx is, or comes from; the innermost where there are several.
func FromContext(ctx context.Context) (*Keeper, bool) {
	k, ok := ctx.Value(contextKey{}).(*Keeper)
	return k, ok
}

// own is the lease that a key of its context stands for: itself, or a part. It is nil for all other keys.
func (k *Keeper) own(key any) *Keeper {
	if key == (contextKey{}) || key == (withinKey{k}) || k.terms.Key != nil && key == k.terms.Key {
		return k
	}
	for _, part := range k.terms.Parts {
		if part.terms.Key != nil && key == part.terms.Key {
			return part
		}
	}
	return nil
}

func (c *holdContext) Value(key any) any {
	if own := c.keeper().own(key); own != nil {
		return own
	}
	_ = c.keeper().err() // Up to Go 1.25 context.Cause asks for the cause before it asks for the error.
	return c.inner.Value(key)
}

func (c *holdContext) String() string { return "lease.Context" }
