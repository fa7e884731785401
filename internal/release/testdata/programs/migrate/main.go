package main // Five replicas start, one migrates the database, the others wait and find it done.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
)

var database = os.Args[0] + ".db" // a file that all processes see, as it were

func migrate(ctx context.Context) error {
	if _, err := os.Stat(database); err == nil {
		return nil // Another replica has done it.
	}
	held, _ := lease.FromContext(ctx)
	fmt.Println("migrating with token", held.Token(), "after a hold that was", held.Previous().Kind)
	select {
	case <-time.After(time.Second): // the work
		return os.WriteFile(database, fmt.Append(nil, held.Token()), 0o600)
	case <-ctx.Done(): // The lock is lost: another may migrate now.
		return context.Cause(ctx)
	}
}

func main() {
	done, lasts := make(chan error), headwaiter.WithLease(3*time.Second)
	for range 5 { // Five replicas, as it were.
		client, err := headwaiter.DialURL(os.Getenv("REDIS_URL"))
		if err != nil {
			panic(err)
		}
		defer client.Close()
		go func() { done <- fairlock.New(client, "migrate", lasts).Do(context.Background(), migrate) }()
	}
	if err := errors.Join(<-done, <-done, <-done, <-done, <-done); err != nil {
		panic(err)
	}
	fmt.Println("migrate: ok")
}
