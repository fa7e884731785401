package drivers

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

// Redlock is this library with the nodes for a lock on several servers. A client connects to them when such a lock is
// named first.
type Redlock struct {
	Headwaiter
	Nodes []rueidis.ClientOption
}

// NewClient implements [bench.Driver].
func (d Redlock) NewClient(context.Context) (bench.Client, error) {
	c, err := headwaiter.Dial(headwaiter.Options{Redis: d.Redis})
	if err != nil {
		return nil, err
	}
	return &redlockClient{headwaiterClient: headwaiterClient{Client: c}, options: d.Nodes}, nil
}

type redlockClient struct {
	headwaiterClient
	options []rueidis.ClientOption
	nodes   []*headwaiter.Client
}

// Of implements [bench.Family].
func (c *redlockClient) Of(kind string, permits int, name string) bench.Mutex {
	if kind != bench.KindRedlock {
		return c.headwaiterClient.Of(kind, permits, name)
	}
	if c.nodes == nil {
		for _, o := range c.options {
			node, err := headwaiter.Dial(headwaiter.Options{Redis: o})
			if err != nil {
				return acquire(func(context.Context) (*lease.Lease, error) { return nil, err })
			}
			c.nodes = append(c.nodes, node)
		}
	}
	return acquire(redlock.New(c.nodes, name).Lock)
}

// Shutdown implements [bench.Client].
func (c *redlockClient) Shutdown(ctx context.Context) error {
	err := c.headwaiterClient.Shutdown(ctx)
	for _, node := range c.nodes {
		err = errors.Join(err, node.Shutdown(ctx))
	}
	return err
}
