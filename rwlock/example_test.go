package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
)

func Example() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()
	config, elsewhere := rwlock.New(clients[0], "config"), rwlock.New(clients[1], "config")

	mine := kit.Must(config.RLock(ctx))
	theirs := kit.Must(elsewhere.RLock(ctx)) // Both read.
	_, err := elsewhere.TryLock(ctx)
	fmt.Println(err)
	fmt.Println(mine.Release(ctx), theirs.Release(ctx))

	err = config.Do(ctx, func(held context.Context) error { // Alone.
		_, err := elsewhere.TryRLock(ctx)
		fmt.Println(err)
		return held.Err()
	})
	fmt.Println(err)
	// Output:
	// rwlock: try lock "config": busy
	// <nil> <nil>
	// rwlock: try read lock "config": busy
	// <nil>
}

func ExampleRWMutex_Lock() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	config := rwlock.New(clients[0], "config")

	held := kit.Must(config.RLock(ctx))
	_, err := config.Lock(held.Context())
	fmt.Println(errors.Is(err, lease.ErrUpgrade), err)
	fmt.Println(held.Release(ctx))
	write := kit.Must(config.Lock(ctx))
	fmt.Println(write.Token() > held.Token(), write.Release(ctx))
	// Output:
	// true rwlock: lock "config": cannot upgrade a read hold to a write hold: release it first
	// <nil>
	// true <nil>
}

func ExampleRWMutex_TryLock() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	config := rwlock.New(clients[0], "config")

	held := kit.Must(config.TryLock(ctx))
	_, err := config.TryLock(ctx)
	fmt.Println(errors.Is(err, lease.ErrBusy), held.Release(ctx))
	// Output:
	// true <nil>
}

func ExampleRWMutex_RLock() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	config := rwlock.New(clients[0], "config")

	outer := kit.Must(config.RLock(ctx))
	inner := kit.Must(config.RLock(outer.Context())) // At once, though a writer may wait.
	fmt.Println(config.HoldCount(inner.Context()))
	fmt.Println(outer.Release(ctx), inner.Release(ctx))
	// Output:
	// 2 0
	// <nil> <nil>
}

func ExampleRWMutex_TryRLock() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	config := rwlock.New(clients[0], "config")

	first, second := kit.Must(config.TryRLock(ctx)), kit.Must(config.TryRLock(ctx))
	fmt.Println(first.Release(ctx), second.Release(ctx))
	// Output:
	// <nil> <nil>
}

// Write, then read on what was written, while others may read it too and nobody writes in between.
func ExampleRWMutex_Downgrade() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()
	config, elsewhere := rwlock.New(clients[0], "config"), rwlock.New(clients[1], "config")

	held := kit.Must(config.Lock(ctx))
	fmt.Println(config.Downgrade(ctx, held))
	reader := kit.Must(elsewhere.TryRLock(ctx))
	_, err := elsewhere.TryLock(ctx)
	fmt.Println(err)
	fmt.Println(reader.Release(ctx), held.Release(ctx))
	// Output:
	// <nil>
	// rwlock: try lock "config": busy
	// <nil> <nil>
}

func ExampleRWMutex_Do() {
	clients, stop := kit.Clients(1)
	defer stop()
	config := rwlock.New(clients[0], "config")

	err := config.Do(context.Background(), func(held context.Context) error {
		fmt.Println(config.HoldCount(held))
		return nil
	})
	fmt.Println(err)
	// Output:
	// 0 1
	// <nil>
}

func ExampleRWMutex_RDo() {
	clients, stop := kit.Clients(1)
	defer stop()
	config := rwlock.New(clients[0], "config")

	err := config.RDo(context.Background(), func(held context.Context) error {
		fmt.Println(config.HoldCount(held))
		return nil
	})
	fmt.Println(err)
	// Output:
	// 1 0
	// <nil>
}

func ExampleRWMutex_HoldCount() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	config := rwlock.New(clients[0], "config")

	write := kit.Must(config.Lock(ctx))
	read := kit.Must(config.RLock(write.Context()))
	fmt.Println(config.HoldCount(read.Context()))
	fmt.Println(write.Release(ctx)) // From now on the hold is one for reading.
	fmt.Println(config.HoldCount(read.Context()))
	fmt.Println(read.Release(ctx))
	// Output:
	// 1 1
	// <nil>
	// 1 0
	// <nil>
}

func ExampleRWMutex_Inspect() {
	ctx, clients, stop := kit.Ready(1)
	defer stop()
	config := rwlock.New(clients[0], "config")

	first, second := kit.Must(config.RLock(ctx)), kit.Must(config.RLock(ctx))
	info, err := config.Inspect(ctx)
	fmt.Println(config.Name(), info.Held, len(info.Holders), info.Waiting, err)
	fmt.Println(first.Release(ctx), second.Release(ctx))
	// Output:
	// config true 2 0 <nil>
	// <nil> <nil>
}

func ExampleRWMutex_ForceRelease() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	held := kit.Must(rwlock.New(clients[0], "config").Lock(ctx))
	config := rwlock.New(clients[1], "config")
	info := kit.Must(config.Inspect(ctx))
	_, err := config.ForceRelease(ctx, info.Holder.Token)
	fmt.Println(err)
	err = held.Release(ctx)
	fmt.Println(errors.Is(err, lease.ErrLost), err)
	// Output:
	// <nil>
	// true lease lost: config: released elsewhere by force
}

func ExampleRWMutex_ForceReleaseHolder() {
	ctx, clients, stop := kit.Ready(2)
	defer stop()

	first, config := kit.Must(rwlock.New(clients[0], "config").RLock(ctx)), rwlock.New(clients[1], "config")
	second := kit.Must(config.RLock(ctx)) // By the same token.
	info := kit.Must(config.Inspect(ctx))
	i := slices.IndexFunc(info.Holders, func(h lease.Holder) bool { return h.Client == clients[0].ID() })
	_, err := config.ForceReleaseHolder(ctx, info.Holders[i])
	fmt.Println(err, first.Release(ctx), second.Release(ctx))
	// Output:
	// <nil> lease lost: config: released elsewhere by force <nil>
}
