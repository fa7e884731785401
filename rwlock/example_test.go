package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
)

// embedded returns clients of one embedded Redis, and a function that ends them all.
func embedded(n int) (clients []*headwaiter.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	for range n {
		c, err := headwaiter.Dial(headwaiter.Options{Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}}})
		if err != nil {
			panic(err)
		}
		clients = append(clients, c)
	}
	return clients, func() {
		for _, c := range clients {
			_ = c.Close(context.Background())
		}
		server.Close()
	}
}

// must returns a lease that an example cannot do without.
func must(l *lease.Lease, err error) *lease.Lease {
	if err != nil {
		panic(err)
	}
	return l
}

func Example() {
	clients, stop := embedded(2)
	defer stop()
	ctx := context.Background()
	config, elsewhere := rwlock.New(clients[0], "config"), rwlock.New(clients[1], "config")

	mine := must(config.RLock(ctx))
	theirs := must(elsewhere.RLock(ctx)) // Both read.
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
	clients, stop := embedded(1)
	defer stop()
	ctx := context.Background()
	config := rwlock.New(clients[0], "config")

	held := must(config.RLock(ctx))
	_, err := config.Lock(held.Context())
	fmt.Println(errors.Is(err, lease.ErrUpgrade), err)
	fmt.Println(held.Release(ctx))
	write := must(config.Lock(ctx))
	fmt.Println(write.Token() > held.Token(), write.Release(ctx))
	// Output:
	// true rwlock: lock "config": cannot upgrade a read hold to a write hold: release it first
	// <nil>
	// true <nil>
}

func ExampleRWMutex_TryLock() {
	clients, stop := embedded(1)
	defer stop()
	ctx := context.Background()
	config := rwlock.New(clients[0], "config")

	held := must(config.TryLock(ctx))
	_, err := config.TryLock(ctx)
	fmt.Println(errors.Is(err, lease.ErrBusy), held.Release(ctx))
	// Output:
	// true <nil>
}

func ExampleRWMutex_RLock() {
	clients, stop := embedded(1)
	defer stop()
	ctx := context.Background()
	config := rwlock.New(clients[0], "config")

	outer := must(config.RLock(ctx))
	inner := must(config.RLock(outer.Context())) // At once, though a writer may wait.
	fmt.Println(config.HoldCount(inner.Context()))
	fmt.Println(outer.Release(ctx), inner.Release(ctx))
	// Output:
	// 2 0
	// <nil> <nil>
}

func ExampleRWMutex_TryRLock() {
	clients, stop := embedded(1)
	defer stop()
	ctx := context.Background()
	config := rwlock.New(clients[0], "config")

	first, second := must(config.TryRLock(ctx)), must(config.TryRLock(ctx))
	fmt.Println(first.Release(ctx), second.Release(ctx))
	// Output:
	// <nil> <nil>
}

// Write, then read on what was written, while others may read it too and nobody writes in between.
func ExampleRWMutex_Downgrade() {
	clients, stop := embedded(2)
	defer stop()
	ctx := context.Background()
	config, elsewhere := rwlock.New(clients[0], "config"), rwlock.New(clients[1], "config")

	held := must(config.Lock(ctx))
	fmt.Println(config.Downgrade(ctx, held))
	reader := must(elsewhere.TryRLock(ctx))
	_, err := elsewhere.TryLock(ctx)
	fmt.Println(err)
	fmt.Println(reader.Release(ctx), held.Release(ctx))
	// Output:
	// <nil>
	// rwlock: try lock "config": busy
	// <nil> <nil>
}

