// Command batch does a long job under a lock, step by step, and lets others in between two steps when somebody waits.
package main

import (
	"cmp"
	"context"
	"flag"
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
	job, steps := flag.String("job", "long", "name of the job"), flag.Int("steps", 1000, "how many steps it has")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	catalogue := fairlock.New(client, "catalogue")
	for step := 0; step < *steps; {
		held, err := catalogue.Lock(ctx) // Again, after all who wait by then.
		if err != nil {
			log.Print(err)
			return
		}
		step = work(held.Bind(ctx), held.Wanted(), *job, step, *steps)
		held.Unlock()
	}
}

// work does steps until somebody waits, and returns how many are done.
func work(ctx context.Context, wanted <-chan struct{}, job string, step, steps int) int {
	for step < steps && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond) // The work.
		step++
		fmt.Println(job, "has done step", step)
		select {
		case <-wanted:
			fmt.Println(job, "lets others in")
			return step
		default:
		}
	}
	return step
}
