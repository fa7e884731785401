package command

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/bench"
)

// settings are the flags.
type settings struct {
	works             []bench.Work
	crowds            []bench.Gathering
	holds             []bench.Keeping
	dead              []int
	scenes            []bench.Scene
	locks             []string
	rounds            int
	slice, floorSlice time.Duration
	within            time.Duration
	redis             string
	lines, out, docs  string
	fill              []string
	cpu, allocations  string
	scripts           bool
	restless          bool
	pin               bool
	pairs             bool
	against           string
	delays            []time.Duration
	far               map[string]rueidis.ClientOption // by each delay, when it is there
	progress          bool
}

// flags are settings in words.
type flags struct {
	settings
	work, clients, crowd, hold, lock string
	died, fills, delay               string
	held                             time.Duration
	arrival                          float64
	processes                        bool
	standard                         bool
}

func (f *flags) define(set *flag.FlagSet, standard []string) {
	set.StringVar(&f.work, "work", "", "what to run, such as W1,W4h,RW,W5,W7 (default: W1 to W4h)")
	set.StringVar(&f.clients, "clients", "2,8,32,128", "numbers of clients of W4 and W4h")
	set.StringVar(&f.lock, "locks", "headwaiter", "locks to measure, or all")
	set.StringVar(&f.crowd, "crowd", "100,1000,10000,100000", "lengths of the queue of W7")
	set.StringVar(&f.hold, "holds", "100,10000", "numbers of leases of W8")
	set.StringVar(&f.died, "dead", "2,100,1000", "numbers of dead waiters of W5")
	set.DurationVar(&f.held, "hold", 0, "how long W4 holds (default not at all)")
	set.Float64Var(&f.arrival, "arrival", 0, "calls a second of W1 to W4 that arrive whatever became of those before (default: each worker calls again when it has released)")
	set.BoolVar(&f.processes, "processes", false, "each client of W4 is a process of its own")
	set.IntVar(&f.rounds, "rounds", 3, "rounds of each work; medians of them are reported")
	set.DurationVar(&f.slice, "slice", time.Second, "how long each work is measured in a round")
	set.DurationVar(&f.floorSlice, "floor-slice", 0, "how long each floor is measured around it (default as the work)")
	set.DurationVar(&f.within, "within", 0, "how long the run may take, about: towards its end pairs have fewer rounds, and scenes are played once (default: no end)")
	set.StringVar(&f.redis, "redis", "", "URL of a server of yours (default: start redis-server on a free port of loopback). It is loaded as much as it can be, save with -arrival; all keys expire, no setting is changed and no connection killed")
	set.StringVar(&f.lines, "json", "", "file for the lines of JSON; - is standard output")
	set.StringVar(&f.out, "out", "", "folder for results.jsonl, report.md and pictures")
	set.StringVar(&f.docs, "docs", "", docsHelp)
	set.StringVar(&f.fills, "fill", "", fillHelp)
	set.StringVar(&f.cpu, "cpuprofile", "", "file for a CPU profile of the clients; its label slice tells works and floors apart")
	set.StringVar(&f.allocations, "allocprofile", "", "file for a profile of what the clients allocate, one object in a hundred or so")
	set.BoolVar(&f.scripts, "scripts", false, "let the server write down every script, and tell what each took of it: to look, not to compare")
	set.BoolVar(&f.pairs, "pairs", false, "compare the first lock with each other one in turn, within rounds: A B B A between two floors")
	set.StringVar(&f.against, "against", "", "compare the first lock in pairs with the lock of another build of this program, each in a process of its own; says whether it has become slower")
	set.StringVar(&f.delay, "delay", "", "compare in pairs over a network that takes so long each way, or several, such as 0,250us,1ms: works W1, W4, W5 and W6. With 0 the wire alone is measured")
	set.BoolVar(&f.restless, "restless", false, "let rounds count though a floor moved by more than a third, and say nothing of the order of calls: to try things, not to compare")
	set.BoolVar(&f.pin, "pin", false, "give servers that are started here one half of the CPUs and clients the other (Linux): figures are steadier")
	set.BoolVar(&f.progress, "progress", true, "tell each round on standard error")
	set.BoolVar(&f.standard, "standard", false, fmt.Sprintf("the standard set, which is %s; flags after it change it", strings.Join(standard, " ")))
}

