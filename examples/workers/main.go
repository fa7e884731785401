// Workers keeps a pool of workers within what an API allows: twenty workers of four clients call a service that refuses
// more than three calls at a time, each with a permit of a semaphore of three.
//
// What matters is in work. The permit is taken before the call and given back after it, also if the call fails. The
// call runs on the context of the hold, so it is cut off if the permit is lost. Workers are served in the order in
// which they came, over all clients, so none starves. And a permit is leased: that of a worker that dies comes back
// when its lease ends.
//
// What it leaves open: a worker that is paused for longer than its lease still calls, beside three others. No token can
// stop that, since with several permits an earlier one still holds: the API's own limit must. And the semaphore bounds
// how many call at a time, not how many a minute: for that take permits that are not given back but expire, with
// headwaiter.WithLease(time.Minute) and semaphore.WithoutRenewal().
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/examples/internal/embedded"
	"github.com/headwaiter/headwaiter/semaphore"
)

const (
	clients = 4
	workers = 20
	calls   = 3 // a worker
)

// work calls the API with a permit.
func work(ctx context.Context, permits *semaphore.Semaphore, a *api) error {
	permit, err := permits.Acquire(ctx, 1) // Waits its turn; ctx bounds the wait, not the hold.
	if err != nil {
		return err
	}
	err = a.call(permit.Context())
	// Not on ctx: if that has ended, the others need the permit all the same.
	return errors.Join(err, permit.Release(context.WithoutCancel(ctx)))
}

func main() { embedded.Main(run) }

func run(ctx context.Context, redis string) error {
	var pool []*semaphore.Semaphore // One for each client, all of the same name.
	for range clients {
		client, err := headwaiter.DialURL(redis)
		if err != nil {
			return err
		}
		defer client.Close(context.Background())
		pool = append(pool, semaphore.New(client, "geocoder", limit, headwaiter.WithLease(5*time.Second)))
	}
	fmt.Printf("%d workers of %d clients, %d calls each, to an API that refuses more than %d at a time\n",
		workers, clients, calls, limit)
	free, guarded := &api{}, &api{}
	errs := all(func(int) error { return free.call(ctx) })
	fmt.Printf("without permits: %2d at a time, %2d served, %2d refused\n", free.most, free.served, free.refused)
	if err := errors.Join(errs...); err != nil && !errors.Is(err, errTooMany) {
		return err
	}
	started := time.Now()
	errs = all(func(worker int) error { return work(ctx, pool[worker%clients], guarded) })
	fmt.Printf("with permits:    %2d at a time, %2d served, %2d refused, in %v\n",
		guarded.most, guarded.served, guarded.refused, time.Since(started).Round(time.Millisecond))
	return errors.Join(errs...)
}

// all has all workers make their calls, and returns their errors.
func all(call func(worker int) error) []error {
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		wg.Go(func() {
			for range calls {
				errs[i] = errors.Join(errs[i], call(i))
			}
		})
	}
	wg.Wait()
	return errs
}
