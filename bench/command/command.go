// Package command is the command line of bench, for any set of locks.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
)

// Tools is what a program with this command line has.
type Tools struct {
	// Contenders makes those of the given names, all if there are none, on a Redis, and what stops their servers.
	Contenders func(ctx context.Context, redis rueidis.ClientOption, names []string) (cast []bench.Contender, about map[string]string, stop func(), err error)
	// Far makes them as well by wires with those delays, and what leads to the Redis by each; nil where there are none.
	Far func(ctx context.Context, redis rueidis.ClientOption, names []string, delays []time.Duration) (
		cast []bench.Contender, by map[string]rueidis.ClientOption, about map[string]string, stop func(), err error)
	// Agent is the driver for a process that was started for one; nil where there are no such processes.
	Agent func(name string) (bench.Driver, error)
	// Nodes is the lock of others on several servers, by their addresses; nil where there is none.
	Nodes func(addrs []string) bench.Contender
	// On is this project's lock on other servers.
	On func(rueidis.ClientOption) bench.Driver
	// Standard are the contenders and works of the standard set, as flags.
	Standard []string
}

const usage = `bench measures locks against floors of the same run, and against each other.

  bench [flags]                    measure; bench -help lists the flags
  bench far [flags]                measure how far one server and a cluster go; bench far -help lists the flags
  bench plan [flags]               what your numbers want of Redis, by the figures of the last such run
  bench report RESULTS... -out DIR  make the page and pictures again from results, of several runs as of one
  bench compare OLD NEW             say which figures have changed, and which differ by no more than noise
`

// Main runs it and returns the exit code.
func Main(tools Tools) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Where the output goes to has ended, as head does: that is an error of a write, and the servers are to be stopped.
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGPIPE)
	defer signal.Stop(ignored)
	err := run(ctx, tools, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func run(ctx context.Context, tools Tools, args []string, out, log io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "agent":
			return serve(ctx, tools, args[1:], out)
		case "far":
			return far(ctx, tools, args[1:], log)
		case "plan", "-plan", "--plan":
			return plan(args[1:], out, log)
		case "report":
			return remake(args[1:], out)
		case "compare":
			return compareRuns(args[1:], out)
		}
	}
	return measure(ctx, tools, args, out, log)
}

// serve is a process of a contender.
func serve(ctx context.Context, tools Tools, args []string, out io.Writer) error {
	if tools.Agent == nil || len(args) != 1 {
		return errors.New("bench: agent: it is started by bench alone")
	}
	driver, err := tools.Agent(args[0])
	if err != nil {
		return err
	}
	return bench.ServeAgent(ctx, driver, os.Stdin, out)
}
