package handoffs

import (
	"context"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Forcing returns the queue of a name for a release by force, which is in its history too, if it keeps one.
func Forcing(ctx context.Context, c *headwaiter.Client, kind, name string) waitqueue.Queue {
	terms := waitqueue.Terms{Lease: lease.DefaultLease}
	if kind == lua.Fairlock.Kind {
		if past, err := inspect.History(ctx, c, name); err == nil && len(past) > 0 {
			terms.History = min(len(past)+1, waitqueue.MaxHistory) // The next end by the lock's own clients cuts it.
		}
	}
	return c.Queue(lua.ProtocolOf(kind), name, terms)
}
