// Command election has one of several processes lead, and others observe which.
//
//	election -run NAME  leads as often and as long as it can
//	election            prints who leads, at once and at each change
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
	"github.com/headwaiter/headwaiter/election"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	name := flag.String("run", "", "lead under this `NAME`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := headwaiter.DialURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"))
	if err != nil {
		return err
	}
	defer client.Close()

	// The lease says how soon another leads when the leader dies.
	pricing := election.New(client, "pricing", headwaiter.WithLease(2*time.Second))
	if *name == "" {
		for leader := range pricing.Observe(ctx) {
			fmt.Printf("observed: %q\n", leader.Value)
		}
		return nil
	}
	err = pricing.Run(ctx, *name, func(lead context.Context) error {
		fmt.Println(*name, "leads")
		<-lead.Done() // The work of a leader, which stops when the lead is lost.
		fmt.Println(*name, "stops")
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
