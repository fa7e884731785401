// Command bench measures this library's lock against the floors of the machine it runs on.
//
//	go run ./bench/cmd/bench [flags]
//
// It prints one table, and a line of JSON for each measurement. It starts a redis-server of its own unless
// it is given one. An overlap of two holds, or a token that does not rise, makes it exit non-zero.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/drivers"
)

// settings are the flags.
type settings struct {
	works    []bench.Work
	rounds   int
	slice    time.Duration
	redis    string
	lines    string
	profile  string
	endless  bool
	cluster  bool
	progress bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, s)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func parse(args []string) (s settings, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	work := f.String("work", "", "what to run, such as W1,W4h,RW (default all)")
	clients := f.String("clients", "2,8,32,128", "numbers of clients of W4 and W4h")
	f.IntVar(&s.rounds, "rounds", 3, "rounds of each work; medians of them are reported")
	f.DurationVar(&s.slice, "slice", time.Second, "how long each work and each floor is measured in a round")
	f.StringVar(&s.redis, "redis", "", "URL of the server (default: start redis-server on a free port of loopback)")
	f.StringVar(&s.lines, "json", "-", "file for the lines of JSON; - is standard output")
	f.StringVar(&s.profile, "cpuprofile", "", "file for a CPU profile; its label slice tells works and floors apart")
	f.BoolVar(&s.endless, "endless", false, "call with contexts that cannot end, as the floors do")
	f.BoolVar(&s.cluster, "cluster", false, "start a cluster of 3+3 nodes too, and compare the works on it with those on the single server")
	f.BoolVar(&s.progress, "progress", true, "tell each round on standard error")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("bench: %q: only flags are expected", f.Arg(0))
	}
	if s.rounds < 1 || s.slice <= 0 {
		return s, errors.New("bench: --rounds and --slice must be positive")
	}
	numbers, err := parseNumbers(*clients)
	if err != nil {
		return s, err
	}
	s.works, err = bench.Select(slices.Concat(bench.Standard(numbers), bench.FamilyWorks(), bench.RedlockWorks()), parseList(*work))
	for i := range s.works {
		s.works[i].Beside = s.cluster
	}
	return s, err
}

func parseList(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func parseNumbers(list string) ([]int, error) {
	var numbers []int
	for _, word := range parseList(list) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 2 {
			return nil, fmt.Errorf("bench: --clients: %q is not a number of at least 2", word)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

func run(ctx context.Context, s settings) (err error) {
	option, stop, err := server(ctx, s.redis)
	if err != nil {
		return err
	}
	defer stop()
	lines, closeLines, err := create(s.lines)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLines()) }()
	if s.profile != "" {
		profile, closeProfile, err := create(s.profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(profile); err != nil {
			return errors.Join(fmt.Errorf("bench: profile: %w", err), closeProfile())
		}
		defer func() {
			pprof.StopCPUProfile()
			_ = closeProfile() // A profile that was cut short shows itself to its reader.
		}()
	}
	measured, beside := option, bench.Driver(nil)
	if s.cluster {
		cluster, err := bench.StartCluster(ctx)
		if err != nil {
			return err
		}
		defer cluster.Stop()
		measured, beside = rueidis.ClientOption{InitAddress: cluster.Addrs()}, drivers.Headwaiter{Redis: option}
	}
	nodes, err := bench.StartNodes(ctx, s.works)
	if err != nil {
		return err
	}
	defer nodes.Stop()
	report, err := bench.Run(ctx, bench.Config{
		Driver:  drivers.Redlock{Headwaiter: drivers.Headwaiter{Redis: measured}, Nodes: nodes.Options()},
		Beside:  beside,
		Redis:   measured,
		Works:   s.works,
		Rounds:  s.rounds,
		Slice:   s.slice,
		Endless: s.endless,
		Lines:   lines,
		Log:     logger(s.progress),
	})
	if len(report.Results) > 0 {
		err = errors.Join(err, report.WriteTable(os.Stdout))
	}
	return errors.Join(err, report.Fault())
}

// server returns the option for the server at the URL, or for one that it starts and stop ends.
func server(ctx context.Context, url string) (option rueidis.ClientOption, stop func(), err error) {
	if url != "" {
		if option, err = rueidis.ParseURL(url); err != nil {
			return option, nil, fmt.Errorf("bench: --redis: %w", err)
		}
		return option, func() {}, nil
	}
	redis, err := bench.StartRedis(ctx)
	if err != nil {
		return option, nil, err
	}
	return rueidis.ClientOption{InitAddress: []string{redis.Addr}}, redis.Stop, nil
}

// create opens a file to write; - is standard output, which stays open.
func create(name string) (io.Writer, func() error, error) {
	if name == "-" {
		return os.Stdout, func() error { return nil }, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, nil, fmt.Errorf("bench: %w", err)
	}
	return file, file.Close, nil
}

func logger(progress bool) func(format string, args ...any) {
	if !progress {
		return nil
	}
	return func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
}
