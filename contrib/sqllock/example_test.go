package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/sqllock/internal/pgtest"
	"github.com/headwaiter/headwaiter/lease"
)

// example is a client of a database that has the schema.
func example(ctx context.Context) (*sqllock.Client, error) {
	url, err := pgtest.Make(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, sqllock.Schema); err != nil {
		return nil, err
	}
	return sqllock.Dial(ctx, sqllock.Options{Config: pool.Config()})
}

func ExampleDial() {
	ctx := context.Background()
	url, err := pgtest.Make(ctx) // postgres://…
	if err != nil {
		panic(err)
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		panic(err)
	}
	_, err = sqllock.Dial(ctx, sqllock.Options{Config: config})
	fmt.Println(errors.Is(err, sqllock.ErrSchema))
	// Output: true
}

func ExampleNewSession() {
	ctx := context.Background()
	c, err := example(ctx)
	if err != nil {
		panic(err)
	}
	defer c.Close(ctx)
	err = sqllock.NewSession(c, "orders:42").Do(ctx, func(ctx context.Context) error {
		_, err := sqllock.NewSession(c, "orders:42").TryLock(context.Background())
		fmt.Println(errors.Is(err, lease.ErrBusy))
		return nil // The context ends if the connection that has the lock is lost.
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

func ExampleNewLeased() {
	ctx := context.Background()
	c, err := example(ctx)
	if err != nil {
		panic(err)
	}
	defer c.Close(ctx)
	m := sqllock.NewLeased(c, "orders:42", sqllock.WithLease(30*time.Second))
	first, err := m.Lock(ctx)
	if err != nil {
		panic(err)
	}
	if err := first.Release(ctx); err != nil {
		panic(err)
	}
	second, err := m.Lock(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(second.Token() > first.Token())
	fmt.Println(second.Release(ctx))
	// Output:
	// true
	// <nil>
}

func ExampleKey() {
	fmt.Println(sqllock.Key("orders:42"))
	// Output: -8929871410941076193
}
