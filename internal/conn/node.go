package conn

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/timers"
)

// A Node is one server that requests go to, with what must not be mixed up with that of another: its clock, and
// how its connection does at the moment. Outside a cluster a client has one, whichever server that is.
type Node struct {
	servers *Servers
	address string // empty where there is one
	Clock   Clock
	ears    *listener
	sound   sync.Map // by slot; of *sound

	flying   atomic.Int32 // commands under way
	piped    atomic.Bool  // there were several at once: rueidis pipelines them
	slow     atomic.Bool  // the last one took long, or was not answered
	watching atomic.Pointer[watched]
	watcher  timers.Timer
}

func newNode(c *Servers, address string) *Node {
	n := &Node{servers: c, address: address}
	n.ears = newListener(n)
	n.watcher.Target = timers.Func(n.watch)
	return n
}

// Sluggish reports whether an answer may take so long that a call should not wait for it on its own goroutine.
func (n *Node) Sluggish() bool { return n.slow.Load() || n.servers.sockets == nil }

// Attempt is one that may take as long as budget to reach the node.
func (n *Node) Attempt(budget time.Duration) Attempt {
	a := Sending()
	a.Expires = a.Sent.Add(budget)
	clock := &n.Clock
	if clock.newest.Load() == nil {
		clock = &n.servers.routes.only.Clock // That of another node is better than none: an ask that is late corrects it.
	}
	a.Latest = clock.AtLeast(a.Expires)
	a.NotAfter = strconv.FormatInt(a.Latest, 10)
	return a
}

// dedicate takes a connection to the node that nobody else uses until it is released. It returns nil if the node is
// not one of the cluster any more.
func (n *Node) dedicate() (conn rueidis.DedicatedClient, release func()) {
	side := n.servers.Side
	if n.servers.routes.table != nil {
		if side = n.servers.routes.reach(n); side == nil {
			n.ears.introduce()
			side = n.servers.routes.reach(n)
		}
	}
	if side == nil {
		return nil, func() {}
	}
	return side.Dedicate()
}
