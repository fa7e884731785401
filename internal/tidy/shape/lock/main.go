// Lock takes a contended lock and writes down which statements ran: client A holds, client B calls Lock and waits in the queue,
// A releases, B gets the lock and releases. Both clients are connected and have subscribed before. No call has a deadline, which
// would cost functions of its own: ../cmd ends this program if it hangs. It is built with counters, and in older trees too, so it
// uses only what users can.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/coverage"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
)

const (
	warmUp = 4                     // rounds before the one that counts: then each client has waited twice
	rest   = 4 * time.Second       // after these, until none of their timers is left; unused subscriptions live for 5 s
	held   = 8 * time.Millisecond  // how long A holds before B comes: a request says more within 3 ms of a token
	settle = 20 * time.Millisecond // after the round: the goroutines that it has woken come to rest
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: lock REDIS NAME FOLDER")
		os.Exit(2)
	}
	folder := os.Args[3]
	err := run(context.Background(), os.Args[1], os.Args[2], rest, coverage.ClearCounters, func() error {
		return errors.Join(coverage.WriteMetaDir(folder), coverage.WriteCountersDir(folder))
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "lock:", err)
		os.Exit(1)
	}
}

// run calls clear when A holds and B is about to call Lock, and write when B has released.
func run(ctx context.Context, address, name string, rest time.Duration, clear, write func() error) (err error) {
	redis := rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true, ForceSingleClient: true}
	server, err := rueidis.NewClient(redis)
	if err != nil {
		return err
	}
	defer server.Close()
	var locks [2]*fairlock.Mutex
	for i := range locks {
		client, err := headwaiter.Dial(headwaiter.Options{Redis: redis})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		locks[i] = fairlock.New(client, name)
	}
	nothing := func() error { return nil }
	for i := range warmUp {
		if err := contend(ctx, server, locks[i%2], locks[1-i%2], nothing); err != nil {
			return err
		}
	}
	time.Sleep(rest)
	if err := contend(ctx, server, locks[0], locks[1], clear); err != nil {
		return err
	}
	time.Sleep(settle)
	return write()
}

// contend is one round.
func contend(ctx context.Context, server rueidis.Client, a, b *fairlock.Mutex, clear func() error) error {
	queue := "headwaiter:lock:{" + a.Name() + "}:queue" // where Redis keeps who waits
	first, err := a.Lock(ctx)
	if err != nil {
		return err
	}
	time.Sleep(held)
	if err := clear(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		second, err := b.Lock(ctx)
		if err == nil {
			err = second.Release(ctx)
		}
		done <- err
	}()
	// The question goes to Redis itself, so that nothing of this module runs for it.
	for waiting := int64(0); waiting == 0; {
		if waiting, err = server.Do(ctx, server.B().Zcard().Key(queue).Build()).AsInt64(); err != nil {
			return err
		}
	}
	return errors.Join(first.Release(ctx), <-done)
}
