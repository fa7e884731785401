package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/bench/report"
)

// distances are the sizes of what is measured to say how far it goes.
type distances struct {
	many, own           int
	few, processes      int
	names, waiters      int
	lease               time.Duration
	clients, operations int
	shards              string
	rounds              int
	slice, look         time.Duration
	shared              string
	out, docs, data     string
	beside, from        string
	within              time.Duration
}

func (d *distances) define(set *flag.FlagSet) {
	set.IntVar(&d.many, "many", 10_000, "clients that want one lock, beside the same with few")
	set.IntVar(&d.own, "own", 10_000, "of those, how many have three connections of their own, if the server may have so many files")
	set.StringVar(&d.shared, "shared", "10s", "all of them with the connection for commands in common, and how often each connection that is idle is asked whether it lives")
	set.IntVar(&d.few, "few", 100, "the few")
	set.IntVar(&d.processes, "processes", 50, "processes over which those clients are spread")
	set.IntVar(&d.names, "names", 1_000_000, "names that one client holds at once")
	set.DurationVar(&d.lease, "lease", 10*time.Minute, "lease of those names")
	set.IntVar(&d.waiters, "waiters", 100_000, "calls of eight clients that wait for one lock")
	set.IntVar(&d.clients, "clients", 1000, "clients that wait for one lock, and that hold a name each, to see what a client costs")
	set.IntVar(&d.operations, "operations", 20_000, "names on which each operation is measured")
	set.StringVar(&d.shards, "shards", "1,2,3,6", "numbers of masters of the clusters")
	set.IntVar(&d.rounds, "rounds", bench.LeastRounds, "rounds of what is compared")
	set.DurationVar(&d.slice, "slice", 2*time.Second, "how long each is measured in a round")
	set.DurationVar(&d.look, "look", 10*time.Second, "how long waiters and renewals are watched")
	set.StringVar(&d.out, "out", "bench-results", "folder for results.jsonl")
	set.StringVar(&d.docs, "docs", "bench-results/how-far.md", "page to write")
	set.StringVar(&d.data, "data", "", "file for the figures that a plan is made of")
	set.DurationVar(&d.within, "within", 0, "how long the run may take, about: towards its end there are fewer rounds (default: no end)")
	set.StringVar(&d.from, "from", "", "results of a run, to write the page and the file again without another")
	set.StringVar(&d.beside, "beside", "nothing that is known", "what else runs on the machine, for the page")
}

// connections are those of a client that waits: for commands, for renewals, and to listen; reserve is for whatever looks on.
const (
	connections = 3
	reserve     = 1000
	crew        = 64 // of operations
	alone       = 8  // of one lock
)

// config is what to run on a server that takes so many connections at once.
func (d *distances) config(allowed int) (c bench.Config, err error) {
	if d.few < d.processes || d.few%d.processes+d.many%d.processes > 0 {
		return c, fmt.Errorf("bench: far: -many and -few must be multiples of -processes")
	}
	if c.Shards, err = parseNumbers("shards", d.shards, 1); err != nil {
		return c, err
	}
	throng := func(many int, shared time.Duration) {
		a, b := bench.Both(many, d.few, d.processes, shared)
		c.Throngs = append(c.Throngs, bench.Throng{Many: a, Few: b, Rounds: d.rounds})
	}
	own := min(d.many, d.own, (allowed-reserve)/connections) / d.processes * d.processes
	for _, word := range parseList(d.shared) {
		every, err := time.ParseDuration(word)
		if err != nil || every <= 0 {
			return c, fmt.Errorf("bench: far: -shared: %q is no time", word)
		}
		throng(d.many, every)
	}
	if own > d.few {
		throng(own, 0)
	}
	c.Crowds = []bench.Gathering{{Waiting: d.waiters, For: d.look}, {Waiting: d.clients, Clients: d.clients, For: d.look}}
	c.Holds = []bench.Keeping{
		{Leases: d.names, Lease: d.lease, Apart: true},
		{Leases: d.operations, For: d.look, Apart: true},
		{Leases: d.operations, Clients: crew, For: d.look, Apart: true},
		{Leases: d.clients, Clients: d.clients, For: d.look, Apart: true},
	}
	for _, kind := range []string{bench.KindReentrant, bench.KindSemaphore, bench.KindRead} {
		c.Holds = append(c.Holds, bench.Keeping{Leases: d.operations, Clients: crew, Kind: kind, Apart: true})
	}
	c.Works = []bench.Work{{ID: "W4", Clients: alone, Workers: 1}, {ID: "W4", Clients: crew, Workers: 1, Locks: crew / 4}}
	c.Rounds, c.Slice, c.FloorSlice, c.Restless = d.rounds, d.slice, d.slice/20, true
	return c, nil
}

