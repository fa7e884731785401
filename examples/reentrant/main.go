// Command reentrant has functions that lock for themselves, and call each other: the lock knows its holder by the
// context, so the inner call enters the hold of the outer one.
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
	"github.com/headwaiter/headwaiter/reentrant"
)

// account is locked by each of its methods.
type account struct{ lock *reentrant.Mutex }

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

	a := account{reentrant.New(client, "account:7")}
	return a.order(ctx)
}

// order pays while it has the lock.
func (a account) order(ctx context.Context) error {
	return a.lock.Do(ctx, func(ctx context.Context) error {
		fmt.Println("begins an order")
		defer fmt.Println("ends an order")
		return a.pay(ctx) // With the context of the hold. With another it would wait for itself for ever.
	})
}

// pay locks too, as it may be called by itself.
func (a account) pay(ctx context.Context) error {
	return a.lock.Do(ctx, func(ctx context.Context) error {
		fmt.Println("pays, in entry", a.lock.HoldCount(ctx))
		time.Sleep(100 * time.Millisecond)
		return nil
	})
}
