package zklock_test

import (
	"context"
	"fmt"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

// server is the address of one for the examples.
func server() (address string, stop func()) {
	s := kit.Must(zktest.Start())
	return s.Address(), s.Stop
}

func Example() {
	address, stop := server()
	defer stop()
	ctx := context.Background()

	c := kit.Must(zklock.Dial(zklock.Options{Servers: []string{address}}))
	defer c.Shutdown(ctx)

	m := zklock.New(c, "orders:42")
	l := kit.Must(m.Lock(ctx))
	_, err := m.TryLock(ctx)
	fmt.Println(err)
	fmt.Println(l.Release(ctx), context.Cause(l.Context()))
	fmt.Println(m.Do(ctx, func(ctx context.Context) error { return ctx.Err() }))
	// Output:
	// zklock: try lock "orders:42": busy
	// <nil> lease released by Release
	// <nil>
}
