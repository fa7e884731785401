package inspect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// A Graph is who waits for what others hold, as far as the server knows it.
type Graph struct {
	// Waits are the waiters for names that are held, by name and place.
	Waits []Wait
	// Stuck is how many of them wait until a cycle is broken: the members of cycles, and the waiters queued behind them.
	Stuck int
	// Cycles are the deadlocks, those that last longest first.
	Cycles []Cycle
	// Partial says that there was more than a look may take, or a name that could not be read. What is stuck then is so, and
	// more may be.
	Partial bool
}

// A Wait is a call that waits for a name that is held.
type Wait struct {
	Kind   string
	Name   string
	Client string
	Who    string // name@host#pid; empty if that is not known
	Ticket string
	Place  int // from 1
	Wait   time.Duration
}

// A Cycle is a deadlock: each client waits for what the next one holds, and the last for what the first one does.
type Cycle []Link

// A Link is one client of a cycle.
type Link struct {
	Wait
	Hold lease.Holder // what the next client of the cycle has of the name that this one waits for
}

const (
	// graphTickets is how many holders, and how many who wait, a look tells of a name: a script that tells them takes
	// a millisecond.
	graphTickets = 500
	// graphWaits is how many of all names are kept: some tens of megabytes.
	graphWaits = 100_000
	// graphCycles is how many cycles are named. When those are broken, the next look tells more.
	graphCycles = 20
)

// contended are the kinds in which calls wait for holders. A candidate in an election waits for as long as another leads,
// and does other work meanwhile, so that is no part of a deadlock; what opens a latch or a barrier is not known.
var contended = []*lua.Protocol{lua.Fairlock, lua.Reentrant, lua.RWLock, lua.Semaphore, lua.Redlock}

// Deadlocks builds the graph of who waits for whom over all names of the server, and finds the deadlocks in it.
//
// It looks twice where something seems to be stuck, the given time apart, and keeps what was held and waited for all
// that time: so a cycle is one that there was at one moment, not the sum of several. To the server the calls of one
// client are one: it takes a call that waits and an older hold of the same client for the same work. So a client that
// holds one name for long and also waits for another can make a cycle that ends by itself; the longer the time,
// the fewer. A hold that nothing renews, as a permit WithoutRenewal, ends by itself and is in no cycle.
//
// What a client waits for and holds itself, of the same name, is never taken for the same work, so a call that asks
// again for its own lock is not found. Nor is what Redlock holds at other servers.
func Deadlocks(ctx context.Context, c *headwaiter.Client, lasting time.Duration) (Graph, error) {
	w, err := waitqueue.WiringOf((*waitqueue.Client)(c))
	if err != nil {
		return Graph{}, fmt.Errorf("inspect: deadlocks: %w", err)
	}
	var b board
	for n, err := range list(ctx, c, "*", graphTickets) {
		if err != nil {
			return Graph{}, fmt.Errorf("inspect: deadlocks: %w", err)
		}
		if !b.add(n) {
			break
		}
	}
	stuck, err := b.reduce(ctx)
	if err != nil {
		return Graph{}, fmt.Errorf("inspect: deadlocks: %w", calls.WhyEnded(ctx))
	}
	if len(stuck) == 0 {
		return b.graph(stuck), nil
	}
	if calls.Rest(ctx, lasting) != nil {
		return Graph{}, fmt.Errorf("inspect: deadlocks: %w", calls.WhyEnded(ctx))
	}
	again := board{partial: b.partial, who: b.who}
	for names := range slices.Chunk(b.named(stuck), listBatch) {
		look(ctx, c, w, names, graphTickets)
		if ctx.Err() != nil {
			return Graph{}, fmt.Errorf("inspect: deadlocks: %w", calls.WhyEnded(ctx))
		}
		for _, n := range names {
			if n.Err != nil {
				return Graph{}, fmt.Errorf("inspect: deadlocks: %s %.80q: %w", n.Kind, n.Name, n.Err)
			}
			again.add(n)
		}
	}
	again.keep(&b)
	stuck, err = again.reduce(ctx)
	if err != nil {
		return Graph{}, fmt.Errorf("inspect: deadlocks: %w", calls.WhyEnded(ctx))
	}
	g := b.graph(stuck)
	g.Cycles, err = again.cycles(ctx, stuck)
	if err != nil {
		return Graph{}, fmt.Errorf("inspect: deadlocks: %w", calls.WhyEnded(ctx))
	}
	return g, nil
}
