package locker_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/locker"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

func Example() {
	clients, stop := kit.Clients(1)
	defer stop()

	var orders sync.Locker = locker.New(context.Background(), fairlock.New(clients[0], "orders:42"))
	orders.Lock()
	defer orders.Unlock()
	fmt.Println("shipping")
	// Output: shipping
}

func ExampleNew() {
	clients, stop := kit.Clients(1)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // The program ends.

	defer func() { fmt.Println(recover()) }()
	locker.New(ctx, fairlock.New(clients[0], "orders:42")).Lock()
	// Output: locker: lock "orders:42": context canceled
}

func ExampleLocker_Unlock() {
	clients, stop := kit.Clients(1)
	defer stop()

	defer func() { fmt.Println(recover()) }()
	locker.New(context.Background(), fairlock.New(clients[0], "orders:42")).Unlock()
	// Output: locker: unlock "orders:42": not locked
}

func ExampleLocker_TryLock() {
	clients, stop := kit.Clients(1)
	defer stop()

	a := locker.New(context.Background(), fairlock.New(clients[0], "orders:42"))
	b := locker.New(context.Background(), fairlock.New(clients[0], "orders:42"))
	fmt.Println(a.TryLock(), b.TryLock())
	a.Unlock()
	// Output: true false
}

func ExampleLocker_Context() {
	clients, stop := kit.Clients(1)
	defer stop()

	orders := locker.New(context.Background(), fairlock.New(clients[0], "orders:42"))
	orders.Lock()
	fmt.Println(orders.Context().Err()) // The lock is held. Give it to what must stop at a loss.
	orders.Unlock()
	fmt.Println(context.Cause(orders.Context()))
	// Output:
	// <nil>
	// not locked
}

func ExampleLocker_Lease() {
	clients, stop := kit.Clients(1)
	defer stop()

	orders := locker.New(context.Background(), fairlock.New(clients[0], "orders:42"))
	orders.Lock()
	defer orders.Unlock()
	fmt.Println(orders.Lease().Token() > 0) // Send it with each write.
	// Output: true
}

func ExampleWithLoss() {
	clients, stop := kit.Clients(1)
	defer stop()

	mutex := fairlock.New(clients[0], "orders:42", headwaiter.WithLease(time.Second))
	orders := locker.New(context.Background(), mutex, locker.WithLoss(func(err error) { fmt.Println(err) }))
	orders.Lock()
	kit.Must(mutex.ForceRelease(context.Background(), 0)) // Somebody at a prompt.
	<-orders.Context().Done()
	orders.Unlock()
	// Output: locker: unlock "orders:42": lease lost: orders:42: released elsewhere by force
}
