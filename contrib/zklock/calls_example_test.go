package zklock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headwaiter/headwaiter/contrib/zklock"
)

func ExampleMutex_ForceRelease() {
	address, stop := server()
	defer stop()
	ctx := context.Background()
	c, err := zklock.Dial(zklock.Options{Servers: []string{address}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

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
