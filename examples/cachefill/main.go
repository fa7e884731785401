// Cachefill keeps a stampede off a database: fifty requests of five clients want a key that is not in the cache, and
// one of them loads it.
//
// What matters is in get. It looks in the cache first, so a warm key costs no lock. It locks by key, so other keys do
// not wait. It looks again under the lock, because somebody ahead in the queue has most likely filled the cache by
// then: without that second look all would load after all, one behind the other. And it puts the value there before
// it unlocks.
//
// If the load fails, that request has the error, and the next in the queue tries. So a failure that passes costs one
// request; while a database is down, each waits for those ahead of it to fail: bound the wait by the context, or cache
// the failure for a second too. If the process that loads dies, the next one loads when its lease has run out.
//
// What it leaves open: a process that was paused for longer than its lease may put an old value over a newer one,
// which stays until it expires. Where that is too long, put it with fence.Redis and the token of the hold, as the
// example cron does. And a cache that fails fails the request; you may prefer to load without it.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/examples/internal/embedded"
	"github.com/headwaiter/headwaiter/fairlock"
)

const (
	clients  = 5
	requests = 50
)

// prices are kept in a database and cached in Redis.
type prices struct {
	cache rueidis.Client
	locks *headwaiter.Client
	db    *database
}

// get returns a price, from the cache or, if it is not there, from the database.
func (p prices) get(ctx context.Context, key string) (string, error) {
	price, found, err := p.cached(ctx, key)
	if err != nil || found {
		return price, err
	}
	lock := fairlock.New(p.locks, "fill:"+key, headwaiter.WithLease(5*time.Second))
	err = lock.Do(ctx, func(held context.Context) error {
		if price, found, err = p.cached(held, key); err != nil || found {
			return err
		}
		price, err = p.load(held, key)
		return err
	})
	return price, err
}

// unguarded is get without the lock.
func (p prices) unguarded(ctx context.Context, key string) (string, error) {
	price, found, err := p.cached(ctx, key)
	if err != nil || found {
		return price, err
	}
	return p.load(ctx, key)
}

func (p prices) cached(ctx context.Context, key string) (price string, found bool, err error) {
	price, err = p.cache.Do(ctx, p.cache.B().Get().Key(key).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", false, nil
	}
	return price, err == nil, err
}

// load reads the database and fills the cache. It stops when its context ends, under the lock that of the hold.
func (p prices) load(ctx context.Context, key string) (string, error) {
	price, err := p.db.read(ctx)
	if err != nil {
		return "", err
	}
	return price, p.cache.Do(ctx, p.cache.B().Set().Key(key).Value(price).Ex(time.Minute).Build()).Error()
}

func main() { embedded.Main(run) }

func run(ctx context.Context, redis string) error {
	option, err := rueidis.ParseURL(redis)
	if err != nil {
		return err
	}
	option.DisableCache = true
	cache, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer cache.Close()
	db := &database{}
	var all []prices
	for range clients {
		locks, err := headwaiter.DialURL(redis)
		if err != nil {
			return err
		}
		defer locks.Close(context.Background())
		all = append(all, prices{cache, locks, db})
	}
	fmt.Printf("%d requests of %d clients for one key that nobody has cached; a load takes %v\n",
		requests, clients, loadTime)
	err = errors.Join(
		stampede(ctx, "without a lock", all, prices.unguarded),
		stampede(ctx, "with the lock", all, prices.get),
	)
	if err != nil {
		return err
	}
	db.failures.Store(1)
	if err := stampede(ctx, "the first load fails", all, prices.get); !errors.Is(err, errDown) {
		return err
	}
	return nil
}

// stampede has all requests come at once for a new key, and prints what they cost and got.
func stampede(ctx context.Context, title string, all []prices,
	get func(prices, context.Context, string) (string, error),
) error {
	key := "price:" + strconv.FormatInt(time.Now().UnixMicro(), 36)
	before, started := all[0].db.reads.Load(), time.Now()
	var wg sync.WaitGroup
	errs := make([]error, requests)
	for i := range errs {
		wg.Go(func() { _, errs[i] = get(all[i%clients], ctx, key) })
	}
	wg.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	fmt.Printf("%-21s loads %2d, values %d, errors %d in %v\n", title+":", all[0].db.reads.Load()-before,
		requests-len(failed), len(failed), time.Since(started).Round(time.Millisecond))
	return errors.Join(failed...)
}
