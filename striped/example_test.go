package striped_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/striped"
)

// One of many accounts at a time, by 64 locks.
func Example() {
	clients, stop := kit.Clients(1)
	defer stop()

	accounts := striped.New(clients[0], "accounts", 64)
	err := accounts.Do(context.Background(), "account:1234567", func(held context.Context) error {
		fmt.Println("paying in")
		return held.Err() // nil: still ours
	})
	fmt.Println(err)
	// Output:
	// paying in
	// <nil>
}

func ExampleNew() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	held := kit.Must(striped.New(clients[0], "accounts", 64).Lock(ctx, "account:7"))
	defer held.Release(ctx)

	_, err := striped.New(clients[1], "accounts", 32).TryLock(ctx, "account:7")
	fmt.Println(errors.Is(err, lease.ErrMismatch), err)
	// Output:
	// true striped: try lock "account:7": another client has stated another limit: 32 stripes here, 64 elsewhere: all have to use the same number; to change it, see package striped
}

func ExampleMutex_Lock() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	accounts := striped.New(clients[0], "accounts", 4)
	held := kit.Must(accounts.Lock(ctx, "account:7"))
	// Another key of the same stripe is the same lock.
	_, err := accounts.Lock(held.Context(), "account:9")
	fmt.Println(accounts.Stripe("account:7") == accounts.Stripe("account:9"), errors.Is(err, lease.ErrDeadlock))
	fmt.Println(held.Release(ctx))
	// Output:
	// true true
	// <nil>
}

func ExampleMutex_TryLock() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	held := kit.Must(striped.New(clients[0], "accounts", 4).Lock(ctx, "account:7"))
	_, err := striped.New(clients[1], "accounts", 4).TryLock(ctx, "account:7")
	fmt.Println(errors.Is(err, lease.ErrBusy))
	fmt.Println(held.Release(ctx))
	// Output:
	// true
	// <nil>
}

func ExampleMutex_Do() {
	clients, stop := kit.Clients(1)
	defer stop()
	accounts := striped.New(clients[0], "accounts", 0)
	for _, key := range []string{"account:7", "account:8"} {
		fmt.Println(accounts.Do(context.Background(), key, func(context.Context) error { return nil }))
	}
	// Output:
	// <nil>
	// <nil>
}

// The first of two versions in a rollout from 16 stripes to 64; the second locks by the new number alone.
func ExampleMutex_Do_newNumber() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	client, key := clients[0], "account:7"
	work := func(ctx context.Context) error {
		fmt.Println("paying in")
		return nil
	}

	old, now := striped.New(client, "accounts", 16), striped.New(client, "accounts-64", 64)
	err := old.Do(ctx, key, func(ctx context.Context) error { return now.Do(ctx, key, work) })
	fmt.Println(err)
	// Output:
	// paying in
	// <nil>
}

func ExampleMutex_Stripe() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()

	accounts := striped.New(clients[0], "accounts", 16)
	stripe := accounts.Stripe("account:7")
	info, err := fairlock.New(clients[0], stripe).Inspect(ctx)
	fmt.Println(accounts.Name(), stripe, info.Held, err)
	// Output:
	// accounts accounts:0/16 false <nil>
}

func ExampleMutex_ForceRelease() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	held := kit.Must(striped.New(clients[0], "accounts", 64).Lock(ctx, "account:7"))
	accounts := striped.New(clients[1], "accounts", 64)
	_, err := accounts.ForceRelease(ctx, "account:7", held.Token()+1)
	fmt.Println(errors.Is(err, lease.ErrOtherToken))
	_, err = accounts.ForceRelease(ctx, "account:7", held.Token())
	fmt.Println(err)
	fmt.Println(errors.Is(held.Release(ctx), lease.ErrForced))
	// Output:
	// true
	// <nil>
	// true
}
