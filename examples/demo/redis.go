package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alicebob/miniredis/v2"
)

// withRedis runs the demo with the URL of a Redis: one in this process, unless --redis names another. It exits with
// status 1 if that fails. The context ends by ^C.
func withRedis(run func(ctx context.Context, redis string) error) {
	redis := flag.String("redis", "", "use the Redis at this `URL` and not an embedded one")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: %q is no flag\n", program(), flag.Arg(0))
		os.Exit(2)
	}
	exit(func(ctx context.Context) error {
		if *redis != "" {
			return run(ctx, *redis)
		}
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true) // Keys expire by the clock, and not when a test says so.
		if err := server.StartAddr("127.0.0.1:0"); err != nil {
			return err
		}
		defer server.Close()
		return run(ctx, "redis://"+server.Addr())
	})
}

// exit runs f and turns its error into a line and an exit status.
func exit(f func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := f(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program(), err)
		os.Exit(1)
	}
}

func program() string { return filepath.Base(os.Args[0]) }
