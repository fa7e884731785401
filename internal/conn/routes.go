package conn

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// routes are which node has which slot. Commands do not need them: rueidis follows a slot by itself. Subscriptions need
// them, and so does all that must not wait for another node: renewals and releases in one round trip, clocks, and the end
// of a connection whose server does not answer.
//
// They may be out of date for a while. Then a subscription is refused and told where to go, and a batch takes
// two round trips.
type routes struct {
	servers *Servers
	only    *Node                            // outside a cluster; in one, for what has no slot
	table   *[lua.Slots]atomic.Pointer[Node] // nil outside a cluster

	mu     sync.Mutex       // guards the fields below; nothing is called under it but spawn
	nodes  map[string]*Node // by address; those that have left are few, and may come back
	epochs []uint64         // by slot: of the configuration that put it where it is; nil outside a cluster
	asking bool
	again  bool // and once more after that
	asked  time.Time
}

const (
	// routesEvery is how often the cluster is asked for its slots at the most.
	routesEvery = 100 * time.Millisecond
	// routesAsk is how many nodes are asked at once: one of them may be dead.
	routesAsk = 3
)

func newRoutes(c *Servers) *routes {
	r := &routes{servers: c, nodes: make(map[string]*Node)}
	r.only = newNode(c, "")
	if c.commands.Mode() == rueidis.ClientModeCluster {
		r.table, r.epochs = new([lua.Slots]atomic.Pointer[Node]), make([]uint64, lua.Slots)
	}
	return r
}

// of returns the node that has a key, as far as is known.
func (r *routes) of(key string) *Node {
	if r.table == nil {
		return r.only
	}
	return r.at(lua.Slot(key))
}

func (r *routes) at(slot uint16) *Node {
	if r.table != nil {
		if n := r.table[slot].Load(); n != nil {
			return n
		}
	}
	return r.only
}

// moved notes that a slot is at another node, and returns that.
func (r *routes) moved(slot uint16, address string) *Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodeLocked(address)
	r.table[slot].Store(n)
	return n
}

// nodeLocked returns the node with an address.
func (r *routes) nodeLocked(address string) *Node {
	n := r.nodes[address]
	if n == nil {
		n = newNode(r.servers, address)
		r.nodes[address] = n
	}
	return n
}

// changed notes that a connection to a node was made or is gone. If the connection of the commands is gone, the next
// caller waits for a new one.
func (r *routes) changed(address string, waits bool) {
	n := r.only
	if r.table != nil {
		r.mu.Lock()
		n = r.nodes[address]
		r.mu.Unlock()
	}
	if n == nil {
		return
	}
	n.intro.changes.Add(1)
	if waits {
		n.slow.Store(true)
	}
}

// all returns every node.
func (r *routes) all() []*Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(slices.Collect(maps.Values(r.nodes)), r.only)
}

// reach returns rueidis' client for a node, or nil if it knows none at that address.
func (r *routes) reach(n *Node) rueidis.Client {
	known := r.servers.Side.Nodes()
	if n.address != "" {
		return known[n.address]
	}
	for _, any := range known { // A map's order is as good as chance.
		return any
	}
	return nil
}

// doubt asks the cluster for its slots in the background, because something shows that they have changed.
func (r *routes) doubt() {
	if r.table == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asking {
		r.again = true
		return
	}
	r.asking = r.servers.Spawn(r.keepAsking)
}

// keepAsking runs in the background until nothing shows that the slots have changed since.
func (r *routes) keepAsking() {
	for failures := 0; ; failures++ {
		r.mu.Lock()
		wait := time.Until(r.asked.Add(max(routesEvery, calls.Backoff(failures))))
		r.asked, r.again = time.Now().Add(max(wait, 0)), false
		r.mu.Unlock()
		if r.servers.Rest(context.Background(), wait) != nil {
			return
		}
		err := r.refresh(r.servers.Patient)
		r.mu.Lock()
		if err == nil {
			failures = 0
			if !r.again {
				r.asking = false
				r.mu.Unlock()
				return
			}
		}
		r.mu.Unlock()
	}
}

// refresh asks some nodes which slots are where, takes the first good answer, and moves the subscriptions of
// what has moved.
func (r *routes) refresh(ctx context.Context) error {
	known := r.servers.Side.Nodes()
	addresses := slices.Collect(maps.Keys(known))
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	addresses = addresses[:min(len(addresses), routesAsk)]
	type answer struct {
		owners []owner
		err    error
	}
	answers := make(chan answer, len(addresses))
	for _, address := range addresses {
		if !r.servers.Spawn(func() {
			owners, err := askSlots(ctx, known[address], address)
			answers <- answer{owners, err}
		}) {
			return lease.ErrClosed
		}
	}
	failure := errors.New("no node of the cluster is known, as where none has slots yet")
	for range addresses {
		a := <-answers
		if a.err == nil {
			r.take(a.owners)
			return nil
		}
		failure = a.err
	}
	return failure
}

// take notes what a node says of the slots. It ignores an older configuration than the known one: a former master would
// report its own.
func (r *routes) take(owners []owner) {
	r.mu.Lock()
	for _, o := range owners {
		n := r.nodeLocked(o.address)
		for slot := o.first; slot <= o.last; slot++ {
			if o.epoch == 0 || o.epoch >= r.epochs[slot] {
				r.epochs[slot] = o.epoch
				r.table[slot].Store(n)
			}
		}
	}
	r.mu.Unlock()
	r.servers.recount()
	for _, n := range r.all() {
		n.listener.moveOn()
	}
}

// Clustered reports whether there are several nodes, each with slots.
func (c *Servers) Clustered() bool { return c.routes.table != nil }

// SlotOf is the slot of a key in a cluster; elsewhere all keys are in one.
func (c *Servers) SlotOf(key string) uint16 {
	if !c.Clustered() {
		return 0
	}
	return lua.Slot(key)
}

// Parts splits requests to a node into parts for one script each: most at the most, and in a cluster of one slot.
func Parts[T any](c *Servers, group []T, most int, slot func(T) uint16) (parts [][]T) {
	if !c.Clustered() {
		return slices.Collect(slices.Chunk(group, most))
	}
	slices.SortFunc(group, func(a, b T) int { return cmp.Compare(slot(a), slot(b)) })
	for len(group) > 0 {
		n := 1
		for n < min(len(group), most) && slot(group[n]) == slot(group[0]) {
			n++
		}
		parts = append(parts, group[:n])
		group = group[n:]
	}
	return parts
}

// NodeOf returns the node that has a key, as far as is known.
func (c *Servers) NodeOf(key string) *Node { return c.routes.of(key) }

// NodeAt returns the node that has a slot, as far as is known.
func (c *Servers) NodeAt(slot uint16) *Node { return c.routes.at(slot) }

// Single returns the node if there is one, nil in a cluster.
func (c *Servers) Single() *Node {
	if c.Clustered() {
		return nil
	}
	return c.routes.only
}

// Listener returns the listener of a slot.
func (c *Servers) Listener(slot uint16) Listener {
	if c.Sharded {
		return c.NodeAt(slot).listener
	}
	return c.routes.only.listener
}

// DoubtSlots asks a cluster for its slots, because something shows that they have changed.
func (c *Servers) DoubtSlots() { c.routes.doubt() }

// Now returns what the clock of the server that has a key shows, as far as the last reply tells, if there was one.
func (c *Servers) Now(key string) (time.Time, bool) {
	for _, clock := range []*Clock{&c.NodeOf(key).Clock, &c.routes.only.Clock} {
		if now, ok := clock.about(); ok {
			return now, true
		}
	}
	return time.Time{}, false
}
