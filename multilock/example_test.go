package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/multilock"
)

// A transfer needs both accounts. Whoever transfers the other way does not wait in a circle.
func ExampleLock_Do() {
	clients, end := kit.Clients(1)
	defer end()

	transfer := multilock.New(clients[0], []string{"account:7", "account:3"})
	fmt.Println(transfer.Names())
	err := transfer.Do(context.Background(), func(context.Context) error {
		fmt.Println("both are ours")
		return nil
	})
	fmt.Println(err)
	// Output:
	// [account:3 account:7]
	// both are ours
	// <nil>
}

func ExampleLock_TryLock() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	first, err := multilock.New(clients[0], []string{"a", "b"}).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = multilock.New(clients[0], []string{"b", "c"}).TryLock(ctx)
	// multilock: try lock ["b" "c"]: "b": busy: client 5f0c… holds it with token 1764… for 1.7s
	fmt.Println(errors.Is(err, lease.ErrBusy))
	fmt.Println(first.Release(ctx))
	// Output:
	// true
	// <nil>
}

func ExampleWithBound() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	// Others wait no longer than that for a name of ours that we cannot use yet.
	transfer := multilock.New(clients[0], []string{"account:7", "account:3"}, multilock.WithBound(20*time.Millisecond),
		headwaiter.WithLease(30*time.Second), headwaiter.WithPriority(1))
	held := kit.Must(transfer.Lock(ctx))
	fmt.Println(time.Until(held.Deadline()) > 20*time.Second)
	fmt.Println(held.Release(ctx))
	// Output:
	// true
	// <nil>
}

// Somebody at a prompt frees both accounts by the token of the lease on them.
func ExampleLock_ForceRelease() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	transfer := multilock.New(clients[0], []string{"account:7", "account:3"})
	held := kit.Must(transfer.Lock(ctx))
	_, err := transfer.ForceRelease(ctx, held.Token())
	fmt.Println(err)
	<-held.Context().Done()
	fmt.Println(errors.Is(context.Cause(held.Context()), lease.ErrForced))
	again := kit.Must(transfer.Lock(ctx))
	fmt.Println(again.Token() > held.Token(), again.Release(ctx))
	// Output:
	// <nil>
	// true
	// true <nil>
}
