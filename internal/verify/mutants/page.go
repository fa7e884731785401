package mutants

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// An area is a group of the page.
type area struct {
	prefixes []string
	is       string
}

// areas are the groups of the page: the folders of the changed files, and what lies there. The first prefix that fits counts.
var areas = []area{
	{[]string{"lua/fairlock/", "lua/lib/", "lua/waitqueue/"}, "scripts of locks, and what all scripts share: order, leases, tokens, suspects, keys"},
	{[]string{"lua/"}, "scripts of permits, barriers, latches, elections, several names and Redlock nodes"},
	{[]string{"waitqueue/", "internal/core/", "internal/event/"}, "the engine: what a client decides, requests, tickets, holds, renewals, cohorts, Close"},
	{[]string{"internal/conn/"}, "connections: failovers, slots, the server's clock and age, lost replies"},
	{[]string{"internal/verify/", "internal/testenv/", "examples/", "bench/"}, "judges: the code of tests that says whether a run was right"},
	{[]string{"internal/engine/", "contrib/"}, "adapters: locks on etcd, ZooKeeper, Postgres and MariaDB, other libraries, metrics"},
	{[]string{"internal/"}, "what all calls share, and what tells of them"},
	{[]string{"cmd/", "doctor/", "inspect/"}, "the command, its console and the doctor"},
	{[]string{"redlock/"}, "locks by a majority of servers"},
	{[]string{"fence/", "lease/", "observe/"}, "guards by fencing tokens, leases, observers"},
	{[]string{""}, "the primitives themselves"},
}

// area is the index of m's group.
func (m Mutant) area() int {
	return slices.IndexFunc(areas, func(a area) bool {
		return slices.ContainsFunc(a.prefixes, func(p string) bool { return strings.HasPrefix(m.File, p) })
	})
}

// A Run is what the page says of a run in which all mutants were killed.
type Run struct {
	Day    time.Time
	Commit string
	Took   time.Duration
	Cores  int
}

// Page is docs/mutants.md.
func Page(all []Mutant, run Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Mutants

For sceptics who ask whether the tests find anything. A mutant is a bug planted on purpose. It is killed if the test that it names fails; if the test hangs, or nothing compiles, it is not. `+"`make mutants`"+` runs all, after the tests have passed without one, and writes this page.

Killed: all %d, on %s, at commit %s, in %.0f minutes on %d cores.

`+"`go run ./internal/verify/mutants/cmd -list`"+` prints the list: what each mutant does wrong, which rules it breaks, and which test must fail. The mutants are in [internal/verify/mutants/list](../internal/verify/mutants/list).

| what is changed | mutants | of these, break a rule |
| --- | --: | --: |
`, len(all), run.Day.Format(time.DateOnly), run.Commit, run.Took.Minutes(), run.Cores)
	for i, a := range areas {
		count, rules := 0, 0
		for _, m := range all {
			if m.area() == i {
				count++
				if m.Breaks != "" {
					rules++
				}
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %d |\n", a.is, count, rules)
	}
	b.WriteString("\nMutants of each rule (R) and invariant (I) of [waitqueue/doc.go](../waitqueue/doc.go): " + rules(all) + ".\n")
	return b.String()
}

// rules counts the mutants of each rule.
func rules(all []Mutant) string {
	counts := map[string]int{}
	for _, m := range all {
		for rule := range strings.SplitSeq(m.Breaks, ", ") {
			counts[rule]++
		}
	}
	delete(counts, "")
	var names []string
	for rule := range counts {
		names = append(names, rule)
	}
	slices.SortFunc(names, func(a, b string) int {
		// R before I, and R9 before R10.
		return cmp.Or(cmp.Compare(b[0], a[0]), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	for i, rule := range names {
		names[i] = fmt.Sprintf("%s %d", rule, counts[rule])
	}
	return strings.Join(names, ", ")
}

// List is what each mutant does wrong, what it breaks, where it is, and the test that must fail.
func List(all []Mutant) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%s\n\t%s\n", m.Name, m.Does)
		if m.Breaks != "" {
			fmt.Fprintf(&b, "\tbreaks %s\n", m.Breaks)
		}
		fmt.Fprintf(&b, "\tin %s\n\tkilled by go test -run '%s' ./%s\n", m.File, m.pattern(), m.Package)
	}
	return b.String()
}
