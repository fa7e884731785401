package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

const (
	clusterMasters  = 3
	clusterReplicas = 1
	// nodeTimeout, in milliseconds, is how long a node may be silent before the others take it for dead. By
	// default it is 15 s, and so long would a test wait for each failover. Much less than a second, and
	// a busy machine would begin failovers by itself.
	nodeTimeout = "1000"
	// handOver is what a failover may take before it is asked for once more: a node gives it up after five
	// seconds without a word.
	handOver = 7 * time.Second
)

// Node is one server of a cluster. Its own commands go to it alone: as a client's would, those for keys that
// are elsewhere fail with MOVED.
type Node struct {
	*Server
	ID string // by which the nodes know it, over restarts
}

// RedisCluster is a Redis cluster. Its commands go where their first key is; those without a key are for
// one node, so they fail here.
type RedisCluster struct {
	commands
	masters int // at first
	nodes   []*Node
	servers []*Server // those of the nodes
}

// Cluster starts three masters with a replica each; see [ClusterOf].
func Cluster(t testing.TB, opts ...Option) *RedisCluster {
	t.Helper()
	return ClusterOf(t, clusterMasters, clusterReplicas, opts...)
}

// ClusterOf starts a cluster and returns when all nodes serve, agree on the slots, and all replicas are
// linked. At first the masters have equal shares of the slots in ascending order. It takes two seconds:
// no master serves earlier after its start.
func ClusterOf(t testing.TB, masters, replicas int, opts ...Option) *RedisCluster {
	t.Helper()
	asNode := func(s *Server) { s.bus = true }
	args := WithArgs("--cluster-enabled", "yes", "--cluster-node-timeout", nodeTimeout,
		// However old its data: that a replica was cut off is what some tests are about.
		"--cluster-replica-validity-factor", "0")
	c := &RedisCluster{masters: masters}
	c.servers = startAll(t, masters*(1+replicas), append([]Option{asNode, copies, args}, opts...)...)
	c.commands = commands{t: t, try: c.route}
	for _, s := range c.servers {
		c.nodes = append(c.nodes, &Node{s, s.Text("CLUSTER", "MYID")})
	}
	c.join()
	c.Settle()
	c.ResetStats()
	return c
}

// join makes one cluster out of nodes that do not know each other: masters first, then their replicas.
func (c *RedisCluster) join() {
	c.t.Helper()
	for i, n := range c.nodes[:c.masters] {
		// An epoch of its own for each, or they find out about it one by one.
		n.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		add := []string{"CLUSTER", "ADDSLOTS"}
		for slot := i * slots / c.masters; slot < (i+1)*slots/c.masters; slot++ {
			add = append(add, strconv.Itoa(slot))
		}
		n.Do(add...)
	}
	// All pairs: rumours would do it too, and take a second.
	for i, n := range c.nodes {
		for _, other := range c.nodes[i+1:] {
			n.Do("CLUSTER", "MEET", "127.0.0.1", other.port())
		}
	}
	for i, n := range c.nodes[c.masters:] {
		settle(c.t, "a node to know its master", c.servers, func() error {
			_, err := n.Try("CLUSTER", "REPLICATE", c.nodes[i%c.masters].ID)
			return err
		})
	}
}

// Settle waits until all nodes that run serve, agree on who serves what and which nodes are down, and the
// replicas among them are linked. That takes as long as a failover if a master is down.
func (c *RedisCluster) Settle() {
	c.t.Helper()
	settle(c.t, "a cluster", c.servers, c.unsettled)
}

// Option leads a client to the cluster by the nodes that were its masters at first.
func (c *RedisCluster) Option() rueidis.ClientOption {
	o := c.servers[0].access()
	for _, n := range c.nodes[:c.masters] {
		o.InitAddress = append(o.InitAddress, n.addr)
	}
	return o
}

// Nodes are all nodes, whether they run or not, the masters of the beginning first.
func (c *RedisCluster) Nodes() []*Node { return slices.Clone(c.nodes) }

func (c *RedisCluster) running() []*Node {
	return slices.DeleteFunc(c.Nodes(), func(n *Node) bool { return !n.Running() })
}

