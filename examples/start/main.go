// Command start is the first program of the README: one lock, one piece of work.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())

	// Five seconds for the wait, not for the work.
	orders := fairlock.New(client, "orders:42", headwaiter.WithMaxWait(5*time.Second))
	held, err := orders.Lock(ctx)
	if err != nil {
		log.Fatal(err) // fairlock: lock "orders:42": waited 5s behind 2: the maximum wait is over
	}
	defer held.Unlock()

	ship(held.Bind(ctx), held.Token())
}

// ship stops when ctx ends, by a signal or a loss, and sends the token with each write.
func ship(ctx context.Context, token uint64) { fmt.Println("shipped, with token", token) }
