package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/bench"
)

// Needs are what a user's locks are to carry.
type Needs struct {
	// Clients are connected, each with a process or a part of one; Waiters are calls that wait at the same time, and Holds
	// names that are held at the same time, for a Lease each unless they are renewed.
	Clients, Waiters, Holds int
	Lease                   time.Duration
	// Names are in use within a minute and a quarter; HandOffs, Cycles and Tries a second are locks handed on to a waiter, free
	// locks taken and released, and tries that are refused.
	Names                   int
	HandOffs, Cycles, Tries float64
	// Connections are what a master takes, Memory its bytes; Load is how much of a core it is to use at the most.
	Connections int
	Memory      float64
	Load        float64
}

// A Wall is a limit, and how much of it is needed.
type Wall struct {
	What         string
	Needs, Limit float64
	// Shards: more masters move it.
	Shards bool
	Text   string
}

// Share is how much of the limit is needed.
func (w Wall) Share() float64 { return w.Needs / w.Limit }

// A Plan is what the needs come to by the figures of a run.
type Plan struct {
	Masters           int
	Cores             float64 // of Redis, all masters together
	PerMaster         int     // connections
	ServerMemory      float64 // bytes of all masters
	ClientMemory      float64 // bytes of all clients
	Walls             []Wall  // the nearest first
	parts             [][2]string
	measured, machine string
}

// NewPlan reckons it.
func NewPlan(r bench.Report, n Needs) (p Plan, err error) {
	f := far{view{r}}
	each, waiting, client, long := f.holds("", many), f.waiting(), f.client(), f.holds("", long)
	one, several := f.handOff(false), f.handOff(true)
	for _, known := range []float64{each.Lock.Server, each.Release.Server, each.Refused.Server, waiting.Server, client.All, long.Server, perHandOff(one), perHandOff(several)} {
		if known <= 0 {
			return p, errors.New("bench: plan: the run does not have all figures that a plan needs: measure with bench far")
		}
	}
	if n.Names < 1 || n.Lease <= 0 || n.Load <= 0 || n.Connections < 1 || n.Memory <= 0 || min(n.Clients, n.Waiters, n.Holds) < 0 || min(n.HandOffs, n.Cycles, n.Tries) < 0 {
		return p, errors.New("bench: plan: -names, -lease, -load, -maxclients and -memory must be positive, other numbers not negative")
	}
	renewal := f.holds("", alone).Renewal().Server
	how := "many in one script"
	if n.Holds <= n.Clients || renewal <= 0 {
		// What the connections of these clients cost is counted below.
		own := f.holds("", single)
		rest := own.RedisCPU*1e6 - float64(own.Clients)*client.ServerCPU
		renewal, how = max(rest/max(own.Renewal().PerSecond, 1), renewal), "a script each"
	}
	add := func(what string, perSecond, micros float64) {
		if perSecond > 0 {
			p.Cores += perSecond * micros / 1e6
			p.parts = append(p.parts, [2]string{what, fmt.Sprintf("%s a second × %s µs = %.3f", grouped(perSecond), Short(micros), perSecond*micros/1e6)})
		}
	}
	add("hand-offs", n.HandOffs, perHandOff(several))
	add("locks and releases", n.Cycles, each.Lock.Server+each.Release.Server)
	add("refused tries", n.Tries, each.Refused.Server)
	add("renewals, "+how, float64(n.Holds)/(n.Lease.Seconds()/3), renewal)
	add("clients that are connected", float64(n.Clients), client.ServerCPU)
	add("calls that wait", float64(n.Waiters), waiting.ServerCPU)

	keys := float64(max(n.Names, n.Holds))
	p.ServerMemory = float64(n.Clients)*client.All + float64(n.Waiters)*waiting.Server + keys*long.Server
	p.ClientMemory = float64(n.Clients)*client.Client + float64(n.Waiters)*waiting.Client + float64(n.Holds)*long.Client
	p.Masters = max(1, int(math.Ceil(max(p.Cores/n.Load, p.ServerMemory/n.Memory))))
	p.PerMaster = n.Clients * int(perClient(client))
	masters := float64(p.Masters)
	p.Walls = []Wall{
		{What: "one core of a master", Needs: p.Cores / masters, Limit: n.Load, Shards: true, Text: "%.2f of %.2f of a core"},
		{What: "hand-offs of one name", Needs: n.HandOffs / float64(n.Names), Limit: inTurn(one), Text: "%.0f of %.0f a second, if all names are wanted alike"},
		{What: "connections of a master", Needs: float64(p.PerMaster), Limit: float64(n.Connections), Text: "%.0f of %.0f, if each client uses names of each master"},
		{What: "memory of a master", Needs: p.ServerMemory / masters / (1 << 20), Limit: n.Memory / (1 << 20), Shards: true, Text: "%.0f of %.0f MiB"},
	}
	slices.SortStableFunc(p.Walls, func(a, b Wall) int { return cmp.Compare(b.Share(), a.Share()) })
	p.measured, p.machine = r.Environment.At.Format("2 January 2006"), fmt.Sprintf("%s, %d cores", or(r.Environment.CPU, "unknown CPU"), r.Environment.CPUs)
	return p, nil
}

