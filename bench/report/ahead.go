package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/bench"
)

// ahead are the works in which a rival on any engine is faster than the lock on Redis: losses are part of a report.
func (v view) ahead() Section {
	s := Section{
		Title: "Where another lock is ahead",
		Text:  []string{"Works in which another lock hands on more often than headwaiter, or cycles more often where nobody contends, each by the floor beside it."},
		Table: Table{Heads: []string{"work", "lock", "a second", "headwaiter", "times as fast", "inversions", "Jain's index"}},
	}
	for _, own := range v.Results {
		if own.Contender != Own || own.Rounds == 0 {
			continue
		}
		for _, lock := range v.locks(own.Work.String()) {
			r, _ := v.find(lock, own.Work.String())
			times := bench.Against(r, own)
			if lock == Own || times <= 1 {
				continue
			}
			inversions, jain := none, none
			if r.Figures.HandOff.Count > 0 {
				inversions, jain = grouped(float64(r.Figures.Inversions)), fmt.Sprintf("%.2f", r.Figures.Jain)
			}
			s.Table.Rows = append(s.Table.Rows, []string{
				own.Work.String(), v.lockCell(r), grouped(perSecond(r)), grouped(perSecond(own)) + v.fewer(own), Short(times), inversions, jain,
			})
		}
	}
	return s
}

// perSecond are hand-offs where clients contend, and cycles elsewhere.
func perSecond(r bench.Result) float64 {
	if r.Figures.HandOff.Count > 0 {
		return r.Figures.Passed
	}
	return r.Figures.Rate
}

// others are the works that no section above has.
func (v view) others() Section {
	s := Section{
		Title: "Other works",
		Text:  []string{"W2: 64 workers of one client with a lock each. W3: 16 workers of one client and one lock. W4h: holds of 5 ms, where the gap between two holds is compared with the pause of a message. R, S, RW, L: the family."},
		Table: Table{Heads: []string{"work", "lock", "a second", "floor", "ratio", "hand-off p50 / p99 µs", "wait p50 / p99 µs", "inversions"}},
	}
	for _, r := range v.Results {
		if r.Rounds == 0 || r.ID == "W1" || r.ID == "W4" && r.Arrival == 0 {
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
			r.Work.String(), v.lockCell(r), grouped(r.Figures.Rate), floor, ratio, handOff,
			pair(r.Figures.Acquire.P50, r.Figures.Acquire.P99), grouped(float64(r.Figures.Inversions)),
		})
	}
	return s
}

func (v view) contenders() Section {
	s := Section{Title: "The locks", Table: Table{Heads: []string{"lock", "what it is"}}}
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
	calls := "can end"
	if e.Endless {
		calls = "cannot end"
	}
	return append(facts, fmt.Sprintf("medians of %d rounds of %s, or of fewer where that is said, floors before and after each; the contexts of all calls %s", e.Rounds, e.Slice, calls))
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
