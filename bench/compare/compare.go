// Package compare says whether two runs of bench differ by more than noise does.
//
// What is compared are pairs ([bench.Compared]): ratios of one lock to another that were measured in the same rounds.
// The speed of the machine is in both parts of such a ratio, so runs of different hours can be compared, and on
// different machines where the locks do not change places. That the other lock stayed as it was is taken for granted.
package compare

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/headwaiter/headwaiter/bench"
)

// A Verdict is what a comparison ends with.
type Verdict string

// The verdicts.
const (
	Same   Verdict = "same"
	Better Verdict = "better"
	Worse  Verdict = "worse"
)

// A Figure is what is compared of a pair.
type Figure struct {
	Name string
	of   func(bench.Turn) float64
	less bool // is better
	// least is the change that is worth a word, as a part of the old figure. Time is noisier than CPU.
	least float64
}

// The figures: rates, and the CPU of the clients and of the server for one hand-off or cycle.
var figures = []Figure{
	{"rate", func(t bench.Turn) float64 { return t.Rate }, false, 0.06},
	{"client CPU", func(t bench.Turn) float64 { return t.Client }, true, 0.03},
	{"server CPU", known(func(t bench.Turn) float64 { return t.Server }), true, 0.03},
}

// known is a figure that is 0 where nobody knows it.
func known(of func(bench.Turn) float64) func(bench.Turn) float64 {
	return func(t bench.Turn) float64 {
		if v := of(t); v > 0 {
			return v
		}
		return math.NaN()
	}
}

// A Row compares one figure: of one pair, of all pairs of one work of one own lock, or of all works.
type Row struct {
	Figure string
	Own    string // the own lock and its work; "" where it is all works
	Other  string // the other lock and its work; "" where it is all pairs
	// Old and New are how many times the figure of the other lock the own lock had. They are there for one pair of two
	// runs alone.
	Old, New bench.Ratio
	// Change is by what part the figure has grown.
	Change bench.Ratio
	// Pairs is how many are in it.
	Pairs   int
	Verdict Verdict
}

const (
	// strays is the part of all pairs that may differ by chance.
	strays = 1. / 30
	// leastSample is how many values a median needs for an interval of 95 %.
	leastSample = 6
)

// Runs compares two reports.
//
// A pair has changed if the two intervals of its ratio do not overlap; one in many does so by chance. Of a work with six
// pairs or more, and of all works together, the medians of their changes are judged by an interval of their own: so a
// change is found that is smaller than the noise of one pair. Of CPU it has to be 3 % at the least, of rates 6.
func Runs(old, new bench.Report) []Row {
	var rows []Row
	for _, f := range figures {
		var works []string
		ofWork := map[string][]float64{}
		for _, after := range new.Compared {
			i := slices.IndexFunc(old.Compared, func(b bench.Compared) bool { return name(b) == name(after) && own(b) == own(after) })
			if i < 0 {
				continue
			}
			row, ok := f.pair(old.Compared[i], after)
			if !ok {
				continue
			}
			rows = append(rows, row)
			if !slices.Contains(works, row.Own) {
				works = append(works, row.Own)
			}
			ofWork[row.Own] = append(ofWork[row.Own], row.Change.Median)
		}
		var all []float64
		for _, work := range works {
			rows = f.pool(rows, work, ofWork[work])
			all = append(all, bench.Median(ofWork[work]))
		}
		rows = f.pool(rows, "", all)
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.rank(), b.rank()) })
	return rows
}

// Before is the name of the other build in a run that compares two.
const Before = "before"

// Builds compares two builds of one lock by their pairs within one run. The change of a work is the change of its rounds,
// and the change of all works is the change of all rounds.
func Builds(r bench.Report) []Row {
	var rows []Row
	for _, f := range figures {
		var all []float64
		for _, c := range r.Compared {
			if c.Contender != Before || len(c.Rounds) < bench.LeastRounds {
				continue
			}
			ratios := c.Of(f.of)
			all = append(all, ratios...)
			rows = append(rows, f.change(own(c), name(c), ratios))
		}
		if len(all) > 0 {
			rows = append(rows, f.change("", "", all))
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.rank(), b.rank()) })
	return rows
}

