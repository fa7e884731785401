package countdown_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// heard returns when a client waits for the latch.
func heard(l *countdown.Latch) {
	for {
		info := kit.Must(l.Inspect(context.Background()))
		if info.Waiting > 0 {
			return
		}
	}
}

// One waits until two shards have been migrated, each by somebody else.
func Example() {
	ctx, clients, stop := kit.Ready(3)
	defer stop()

	kit.Must(countdown.New(clients[0], "migrated").TrySetCount(ctx, 2))
	var shards sync.WaitGroup
	for shard, client := range clients[1:] {
		shards.Go(func() {
			_, err := countdown.New(client, "migrated").CountDown(ctx)
			if err != nil {
				fmt.Println("shard", shard, err)
			}
		})
	}
	fmt.Println(countdown.New(clients[0], "migrated").Wait(ctx))
	shards.Wait() // The latch may open before the last of them has its answer.
	// Output:
	// <nil>
}

func ExampleNew() {
	clients, stop := kit.Clients(1)
	defer stop()

	fmt.Println(countdown.New(clients[0], "migrated").Name())
	_, err := countdown.New(clients[0], "").Count(context.Background())
	fmt.Println(errors.Is(err, lease.ErrInvalid), err)
	// Output:
	// migrated
	// true countdown: count "": invalid argument: the name is empty
}

func ExampleLatch_TrySetCount() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	migrated := countdown.New(clients[0], "migrated")
	fmt.Println(migrated.TrySetCount(ctx, 1))
	fmt.Println(migrated.TrySetCount(ctx, 5)) // It is closed.
	fmt.Println(migrated.CountDown(ctx))
	fmt.Println(migrated.TrySetCount(ctx, 5)) // It is open.
	// Output:
	// true <nil>
	// false <nil>
	// 0 <nil>
	// true <nil>
}

// The workers of a release start before the migration does, and wait for it.
func ExampleWithEarlyWait() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	worker := countdown.New(clients[0], "migrated", countdown.WithEarlyWait())
	done := make(chan error)
	go func() { done <- worker.Wait(ctx) }()

	migration := countdown.New(clients[1], "migrated")
	fmt.Println(migration.TrySetCount(ctx, 1)) // Before the worker comes, or after.
	fmt.Println(migration.CountDown(ctx))
	fmt.Println("the worker starts:", <-done)
	// Output:
	// true <nil>
	// 0 <nil>
	// the worker starts: <nil>
}

func ExampleLatch_CountDown() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	migrated := countdown.New(clients[0], "migrated")
	_, err := migrated.CountDown(ctx)
	fmt.Println(errors.Is(err, countdown.ErrUnset), err)

	kit.Must(migrated.TrySetCount(ctx, 2))
	for range 3 {
		fmt.Println(migrated.CountDown(ctx))
	}
	// Output:
	// true countdown: count down "migrated": the latch is not set
	// 1 <nil>
	// 0 <nil>
	// 0 <nil>
}

func ExampleLatch_Count() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	kit.Must(countdown.New(clients[0], "migrated").TrySetCount(ctx, 2))
	fmt.Println(countdown.New(clients[1], "migrated").Count(ctx))
	// Output:
	// 2 <nil>
}

func ExampleLatch_Wait_timeout() {
	clients, stop := kit.Clients(1)
	defer stop()

	migrated := countdown.New(clients[0], "migrated")
	kit.Must(migrated.TrySetCount(context.Background(), 1))
	ctx, cancel := context.WithTimeoutCause(context.Background(), 300*time.Millisecond, errors.New("the night is over"))
	defer cancel()
	err := migrated.Wait(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Unwrap(errors.Unwrap(err)))
	// Output:
	// true context deadline exceeded: the night is over
}

func ExampleLatch_Remove() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	migrated := countdown.New(clients[0], "migrated")
	kit.Must(migrated.TrySetCount(ctx, 1))
	waits := make(chan error)
	go func() { waits <- countdown.New(clients[1], "migrated").Wait(ctx) }()
	heard(migrated)
	fmt.Println(migrated.Remove(ctx))
	fmt.Println(errors.Is(<-waits, countdown.ErrGone))
	// Output:
	// true <nil>
	// true
}

func ExampleLatch_Inspect() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	migrated := countdown.New(clients[0], "migrated")
	kit.Must(migrated.TrySetCount(ctx, 3))
	kit.Must(migrated.CountDown(ctx))
	info, err := migrated.Inspect(ctx)
	fmt.Println(info.State, info.Used, "of", info.Limit, "left,", info.Waiting, "clients wait", err)
	// Output:
	// closed 2 of 3 left, 0 clients wait <nil>
}

func ExampleWithLifetime() {
	clients, stop := kit.Clients(1)
	defer stop()

	// Who comes within the hour after the last use finds it open; who comes later gets ErrUnset.
	migrated := countdown.New(clients[0], "migrated", countdown.WithLifetime(time.Hour))
	fmt.Println(migrated.TrySetCount(context.Background(), 1))
	_, err := countdown.New(clients[0], "migrated", countdown.WithLifetime(time.Second)).CountDown(context.Background())
	fmt.Println(errors.Is(err, lease.ErrInvalid))
	// Output:
	// true <nil>
	// true
}
