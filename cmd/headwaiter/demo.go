package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/spf13/cobra"
)

// The course of the demo: about 12 s, of which a dead holder's lease takes the longest piece.
const (
	demoProcesses = 6
	demoLease     = 1500 * time.Millisecond
	demoLength    = 10 * time.Second // of the arrivals; those who wait by then are still served
	killWaiterAt  = 4 * time.Second
	killHolderAt  = 5 * time.Second
	// demoGap lies between two calls, far more than orderSlack: their order is beyond doubt.
	demoGap = 120 * time.Millisecond
	// A hold is long enough for a queue of several to form behind it.
	shortestHold = 150 * time.Millisecond
	longestHold  = 350 * time.Millisecond
	demoFrame    = 100 * time.Millisecond
	// Limits on what should take no time.
	demoStart = 20 * time.Second
	demoDrain = 20 * time.Second
	demoEnd   = 5 * time.Second
)

func newDemo() *cobra.Command {
	var redis string
	cmd := &cobra.Command{
		Use:   "demo [--redis URL]",
		Short: "Watch six processes contend for one lock, two of them get killed, and read the verdict",
		Long: fmt.Sprintf(`Starts a Redis of its own, embedded in this program and reachable from this machine
only, and %d processes that take one lock in turn. Half-way it kills (as kill -9 does) the
process that is first in the queue, and then the one that holds the lock. At the end it
prints a verdict made from what the processes recorded: grants, overlaps, order
inversions, tokens, waits. It takes about 12 seconds.

It redraws the screen of a terminal, and writes a plain log anywhere else.

Exit codes: 0 if nothing was wrong, %d if two held at once, if somebody was overtaken, if a
token did not rise or a process failed, %d if Redis cannot be used.`, demoProcesses, exitFindings, exitUnavailable),
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(redis, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&redis, "redis", "", "use this server instead of an embedded one")
	return cmd
}

// runDemo runs the whole demo. Whatever happens, it leaves no process and no file behind; the keys on a
// server of the user expire about a minute after.
func runDemo(redis string, out io.Writer) error {
	signals, deaf := listen()
	defer deaf()
	where := "the Redis at " + withoutPassword(redis)
	if redis == "" {
		server, err := embedded()
		if err != nil {
			return fail(exitUnavailable, "cannot start the embedded Redis: %w", err)
		}
		defer server.Close()
		redis, where = "redis://"+server.Addr(), "an embedded Redis, "+server.Addr()
	} else if err := probe(redis); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "headwaiter-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	started := time.Now()
	p := newPlay(out, fmt.Sprintf("headwaiter demo: %d processes, one lock, on %s", demoProcesses, where))
	count := counter(filepath.Join(dir, "counter"))
	// A name of its own for each run, so that two on one server do not meet.
	lock := "demo-" + strconv.FormatInt(started.UnixMicro(), 36)
	err = p.enter(redis, "--lock", lock, "--lease", demoLease.String(), "--counter", string(count))
	if err == nil {
		err = p.run(signals)
	}
	p.leave()
	if err != nil {
		return err
	}
	return p.conclude(out, count, started)
}

// embedded starts a Redis in this process.
func embedded() (*miniredis.Miniredis, error) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	return server, server.StartAddr("127.0.0.1:0")
}

// probe finds out whether a server can be used, so that there is one error and not one from each process.
func probe(redis string) error {
	client, err := dial(redis, "headwaiter demo")
	if err != nil {
		return err
	}
	hangUp(client)
	return nil
}

// conclude prints the verdict and turns it into an exit code.
func (p *play) conclude(out io.Writer, count counter, started time.Time) error {
	n, _, err := count.state()
	if err != nil {
		return err
	}
	now := time.Now()
	v := judge(evidence{
		calls:   p.record.calls,
		lone:    p.record.lone,
		counter: n,
		step:    now.Round(0).Sub(started.Round(0)) - now.Sub(started),
	})
	v.write(out)
	if !v.ok() {
		return &failure{code: exitFindings}
	}
	return nil
}
