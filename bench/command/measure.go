package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/compare"
	"github.com/headwaiter/headwaiter/bench/drivers"
	"github.com/headwaiter/headwaiter/bench/network"
	"github.com/headwaiter/headwaiter/internal/conn"
)

// measure is the command without a word in front.
func measure(ctx context.Context, tools Tools, args []string, out, log io.Writer) (err error) {
	s, err := parse(args, tools.Standard, log)
	if err != nil {
		return err
	}
	begun := time.Now()
	var placed *placement
	if s.pin {
		if placed, err = place(); err != nil {
			return err
		}
	}
	option, restart, cast, about, stop, err := s.engines(ctx, tools, placed)
	defer stop()
	if err != nil {
		return err
	}
	if s.against != "" {
		if cast, err = builds(cast[0], s.against); err != nil {
			return err
		}
	}
	stopProfiles, err := profiles(s.cpu, s.allocations)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfiles()) }()
	config := bench.Config{
		Contenders: cast, Redis: option, Restart: restart, Works: s.works, Rounds: s.rounds, Slice: s.slice, FloorSlice: s.floorSlice,
		Far: s.far, Scenes: s.scenes, Crowds: s.crowds, Holds: s.holds, Restless: s.restless, Within: s.within, About: about, Log: logger(s.progress, log),
	}
	if s.scripts {
		config.ScriptName = drivers.ScriptName
	}
	stopNodes := func() {}
	err = placed.among(func() error {
		end, err := s.nodes(ctx, tools, &config)
		if end != nil {
			stopNodes = end
		}
		return err
	})
	defer func() { stopNodes() }()
	if err != nil {
		return err
	}
	results, close, err := s.results(out)
	if err != nil {
		return err
	}
	config.Lines = results
	report, err := bench.Run(ctx, config)
	err = errors.Join(err, close())
	if len(report.Results)+len(report.Scripts) > 0 {
		err = errors.Join(err, report.WriteTable(out))
	}
	if s.out != "" && err == nil {
		err = pages([]string{filepath.Join(s.out, resultsFile)}, s.out, s.docs, s.fill)
	}
	fmt.Fprintf(log, "bench: %v\n", time.Since(begun).Round(time.Second))
	if s.against != "" && err == nil {
		rows := compare.Builds(report)
		if len(rows) == 0 {
			return errors.Join(report.Fault(), fmt.Errorf("bench: -against: no work was measured in %d rounds by both: give another build of this program, and works of -work among W1 to W4", bench.LeastRounds))
		}
		err = judge(rows, out)
	}
	return errors.Join(err, report.Fault())
}

// builds are a lock and the same of another build of this program, whose clients live in processes of both programs.
func builds(own bench.Contender, program string) ([]bench.Contender, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, fmt.Errorf("bench: -against: %w", err)
	}
	own.Driver = nil
	before := own
	before.Name, before.About = compare.Before, own.About+", by "+program
	before.Command = func() *exec.Cmd {
		cmd := own.Command()
		cmd.Path, cmd.Args[0] = path, path
		return cmd
	}
	return []bench.Contender{own, before}, nil
}

// engines starts the server and whatever else the contenders need, each on its CPUs.
func (s *settings) engines(ctx context.Context, tools Tools, placed *placement) (
	option rueidis.ClientOption, restart func() error, cast []bench.Contender, about map[string]string, stop func(), err error,
) {
	stopServer, stopCast := func() {}, func() {}
	stop = func() { stopCast(); stopServer() }
	err = placed.among(func() error {
		started, again, end, err := server(ctx, s.redis)
		if err != nil {
			return err
		}
		option, stopServer = started, end
		if again != nil {
			restart = func() error { return placed.among(again) }
		}
		var facts map[string]string
		var stopped func()
		switch {
		case len(s.delays) == 0:
			cast, facts, stopped, err = tools.Contenders(ctx, option, s.locks)
		case tools.Far == nil:
			err = errors.New("bench: -delay: the program with other locks has it: bench/rivals/cmd/bench")
		default:
			cast, s.far, facts, stopped, err = tools.Far(ctx, option, s.locks, s.delays)
		}
		if err == nil {
			about, stopCast = facts, stopped
		}
		return err
	})
	if placed != nil && err == nil {
		all := map[string]string{"placement:": placed.String()}
		maps.Copy(all, about)
		about = all
	}
	return option, restart, cast, about, stop, err
}

