package rivals

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/headwaiter/headwaiter/bench"
)

// Redsync is github.com/go-redsync/redsync on go-redis. It gives up after 32 tries; then it is asked again.
type Redsync struct{ Addr string }

// Name implements [bench.Driver].
func (Redsync) Name() string { return "redsync" }

// NewClient implements [bench.Driver].
func (d Redsync) NewClient(context.Context) (bench.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: d.Addr})
	return redsyncClient{client, redsync.New(goredis.NewPool(client))}, nil
}

type redsyncClient struct {
	client *redis.Client
	sync   *redsync.Redsync
}

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

func (c redsyncClient) Shutdown(context.Context) error { return c.client.Close() }
