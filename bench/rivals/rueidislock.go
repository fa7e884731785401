package rivals

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/headwaiter/headwaiter/bench"
)

// Rueidislock is github.com/redis/rueidis/rueidislock: SET NX of several keys, and client-side caching to be told of
// changes.
type Rueidislock struct {
	Redis rueidis.ClientOption
	// Tuned is what its README advises for one server of Redis 7: one key, no tracking of own changes.
	Tuned bool
}

// Name implements [bench.Driver].
func (d Rueidislock) Name() string {
	if d.Tuned {
		return "rueidislock-tuned"
	}
	return "rueidislock"
}

// NewClient implements [bench.Driver].
func (d Rueidislock) NewClient(context.Context) (bench.Client, error) {
	option := rueidislock.LockerOption{ClientOption: d.Redis}
	if d.Tuned {
		option.KeyMajority, option.NoLoopTracking = 1, true
	}
	locker, err := rueidislock.NewLocker(option)
	if err != nil {
		return nil, err
	}
	return rueidislockClient{locker}, nil
}

type rueidislockClient struct{ locker rueidislock.Locker }

func (c rueidislockClient) Mutex(name string) bench.Mutex {
	return lock(func(ctx context.Context) (func(context.Context) error, error) {
		_, cancel, err := c.locker.WithContext(ctx, name)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error { cancel(); return nil }, nil
	})
}

func (c rueidislockClient) Shutdown(context.Context) error {
	c.locker.Close()
	return nil
}
