package report

import (
	"fmt"
	"slices"

	"github.com/headwaiter/headwaiter/bench"
)

// A Table is rows of text below heads.
type Table struct {
	Heads []string
	Rows  [][]string
}

// A Section is a part of a page.
type Section struct {
	Title  string
	Text   []string // paragraphs
	Charts []string // by ID
	Table  Table
	Detail bool // in the report of a run, not on the page of the documentation
	Drawn  bool // on that page, charts in place of the table
}

// none stands where there is no figure.
const none = "–"

// Sections are all that the results are enough for.
func Sections(r bench.Report) []Section {
	v := view{r}
	all := []Section{
		v.speeds(), v.losses(), v.expectations(), v.processing(), v.yardstick(), v.family(), v.nodes(), v.unlocks(), v.kept(), v.replacements(), v.uncontended(), v.latency(), v.cost(), v.fair(),
		v.recovery(), v.crowds(), v.holds(), v.alone(), v.contenders(), v.missing(),
	}
	if len(v.linked()) > 0 {
		all = []Section{v.network(), v.above(), v.speeds(), v.losses(), v.contenders(), v.missing()}
	}
	var found []Section
	for _, s := range all {
		if len(s.Table.Rows) > 0 {
			found = append(found, s)
		}
	}
	return found
}

func (v view) uncontended() Section {
	s := Section{
		Title: "Uncontended", Detail: true, Text: []string{"W1: one client, one worker, one lock. A cycle is a lock and its release. " +
			"The ratio is to the cycle floor of the same rounds: SET NX and a compare-and-delete."},
		Table: Table{Heads: []string{"lock", "cycles/s", "of the floor", "lock p50 / p99 µs", "release p50 / p99 µs", "commands", "bytes in / out", "Redis µs", "client µs"}},
	}
	for _, lock := range v.locks("W1") {
		r, _ := v.find(lock, "W1")
		f := r.Figures
		_, ratio := bench.ToFloor(r)
		row := []string{lock, grouped(f.Rate), fmt.Sprintf("%.2f", ratio), pair(f.Acquire.P50, f.Acquire.P99), pair(f.Release.P50, f.Release.P99)}
		s.Table.Rows = append(s.Table.Rows, append(row, serverCells(f)...))
	}
	return s
}

func pair(a, b float64) string { return Short(a) + " / " + Short(b) }

// serverCells are commands, bytes, and the CPU of Redis and of the clients.
func serverCells(f bench.Figures) []string {
	row := []string{none, none, none}
	if f.Server.BytesIn > 0 {
		row = []string{fmt.Sprintf("%.1f", f.Server.Scripts+f.Server.Others), grouped(f.Server.BytesIn) + " / " + grouped(f.Server.BytesOut), grouped(f.Server.CPUMicros)}
	}
	return append(row, grouped(f.CPU))
}

func (v view) latency() Section {
	work := v.usual()
	s := Section{
		Title: "Latency, " + work, Detail: true, Charts: []string{"latency"},
		Text:  []string{"A hand-off is from just before release is called to the return of the next lock, by another client; a wait from the call of lock to its return. In ms."},
		Table: Table{Heads: []string{"lock", "hand-off p50", "p99", "wait p50", "p99", "p99.9", "longest"}},
	}
	ms := func(us float64) string { return Short(us / 1e3) }
	for _, lock := range v.locks(work) {
		r, _ := v.find(lock, work)
		h, a := r.Figures.HandOff, r.Figures.Acquire
		s.Table.Rows = append(s.Table.Rows, []string{lock, ms(h.P50), ms(h.P99), ms(a.P50), ms(a.P99), ms(a.P999), ms(a.Max)})
	}
	return s
}

func (v view) cost() Section {
	work := v.usual()
	s := Section{
		Title: "Cost of a hold, " + work, Detail: true, Charts: []string{"commands", "cpu"},
		Text: []string{"Commands count what clients send and what scripts call, of Redis alone; for other servers it is the CPU of their processes. " +
			"A hold under contention is a hand-off for a fair lock; a lock that one client takes again and again is cheap here and hands on seldom: see the shares below."},
		Table: Table{Heads: []string{"lock", "scripts", "commands", "bytes in / out", "Redis µs", "client µs", "objects allocated"}},
	}
	for _, lock := range v.locks(work) {
		r, _ := v.find(lock, work)
		scripts, allocs := none, none
		if r.Figures.Server.BytesIn > 0 {
			scripts = fmt.Sprintf("%.2f", r.Figures.Server.Scripts)
		}
		if r.Figures.Allocs > 0 {
			allocs = grouped(r.Figures.Allocs)
		}
		row := append([]string{lock, scripts}, serverCells(r.Figures)...)
		s.Table.Rows = append(s.Table.Rows, append(row, allocs))
	}
	return s
}

