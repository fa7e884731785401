// Command semaphore makes calls; all processes together have at most three under way, until it is resized.
//
//	semaphore            calls, until it is interrupted
//	semaphore -resize 5  lets five be under way from now on, also in processes that run already
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/semaphore"
)

func main() {
	resize := flag.Int64("resize", 0, "number of permits")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	permits := semaphore.New(client, "geocoder", 3) // The newest process says the number, or a Resize since.
	if *resize > 0 {
		if err := permits.Resize(ctx, *resize); err != nil {
			log.Fatal(err)
		}
		return
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	for range 2 {
		workers.Go(func() {
			for permits.Do(ctx, 1, call) == nil {
			}
		})
	}
}

func call(context.Context) error {
	fmt.Println("begins a call")
	time.Sleep(100 * time.Millisecond)
	fmt.Println("ends a call")
	return nil
}
