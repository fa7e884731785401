package fairlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// A worker that takes many tasks at a time asks for their locks in one round trip.
func ExampleTryLockEach() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()
	locks := func(c *headwaiter.Client, names ...string) (all []*fairlock.Mutex) {
		for _, name := range names {
			all = append(all, fairlock.New(c, name))
		}
		return all
	}

	first := fairlock.LockEach(ctx, locks(clients[0], "task:1", "task:2")...)
	second := locks(clients[1], "task:2", "task:3")
	for i, o := range fairlock.TryLockEach(ctx, second...) {
		fmt.Println(second[i].Name(), o.Lease != nil, errors.Is(o.Err, lease.ErrBusy))
	}

	var held []*lease.Lease
	for _, o := range first {
		held = append(held, o.Lease)
	}
	fmt.Println(fairlock.ReleaseEach(ctx, held...))
	// Output:
	// task:2 false true
	// task:3 true false
	// [<nil> <nil>]
}

// Goroutines of one process pass the lock on among themselves, eight times at the most while others wait.
func ExampleWithCohort() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	cache := fairlock.New(clients[0], "cache", fairlock.WithCohort(8))
	sum, done := 0, make(chan error)
	for range 8 {
		go func() {
			done <- cache.Do(ctx, func(context.Context) error {
				sum++
				return nil
			})
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			panic(err)
		}
	}
	fmt.Println(sum)
	// Output: 8
}
