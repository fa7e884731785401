package rivals

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/headwaiter/headwaiter/bench"
)

// Redislock is github.com/bsm/redislock, whose caller says how it waits. Obtain takes a time-out for its own when the
// context has none; then it is asked again.
type Redislock struct {
	Addr string
	// Every is the pause between two tries: 100 ms in the examples of its documentation.
	Every time.Duration
}

// Name implements [bench.Driver].
func (d Redislock) Name() string {
	if d.Every == time.Millisecond {
		return "redislock-1ms"
	}
	return "redislock"
}

// NewClient implements [bench.Driver].
func (d Redislock) NewClient(context.Context) (bench.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: d.Addr})
	return redislockClient{d, client, redislock.New(client)}, nil
}

type redislockClient struct {
	driver Redislock
	client *redis.Client
	locker *redislock.Client
}

func (c redislockClient) Mutex(name string) bench.Mutex {
	option := &redislock.Options{RetryStrategy: redislock.LinearBackoff(c.driver.Every)}
	return lock(func(ctx context.Context) (func(context.Context) error, error) {
		for {
			l, err := c.locker.Obtain(ctx, name, session, option)
			switch {
			case err == nil:
				return l.Release, nil
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, context.DeadlineExceeded):
				return nil, err
			}
		}
	})
}

func (c redislockClient) Shutdown(context.Context) error { return c.client.Close() }
