package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// A Cluster is masters without replicas, each with as many slots.
type Cluster struct {
	Nodes
	observers []*observer // of one master each
}

const (
	clusterSlots    = 16384
	clusterPatience = 30 * time.Second
)

// StartCluster starts one and returns when all masters serve.
func StartCluster(ctx context.Context, masters int) (c *Cluster, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, clusterPatience, errors.New("the masters do not become a cluster"))
	defer cancel()
	c = &Cluster{}
	defer func() {
		if err != nil {
			c.Stop()
			c = nil
			err = fmt.Errorf("bench: cluster of %d: %w", masters, err)
		}
	}()
	for range masters {
		node, err := StartRedis(ctx, clusterEnabled, "yes")
		if err != nil {
			return c, err
		}
		c.Nodes = append(c.Nodes, node)
		o, err := newObserver(rueidis.ClientOption{InitAddress: []string{node.Addr}, ForceSingleClient: true})
		if err != nil {
			return c, err
		}
		c.observers = append(c.observers, o)
	}
	for i, o := range c.observers {
		first, last := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
		commands := [][]string{
			{"CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i + 1)},
			{"CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)},
		}
		for _, other := range c.Nodes[:i] {
			commands = append(commands, []string{"CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.server.Port(0))})
		}
		for _, command := range commands {
			if err := o.client.Do(ctx, o.client.B().Arbitrary(command...).Build()).Error(); err != nil {
				return c, err
			}
		}
	}
	for _, o := range c.observers {
		for ready := false; !ready; {
			text, err := o.client.Do(ctx, o.client.B().ClusterInfo().Build()).ToString()
			if err != nil {
				return c, err
			}
			ready = lineOf(text, "cluster_state") == "ok" && lineOf(text, "cluster_known_nodes") == strconv.Itoa(masters)
			if err := pass(ctx, 20*time.Millisecond); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// Stop ends all masters.
func (c *Cluster) Stop() {
	for _, o := range c.observers {
		o.close()
	}
	c.Nodes.Stop()
}

// Option leads to all masters.
func (c *Cluster) Option() (o rueidis.ClientOption) {
	for _, node := range c.Nodes {
		o.InitAddress = append(o.InitAddress, node.Addr)
	}
	return o
}

// names are names of locks of a contender, each of them on each master.
func (c *Cluster) names(ctx context.Context, contender Contender, prefix string, each int) (found []string, err error) {
	have, masters := make([]int, len(c.Nodes)), len(c.Nodes)
	asked := c.observers[0].client
	for i := 0; len(found) < each*masters; i++ {
		name := fmt.Sprintf("%s:shard:%d", prefix, i)
		slot, err := asked.Do(ctx, asked.B().ClusterKeyslot().Key(contender.Keys(name)[0]).Build()).AsInt64()
		if err != nil {
			return nil, fmt.Errorf("bench: CLUSTER KEYSLOT: %w", err)
		}
		for master := range masters {
			if int(slot) < (master+1)*clusterSlots/masters {
				if have[master] < each {
					have[master]++
					found = append(found, name)
				}
				break
			}
		}
	}
	return found, nil
}

// connections counts the connections of clients to all masters, except the observer's.
func (c *Cluster) connections(ctx context.Context, o *observer) (sum float64, err error) {
	for _, one := range c.observers {
		n, err := one.figure(ctx, "clients", "connected_clients")
		if err != nil {
			return sum, err
		}
		sum += n - 1
	}
	return sum - float64(len(o.client.Nodes())), nil
}