func (v view) fair() Section {
	work := v.usual()
	s := Section{
		Title: "Fairness, " + work, Drawn: true, Charts: []string{"fairness"},
		Text: []string{"An inversion is a pair of calls more than 5 ms apart, the later of which was served first. " +
			"Jain's index is of how often each client held: 1 if all held equally often, 1/n if one of n had all."},
		Table: Table{Heads: []string{"lock", "holds", "handed on", "inversions", "Jain's index", "longest wait ms"}},
	}
	for _, lock := range v.locks(work) {
		r, _ := v.find(lock, work)
		f := r.Figures
		s.Table.Rows = append(s.Table.Rows, []string{
			lock, grouped(float64(f.Cycles)), percent(f.Passed / max(f.Rate, 1)), grouped(float64(f.Inversions)), fmt.Sprintf("%.2f", f.Jain), Short(f.Acquire.Max / 1e3),
		})
	}
	return s
}

func (v view) recovery() Section {
	s := Section{
		Title: "When something goes wrong", Drawn: true, Charts: []string{"recovery"},
		Text: []string{"Dead waiters: as many clients wait in a process that is killed; then another queues, and the lock is released: how long until that one holds? " +
			"Gives up: a waiter whose limit ends within 2 ms of the release, and one after it, in several tries. " +
			"Deafened: all connections on which Redis tells a client something are killed at the moment of the release. " +
			"Dead holder: from the end of its lease, or of its connection where there is none, to the next hold. Restarted holder, buried holder: a client with an identity is killed that holds one name or many, each with a waiter; from the Dial of the next process with its identity, or from its death where a witness buries it, to the hold of the last waiter. The longest of three tries or more, in ms; a cell says so where there were fewer."},
	}
	var scenes []string
	for _, r := range v.Recoveries {
		if name := r.Scene.String(); !slices.Contains(scenes, name) {
			scenes = append(scenes, name)
		}
	}
	s.Table.Heads = append([]string{"lock"}, scenes...)
	for _, c := range v.Environment.Contenders {
		row, any := []string{c.Name}, false
		for _, scene := range scenes {
			cell := none
			for _, r := range v.Recoveries {
				if r.Contender == c.Name && r.Scene.String() == scene {
					cell, any = recoveryCell(r), true
				}
			}
			row = append(row, cell)
		}
		if any {
			s.Table.Rows = append(s.Table.Rows, row)
		}
	}
	return s
}

func recoveryCell(r bench.Recovery) string {
	if !r.Within {
		return fmt.Sprintf("not within %v", r.Bound)
	}
	cell := Short(r.Worst / 1e3)
	switch r.Times {
	case 1:
		cell += ", one try"
	case 2:
		cell += ", two tries"
	}
	if r.Waiters >= manyWaiters && r.Script > 0 {
		cell += fmt.Sprintf(" (no script longer than %s)", Short(r.Script/1e3))
	}
	return cell
}

// manyWaiters is from how many dead waiters on it matters how long a script takes that passes them over.
const manyWaiters = 1000

func (v view) crowds() Section {
	s := Section{
		Title: "Cost against the length of the queue", Detail: true, Charts: []string{"queue"},
		Text: []string{"W7: as many calls wait for one lock. The server's time in scripts for one that comes, one that is served and one that gives up, in µs, " +
			"how many are served in a second, and bytes for each that waits, in Redis and in its client, where the caller's goroutine counts too, with its stack. The calls are of eight clients in turn."},
		Table: Table{Heads: []string{"lock", "waiting", "ask µs", "hand-off µs", "leave µs", "hand-offs/s", "bytes in Redis", "in the client", "of these stack", "the library's"}},
	}
	or := func(x float64) string {
		if x <= 0 {
			return none
		}
		return Short(x)
	}
	for _, c := range v.Crowds {
		s.Table.Rows = append(s.Table.Rows, []string{
			c.Contender, grouped(float64(c.Waiting)), or(c.Ask), or(c.HandOff), or(c.Leave), or(c.Rate), or(c.Server), or(c.Client), or(c.Stacks), or(c.Library()),
		})
	}
	return s
}

func (v view) holds() Section {
	s := Section{
		Title: "Many leases", Detail: true,
		Text: []string{"W8: one client holds as many leases of ten seconds for ten seconds; then 64 workers of it lock and release at the same time. " +
			"How late a renewal was counts from a third of its lease. Of locks whose holds tell how long they last."},
		Table: Table{Heads: []string{"lock", "leases", "renewals", "due", "latest ms", "least left ms", "client CPU", "Redis CPU", "lost", "cycles/s meanwhile"}},
	}
	for _, h := range v.Holds {
		s.Table.Rows = append(s.Table.Rows, []string{
			h.Contender, grouped(float64(h.Leases)), grouped(h.Done), grouped(h.Due), grouped(h.Late), grouped(h.Left),
			percent(h.ClientCPU), percent(h.RedisCPU), grouped(float64(h.Lost)), grouped(h.PerSecond),
		})
	}
	return s
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
