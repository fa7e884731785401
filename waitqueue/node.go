package waitqueue

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/redis/rueidis"
)

// A node is one server that requests go to, with what must not be mixed up with that of another: its clock, and
// how its connection does at the moment. Outside a cluster a client has one, whichever server that is.
type node struct {
	client  *Client
	address string // empty where there is one
	clock   serverClock
	ears    *listener
	sound   sync.Map // by slot; of *sound

	flying   atomic.Int32 // commands under way
	piped    atomic.Bool  // there were several at once: rueidis pipelines them
	slow     atomic.Bool  // the last one took long, or was not answered
	watching atomic.Pointer[watched]
	watcher  timers.Timer
}

func newNode(c *Client, address string) *node {
	n := &node{client: c, address: address}
	n.ears = newListener(n)
	n.watcher.Target = timers.Func(n.watch)
	return n
}

// sluggish reports whether an answer may take so long that a call should not wait for it on its own goroutine.
func (n *node) sluggish() bool { return n.slow.Load() || n.client.sockets == nil }

// attempt is one that may take as long as budget to reach the node.
func (n *node) attempt(budget time.Duration) attempt {
	a := sending()
	a.expires = a.sent.Add(budget)
	clock := &n.clock
	if clock.newest.Load() == nil {
		clock = &n.client.routes.only.clock // That of another node is better than none: an ask that is late corrects it.
	}
	a.notAfter = strconv.FormatInt(clock.atLeast(a.expires), 10)
	return a
}

// dedicate takes a connection to the node that nobody else uses until it is released. It returns nil if the node is
// not one of the cluster any more.
func (n *node) dedicate() (conn rueidis.DedicatedClient, release func()) {
	side := n.client.side
	if n.client.routes.table != nil {
		if side = n.client.routes.reach(n); side == nil {
			n.ears.introduce()
			side = n.client.routes.reach(n)
		}
	}
	if side == nil {
		return nil, func() {}
	}
	return side.Dedicate()
}
