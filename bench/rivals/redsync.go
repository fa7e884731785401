package rivals

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-redsync/redsync/v4"
	lockredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/headwaiter/headwaiter/bench"
)

// Redsync is github.com/go-redsync/redsync on go-redis, on one server or on several. It gives up after 32 tries; then it is
// asked again.
type Redsync struct{ Addrs []string }

// RedsyncNodes is the one on several servers.
func RedsyncNodes(addrs []string) bench.Contender {
	c := bench.NewContender(Redsync{addrs})
	c.About, c.Only = fmt.Sprintf("redsync on %d nodes, defaults: polls every 50 to 250 ms", len(addrs)), []string{"R5"}
	return c
}

// Name implements [bench.Driver].
func (d Redsync) Name() string {
	if n := len(d.Addrs); n > 1 {
		return fmt.Sprintf("redsync-%d", n)
	}
	return "redsync"
}

// NewClient implements [bench.Driver].
func (d Redsync) NewClient(context.Context) (bench.Client, error) {
	var c redsyncClient
	var pools []lockredis.Pool
	for _, addr := range d.Addrs {
		c.clients = append(c.clients, redis.NewClient(&redis.Options{Addr: addr}))
		pools = append(pools, goredis.NewPool(c.clients[len(c.clients)-1]))
	}
	c.sync = redsync.New(pools...)
	return c, nil
}

type redsyncClient struct {
	clients []*redis.Client
	sync    *redsync.Redsync
}

// Of implements [bench.Family].
func (c redsyncClient) Of(kind string, _ int, name string) bench.Mutex {
	if kind != bench.KindRedlock {
		return nil
	}
	return c.Mutex(name)
}

// Latch implements [bench.Family].
func (redsyncClient) Latch(string) bench.Latch { return nil }

func (c redsyncClient) Mutex(name string) bench.Mutex {
	return lock(func(ctx context.Context) (func(context.Context) error, error) {
		m := c.sync.NewMutex(name)
		for {
			err := m.LockContext(ctx)
			var taken *redsync.ErrTaken
			switch {
			case err == nil:
				return func(ctx context.Context) error {
					_, err := m.UnlockContext(ctx)
					return err
				}, nil
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed):
				return nil, err
			}
		}
	})
}

func (c redsyncClient) Shutdown(context.Context) error {
	var errs []error
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(errs...)
}
