// Command cron runs a job once a tick, however many processes have it on their schedule. Each tick has a lock of its own, and
// the process that gets it does the job. The lock stays taken for longer than another process may be late, whatever becomes of
// this one: for a tick, and the three seconds of a try. A tick that all missed, as no process ran, does not get its job: a report of that time is of no use by
// now, and the next tick comes. Nor is a job repeated that fails, or whose process dies.
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
	defer client.Close()

	for tick := time.Now().Truncate(every).Add(every); ; tick = tick.Add(every) {
		select {
		case <-time.After(time.Until(tick)):
		case <-ctx.Done():
			return
		}
		name := tick.UTC().Format(time.RFC3339) // The same in all zones, and another each day.
		if time.Since(tick) >= every {
			fmt.Println("missed", name)
			continue
		}
		held, err := fairlock.New(client, "report:"+name, headwaiter.WithMinHold(every+time.Minute)).TryLock(ctx)
		switch {
		case errors.Is(err, headwaiter.ErrBusy):
			fmt.Println("another process has", name)
		case err != nil:
			log.Print(err) // Whatever it was, the next tick comes.
		default:
			fmt.Println("reports at", name) // The job, which stops when held.Context() ends.
			held.Unlock()
		}
	}
}
