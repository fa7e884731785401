package handoffs

import (
	"context"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/cmd/headwaiter/internal/words"
	"github.com/headwaiter/headwaiter/inspect"
	"github.com/headwaiter/headwaiter/internal/outside"
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
	return (*waitqueue.Client)(c).Queue(lua.ProtocolOf(kind), name, terms)
}

// mostHolders is among how many the one that is meant is looked for: as many as the engine itself looks among.
const mostHolders = 10_000

// Holding is a name with all that hold it, where an inspection has told only the first of them.
func Holding(ctx context.Context, c *headwaiter.Client, n inspect.Listed) (inspect.Listed, error) {
	if words.Untold(n.Info) == 0 {
		return n, nil
	}
	w, err := waitqueue.WiringOf((*waitqueue.Client)(c))
	if err != nil {
		return n, err
	}
	name := (*waitqueue.Client)(c).Queue(lua.ProtocolOf(n.Kind), n.Name, waitqueue.Terms{Lease: lease.DefaultLease}).Seen()
	infos, errs := w.InspectAll(ctx, []outside.Name{name}, mostHolders)
	if errs[0] == nil {
		n.Info = infos[0]
	}
	return n, errs[0]
}
