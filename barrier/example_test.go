package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// come lets one party come in the background, and returns when it waits.
func come(b *barrier.Barrier) <-chan error {
	result := make(chan error, 1)
	go func() {
		_, err := b.Await(context.Background())
		result <- err
	}()
	for {
		waiting, err := b.Waiting(context.Background())
		if err != nil {
			panic(err)
		}
		if waiting > 0 {
			return result
		}
	}
}

// Two workers go through the phases of a computation together.
func Example() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	var mu sync.Mutex
	done := map[int]int{} // phase: workers that have done it
	var workers sync.WaitGroup
	for _, client := range clients {
		workers.Go(func() {
			phases := barrier.New(client, "phases", 2)
			for phase := range 3 {
				mu.Lock()
				done[phase]++
				mu.Unlock()
				if _, err := phases.Await(ctx); err != nil {
					fmt.Println(err)
					return
				}
				mu.Lock()
				if done[phase] != 2 {
					fmt.Println("somebody went ahead of the others")
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	fmt.Println(done)
	// Output:
	// map[0:2 1:2 2:2]
}

func ExampleNew() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	come(barrier.New(clients[0], "phases", 2))
	_, err := barrier.New(clients[1], "phases", 3).Await(ctx)
	fmt.Println(errors.Is(err, lease.ErrMismatch))
	_, err = barrier.New(clients[1], "phases", 0).Await(ctx)
	fmt.Println(errors.Is(err, lease.ErrInvalid), err)
	// Output:
	// true
	// true barrier: await "phases": invalid argument: a barrier of 0 parties: at least 1 is needed
}

func ExampleBarrier_Name() {
	clients, stop := kit.Clients(1)
	defer stop()

	phases := barrier.New(clients[0], "phases", 3)
	fmt.Println(phases.Name(), phases.Parties())
	// Output:
	// phases 3
}

func ExampleBarrier_Await() {
	clients, stop := kit.Clients(2)
	defer stop()

	first := come(barrier.New(clients[0], "phases", 2))
	index, err := barrier.New(clients[1], "phases", 2).Await(context.Background())
	fmt.Println(index, err) // 0: the last to come
	fmt.Println(<-first)
	// Output:
	// 0 <nil>
	// <nil>
}

func ExampleBarrier_Await_timeout() {
	clients, stop := kit.Clients(2)
	defer stop()

	phases := barrier.New(clients[0], "phases", 3)
	first := come(phases)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err := barrier.New(clients[1], "phases", 3).Await(ctx)
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	fmt.Println(errors.Is(<-first, barrier.ErrBroken))
	// Output:
	// true
	// true
}

func ExampleBarrier_Reset() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	phases := barrier.New(clients[0], "phases", 2)
	first := come(phases)
	fmt.Println(phases.Reset(ctx))
	fmt.Println(errors.Is(<-first, barrier.ErrBroken))

	first = come(phases) // It begins anew.
	fmt.Println(phases.Await(ctx))
	fmt.Println(<-first)
	// Output:
	// <nil>
	// true
	// 0 <nil>
	// <nil>
}

func ExampleBarrier_Broken() {
	clients, stop := kit.Clients(1)
	defer stop()

	phases := barrier.New(clients[0], "phases", 1, barrier.WithAction(func(context.Context) error {
		return errors.New("out of paint")
	}))
	fmt.Println(phases.Broken(context.Background()))
	_, _ = phases.Await(context.Background())
	fmt.Println(phases.Broken(context.Background()))
	// Output:
	// false <nil>
	// true <nil>
}

func ExampleBarrier_Waiting() {
	clients, stop := kit.Clients(1)
	defer stop()

	phases := barrier.New(clients[0], "phases", 3)
	come(phases)
	fmt.Println(phases.Waiting(context.Background()))
	// Output:
	// 1 <nil>
}

func ExampleBarrier_Inspect() {
	clients, stop := kit.Clients(1)
	defer stop()

	phases := barrier.New(clients[0], "phases", 3)
	come(phases)
	info, err := phases.Inspect(context.Background())
	fmt.Println(info.State, info.Used, "of", info.Limit, err)
	fmt.Println(info.Holders[0].Client == clients[0].ID())
	// Output:
	// open 1 of 3 <nil>
	// true
}

func ExampleWithAction() {
	clients, stop := kit.Clients(2)
	defer stop()

	merge := barrier.WithAction(func(context.Context) error {
		fmt.Println("merging, while all wait")
		return nil
	})
	first := come(barrier.New(clients[0], "phases", 2, merge))
	fmt.Println(barrier.New(clients[1], "phases", 2, merge).Await(context.Background()))
	fmt.Println(<-first)
	// Output:
	// merging, while all wait
	// 0 <nil>
	// <nil>
}

func ExampleWithLifetime() {
	clients, stop := kit.Clients(1)
	defer stop()

	// An hour after its last use a broken barrier is forgotten, and so begins anew.
	phases := barrier.New(clients[0], "phases", 1, barrier.WithLifetime(time.Hour))
	fmt.Println(phases.Await(context.Background()))
	_, err := barrier.New(clients[0], "phases", 1, barrier.WithLifetime(time.Second)).Await(context.Background())
	fmt.Println(errors.Is(err, lease.ErrInvalid))
	// Output:
	// 0 <nil>
	// true
}
