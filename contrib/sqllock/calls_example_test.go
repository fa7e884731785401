package sqllock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

func ExampleSession_Lock() {
	ctx := context.Background()
	c := kit.Must(example(ctx))
	defer c.Close()

	m := sqllock.NewSession(c, "orders:42")
	l := kit.Must(m.Lock(ctx))
	waiting, err := m.Waiting(ctx)
	fmt.Println(m.Name(), waiting, err)
	fmt.Println(l.Release(ctx))
	// Output:
	// orders:42 0 <nil>
	// <nil>
}

func ExampleLeased_ForceRelease() {
	ctx := context.Background()
	c := kit.Must(example(ctx))
	defer c.Close()

	m := sqllock.NewLeased(c, "orders:42")
	err := m.Do(ctx, func(held context.Context) error {
		_, err := m.TryLock(ctx)
		fmt.Println(errors.Is(err, lease.ErrBusy))
		waiting, err := m.Waiting(ctx)
		fmt.Println(m.Name(), waiting, err)

		_, err = m.ForceRelease(ctx, 0)
		fmt.Println(err)
		<-held.Done() // Its holder hears of it, with the next renewal at the latest.
		return nil
	})
	fmt.Println(errors.Is(err, lease.ErrLost))
	// Output:
	// true
	// orders:42 0 <nil>
	// <nil>
	// true
}
