package report

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/bench"
)

// measuredFar are the lines of the run that wrote docs/how-far.md.
//
//go:embed far.jsonl
var measuredFar string

const (
	// LeastShare is how much of the rate of few clients many are to have.
	LeastShare = 0.8
	// MostGrowth is how many times the CPU of one master a hand-off may take of several.
	MostGrowth = 1.2
)

// far is a run of bench far with what the page and a plan ask of it.
type far struct{ view }

// MeasuredFar is the run whose figures this program has.
func MeasuredFar() (bench.Report, error) { return bench.ReadReport(strings.NewReader(measuredFar)) }

// holds are the first holds that fit; nothing if there are none.
func (f far) holds(kind string, fits func(bench.Holds) bool) (found bench.Holds) {
	for _, h := range f.Holds {
		if h.Kind == kind && fits(h) {
			return h
		}
	}
	return found
}

func alone(h bench.Holds) bool  { return h.Clients == 0 && h.Lease == 0 }
func long(h bench.Holds) bool   { return h.Lease > 0 }
func many(h bench.Holds) bool   { return h.Clients > 1 && h.Leases > h.Clients }
func single(h bench.Holds) bool { return h.Clients > 1 && h.Leases == h.Clients }

// waiting is the crowd of few clients, client the crowd with as many clients as calls.
func (f far) waiting() (c bench.Crowd) {
	return f.crowd(func(c bench.Crowd) bool { return c.Clients == 0 })
}
func (f far) client() (c bench.Crowd) {
	return f.crowd(func(c bench.Crowd) bool { return c.Clients > 0 })
}

func (f far) crowd(fits func(bench.Crowd) bool) (found bench.Crowd) {
	if i := slices.IndexFunc(f.Crowds, fits); i >= 0 {
		return f.Crowds[i]
	}
	return found
}

// handOff is a hand-off among the clients of several locks, or of one.
func (f far) handOff(locks bool) bench.Figures {
	for _, r := range f.Results {
		if r.ID == "W4" && r.Processes == 0 && (r.Locks > 1) == locks {
			return r.Figures
		}
	}
	return bench.Figures{}
}

// perHandOff is the CPU of the server for one.
func perHandOff(f bench.Figures) float64 {
	if f.Passed <= 0 {
		return f.Server.CPUMicros
	}
	return f.Server.CPUMicros * f.Rate / f.Passed
}

// CheckFar says what of a run is not as it is to be. Fewer than [bench.LeastRounds] rounds are no verdict.
func CheckFar(r bench.Report) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("bench: far: "+format, args...)) }
	for _, c := range r.Compared {
		if s := c.Speed(); s.Rounds >= bench.LeastRounds && s.High < LeastShare {
			fail("%v has %v of the hand-offs a second of %v, which is less than %v", c.AgainstWork, s, c.Work, LeastShare)
		}
	}
	for _, h := range r.Holds {
		if h.Kept > 0 {
			fail("%v: %d keys outlast %v though all is released", h.Keeping, h.Kept, bench.Spare)
		}
		if h.Lost > 0 {
			fail("%v: %d leases were lost", h.Keeping, h.Lost)
		}
	}
	for _, s := range r.Shards {
		if ratio := bench.RatioOf(s.Ratios); ratio.Rounds >= bench.LeastRounds && ratio.Low > MostGrowth {
			fail("%d masters take %v times the CPU of one for a hand-off", s.Masters, ratio)
		}
	}
	for _, m := range r.Missing {
		fail("%s %s: %s", m.Contender, m.What, m.Reason)
	}
	return errors.Join(errs...)
}