func ExampleRWMutex_Do() {
	clients, stop := embedded(1)
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
	clients, stop := embedded(1)
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
	clients, stop := embedded(1)
	defer stop()
	ctx := context.Background()
	config := rwlock.New(clients[0], "config")

	write := must(config.Lock(ctx))
	read := must(config.RLock(write.Context()))
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
	clients, stop := embedded(1)
	defer stop()
	ctx := context.Background()
	config := rwlock.New(clients[0], "config")

	first, second := must(config.RLock(ctx)), must(config.RLock(ctx))
	info, err := config.Inspect(ctx)
	fmt.Println(info.Held, len(info.Holders), info.Waiting, err)
	fmt.Println(first.Release(ctx), second.Release(ctx))
	// Output:
	// true 2 0 <nil>
	// <nil> <nil>
}

func ExampleRWMutex_ForceRelease() {
	clients, stop := embedded(2)
	defer stop()
	ctx := context.Background()

	held := must(rwlock.New(clients[0], "config").Lock(ctx))
	config := rwlock.New(clients[1], "config")
	info, err := config.Inspect(ctx)
	if err != nil {
		panic(err)
	}
	_, err = config.ForceRelease(ctx, info.Holder.Token)
	fmt.Println(err)
	err = held.Release(ctx)
	fmt.Println(errors.Is(err, lease.ErrLost), err)
	// Output:
	// <nil>
	// true lease lost: config: released elsewhere by force
}

func ExampleRWMutex_ForceReleaseHolder() {
	clients, stop := embedded(2)
	defer stop()
	ctx := context.Background()

	first, config := must(rwlock.New(clients[0], "config").RLock(ctx)), rwlock.New(clients[1], "config")
	second := must(config.RLock(ctx)) // By the same token.
	info, err := config.Inspect(ctx)
	if err != nil {
		panic(err)
	}
	for _, h := range info.Holders {
		if h.Client == clients[0].ID() {
			_, err = config.ForceReleaseHolder(ctx, h)
		}
	}
	fmt.Println(err, first.Release(ctx), second.Release(ctx))
	// Output:
	// <nil> lease lost: config: released elsewhere by force <nil>
}

func ExampleRWMutex_Name() {
	clients, stop := embedded(1)
	defer stop()
	fmt.Println(rwlock.New(clients[0], "config").Name())
	// Output:
	// config
}

func ExampleWithLease() {
	clients, stop := embedded(1)
	defer stop()
	ctx := context.Background()

	held := must(rwlock.New(clients[0], "config", headwaiter.WithLease(time.Minute)).RLock(ctx))
	fmt.Println(time.Until(held.Deadline()) > 50*time.Second)
	fmt.Println(held.Release(ctx))
	// Output:
	// true
	// <nil>
}

func ExampleWithMaxHold() {
	clients, stop := embedded(1)
	defer stop()

	held := must(rwlock.New(clients[0], "config", headwaiter.WithMaxHold(100*time.Millisecond)).RLock(context.Background()))
	<-held.Context().Done()
	fmt.Println(context.Cause(held.Context()))
	// Output:
	// lease lost: config: held for its maximum time
}

func ExampleWithPriority() {
	clients, stop := embedded(1)
	defer stop()

	held := must(rwlock.New(clients[0], "config", headwaiter.WithPriority(1)).Lock(context.Background()))
	fmt.Println(held.Release(context.Background()))
	// Output:
	// <nil>
}

func ExampleWithReplicas() {
	clients, stop := embedded(1)
	defer stop()

	careful := rwlock.New(clients[0], "ledger", headwaiter.WithReplicas(1, time.Minute))
	_, err := careful.Lock(context.Background())
	fmt.Println(errors.Is(err, lease.ErrInvalid)) // Half the lease is the most that replicas may take.
	// Output: true
}

// A server that cannot tell since when it has run, as the embedded one, may have forgotten a hold.
func ExampleWithSafeRestart() {
	clients, stop := embedded(1)
	defer stop()

	careful := rwlock.New(clients[0], "ledger", headwaiter.WithSafeRestart())
	_, err := careful.Lock(context.Background())
	fmt.Println("refused:", err != nil)
	// Output: refused: true
}
