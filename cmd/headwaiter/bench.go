package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/drivers"
	"github.com/headwaiter/headwaiter/bench/report"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	// benchPrefix keeps what bench does apart from everything else on a server.
	benchPrefix = "headwaiter-bench"
	// What bench may do to somebody's server: so many clients with three connections each, holds and slices so long.
	benchMostClients = 256
	benchLongestHold = time.Second
	benchLongest     = time.Minute
	benchMostRounds  = 100
	// benchMostCalls arrive in a second at the most: far above what one server does.
	benchMostCalls = 1e6
)

// benchmark is one call of bench.
type benchmark struct {
	redis, arrival, out string
	works               []string
	clients             []int
	hold, slice         time.Duration
	rounds              int
}

func newBench() *cobra.Command {
	var b benchmark
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the lock on a server of yours",
		Long:  benchHelp,
		Example: `  headwaiter bench --redis redis://cache.internal:6379
  headwaiter bench --work W4 --clients 8,32 --hold 5ms --out results
  headwaiter bench --work W4 --clients 16 --arrival 500`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			b.redis = redisURL(b.redis)
			return b.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&b.redis, "redis", "", "server, as a URL (default $"+redisVariable+", else "+defaultRedis+")")
	f.StringSliceVar(&b.works, "work", []string{"W1", "W3", "W4"}, "what to run: W1, W2, W3, W4, W4h")
	f.IntSliceVar(&b.clients, "clients", []int{2, 8, 32}, "numbers of clients of W4 and W4h")
	f.DurationVar(&b.hold, "hold", 0, "how long W4 holds")
	f.StringVar(&b.arrival, "arrival", "closed", "closed: each worker calls again when it has released; or how many calls arrive in a second")
	f.DurationVar(&b.slice, "slice", time.Second, "how long each work is measured in a round")
	f.IntVar(&b.rounds, "rounds", 3, "rounds of each work; medians of them are reported")
	f.StringVar(&b.out, "out", "", "folder for results.jsonl, report.html, report.md and histograms")
	return cmd
}

const benchHelp = `Measures the fair lock on a server, beside what the same server and network need for the
least that any lock does (the floors). It tells what goes on, prints a table, and with
--out writes a page with charts, the same as Markdown, lines of JSON, and histograms for
the HdrHistogram tools.

  W1    one client, one worker, one lock
  W2    one client, 64 workers, each with a lock of its own
  W3    one client, 16 workers, one lock
  W4    so many clients with one worker each, one lock
  W4h   as W4, each hold 5 ms long

It loads the server as much as it can for the time of the slices: not for one that is at
work, unless --arrival says how many calls a second it may take. With a rate a call that
could not be made when it was due counts from then. Its keys begin with ` + benchPrefix + `
and expire; it changes no setting and kills no connection.

Exit codes:
  0       it is measured
  1       two held at once, or an order was not kept
  64      called wrongly
  69      Redis cannot be reached, or refuses
  130     interrupted`

// chosen are the works, with what the flags say of them.
func (b *benchmark) chosen() ([]bench.Work, error) {
	const see = "; see headwaiter bench --help"
	var rate float64
	if b.arrival != "closed" {
		var err error
		if rate, err = strconv.ParseFloat(b.arrival, 64); err != nil || !(rate > 0 && rate <= benchMostCalls) {
			return nil, fail(exitUsage, "bench: --arrival %q: must be closed, or a number above 0 and up to %.0f"+see, b.arrival, benchMostCalls)
		}
	}
	switch {
	case b.hold < 0 || b.hold > benchLongestHold:
		return nil, fail(exitUsage, "bench: --hold %v: must be from 0 to %v"+see, b.hold, benchLongestHold)
	case b.slice <= 0 || b.slice > benchLongest:
		return nil, fail(exitUsage, "bench: --slice %v: must be above 0 and at most %v"+see, b.slice, benchLongest)
	case b.rounds < 1 || b.rounds > benchMostRounds:
		return nil, fail(exitUsage, "bench: --rounds %d: must be from 1 to %d"+see, b.rounds, benchMostRounds)
	}
	for _, n := range b.clients {
		if n < 2 || n > benchMostClients {
			return nil, fail(exitUsage, "bench: --clients %d: must be from 2 to %d"+see, n, benchMostClients)
		}
	}
	works, err := bench.Select(bench.Standard(b.clients), b.works)
	if err != nil {
		return nil, fail(exitUsage, "%w"+see, err)
	}
	for i := range works {
		works[i].Arrival = rate
		if works[i].ID == "W4" {
			works[i].Hold = b.hold
		}
	}
	return works, nil
}

func (b *benchmark) run(ctx context.Context, out, log io.Writer) (err error) {
	works, err := b.chosen()
	if err != nil {
		return err
	}
	option, err := parse(b.redis)
	if err != nil {
		return err
	}
	// A server that cannot be used is told of as everywhere, and before anything is measured.
	l := lookout{redis: b.redis}
	client, err := l.dial("bench")
	if err != nil {
		return err
	}
	hangUp(client)
	config := bench.Config{
		Contenders: []bench.Contender{drivers.Contender(drivers.Headwaiter{Redis: option, Prefix: benchPrefix}, lease.DefaultLease)},
		Redis:      option, Works: works, Rounds: b.rounds, Slice: b.slice, Prefix: fmt.Sprintf("%s:%x", benchPrefix, time.Now().UnixNano()),
		Log: func(format string, args ...any) { fmt.Fprintln(log, escaped(fmt.Sprintf(format, args...))) },
	}
	results := ""
	if b.out != "" {
		results = filepath.Join(b.out, "results.jsonl")
		file, err := create(results)
		if err != nil {
			return err
		}
		defer file.Close()
		config.Lines = file
	}
	found, err := bench.Run(ctx, config)
	if err != nil {
		return benchFailure(err, b.redis)
	}
	var table strings.Builder
	if err := found.WriteTable(&table); err != nil {
		return err
	}
	for text := range strings.Lines(table.String()) {
		if _, err := fmt.Fprintln(out, escaped(strings.TrimSuffix(text, "\n"))); err != nil {
			return err
		}
	}
	if fault := found.Fault(); fault != nil {
		return fail(exitFindings, "%w", fault)
	}
	if b.out == "" {
		return nil
	}
	return b.pages(results, out)
}

// benchFailure is an error of a run as the other commands tell it.
func benchFailure(err error, address string) error {
	if _, refused := rueidis.IsRedisErr(err); refused || !errors.Is(err, context.Canceled) {
		return fail(exitUnavailable, "cannot measure Redis at %s: %s", withoutPassword(address), reason(err, address))
	}
	return fail(exitSignal+int(syscall.SIGINT), "interrupted")
}

// create makes a file and the folder it is in.
func create(name string) (*os.File, error) {
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err != nil {
		return nil, fail(exitUsage, "bench: %w", err)
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, fail(exitUsage, "bench: %w", err)
	}
	return file, nil
}

// pages makes what is read out of the results.
func (b *benchmark) pages(results string, out io.Writer) error {
	r, err := report.Read(results)
	if err != nil {
		return err
	}
	page := filepath.Join(b.out, "report.html")
	if err := errors.Join(
		report.HTMLFile(page, r),
		report.MarkdownFile(filepath.Join(b.out, "report.md"), r, report.HeadwaiterBench, ""),
		report.Histograms(r, filepath.Join(b.out, "histograms")),
	); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%s\n", page)
	return err
}