// resultsFile has the lines of JSON in the folder of a run.
const resultsFile = "results.jsonl"

// results is where the lines of JSON go.
func (s *settings) results(out io.Writer) (io.Writer, func() error, error) {
	var writers []io.Writer
	var files []*os.File
	open := func(name string) error {
		file, err := os.Create(name)
		if err != nil {
			return fmt.Errorf("bench: %w", err)
		}
		files = append(files, file)
		writers = append(writers, file)
		return nil
	}
	switch s.lines {
	case "":
	case "-":
		writers = append(writers, out)
	default:
		if err := open(s.lines); err != nil {
			return nil, nil, err
		}
	}
	if s.out != "" {
		if err := os.MkdirAll(s.out, 0o755); err != nil {
			return nil, nil, fmt.Errorf("bench: %w", err)
		}
		if err := open(filepath.Join(s.out, resultsFile)); err != nil {
			return nil, nil, err
		}
	}
	return io.MultiWriter(writers...), func() error {
		var errs []error
		for _, file := range files {
			errs = append(errs, file.Close())
		}
		return errors.Join(errs...)
	}, nil
}

// nodes starts what Redlock needs in addition to one server, if it is measured.
func (s *settings) nodes(ctx context.Context, tools Tools, config *bench.Config) (stop func(), err error) {
	nodes, err := bench.StartNodes(ctx, s.works)
	if err != nil {
		return nil, err
	}
	stop = nodes.Stop
	if len(nodes) > 0 {
		own := bench.NewContender(drivers.Redlock{Headwaiter: drivers.Headwaiter{Redis: config.Redis}, Nodes: bench.Options(nodes.Addrs())})
		own.Fair, own.Ours = true, true
		if s.pairs {
			if stop, err = s.paired(tools, nodes, config); err != nil {
				return stop, err
			}
		} else {
			config.Contenders = []bench.Contender{own}
		}
	}
	switch {
	case len(s.delays) > 0:
		var links []string
		for _, delay := range s.delays {
			links = append(links, bench.LinkOf(delay))
		}
		config.Pairs, config.Works = bench.LinkedPairs(config.Contenders, s.works, links), nil
	case s.pairs:
		config.Pairs, config.Works = bench.Pairs(config.Contenders, s.works)
	}
	return stop, nil
}

// paired lets the locks on several nodes take part, by each wire too.
func (s *settings) paired(tools Tools, nodes bench.Nodes, config *bench.Config) (stop func(), err error) {
	add := func(link string, redis rueidis.ClientOption, addrs []string) {
		own := bench.NewContender(drivers.Redlock{Headwaiter: drivers.Headwaiter{Redis: redis}, Nodes: bench.Options(addrs)})
		own.Fair, own.Ours, own.Link = true, true, link
		own.Name, own.About, own.Only = "headwaiter-redlock-5", "redlock on five nodes", []string{"R5"}
		config.Contenders = append(config.Contenders, own)
		if tools.Nodes != nil {
			other := tools.Nodes(addrs)
			other.Link = link
			config.Contenders = append(config.Contenders, other)
		}
	}
	add("", config.Redis, nodes.Addrs())
	var wires []*network.Process
	stop = func() {
		for _, w := range wires {
			_ = w.Stop() // It was of this run alone.
		}
		nodes.Stop()
	}
	for _, delay := range s.delays {
		wire, err := network.Start(delay, nodes.Addrs()...)
		if err != nil {
			return stop, err
		}
		wires = append(wires, wire)
		add(bench.LinkOf(delay), s.far[bench.LinkOf(delay)], wire.Addrs)
	}
	return stop, nil
}

// server returns the option for the server at the URL, or for one that it starts, restart starts anew and stop ends.
func server(ctx context.Context, url string) (option rueidis.ClientOption, restart func() error, stop func(), err error) {
	if url != "" {
		u, err := conn.ParseURL(url)
		if err != nil {
			return option, nil, nil, fmt.Errorf("bench: -redis: %w", err)
		}
		return u.Redis, nil, func() {}, nil
	}
	redis, err := bench.StartRedis(ctx)
	if err != nil {
		return option, nil, nil, err
	}
	return rueidis.ClientOption{InitAddress: []string{redis.Addr}}, redis.Restart, redis.Stop, nil
}

func logger(progress bool, log io.Writer) func(format string, args ...any) {
	if !progress {
		return nil
	}
	return func(format string, args ...any) { fmt.Fprintf(log, format+"\n", args...) }
}
