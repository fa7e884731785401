package main // A job once a second, in whichever of three processes comes first.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
)

func process(tick time.Time, ticks int, job func(context.Context) error) error {
	client, err := headwaiter.DialURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	defer client.Close()
	for range ticks {
		tick = tick.Add(time.Second)
		<-time.After(time.Until(tick))
		m := fairlock.New(client, "cron:"+tick.UTC().Format(time.RFC3339), headwaiter.WithMinHold(5*time.Second))
		err := lease.Do(context.Background(), m.TryLock, job)
		if err != nil && !errors.Is(err, headwaiter.ErrBusy) { // Busy: another does it, or has done it.
			return err
		}
	}
	return nil
}

func main() {
	var jobs atomic.Int32
	done, start := make(chan error), time.Now().Truncate(time.Second)
	for range 3 {
		go func() { done <- process(start, 3, func(context.Context) error { jobs.Add(1); return nil }) }()
	}
	if err := errors.Join(<-done, <-done, <-done); err != nil || jobs.Load() != 3 {
		panic(fmt.Sprint(jobs.Load(), " jobs at 3 ticks: ", err))
	}
	fmt.Println("cron: ok")
}
