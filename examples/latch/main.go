// Command latch has one process wait until another has done its three steps. The one that waits may be first.
//
//	latch        waits for all steps
//	latch -work  does them
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

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/countdown"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	works := flag.Bool("work", false, "do the steps")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	defer client.Close()

	// A name for each occasion: a latch that is open stays open.
	migration := countdown.New(client, "migration:7", countdown.WithEarlyWait())
	if *works {
		return work(ctx, migration)
	}
	defer fmt.Println("waits no longer")
	return migration.Wait(ctx)
}

func work(ctx context.Context, migration *countdown.Latch) error {
	steps := []string{"add the column", "fill it", "drop the old one"}
	if _, err := migration.TrySetCount(ctx, int64(len(steps))); err != nil {
		return err
	}
	for _, step := range steps {
		fmt.Println("done:", step)
		if _, err := migration.CountDown(ctx); err != nil {
			return err
		}
	}
	return nil
}
