package calls

import (
	"context"

	"github.com/headwaiter/headwaiter/lease"
)

// A context may come from holds of a name that several may hold. A call with it waits for itself if it can only be served
// when one of these holds ends.

// A key finds the innermost hold of a name in a context.
type key struct{ client, name any }

// Key stands for a name as one client sees it.
func Key(client any, name string) any { return key{client, name} }

// A hold is the parent of a lease's context, and what the lease is on.
type hold struct {
	context.Context
	key     any
	lease   *lease.Lease // nil until there is one
	permits int64
}

func (h *hold) Value(key any) any {
	if key == h.key {
		return h
	}
	return h.Context.Value(key)
}

// Note makes a call for permits, so that [Permits] counts what it gets.
func Note(ctx context.Context, key any, call func(context.Context) (*lease.Lease, int64, error)) (*lease.Lease, int64, error) {
	h := &hold{Context: ctx, key: key}
	l, n, err := call(h)
	h.lease, h.permits = l, n
	return l, n, err
}

// Permits is how many permits there are in the holds that a context comes from.
func Permits(ctx context.Context, key any) (n int64) {
	for {
		h, ok := ctx.Value(key).(*hold)
		if !ok {
			return n
		}
		if h.lease != nil && h.lease.Context().Err() == nil {
			n += h.permits
		}
		ctx = h.Context
	}
}
