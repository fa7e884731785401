package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

// Ten uploads at the same time, wherever they run.
func Example() {
	clients, stop := kit.Clients(2)
	defer stop()

	var uploads sync.WaitGroup
	for _, client := range clients {
		slots := semaphore.New(client, "uploads", 10)
		for range 20 {
			uploads.Go(func() {
				slot := kit.Must(slots.Acquire(context.Background(), 1))
				defer slot.Release(context.Background())
				// The upload. slot.Context() ends if the permit is lost.
			})
		}
	}
	uploads.Wait()
	free, err := semaphore.New(clients[0], "uploads", 10).Available(context.Background())
	fmt.Println(free, err)
	// Output:
	// 10 <nil>
}

// The function gets a context that ends when the call's does, or when the permit is lost.
func ExampleSemaphore_Do() {
	clients, stop := kit.Clients(1)
	defer stop()
	slots := semaphore.New(clients[0], "uploads", 10)

	err := slots.Do(context.Background(), 2, func(ctx context.Context) error {
		free, err := slots.Available(ctx)
		fmt.Println("uploading,", free, "are free")
		return err
	})
	fmt.Println(err)
	// Output:
	// uploading, 8 are free
	// <nil>
}

func ExampleSemaphore_Acquire() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	memory := semaphore.New(clients[0], "gigabytes", 16)

	job := kit.Must(memory.Acquire(ctx, 12))
	free, err := memory.Available(ctx)
	fmt.Println(free, err)
	fmt.Println(job.Release(ctx)) // All 12 of them.

	_, err = memory.Acquire(ctx, 17)
	fmt.Println(errors.Is(err, lease.ErrTooLarge)) // At once: it would wait for ever.
	// Output:
	// 4 <nil>
	// <nil>
	// true
}

func ExampleSemaphore_TryAcquire() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	seats := semaphore.New(clients[0], "seats", 3)

	taken := kit.Must(seats.TryAcquire(ctx, 2))
	_, err := seats.TryAcquire(ctx, 2)
	fmt.Println(err)
	fmt.Println(taken.Release(ctx))
	// Output:
	// semaphore: try acquire "seats": busy
	// <nil>
}

func ExampleSemaphore_Available() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	seats := semaphore.New(clients[0], "seats", 3)

	fmt.Println(seats.Available(ctx))
	taken := kit.Must(seats.Acquire(ctx, 2))
	fmt.Println(seats.Available(ctx))
	fmt.Println(taken.Release(ctx))
	// Output:
	// 3 <nil>
	// 1 <nil>
	// <nil>
}

func ExampleSemaphore_Drain() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	workers := semaphore.New(clients[0], "workers", 8)

	busy := kit.Must(workers.Acquire(ctx, 3))
	rest, n, err := workers.Drain(ctx)
	fmt.Println(n, err)
	_, _, err = workers.Drain(ctx)
	fmt.Println(err)
	fmt.Println(rest.Release(ctx), busy.Release(ctx))
	// Output:
	// 5 <nil>
	// semaphore: drain "workers": busy
	// <nil> <nil>
}

func ExampleSemaphore_Resize() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()
	pool := semaphore.New(clients[0], "pool", 4)

	held := kit.Must(pool.Acquire(ctx, 3))
	fmt.Println(pool.Resize(ctx, 2)) // Fewer than are held: nobody loses any.
	fmt.Println(semaphore.New(clients[1], "pool", 4).Available(ctx))
	fmt.Println(held.Release(ctx))
	fmt.Println(pool.Available(ctx))
	// Output:
	// <nil>
	// -1 <nil>
	// <nil>
	// 2 <nil>
}

func ExampleSemaphore_Inspect() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	seats := semaphore.New(clients[0], "seats", 3)

	taken := kit.Must(seats.Acquire(ctx, 2))
	defer taken.Release(ctx)
	info, err := seats.Inspect(ctx)
	fmt.Println(seats.Name(), info.Used, "of", info.Limit, "by", len(info.Holders), "waiting", info.Waiting, err)
	// Output:
	// seats 2 of 3 by 1 waiting 0 <nil>
}

func ExampleSemaphore_ForceRelease() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	taken := kit.Must(semaphore.New(clients[0], "seats", 3).Acquire(ctx, 2))
	seats := semaphore.New(clients[1], "seats", 3)
	info := kit.Must(seats.Inspect(ctx))
	_, err := seats.ForceRelease(ctx, info.Holder.Token)
	fmt.Println(err)
	fmt.Println(seats.Available(ctx))
	err = taken.Release(ctx)
	fmt.Println(errors.Is(err, lease.ErrLost), err)
	// Output:
	// <nil>
	// 3 <nil>
	// true lease lost: seats: released elsewhere by force
}

// A rollout from 3 permits to 5: the number of the newest client counts, also for the old one.
func ExampleNew_rollout() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	old, new := semaphore.New(clients[0], "seats", 3), semaphore.New(clients[1], "seats", 5)
	seats := kit.Must(old.Acquire(ctx, 3))
	more := kit.Must(new.Acquire(ctx, 1))
	fmt.Println(old.Available(ctx))
	fmt.Println(seats.Release(ctx), more.Release(ctx))
	// Output:
	// 1 <nil>
	// <nil> <nil>
}

// At most 3 calls in any 50 ms: a permit comes back when its time is over, not when the call is.
func ExampleWithoutRenewal() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	rate := semaphore.New(clients[0], "calls", 3, headwaiter.WithLease(50*time.Millisecond), semaphore.WithoutRenewal())

	begun := time.Now()
	for range 7 {
		kit.Must(rate.Acquire(ctx, 1))
	}
	fmt.Println(time.Since(begun) > 90*time.Millisecond)
	// Output:
	// true
}