// inTurn is how many hand-offs of one lock a second there can be: each needs the server and a client, one after the other.
func inTurn(f bench.Figures) float64 { return 1e6 / (perHandOff(f) + f.CPU) }

// Write prints it.
func (p Plan) Write(out io.Writer) error {
	var err error
	print := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(out, format, args...)
		}
	}
	print("By figures of %s (%s); measure your own with bench far.\n\n", p.measured, p.machine)
	print("Cores of Redis: %.2f\n", p.Cores)
	for _, part := range p.parts {
		print("  %-32s %s\n", part[0], part[1])
	}
	print("Masters: %d\nConnections of each: %s\nMemory of Redis: %s\nMemory of all clients: %s\n\nThe walls, the nearest first:\n",
		p.Masters, grouped(float64(p.PerMaster)), size(p.ServerMemory), size(p.ClientMemory))
	for _, w := range p.Walls {
		print("  %3.0f %%  %s: %s%s\n", 100*w.Share(), w.What, fmt.Sprintf(w.Text, w.Needs, w.Limit), w.remedy())
	}
	return err
}

// remedy says what to do about a wall that is reached.
func (w Wall) remedy() string {
	switch {
	case w.Share() <= 1 || w.Shards:
		return ""
	case w.What == "hand-offs of one name":
		return ". Too much: more masters do not help, as a name lives on one. Spread the work over more names (package striped), or let the callers of a process pass the lock on (fairlock.WithCohort)"
	}
	return ". Too much: raise maxclients and the limit of open files, or let several clients share a process and its connections (headwaiter.New)"
}

func size(bytes float64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", bytes/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", bytes/(1<<20))
}

// Usual are needs where nothing is said: what Redis takes as it is installed, and 4 GiB.
func Usual() Needs {
	return Needs{Names: 1, Lease: 10 * time.Second, Connections: 10_000, Memory: 4 << 30, Load: 0.6}
}

// walls are plans for three users.
func (f far) walls() string {
	t := Table{Heads: []string{"what is wanted", "cores of Redis", "masters", "connections of each", "Redis", "clients", "the nearest wall"}}
	for _, x := range []struct {
		what string
		set  func(*Needs)
	}{
		{"200 clients, 1,000 hand-offs a second of 50 names, 1,000 waiters", func(n *Needs) { n.Clients, n.HandOffs, n.Names, n.Waiters = 200, 1000, 50, 1000 }},
		{"2,000 clients, 10,000 locks a second of 1,000,000 names, 20,000 held", func(n *Needs) { n.Clients, n.Cycles, n.Names, n.Holds = 2000, 10_000, 1_000_000, 20_000 }},
		{"500 clients, 20,000 hand-offs a second of one name", func(n *Needs) { n.Clients, n.HandOffs, n.Waiters = 500, 20_000, 500 }},
		{"10,000 clients that wait for one lock, handed on 1,000 times a second", func(n *Needs) { n.Clients, n.HandOffs, n.Waiters = 10_000, 1000, 10_000 }},
		{"1,000 clients, 100,000 locks a second of 10,000,000 names", func(n *Needs) { n.Clients, n.Cycles, n.Names = 1000, 100_000, 10_000_000 }},
	} {
		n := Usual()
		x.set(&n)
		p, err := NewPlan(f.Report, n)
		if err != nil {
			return err.Error() + "\n"
		}
		wall := p.Walls[0]
		t.Rows = append(t.Rows, []string{
			x.what, fmt.Sprintf("%.2f", p.Cores), fmt.Sprint(p.Masters), grouped(float64(p.PerMaster)), size(p.ServerMemory), size(p.ClientMemory),
			fmt.Sprintf("%s: %.0f %%", wall.What, 100*wall.Share()),
		})
	}
	return table(t)
}