// change is the row of a lock that is compared with itself: without a change its ratio is 1.
func (f Figure) change(own, other string, ratios []float64) Row {
	c := bench.RatioOf(ratios)
	c.Median, c.Low, c.High = c.Median-1, c.Low-1, c.High-1
	return Row{Figure: f.Name, Own: own, Other: other, Change: c, Pairs: 1, Verdict: f.verdict(c)}
}

// rank sets what counts most in front.
func (r Row) rank() int {
	switch {
	case r.Own == "":
		return 0
	case r.Other == "":
		return 1
	}
	return 2
}

func name(c bench.Compared) string { return c.Contender + " " + c.Work.String() }
func own(c bench.Compared) string  { return c.Against + " " + c.AgainstWork.String() }

// pair compares one pair. Where a figure is not known there is no row.
func (f Figure) pair(old, new bench.Compared) (Row, bool) {
	a, b := bench.RatioOf(old.Of(f.of)), bench.RatioOf(new.Of(f.of))
	change := b.Median/a.Median - 1
	if a.Rounds < bench.LeastRounds || b.Rounds < bench.LeastRounds || math.IsNaN(change) || math.IsInf(change, 0) {
		return Row{}, false
	}
	row := Row{Figure: f.Name, Own: own(new), Other: name(new), Old: a, New: b, Pairs: 1, Verdict: Same}
	row.Change = bench.Ratio{Median: change, Low: b.Low/a.High - 1, High: b.High/a.Low - 1, Rounds: min(a.Rounds, b.Rounds)}
	row.Verdict = f.verdict(row.Change)
	return row, true
}

// pool adds a row for several changes, if they are enough for an interval.
func (f Figure) pool(rows []Row, own string, changes []float64) []Row {
	if len(changes) < leastSample {
		return rows
	}
	change := bench.RatioOf(changes)
	return append(rows, Row{Figure: f.Name, Own: own, Change: change, Pairs: len(changes), Verdict: f.verdict(change)})
}

// verdict is Same where the interval of a change spans 0.
func (f Figure) verdict(change bench.Ratio) Verdict {
	switch {
	case change.Low <= 0 && change.High >= 0 || math.Abs(change.Median) < f.least:
		return Same
	case (change.Median > 0) == f.less:
		return Worse
	}
	return Better
}

// Worsened says what has become worse, "" if nothing has: all works together, or more pairs than chance would have it.
func Worsened(rows []Row) string {
	pairs, worse := 0, 0
	for _, r := range rows {
		switch {
		case r.rank() == 0 && r.Verdict == Worse:
			return fmt.Sprintf("%s of all works by %.1f %%", r.Figure, 100*r.Change.Median)
		case r.rank() == 2:
			pairs++
			if r.Verdict == Worse {
				worse++
			}
		}
	}
	if float64(worse) > max(1, strays*float64(pairs)) {
		return fmt.Sprintf("%d of %d pairs", worse, pairs)
	}
	return ""
}

// Write writes a table, and how many of each verdict there are.
func Write(out io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tof\tbeside\told\tnew\tchange\tverdict")
	counts := map[Verdict]int{}
	for _, r := range rows {
		work, other, old, new := r.Own, r.Other, "", ""
		switch r.rank() {
		case 0:
			work = "all"
			if r.Pairs > 1 {
				other = fmt.Sprintf("%d works", r.Pairs)
			}
		case 1:
			other = fmt.Sprintf("%d pairs", r.Pairs)
		default:
			counts[r.Verdict]++
			if r.Old.Rounds > 0 {
				old, new = r.Old.String(), r.New.String()
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%+.1f %% (%+.1f to %+.1f)\t%s\n",
			r.Figure, work, other, old, new, 100*r.Change.Median, 100*r.Change.Low, 100*r.Change.High, r.Verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nOf the figures of single pairs %d are the same, %d better, %d worse.\n", counts[Same], counts[Better], counts[Worse])
	return err
}