// operations are what one core of Redis carries.
func (f far) operations() Table {
	t := Table{Heads: []string{"what", "Redis µs", "a core of Redis carries, a second", "clients µs"}}
	row := func(what string, o bench.Operation) {
		if o.Server > 0 {
			t.Rows = append(t.Rows, []string{what, Short(o.Server), grouped(1e6 / o.Server), Short(o.Client)})
		}
	}
	pair := func(h bench.Holds) bench.Operation {
		return bench.Operation{Server: h.Lock.Server + h.Release.Server, Client: h.Lock.Client + h.Release.Client}
	}
	each, one := f.holds("", many), f.holds("", alone)
	row("lock a free name, 64 connections", each.Lock)
	row("lock a free name, one connection", one.Lock)
	row("release it, 64 connections", each.Release)
	row("release it, one connection", one.Release)
	row("try a name that is held: refused, 64 connections", each.Refused)
	several, mine := f.handOff(true), f.handOff(false)
	row("hand on, 64 clients of 16 locks", bench.Operation{Server: perHandOff(several), Client: several.CPU})
	row("hand on, 8 clients of one lock", bench.Operation{Server: perHandOff(mine), Client: mine.CPU})
	row("renew, of a client that holds many", one.Renewal())
	row("renew, of a client that holds one", f.holds("", single).Renewal())
	row("reentrant lock: lock and release", pair(f.holds(bench.KindReentrant, many)))
	row("semaphore: acquire a permit and release it", pair(f.holds(bench.KindSemaphore, many)))
	row("read-write lock: read and release", pair(f.holds(bench.KindRead, many)))
	return t
}

// throngs set many clients next to few.
func (f far) throngs() Table {
	t := Table{Heads: []string{"clients", "connections of each", "hand-offs/s of the many", "of the few", "ratio (95 %)", "to reach", "", "Redis µs, many : few"}}
	for _, c := range f.Compared {
		speed := c.Speed()
		verdict := "reached"
		switch {
		case speed.Rounds < bench.LeastRounds || speed.Low < LeastShare && speed.High >= LeastShare:
			verdict = "cannot tell"
		case speed.High < LeastShare:
			verdict = "missed"
		}
		own := "three of its own"
		if c.Shared > 0 {
			own = fmt.Sprintf("one of its own, asked every %v whether it lives; that for commands is its process's", c.Shared)
		}
		rates, others := c.Median(func(t bench.Turn) float64 { return t.Rate })
		cpu, less := c.Median(func(t bench.Turn) float64 { return t.Server })
		t.Rows = append(t.Rows, []string{
			fmt.Sprintf("%s : %s, %d processes", grouped(float64(c.AgainstWork.Clients)), grouped(float64(c.Clients)), c.Processes), own,
			grouped(rates), grouped(others), interval(speed), fmt.Sprint(LeastShare), verdict, Short(cpu) + " : " + Short(less),
		})
	}
	return t
}

// interval is a ratio with its interval, where there are rounds for one.
func interval(r bench.Ratio) string {
	if r.Rounds < bench.LeastRounds {
		return fmt.Sprintf("%.2f (%d rounds)", r.Median, r.Rounds)
	}
	return fmt.Sprintf("%.2f (%.2f to %.2f)", r.Median, r.Low, r.High)
}

func (f far) clusters() Table {
	t := Table{Heads: []string{"masters", "clients", "hand-offs/s of a master", "Redis µs a hand-off", "of the cheapest and the dearest master", "to one master (95 %)", "clients µs", "connections of a client", "of a master"}}
	for _, s := range f.Shards {
		t.Rows = append(t.Rows, []string{
			fmt.Sprint(s.Masters), fmt.Sprint(s.Clients), grouped(s.Rate / float64(s.Masters)), Short(s.CPU), Short(s.Least) + " to " + Short(s.Most),
			interval(bench.RatioOf(s.Ratios)), Short(s.Client), Short(s.Connections), Short(s.PerMaster),
		})
	}
	return t
}

