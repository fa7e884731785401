package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// connected is a client of a server for the examples.
func connected() (c *zklock.Client, stop func()) {
	address, end := server()
	c = kit.Must(zklock.Dial(zklock.Options{Servers: []string{address}}))
	return c, func() {
		_ = c.Close()
		end()
	}
}

func ExampleMutex_ForceRelease() {
	c, stop := connected()
	defer stop()
	ctx := context.Background()

	m := zklock.New(c, "orders:42", zklock.WithMaxHold(time.Hour))
	l := kit.Must(m.Lock(ctx))
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
	c, stop := connected()
	defer stop()
	ctx := context.Background()

	imports := zklock.New(c, "import", zklock.WithMaxStall(200*time.Millisecond))
	err := imports.Do(ctx, func(ctx context.Context) error {
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
	c, stop := connected()
	defer stop()
	ctx := context.Background()

	bounded := zklock.New(c, "bounded", zklock.WithMaxWait(2*time.Second))
	err := bounded.Do(ctx, func(context.Context) error {
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
