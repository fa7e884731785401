package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
)

// A function that locks calls another that locks the same.
func Example() {
	clients, stop := kit.Clients(1)
	defer stop()
	account := reentrant.New(clients[0], "account:7")

	deposit := func(ctx context.Context, amount int) error {
		return account.Do(ctx, func(held context.Context) error {
			fmt.Println("deposit", amount, "entered", account.HoldCount(held))
			return nil
		})
	}
	err := account.Do(context.Background(), func(held context.Context) error {
		if err := deposit(held, 3); err != nil { // With the context of the hold: it does not wait for itself.
			return err
		}
		return deposit(held, 4)
	})
	fmt.Println(err)
	// Output:
	// deposit 3 entered 2
	// deposit 4 entered 2
	// <nil>
}

func ExampleMutex_Lock() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	report := reentrant.New(clients[0], "report")

	outer := kit.Must(report.Lock(ctx))
	inner := kit.Must(report.Lock(outer.Context()))
	fmt.Println(inner.Token() == outer.Token(), report.HoldCount(inner.Context()))

	fmt.Println(outer.Release(ctx), report.HoldCount(inner.Context()))
	_, err := report.TryLock(ctx)
	fmt.Println(errors.Is(err, lease.ErrBusy)) // The inner lease still holds.
	fmt.Println(inner.Release(ctx))
	// Output:
	// true 2
	// <nil> 1
	// true
	// <nil>
}

func ExampleMutex_TryLock() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	held := kit.Must(reentrant.New(clients[0], "report").TryLock(ctx))
	defer held.Release(ctx)
	_, err := reentrant.New(clients[1], "report").TryLock(ctx)
	fmt.Println(errors.Is(err, lease.ErrBusy))
	// Output:
	// true
}

func ExampleMutex_Do() {
	clients, stop := kit.Clients(1)
	defer stop()
	tree := reentrant.New(clients[0], "tree", headwaiter.WithLease(30*time.Second))

	var visit func(ctx context.Context, depth int) error
	visit = func(ctx context.Context, depth int) error {
		return tree.Do(ctx, func(held context.Context) error {
			if depth == 0 {
				fmt.Println("entered", tree.HoldCount(held), "times")
				return nil
			}
			return visit(held, depth-1)
		})
	}
	fmt.Println(visit(context.Background(), 4))
	// Output:
	// entered 5 times
	// <nil>
}

func ExampleOwner() {
	clients, stop := kit.Clients(1)
	defer stop()
	device := reentrant.New(clients[0], "device")

	// Two requests of one job, without the context of each other's lease.
	first := kit.Must(device.Lock(reentrant.Owner(context.Background(), "job 42")))
	second := kit.Must(device.Lock(reentrant.Owner(context.Background(), "job 42")))
	_, err := device.TryLock(reentrant.Owner(context.Background(), "job 43"))
	fmt.Println(second.Token() == first.Token(), errors.Is(err, lease.ErrBusy))
	fmt.Println(first.Release(context.Background()), second.Release(context.Background()))
	// Output:
	// true true
	// <nil> <nil>
}

func ExampleMutex_HoldCount() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	m := reentrant.New(clients[0], "report")

	fmt.Println(m.HoldCount(ctx))
	held := kit.Must(m.Lock(ctx))
	fmt.Println(m.HoldCount(ctx), m.HoldCount(held.Context()))
	fmt.Println(held.Release(ctx), m.HoldCount(held.Context()))
	// Output:
	// 0
	// 0 1
	// <nil> 0
}

func ExampleMutex_Inspect() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	held := kit.Must(reentrant.New(clients[0], "report").Lock(ctx))
	defer held.Release(ctx)
	report := reentrant.New(clients[1], "report")
	info, err := report.Inspect(ctx)
	fmt.Println(report.Name(), info.Held, info.Holder.Client == clients[0].ID(), info.Token == held.Token(), info.Waiting, err)
	// Output:
	// report true true true 0 <nil>
}

func ExampleMutex_ForceRelease() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	device := reentrant.New(clients[0], "device")
	outer := kit.Must(device.Lock(ctx))
	inner := kit.Must(device.Lock(outer.Context()))
	_, err := reentrant.New(clients[1], "device").ForceRelease(ctx, outer.Token())
	fmt.Println(err)
	fmt.Println(outer.Release(ctx)) // It is not the last, so it asks nobody; the next finds out.
	fmt.Println(inner.Release(ctx))
	// Output:
	// <nil>
	// <nil>
	// lease lost: device: released elsewhere by force
}
