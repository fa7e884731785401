package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// start is the README's start.
func start(ctx context.Context, ship func(context.Context, uint64) error) error {
	client, err := headwaiter.DialURL(os.Getenv("REDIS_URL")) // redis://user:password@host:6379
	if err != nil {
		return err
	}
	defer client.Close()

	orders := fairlock.New(client, "orders:42")
	return orders.Do(ctx, func(ctx context.Context) error {
		return ship(ctx, lease.Token(ctx)) // ctx ends if the lock is lost.
	})
}

func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	_ = os.Setenv("REDIS_URL", "redis://"+server.Addr())
	err = start(context.Background(), func(held context.Context, token uint64) error {
		fmt.Println("shipping; lost:", held.Err(), "fenced:", token > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// shipping; lost: <nil> fenced: true
	// <nil>
}

// A long job does its steps until somebody waits, then releases and queues again.
func ExampleMutex_Lock_wanted() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()
	catalogue := fairlock.New(clients[0], "catalogue")
	held, err := catalogue.Lock(ctx)
	if err != nil {
		panic(err)
	}
	wanted := held.Wanted()
	go func() {
		_ = fairlock.New(clients[1], "catalogue").Do(ctx, func(context.Context) error {
			fmt.Println("another has had its turn")
			return nil
		})
	}()
	for done := false; !done; {
		select {
		case <-wanted:
			done = true
		default:
			time.Sleep(time.Millisecond) // A step.
		}
	}
	held.Unlock()
	held, err = catalogue.Lock(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("the job goes on")
	held.Unlock()
	// Output:
	// another has had its turn
	// the job goes on
}

// A client that uses a lock again and again keeps it, until somebody else waits.
func ExampleWithKeep() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()
	mostly := fairlock.New(clients[0], "cache", fairlock.WithKeep(time.Minute))
	asks := func() uint64 { return clients[0].Stats().AcquireRequests }

	for range 100 {
		_ = mostly.Do(ctx, func(context.Context) error {
			time.Sleep(10 * time.Microsecond) // The work.
			return nil
		})
	}
	fmt.Println("asks:", asks())
	_ = fairlock.New(clients[1], "cache").Do(ctx, func(context.Context) error {
		fmt.Println("another has it")
		return nil
	})
	_ = mostly.Do(ctx, func(context.Context) error { return nil })
	fmt.Println("asks:", asks())
	// Output:
	// asks: 1
	// another has it
	// asks: 2
}

func ExampleMutex_TryLock() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	held, err := fairlock.New(clients[0], "report").Lock(ctx)
	if err != nil {
		panic(err)
	}
	_, err = fairlock.New(clients[1], "report").TryLock(ctx)
	fmt.Println(errors.Is(err, lease.ErrBusy))
	// fairlock: try lock "report": busy: client 5f0c… holds it with token 1764… for 1.7s, 3 wait
	var busy *lease.BusyError
	if errors.As(err, &busy) {
		fmt.Println(busy.Client == clients[0].ID(), busy.Token == held.Token(), busy.Waiting)
	}
	fmt.Println(held.Release(ctx))
	// Output:
	// true
	// true true 0
	// <nil>
}

func ExampleMutex_Lock_timeout() {
	clients, stop := kit.Clients(2)
	defer stop()

	held, err := fairlock.New(clients[0], "report").Lock(context.Background())
	if err != nil {
		panic(err)
	}
	defer held.Release(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err = fairlock.New(clients[1], "report").Lock(ctx)
	var wait *lease.WaitError
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.As(err, &wait) && wait.Place == 1)
	// Output:
	// true true
}

func ExampleMutex_Do() {
	clients, stop := kit.Clients(1)
	defer stop()

	migrate := fairlock.New(clients[0], "migrate", headwaiter.WithLease(30*time.Second))
	err := migrate.Do(context.Background(), func(held context.Context) error {
		fmt.Println("migrating")
		return held.Err() // nil: still ours
	})
	fmt.Println(err)
	// Output:
	// migrating
	// <nil>
}

func ExampleMutex_ForceRelease() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	held, err := fairlock.New(clients[0], "device").Lock(ctx)
	if err != nil {
		panic(err)
	}
	device := fairlock.New(clients[1], "device")
	info, err := device.Inspect(ctx)
	fmt.Println(info.Held, info.Waiting, err)
	_, err = device.ForceRelease(ctx, info.Token)
	fmt.Println(err)

	err = held.Release(ctx)
	fmt.Println(errors.Is(err, lease.ErrLost), err)
	// Output:
	// true 0 <nil>
	// <nil>
	// true lease lost: device: released elsewhere by force
}

// Another wait and another lease for one call are those of another handle, which is only a name: nothing is sent for it.
func ExampleNew_oneCall() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	client := clients[0]
	report := fairlock.New(client, "report") // It waits for as long as ctx lasts, and has a lease of 10 s.
	brief := fairlock.New(client, "report", headwaiter.WithMaxWait(100*time.Millisecond), headwaiter.WithLease(time.Minute))
	held, err := report.Lock(ctx)
	if err != nil {
		panic(err)
	}
	_, err = brief.Lock(ctx)
	fmt.Println(errors.Is(err, headwaiter.ErrWaitTimeout))
	fmt.Println(held.Release(ctx))
	// Output:
	// true
	// <nil>
}
