// Package compare says whether two runs of bench differ by more than noise does.
package compare

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"golang.org/x/perf/benchmath"

	"github.com/headwaiter/headwaiter/bench"
)

// A Verdict is what a comparison ends with.
type Verdict string

// The verdicts.
const (
	Same    Verdict = "same"
	Better  Verdict = "better"
	Worse   Verdict = "worse"
	Unclear Verdict = "unclear" // there is nothing to judge by
)

// A Row compares one work of one lock.
type Row struct {
	Contender string
	Work      string
	Figure    string // what is compared
	Old, New  benchmath.Summary
	P         float64 // that both are of one distribution, by the U-test of Mann and Whitney
	Change    float64 // of the medians, as a part of the old one; positive is better
	Verdict   Verdict
	Why       string
}

// Options are how sure a verdict must be.
type Options struct {
	// Alpha is the probability at which a difference counts as no chance.
	Alpha float64
	// Least is the change that is worth a word: what the scheduler does between two runs of one program is up to
	// this.
	Least float64
}

// Defaults are for five rounds or more.
var Defaults = Options{Alpha: 0.05, Least: 0.15}

// sample is the rounds of one work of one lock.
type sample struct {
	contender, work, floor string
	ratios, absolute       []float64 // by the floor, and in themselves
	less                   bool      // is better
}

// Runs compares two reports, whose slices are the samples.
//
// A change needs four witnesses, because one alone is often wrong: the ratios to the floor differ by more than chance
// would have it, their medians and those of the bare figures have moved the same way by Least or more, the rounds of
// the two runs do not overlap, and the medians are further apart than the rounds of either run among themselves. Where
// the bare figures stayed, or moved the other way, it was the floor that moved: the machine was another.
func Runs(old, new bench.Report, o Options) []Row {
	before, after := samples(old), samples(new)
	var rows []Row
	for _, a := range after {
		i := slices.IndexFunc(before, func(b sample) bool { return b.contender == a.contender && b.work == a.work })
		if i >= 0 {
			rows = append(rows, judge(before[i], a, o))
		}
	}
	return rows
}

// samples collects the slices of a report.
func samples(r bench.Report) (found []sample) {
	for _, s := range r.Slices {
		if s.Moved != "" {
			continue
		}
		i := slices.IndexFunc(found, func(x sample) bool { return x.contender == s.Contender && x.work == s.Work.String() })
		if i < 0 {
			i = len(found)
			found = append(found, sample{contender: s.Contender, work: s.Work.String(), floor: s.MainFloor(), less: s.LessIsBetter()})
		}
		x := &found[i]
		value := s.Figures.Rate
		switch {
		case x.less:
			value = s.Figures.HandOff.P50
		case s.Figures.HandOff.Count > 0:
			value = s.Figures.Passed
		}
		floor := s.Floors[x.floor]
		x.absolute = append(x.absolute, value)
		ratio := value * floor / 1e6
		if x.less {
			ratio = value / floor
		}
		x.ratios = append(x.ratios, ratio)
	}
	return found
}

func judge(old, new sample, o Options) Row {
	thresholds := benchmath.Thresholds{CompareAlpha: o.Alpha}
	a, b := benchmath.NewSample(slices.Clone(old.ratios), &thresholds), benchmath.NewSample(slices.Clone(new.ratios), &thresholds)
	test := benchmath.AssumeNothing.Compare(a, b)
	row := Row{
		Contender: new.contender, Work: new.work, Figure: "rate / " + new.floor, P: test.P,
		Old: benchmath.AssumeNothing.Summary(a, 0.95), New: benchmath.AssumeNothing.Summary(b, 0.95),
	}
	if new.less {
		row.Figure = "gap / " + new.floor
	}
	ratio, bare := change(old.ratios, new.ratios, new.less), change(old.absolute, new.absolute, new.less)
	row.Change = ratio
	switch {
	case new.floor == "":
		row.Figure = "rate"
		row.Verdict, row.Why = Unclear, "its rate is compared with no floor"
	case len(old.ratios) < 4 || len(new.ratios) < 4:
		row.Verdict, row.Why = Unclear, fmt.Sprintf("%d and %d rounds: four each are the least that can differ by more than chance", len(old.ratios), len(new.ratios))
	case math.IsNaN(ratio) || math.IsNaN(bare):
		row.Verdict, row.Why = Unclear, "there is no figure"
	case test.P >= o.Alpha:
		row.Verdict, row.Why = Same, "as much as chance"
	case math.Abs(ratio) < o.Least:
		row.Verdict, row.Why = Same, fmt.Sprintf("less than %.0f %%", 100*o.Least)
	case (ratio > 0) != (bare > 0) || math.Abs(bare) < o.Least:
		row.Verdict, row.Why = Same, "the floor moved, not the lock"
	case overlap(old.ratios, new.ratios):
		row.Verdict, row.Why = Same, "the rounds overlap"
	case math.Abs(bench.Median(new.ratios)-bench.Median(old.ratios)) < max(spread(old.ratios), spread(new.ratios)):
		row.Verdict, row.Why = Same, "less than the rounds of one run differ by"
	case ratio > 0:
		row.Verdict = Better
	default:
		row.Verdict = Worse
	}
	return row
}

// change is by how much the median has become better, as a part of the old one.
func change(old, new []float64, less bool) float64 {
	a, b := bench.Median(old), bench.Median(new)
	if less {
		return (a - b) / a
	}
	return (b - a) / a
}

// overlap tells whether some of one lie among the other.
func overlap(a, b []float64) bool {
	return slices.Min(a) <= slices.Max(b) && slices.Min(b) <= slices.Max(a)
}

// spread is from the least to the most.
func spread(of []float64) float64 { return slices.Max(of) - slices.Min(of) }

// Write writes a table, and how many of each verdict there are.
func Write(out io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "lock\twork\tfigure\told\tspread\tnew\tspread\tchange\tp\tverdict")
	counts := map[Verdict]int{}
	for _, r := range rows {
		counts[r.Verdict]++
		verdict := string(r.Verdict)
		if r.Why != "" {
			verdict += " (" + r.Why + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.3f\t%s\t%.3f\t%s\t%+.1f %%\t%.3f\t%s\n", r.Contender, r.Work, r.Figure,
			r.Old.Center, r.Old.PctRangeString(), r.New.Center, r.New.PctRangeString(), 100*r.Change, r.P, verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%d the same, %d better, %d worse, %d unclear\n", counts[Same], counts[Better], counts[Worse], counts[Unclear])
	return err
}