func (c *RedisCluster) byID(id string) *Node {
	for _, n := range c.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// Master is the node that serves the slot now, or nil while none does.
func (c *RedisCluster) Master(slot int) *Node { return c.owners()[slot] }

// MasterOf is the node that serves the key now, or nil while none does.
func (c *RedisCluster) MasterOf(key string) *Node { return c.Master(Slot(key)) }

// Masters are the nodes that serve slots now, in the order of their first slots.
func (c *RedisCluster) Masters() []*Node {
	var found []*Node
	for _, n := range c.owners() {
		if n != nil && !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}

// Replicas are the nodes that follow the master, by their own account, so only those that run.
func (c *RedisCluster) Replicas(master *Node) []*Node {
	var found []*Node
	for _, n := range c.running() {
		if self, err := n.self(); err == nil && self.master == master.ID {
			found = append(found, n)
		}
	}
	return found
}

// Failover makes a replica of the master take its place, by CLUSTER FAILOVER with or without FORCE or
// TAKEOVER, waits until all nodes have come to terms with it, the old master included if it runs, and
// returns the new one.
func (c *RedisCluster) Failover(master *Node, how ...string) *Node {
	c.t.Helper()
	replicas := c.Replicas(master)
	if len(replicas) == 0 {
		c.t.Fatalf("redistest: no replica of %s runs", master.addr)
	}
	replica := replicas[0]
	changed := func() error {
		self, err := replica.self()
		if err == nil && !self.is("master") {
			err = fmt.Errorf("%s is still a replica", replica.addr)
		}
		return err
	}
	settle(c.t, "a failover", c.servers, func() error {
		if changed() == nil {
			return nil
		}
		if _, err := replica.Try(append([]string{"CLUSTER", "FAILOVER"}, how...)...); err != nil {
			return err
		}
		return until(handOver, changed)
	})
	c.Settle()
	return replica
}

// errKeyless is why a command cannot be sent to a cluster as such.
var errKeyless = errors.New("a command without a key goes to a node, not to the cluster")

// route sends a command to the node that has its first key.
func (c *RedisCluster) route(args ...string) (any, error) {
	nodes := c.running()
	if len(nodes) == 0 {
		return nil, errors.New("redistest: no node runs")
	}
	reply, err := nodes[0].Try(append([]string{"COMMAND", "GETKEYS"}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("redistest: %w: %w", errKeyless, err)
	}
	keys, _ := reply.([]any)
	key, _ := keys[0].(string)
	n := c.MasterOf(key)
	if n == nil {
		return nil, fmt.Errorf("redistest: nobody serves slot %d", Slot(key))
	}
	reply, err = n.Try(args...)
	if refused := ReplyError(""); errors.As(err, &refused) && strings.HasPrefix(string(refused), "ASK ") {
		if to := c.byAddr(strings.Fields(string(refused))[2]); to != nil {
			return to.ask(args...)
		}
	}
	return reply, err
}

func (c *RedisCluster) byAddr(addr string) *Node {
	for _, n := range c.nodes {
		if n.addr == addr {
			return n
		}
	}
	return nil
}

// Keys returns the names of all keys, by what the present masters have.
func (c *RedisCluster) Keys() []string {
	c.t.Helper()
	var keys []string
	for _, n := range c.Masters() {
		keys = append(keys, n.Keys()...)
	}
	return keys
}

// CommandStats counts the commands that clients ran on the present masters; see [Backend]. What a master did
// while it was a replica is counted too, so after a failover it says little.
func (c *RedisCluster) CommandStats() map[string]int64 {
	c.t.Helper()
	total := map[string]int64{}
	for _, n := range c.Masters() {
		for name, count := range n.CommandStats() {
			total[name] += count
		}
	}
	for _, name := range []string{"replconf", "psync", "restore-asking"} {
		delete(total, name) // What nodes ask each other.
	}
	return total
}

// ResetStats starts CommandStats again from zero, on all nodes that run.
func (c *RedisCluster) ResetStats() {
	c.t.Helper()
	for _, n := range c.running() {
		n.ResetStats()
	}
}

// Kill ends all nodes at once.
func (c *RedisCluster) Kill() { killAll(c.servers) }

// Restart kills what runs and starts all nodes again with their shares of the slots, but without data.
func (c *RedisCluster) Restart() {
	c.t.Helper()
	c.Kill()
	if err := all(c.servers, (*Server).start); err != nil {
		c.t.Fatal(err)
	}
	c.Settle()
}
