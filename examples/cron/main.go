// Command cron runs a job once a tick, however many processes have it on their schedule. Each tick has a lock of its own.
// The process that gets it does the job, and keeps it until the next tick: one that is late by less finds it busy.
// A job that fails, or whose process dies, is not repeated.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
)

const every = 2 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(context.Background())

	tick := time.Now().Truncate(every)
	for {
		tick = tick.Add(every)
		select {
		case <-time.After(time.Until(tick)):
		case <-ctx.Done():
			return
		}
		name := tick.Format(time.TimeOnly)
		held, err := fairlock.New(client, "report:"+name).TryLock(ctx)
		switch {
		case errors.Is(err, headwaiter.ErrBusy):
			fmt.Println("another process has", name)
		case err != nil:
			log.Print(err) // Whatever it was, the next tick comes.
		default:
			fmt.Println("reports at", name) // The job, which stops when held.Context() ends.
			time.AfterFunc(every, held.Unlock)
		}
	}
}
