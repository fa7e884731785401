package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/lease"
)

func ExampleMutex_ForceRelease() {
	address, stop := server()
	defer stop()
	ctx := context.Background()
	c, err := zklock.Dial(zklock.Options{Servers: []string{address}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	m := zklock.New(c, "orders:42", zklock.WithMaxHold(time.Hour))
	l, err := m.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	info, err := m.Inspect(ctx)
	fmt.Println(m.Name(), info.Held, info.Token == l.Token(), err)
	_, err = m.ForceRelease(ctx, info.Token)
	fmt.Println(err)
	<-l.Context().Done()
	fmt.Println(context.Cause(l.Context()))
	// Output:
	// orders:42 true true <nil>
	// <nil>
	// lease lost: orders:42: released elsewhere by force
}

// A worker that hangs keeps nobody else out.
func ExampleWithMaxStall() {
	address, stop := server()
	defer stop()
	ctx := context.Background()
	c, err := zklock.Dial(zklock.Options{Servers: []string{address}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	imports := zklock.New(c, "import", zklock.WithMaxStall(200*time.Millisecond))
	err = imports.Do(ctx, func(ctx context.Context) error {
		held, _ := lease.FromContext(ctx)
		held.Progress() // After each row; then the worker hangs.
		<-ctx.Done()
		return nil
	})
	fmt.Println(errors.Is(err, lease.ErrStalled))
	// Output: true
}

// The wait is bounded, and the work of the holder is not.
func ExampleWithMaxWait() {
	address, stop := server()
	defer stop()
	ctx := context.Background()
	c, err := zklock.Dial(zklock.Options{Servers: []string{address}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Shutdown(ctx)

	bounded := zklock.New(c, "bounded", zklock.WithMaxWait(2*time.Second))
	err = bounded.Do(ctx, func(context.Context) error {
		_, err := bounded.Lock(ctx) // Somebody else, who waits for us.
		fmt.Println(errors.Is(err, lease.ErrWaitTimeout), errors.Is(err, context.DeadlineExceeded))
		return nil
	})
	fmt.Println(err)
	_, err = zklock.New(c, "bounded", zklock.WithMaxWait(-1)).Lock(ctx)
	fmt.Println(err)
	// Output:
	// true true
	// <nil>
	// zklock: lock "bounded": invalid argument: WithMaxWait: -1ns must be from 1ms to 365 days, or 0 for no bound
}