func (f far) names() Table {
	t := Table{Heads: []string{"what", "", ""}}
	h := f.holds("", long)
	row := func(what, figure, note string) { t.Rows = append(t.Rows, []string{what, figure, note}) }
	row("names held", grouped(float64(h.Leases)), fmt.Sprintf("by one client, lease %v", h.Lease))
	row("locked a second", grouped(h.Lock.PerSecond), fmt.Sprintf("%s s, %s µs of Redis each", Short(float64(h.Leases)/h.Lock.PerSecond), Short(h.Lock.Server)))
	row("refused a second", grouped(h.Refused.PerSecond), fmt.Sprintf("a try of each; %s µs of Redis", Short(h.Refused.Server)))
	row("released a second", grouped(h.Release.PerSecond), fmt.Sprintf("%s s, %s µs of Redis each", Short(float64(h.Leases)/h.Release.PerSecond), Short(h.Release.Server)))
	row("bytes a name", grouped(h.Server)+" in Redis", grouped(h.Client)+" in the client")
	row("leases lost", fmt.Sprint(h.Lost), "")
	row("keys that outlast the release by more than "+bench.Spare.String(), fmt.Sprint(h.Kept), "the key of a name that nobody holds is kept for its token")
	w, c := f.waiting(), f.client()
	row("calls that wait for one lock", grouped(float64(w.Waiting)), fmt.Sprintf("of eight clients, %s connections in all", grouped(w.Connections)))
	row("bytes a call that waits", grouped(w.Server)+" in Redis", fmt.Sprintf("%s in the client, %s of them the stack of its goroutine", grouped(w.Client), grouped(w.Stacks)))
	row("CPU while they wait", Short(w.ServerCPU)+" µs of Redis a second each", Short(w.ClientCPU)+" µs of the client")
	row("hand-off out of that queue", Short(w.HandOff)+" µs in scripts", grouped(w.Rate)+" a second")
	row("clients that wait, a call each", grouped(float64(c.Waiting)), fmt.Sprintf("%s connections each", Short(perClient(c))))
	row("bytes a client that waits", grouped(c.All)+" in Redis", grouped(c.Client)+" in its process")
	row("CPU of a client that waits, its connections included", Short(c.ServerCPU)+" µs of Redis a second", Short(c.ClientCPU)+" µs of its process")
	return t
}

// perClient is how many connections each client has.
func perClient(c bench.Crowd) float64 {
	if c.Waiting == 0 {
		return 0
	}
	return math.Round(c.Connections / float64(c.Waiting))
}

// FarPage writes the page.
func FarPage(name string, r bench.Report) error {
	f := far{view{r}}
	var b strings.Builder
	fmt.Fprintf(&b, "# How far it goes\n\nFor operators who plan a Redis: what one server carries, what a cluster does, and what a client costs. Written by `make far`; change nothing here. "+
		"Rates are those of one machine, whose %d cores servers and clients share: plan with the CPU of Redis and with bytes.\n\n", r.Environment.CPUs)
	for _, fact := range Facts(r.Environment) {
		fmt.Fprintf(&b, "- %s\n", fact)
	}
	section := func(title, text string, t Table) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", title, text)
		markdownTable(&b, t)
	}
	section("What one core of Redis carries", "The CPU of the whole server for one call, with 64 calls under way at a time. Redis runs commands on one core. A server that idles between requests takes up to twice as much for each.", f.operations())
	section("One lock, many clients", "Hand-offs of one lock follow each other, however many clients wait: at most "+grouped(inTurn(f.handOff(false)))+" a second by the CPU that Redis and a client take for one. With more clients only their waiting connections cost more. Fewer than seven rounds are no verdict.", f.throngs())
	section("Names, waiters, clients", "A waiting client listens on its own connection, and polls every two seconds, less often in a long queue. Each idle connection gets a `PING` every ten seconds.", f.names())
	section("Clusters", "A lock is on one master, so a hand-off costs the same with more masters. A client has connections to the masters of its names: if all clients use all names, more masters do not mean fewer connections for each.", f.clusters())
	if len(r.Missing) > 0 {
		missing := Table{Heads: []string{"what", "why"}}
		for _, m := range r.Missing {
			missing.Rows = append(missing.Rows, []string{m.What, "`" + m.Reason + "`"})
		}
		section("What failed", "A round that fails is left out of the figures above.", missing)
	}
	fmt.Fprintf(&b, "\n## The next wall\n\nWhat some needs take, with at most %.0f %% of a core and %s for each master, and %s connections, as Redis is installed. "+
		"A share above 100 %% is too much for one master, and more masters do not help.\n\n%s\nFor your needs:\n\n```\n%s\n```\n",
		100*Usual().Load, size(Usual().Memory), grouped(float64(Usual().Connections)), f.walls(), "go run ./bench/cmd/bench plan -clients 2000 -handoffs 500 -names 100 -holds 10000 -lease 10s -waiters 4000")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