// far is the word far.
func far(ctx context.Context, tools Tools, args []string, log io.Writer) (err error) {
	var d distances
	set := flag.NewFlagSet("bench far", flag.ContinueOnError)
	set.SetOutput(log)
	d.define(set)
	if err := set.Parse(args); err != nil {
		return err
	}
	if d.from != "" {
		found, err := report.Read(d.from)
		if err != nil {
			return err
		}
		return d.write(d.from, found)
	}
	redis, err := bench.StartRedis(ctx, "--maxclients", strconv.Itoa(connections*d.many+reserve))
	if err != nil {
		return err
	}
	defer redis.Stop()
	option := rueidis.ClientOption{InitAddress: []string{redis.Addr}}
	allowed, err := bench.Allowed(ctx, option)
	if err != nil {
		return err
	}
	config, err := d.config(allowed)
	if err != nil {
		return err
	}
	cast, about, stop, err := tools.Contenders(ctx, option, []string{"headwaiter"})
	if err != nil {
		return err
	}
	defer stop()
	all := map[string]string{"other load:": d.beside}
	maps.Copy(all, about)
	config.Contenders, config.About, config.On = cast, all, tools.On
	config.Within = d.within
	config.Redis, config.Restart, config.Log = option, redis.Restart, logger(true, log)
	if err := os.MkdirAll(d.out, 0o755); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	results, err := os.Create(filepath.Join(d.out, resultsFile))
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	config.Lines = results
	found, err := bench.Run(ctx, config)
	if err = errors.Join(err, results.Close()); err != nil {
		return err
	}
	return d.write(results.Name(), found)
}

// write writes the page and the file of figures, and says what is not as it is to be.
func (d *distances) write(results string, found bench.Report) (err error) {
	if d.data != "" {
		err = kept(results, d.data)
	}
	return errors.Join(err, report.FarPage(d.docs, found), found.Fault(), report.CheckFar(found))
}

// kept keeps the lines of a run that the page and a plan are made of, without those of each slice, and the long ones that
// say how processes and clusters did beyond what was compared.
func kept(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		kind, _, _ := strings.Cut(strings.TrimPrefix(line, `{"kind":"`), `"`)
		compared := kind == "result" && (strings.Contains(line, `"processes":`) || strings.Contains(line, `"work":"shards"`))
		if kind != "floor" && kind != "slice" && !compared {
			lines = append(lines, line)
		}
	}
	if err := os.WriteFile(to, []byte(strings.Join(lines, "")), 0o644); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

// plan is the word plan.
func plan(args []string, out, log io.Writer) error {
	n, file, memory := report.Usual(), "", 4.0
	set := flag.NewFlagSet("bench plan", flag.ContinueOnError)
	set.SetOutput(log)
	set.IntVar(&n.Clients, "clients", 1, "clients that are connected: one for each process, as a rule")
	set.IntVar(&n.Names, "names", n.Names, "names in use within a minute and a quarter")
	set.Float64Var(&n.HandOffs, "handoffs", 0, "locks a second that are handed on to a waiter")
	set.Float64Var(&n.Cycles, "cycles", 0, "free locks a second that are taken, and released again")
	set.Float64Var(&n.Tries, "tries", 0, "tries a second that are refused")
	set.IntVar(&n.Holds, "holds", 0, "names that are held at the same time for long enough to be renewed")
	set.DurationVar(&n.Lease, "lease", n.Lease, "their lease")
	set.IntVar(&n.Waiters, "waiters", 0, "calls that wait at the same time")
	set.IntVar(&n.Connections, "maxclients", n.Connections, "connections that a master takes")
	set.Float64Var(&memory, "memory", memory, "memory of a master in GiB")
	set.Float64Var(&n.Load, "load", n.Load, "how much of a core a master may use")
	set.StringVar(&file, "data", "", "results of another run of bench far (default: those of docs/how-far.md)")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("bench: plan: %q: only flags are expected", set.Arg(0))
	}
	n.Memory = memory * (1 << 30)
	measured, err := report.MeasuredFar()
	if file != "" {
		measured, err = report.Read(file)
	}
	if err != nil {
		return err
	}
	p, err := report.NewPlan(measured, n)
	if err != nil {
		return err
	}
	return p.Write(out)
}
