package main

import (
	"context"
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
	var choice chooser
	cmd := &cobra.Command{
		Use:   "demo [--redis URL | --engine NAME --url URL]",
		Short: "Watch six processes contend for one lock, two of them get killed, and read the verdict",
		Long: fmt.Sprintf(`Starts a Redis of its own, embedded in this program and reachable from this machine
only, and %d processes that take one lock in turn. Half-way it kills (as kill -9 does) the
process that is first in the queue, and then the one that holds the lock. At the end it
prints a verdict made from what the processes recorded and, of a Redis, from what the server
says of the order of calls and the time of grants: grants, overlaps, order inversions,
tokens, waits, and what the dead cost. It takes about 12 seconds.

With --engine it shows the same on another kind of server, which has to be there already.
On Postgres it makes what locks need in the database, and leaves it there.

It redraws the screen of a terminal, and writes a plain log anywhere else.

Exit codes: 0 if nothing was wrong, %d if two held at once, if calls were overtaken, if a
token did not rise, if a dead process cost more than it may or a process failed, %d if the
server cannot be used.`, demoProcesses, exitFindings, exitUnavailable),
		Args:                  cobra.NoArgs,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(choice, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&choice.redis, "redis", "", "use this Redis instead of an embedded one")
	f.StringVar(&choice.engine, "engine", onRedis.name, "kind of the server: "+engineNames())
	f.StringVar(&choice.url, "url", "", "the server, where it is no Redis (default: as for exec)")
	return cmd
}

// runDemo runs the whole demo. Whatever happens, it leaves no process and no file behind; the keys on a
// server of the user expire about a minute after.
func runDemo(choice chooser, out io.Writer) error {
	signals, deaf := listen()
	defer deaf()
	on, err := choice.choose()
	if err != nil {
		return err
	}
	title := on.shown()
	if on.engine == onRedis && choice.redis == "" && choice.url == "" {
		server, err := embedded()
		if err != nil {
			return fail(exitUnavailable, "cannot start the embedded Redis: %w", err)
		}
		defer server.Close()
		on.url, title = "redis://"+server.Addr(), "an embedded Redis, "+server.Addr()
	} else if err := on.probe(); err != nil {
		return err
	}
	lasts := max(demoLease, on.shortest)
	dir, err := os.MkdirTemp("", "headwaiter-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	started := time.Now()
	p := newPlay(out, fmt.Sprintf("headwaiter demo: %d processes, one lock, on %s", demoProcesses, title))
	count := counter(filepath.Join(dir, "counter"))
	// A name of its own for each run, so that two on one server do not meet.
	lock := "demo-" + strconv.FormatInt(started.UnixMicro(), 36)
	err = p.enter(on, "--engine", on.name, "--lock", lock, "--lease", lasts.String(), "--counter", string(count))
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
func (w where) probe() error {
	if w.prepare != nil {
		ctx, cancel := context.WithTimeout(context.Background(), greeting)
		defer cancel()
		if err := w.prepare(ctx, w.engine, w.url); err != nil {
			return err
		}
	}
	on, err := w.dial("headwaiter demo", max(demoLease, w.shortest))
	if err != nil {
		return err
	}
	on.hangUp()
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
