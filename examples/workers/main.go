// Command workers counts up numbers of many customers under a lock each, and says how many steps it makes in a second, and
// how many requests each of them takes.
//
//	workers               each step asks Redis for its lock
//	workers -keep 1s      locks stay with the process between two steps, until another process wants them
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/striped"
)

func main() {
	keep, span := flag.Duration("keep", 0, "for how long a lock stays"), flag.Duration("for", 3*time.Second, "how long to work")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	customers := striped.New(client, "customers", 64, fairlock.WithKeep(*keep))
	ctx, cancel := context.WithTimeout(ctx, *span)
	defer cancel()
	var steps atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				if customers.Do(ctx, fmt.Sprint("customer ", rand.N(1000)), step) == nil {
					steps.Add(1)
				}
			}
		})
	}
	workers.Wait()
	n, sent := float64(steps.Load()), client.Stats()
	fmt.Printf("%.0f steps a second, %.2f requests each\n", n/span.Seconds(), float64(sent.AcquireRequests+sent.ReleaseRequests+sent.Renewals)/n)
}

func step(context.Context) error { return nil } // The work.
