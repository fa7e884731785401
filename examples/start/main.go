// Command start is the first program of the README: one lock, one piece of work.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
)

func main() {
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())

	// ctx bounds the wait for the lock, not the hold.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	held, err := fairlock.New(client, "orders:42").Lock(ctx)
	if err != nil {
		log.Fatal(err) // fairlock: lock "orders:42": waited 5s behind 2: context deadline exceeded
	}
	defer held.Release(context.Background()) // If it fails, the lease ends by itself.

	ship(held.Context(), held.Token())
}

// ship stops when ctx ends, because the lock is lost then, and sends the token with each write.
func ship(ctx context.Context, token uint64) { fmt.Println("shipped, with token", token) }
