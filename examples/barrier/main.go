// Command barrier is one of three players who begin a round together or not at all: if one gives up, none plays.
//
//	barrier -round 1 -patience 10s
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	round := flag.String("round", "1", "which round")
	patience := flag.Duration("patience", 10*time.Second, "how long to wait for the others")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(ctx, *patience)
	defer cancel()

	// A name for each round: a barrier that is broken stays so until its Reset.
	place, err := barrier.New(client, "round:"+*round, 3).Await(ctx)
	switch {
	case errors.Is(err, barrier.ErrBroken):
		fmt.Println("does not play: another gave up")
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Println("gives up")
	case err == nil:
		fmt.Println("plays, in place", place)
	default:
		return err
	}
	return nil
}
