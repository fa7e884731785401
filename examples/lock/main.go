// Command lock waits for a lock, five seconds at the most, and stops its work if it loses the lock.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	defer client.Close()

	// Five seconds for the wait, not for the work.
	orders := fairlock.New(client, "orders:42", headwaiter.WithMaxWait(5*time.Second))
	held, err := orders.Lock(ctx)
	if err != nil {
		return err // fairlock: lock "orders:42": timed out after 5s (WithMaxWait), 2 ahead
	}
	defer held.Unlock()

	return ship(held.Bind(ctx), held.Token())
}

// ship stops when ctx ends, by a signal or a loss, and would send the token with each write.
func ship(ctx context.Context, token uint64) error {
	fmt.Println("shipping with token", token)
	select {
	case <-time.After(2 * time.Second): // The work.
		fmt.Println("shipped")
		return nil
	case <-ctx.Done():
		return fmt.Errorf("not shipped: %w", context.Cause(ctx)) // lease lost: orders:42: no renewal was answered for 10s
	}
}
