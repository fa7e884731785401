package sim

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
)

// node is one client: a process with a network of its own, that can die. Where there are several servers it has a client
// and a network for each.
type node struct {
	world  *world
	server *server
	ways   []*node // to each server, itself for the first
	id     int
	plan   ClientPlan
	ready  chan struct{} // closed when the client is there, or will never be

	mu     sync.Mutex // guards the fields below
	net    *faults.Dialer
	nets   []*faults.Dialer // all that there were
	client *headwaiter.Client
	dead   bool
}

func newNode(w *world, id int, p ClientPlan) *node {
	var ways []*node
	for i, s := range w.servers {
		if i > 0 { // Each client has another that is nearest, so votes are split.
			p.Latency = w.plan.Clients[id].Latency * time.Duration(2+(i+id)%len(w.servers)) / 2
		}
		n := &node{world: w, server: s, id: id, plan: p, ready: make(chan struct{})}
		n.renew()
		ways = append(ways, n)
	}
	ways[0].ways = ways
	return ways[0]
}

// clients are those to all servers.
func (n *node) clients() (all []*headwaiter.Client) {
	for _, way := range n.ways {
		all = append(all, way.alive())
	}
	return all
}

// renew gives new connections a network of their own. The old ones keep theirs.
func (n *node) renew() {
	d := faults.NewDialer(n.world.t, n.server.dial)
	d.Delay(n.plan.Latency)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.net = d
	n.nets = append(n.nets, d)
}

// dial is how the client connects.
func (n *node) dial(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return n.network().Dial()
}

// network is the network of new connections.
func (n *node) network() *faults.Dialer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.net
}

// networks returns all.
func (n *node) networks() []*faults.Dialer {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nets
}

// start makes the client, as soon as the server lets it.
func (n *node) start() {
	defer close(n.ready)
	time.Sleep(n.plan.Start)
	o := headwaiter.Options{
		Redis: n.server.Option(), Name: "sim", GrantLease: n.plan.GrantLease, Linger: n.plan.Linger,
		WithoutSubscribe: n.world.plan.Polls,
	}
	o.Redis.DialCtxFn = n.dial
	for tries := 0; tries < 200 && !n.isDead(); tries++ {
		c, err := headwaiter.Dial(o)
		if err == nil {
			n.born(c)
			return
		}
		time.Sleep(50*time.Millisecond + time.Duration(n.id)*time.Microsecond)
	}
}

func (n *node) born(c *headwaiter.Client) {
	n.mu.Lock()
	n.client = c
	dead := n.dead
	n.mu.Unlock()
	n.world.know(c.ID(), n.id)
	if dead { // It died while it was born.
		n.close(0)
	}
}

// alive returns the client, if there is one and its process lives.
func (n *node) alive() *headwaiter.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dead {
		return nil
	}
	return n.client
}

func (n *node) isDead() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dead
}

// heal ends the faults of all networks, and with it the connections that have lost something.
func (n *node) heal() {
	for _, d := range n.networks() {
		d.Heal()
		d.Delay(n.plan.Latency)
	}
}

// die ends the process. How its connections end is up to how: cut, or not for a while.
func (n *node) die(how func(*faults.Dialer)) {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()
	for _, d := range n.networks() {
		how(d)
		d.Refuse()
	}
	n.close(0)
}

// refused is how many steps of its tickets the client has refused.
func (n *node) refused() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil {
		return 0
	}
	return n.client.Stats().Refused
}

// close closes the client, and waits for its farewells for so long.
func (n *node) close(patience time.Duration) error {
	n.mu.Lock()
	c := n.client
	n.mu.Unlock()
	if c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.Shutdown(ctx)
}