// parse reads the arguments. -standard stands for the flags of the standard set, and must be the first.
func parse(args, standard []string, log io.Writer) (settings, error) {
	if len(args) > 0 && strings.TrimLeft(args[0], "-") == "standard" {
		args = slices.Concat(standard, args[1:])
	}
	var f flags
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(log)
	f.define(set, standard)
	set.Usage = func() {
		fmt.Fprint(log, usage+"\n")
		set.PrintDefaults()
	}
	if err := set.Parse(args); err != nil {
		return f.settings, err
	}
	f.pairs = f.pairs || f.against+f.delay != ""
	switch {
	case f.standard:
		return f.settings, errors.New("bench: -standard must be the first flag")
	case f.pin && f.redis != "":
		return f.settings, errors.New("bench: -pin is for servers that are started here, and -redis names one that runs")
	case f.out == "" && f.docs+f.fills != "":
		return f.settings, errors.New("bench: -docs and -fill are made of what -out keeps")
	case f.delay != "" && f.against+f.redis != "":
		return f.settings, errors.New("bench: -delay is for servers and locks of this program")
	case f.pairs && f.rounds < bench.LeastRounds:
		return f.settings, fmt.Errorf("bench: -pairs wants %d rounds at least", bench.LeastRounds)
	case set.NArg() > 0:
		return f.settings, fmt.Errorf("bench: %q: only flags are expected", set.Arg(0))
	case f.rounds < 1 || f.slice <= 0 || f.floorSlice < 0 || f.within < 0 || f.held < 0 || f.arrival < 0:
		return f.settings, errors.New("bench: -rounds and -slice must be positive, other numbers not negative")
	}
	f.fill = parseList(f.fills)
	if f.lock != "all" {
		f.locks = parseList(f.lock)
	}
	if err := f.choose(); err != nil || f.redis == "" {
		return f.settings, err
	}
	return f.settings, f.harmless()
}

// What a run may do to a server that somebody else started: the most clients with three connections each, the longest
// holds and slices, the most calls a second.
const (
	mostClients = 256
	longestHold = time.Second
	longest     = time.Minute
	mostRounds  = 100
	mostCalls   = 1e6
)

// harmless refuses what would harm such a server.
func (f *flags) harmless() error {
	clients := 0
	for _, w := range f.works {
		clients = max(clients, w.Clients)
	}
	switch {
	case len(f.scenes)+len(f.crowds)+len(f.settings.holds) > 0 || f.scripts:
		return errors.New("bench: -redis: W5 to W8 and -scripts kill connections of others, fill the server or change its settings: they are for a server that is started here")
	case clients > mostClients || f.held > longestHold || f.slice > longest || f.floorSlice > longest || f.rounds > mostRounds || !(f.arrival <= mostCalls):
		return fmt.Errorf("bench: -redis: on a server that is not started here at most %d clients, holds of %v, slices of %v, %d rounds and %.0f calls a second",
			mostClients, longestHold, longest, mostRounds, mostCalls)
	}
	return nil
}

// choose makes the works out of the words.
func (f *flags) choose() error {
	clients, err := parseNumbers("clients", f.clients, 2)
	if err != nil {
		return err
	}
	ids := parseList(f.work)
	beyond := func(id string) bool {
		i := slices.Index(ids, id)
		if i >= 0 {
			ids = slices.Delete(ids, i, i+1)
		}
		return i >= 0
	}
	measured := len(ids) == 0
	w5, w6, w7, w8 := beyond("W5"), beyond("W6"), beyond("W7"), beyond("W8")
	if f.dead, err = parseNumbers("dead", f.died, 1); err != nil {
		return err
	}
	for _, s := range bench.Scenes("headwaiter", f.dead) {
		if s.OfHolders() && w6 || !s.OfHolders() && w5 {
			f.scenes = append(f.scenes, s)
		}
	}
	if w7 {
		lengths, err := parseNumbers("crowd", f.crowd, 2)
		if err != nil {
			return err
		}
		for _, n := range lengths {
			f.crowds = append(f.crowds, bench.Gathering{Waiting: n})
		}
	}
	if w8 {
		leases, err := parseNumbers("holds", f.hold, 1)
		if err != nil {
			return err
		}
		for _, n := range leases {
			f.settings.holds = append(f.settings.holds, bench.UsualKeeping(n))
		}
	}
	if err := f.network(); err != nil {
		return err
	}
	works := bench.Standard(clients)
	if !measured {
		works = slices.Concat(works, bench.FamilyWorks(), bench.RedlockWorks())
		if len(ids) == 0 {
			return nil
		}
	}
	if f.works, err = bench.Select(works, ids); err != nil {
		return err
	}
	for i := range f.works {
		w := &f.works[i]
		w.Arrival = f.arrival
		if w.ID == "W4" {
			w.Hold = f.held
			if f.processes {
				w.Processes = w.Clients
			}
		}
	}
	return nil
}

// network reads the delays, and lets the scenes be played with each.
func (f *flags) network() error {
	var scenes []bench.Scene
	for _, word := range parseList(f.delay) {
		delay, err := time.ParseDuration(word)
		if err != nil || delay < 0 || delay > longestHold {
			return fmt.Errorf("bench: -delay: %q is no time from 0 to %v", word, longestHold)
		}
		f.delays = append(f.delays, delay)
		for _, s := range f.scenes {
			if s.Link = bench.LinkOf(delay); delay > 0 && (s.Kind == bench.DeadWaiters || s.Kind == bench.DeadHolder) {
				scenes = append(scenes, s)
			}
		}
	}
	if f.delay != "" {
		f.scenes = scenes
	}
	return nil
}

func parseList(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func parseNumbers(name, list string, least int) ([]int, error) {
	var numbers []int
	for _, word := range parseList(list) {
		n, err := strconv.Atoi(word)
		if err != nil || n < least {
			return nil, fmt.Errorf("bench: -%s: %q is not a number of at least %d", name, word, least)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
