package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/bench"
)

// alone are the works that are not compared with another lock: each next to its floor.
func (v view) alone() Section {
	s := Section{
		Title: "Works by themselves", Detail: true,
		Text:  []string{"Measured alone, between floors. L1: a latch for which 1,000 calls of 50 clients wait."},
		Table: Table{Heads: []string{"work", "lock", "a second", "floor", "ratio", "hand-off p50 / p99 µs", "wait p50 / p99 µs"}},
	}
	for _, r := range v.Results {
		if r.Rounds == 0 || v.paired(r) {
			continue
		}
		floor, ratio := none, none
		if name, times := bench.ToFloor(r); name != "" {
			floor, ratio = name, fmt.Sprintf("%.2f", times)
		}
		handOff := none
		if r.Figures.HandOff.Count > 0 {
			handOff = pair(r.Figures.HandOff.P50, r.Figures.HandOff.P99)
		}
		s.Table.Rows = append(s.Table.Rows, []string{
			r.Work.String(), r.Contender, grouped(r.Figures.Rate), floor, ratio, handOff, pair(r.Figures.Acquire.P50, r.Figures.Acquire.P99),
		})
	}
	return s
}

// paired tells whether a result is of slices that were compared with another lock's.
func (v view) paired(r bench.Result) bool {
	return slices.ContainsFunc(v.Compared, func(c bench.Compared) bool {
		return c.Contender == r.Contender && c.Work == r.Work || c.Against == r.Contender && c.AgainstWork == r.Work
	})
}

const locksTitle = "The locks"

func (v view) contenders() Section {
	s := Section{Title: locksTitle, Table: Table{Heads: []string{"lock", "what it is"}}}
	for _, c := range v.Environment.Contenders {
		s.Table.Rows = append(s.Table.Rows, []string{c.Name, c.About})
	}
	return s
}

func (v view) missing() Section {
	s := Section{Title: "What is missing", Table: Table{Heads: []string{"lock", "what", "why"}}}
	for _, m := range v.Missing {
		what := m.What
		if what == "" {
			what = "all"
		}
		why, _, _ := strings.Cut(m.Reason, "\n")
		s.Table.Rows = append(s.Table.Rows, []string{m.Contender, what, why})
	}
	for _, r := range v.Results {
		if r.Rounds == 0 {
			s.Table.Rows = append(s.Table.Rows, []string{r.Contender, r.Work.String(), "the floors moved by more than a third in every round"})
		}
	}
	return s
}

// Facts are the environment in lines.
func Facts(e bench.Environment) []string {
	facts := []string{
		fmt.Sprintf("%s, commit %s", e.At.Format("2 January 2006, 15:04 UTC"), or(e.Commit, "unknown")),
		fmt.Sprintf("%s, %d CPUs in use, load %.2f before the run, %s, %s %s", or(e.CPU, "unknown CPU"), e.CPUs, e.Load, or(e.Kernel, "unknown kernel"), e.Go, e.System),
		"Redis " + e.Redis + settings(e.Settings),
	}
	for name, version := range e.About {
		facts = append(facts, name+" "+version)
	}
	slices.Sort(facts[3:])
	return append(facts, fmt.Sprintf("up to %d rounds of slices of %s; the contexts of all calls can end", e.Rounds, e.Slice))
}

func settings(s map[string]string) string {
	var words []string
	for name, value := range s {
		if value == "" {
			value = `""`
		}
		words = append(words, name+" "+value)
	}
	slices.Sort(words)
	if len(words) == 0 {
		return ""
	}
	return " (" + strings.Join(words, ", ") + ")"
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
