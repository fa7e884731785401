package zklock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/internal/testenv/zktest"
)

// server is the address of one for the examples.
func server() (address string, stop func()) {
	s, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	return s.Address(), s.Stop
}

func Example() {
	address, stop := server()
	defer stop()
	ctx := context.Background()

	c, err := zklock.Dial(zklock.Options{Servers: []string{address}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Shutdown(ctx)

	m := zklock.New(c, "orders:42")
	l, err := m.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = m.TryLock(ctx)
	fmt.Println(err)
	fmt.Println(l.Release(ctx), context.Cause(l.Context()))
	fmt.Println(m.Do(ctx, func(ctx context.Context) error { return ctx.Err() }))
	// Output:
	// zklock: try lock "orders:42": busy
	// <nil> lease released by Release
	// <nil>
}
