package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Masters and replicas of the cluster that [StartCluster] starts.
const (
	clusterMasters = 3
	clusterSlots   = 16384
)

// joinPatience is how long the nodes may take until they agree.
const joinPatience = 20 * time.Second

// A Cluster is a Redis cluster that was started for a run: three masters with a replica each.
type Cluster struct {
	nodes []*Redis
	ids   []string
}

// StartCluster starts one, and returns when all its nodes agree that it works.
func StartCluster(ctx context.Context) (c *Cluster, err error) {
	c = &Cluster{}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	for range 2 * clusterMasters {
		r, err := StartRedis(ctx, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000")
		if err != nil {
			return c, err
		}
		c.nodes = append(c.nodes, r)
	}
	return c, c.join(ctx)
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() (addrs []string) {
	for _, r := range c.nodes {
		addrs = append(addrs, r.Addr)
	}
	return addrs
}

// Stop ends all nodes.
func (c *Cluster) Stop() {
	for _, r := range c.nodes {
		r.Stop()
	}
}

// join makes a cluster of the nodes: the first three have the slots, the others follow one of them each.
func (c *Cluster) join(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, joinPatience, errors.New("the cluster does not come up"))
	defer cancel()
	for i, r := range c.nodes {
		id, err := c.do(ctx, r, "CLUSTER", "MYID")
		if err != nil {
			return err
		}
		c.ids = append(c.ids, id)
		host, port, _ := net.SplitHostPort(r.Addr)
		if _, err := c.do(ctx, c.nodes[0], "CLUSTER", "MEET", host, port); i > 0 && err != nil {
			return err
		}
		if i < clusterMasters {
			first, last := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1
			if _, err := c.do(ctx, r, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
				return err
			}
		}
	}
	for i := clusterMasters; i < len(c.nodes); i++ {
		// It must have heard of its master before.
		if err := c.until(ctx, c.nodes[i], "CLUSTER REPLICATE "+c.ids[i-clusterMasters], "OK"); err != nil {
			return err
		}
	}
	for i, r := range c.nodes {
		wanted := "cluster_state:ok"
		if err := c.until(ctx, r, "CLUSTER INFO", wanted); err != nil {
			return err
		}
		if i >= clusterMasters {
			if err := c.until(ctx, r, "INFO replication", "master_link_status:up"); err != nil {
				return err
			}
		}
	}
	return nil
}

// until sends a command again and again until its answer has a text in it.
func (c *Cluster) until(ctx context.Context, r *Redis, command, text string) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		answer, err := c.do(ctx, r, strings.Fields(command)...)
		if err == nil && strings.Contains(answer, text) {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("bench: %s of %s: %w", command, r.Addr, errors.Join(context.Cause(ctx), err))
		}
	}
}

func (c *Cluster) do(ctx context.Context, r *Redis, command ...string) (string, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{r.Addr}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		return "", fmt.Errorf("bench: %w", err)
	}
	defer client.Close()
	answer, err := client.Do(ctx, client.B().Arbitrary(command...).Build()).ToString()
	if err != nil {
		return "", fmt.Errorf("bench: %s: %w", strings.Join(command, " "), err)
	}
	return answer, nil
}

// besideFloor is the same work of another driver, as what a work is compared with.
type besideFloor struct{ crew *crew }

func (r *runner) openBeside(ctx context.Context, w Work, name string) (floor, error) {
	c, err := newCrew(ctx, r, NewContender(r.Beside), w, name)
	if err != nil {
		return nil, err
	}
	return besideFloor{c}, nil
}

func (f besideFloor) measure(ctx context.Context, d time.Duration) (Floor, error) {
	figures, err := f.crew.measure(ctx, d)
	if err != nil {
		return Floor{}, err
	}
	return Floor{Name: floorBeside, Micros: 1e6 / figures.Rate, Rate: figures.Rate, Time: figures.HandOff}, nil
}

func (f besideFloor) close() { _ = f.crew.close(context.Background()) }
