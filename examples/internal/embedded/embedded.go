// Package embedded is what the examples need and do not show: a Redis in this process unless --redis names one, an end
// by ^C, and more processes of the same program.
package embedded

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alicebob/miniredis/v2"
)

// The environment of a process that a crew has started. The URL may hold a password, so it is no argument.
const (
	nameVariable  = "HEADWAITER_EXAMPLE_PROCESS"
	redisVariable = "HEADWAITER_EXAMPLE_REDIS"
)

// Main runs an example with the URL of a Redis, and exits with status 1 if that fails. Its context ends by ^C.
func Main(run func(ctx context.Context, redis string) error) {
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

// MainOrProcess is Main for an example of several processes: in one that a [Crew] has started it runs process, which
// is told its name.
func MainOrProcess(
	main func(ctx context.Context, redis string) error,
	process func(ctx context.Context, name, redis string) error,
) {
	name := os.Getenv(nameVariable)
	if name == "" {
		Main(main)
		return
	}
	go func() {
		// Nobody writes there: it ends when the process ends that started this one.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	exit(func(ctx context.Context) error { return process(ctx, name, os.Getenv(redisVariable)) })
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
