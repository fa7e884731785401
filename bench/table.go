package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// columns are the heads of the table and what stands below them. A figure that a work does not have is "-".
var columns = []struct {
	head string
	cell func(Result) string
}{
	{"lock", func(r Result) string { return r.Contender }},
	{"work", func(r Result) string { return r.Work.String() }},
	{"/cycle", func(r Result) string { return ratioCell(r, floorCycle, floorParallel) }},
	{"/message", func(r Result) string { return ratioCell(r, floorMessage) }},
	{"gap/paced", func(r Result) string { return ratioCell(r, floorPaced) }},
	{"per s", func(r Result) string { return whole(r.Figures.Rate) }},
	{"handed on", func(r Result) string { return contendedCell(r, r.Figures.Passed) }},
	{"hand-off p50", func(r Result) string { return contendedCell(r, r.Figures.HandOff.P50) }},
	{"p99 µs", func(r Result) string { return contendedCell(r, r.Figures.HandOff.P99) }},
	{"acquire p50", func(r Result) string { return whole(r.Figures.Acquire.P50) }},
	{"p99", func(r Result) string { return whole(r.Figures.Acquire.P99) }},
	{"max µs", func(r Result) string { return whole(r.Figures.Acquire.Max) }},
	{"release p50", func(r Result) string { return whole(r.Figures.Release.P50) }},
	{"p99 µs", func(r Result) string { return whole(r.Figures.Release.P99) }},
	{"inv", func(r Result) string { return contendedCell(r, float64(r.Figures.Inversions)) }},
	{"scripts", func(r Result) string { return fmt.Sprintf("%.2f", r.Figures.Server.Scripts) }},
	{"µs each", func(r Result) string { return fmt.Sprintf("%.1f", r.Figures.Server.ScriptMicros) }},
	{"others", func(r Result) string { return fmt.Sprintf("%.2f", r.Figures.Server.Others) }},
	{"in B", func(r Result) string { return whole(r.Figures.Server.BytesIn) }},
	{"out B", func(r Result) string { return whole(r.Figures.Server.BytesOut) }},
	{"redis µs", func(r Result) string { return whole(r.Figures.Server.CPUMicros) }},
	{"client µs", func(r Result) string { return whole(r.Figures.CPU) }},
	{"jain", func(r Result) string {
		if !r.contended() {
			return "-"
		}
		return fmt.Sprintf("%.2f", r.Figures.Jain)
	}},
	{"allocs", func(r Result) string { return whole(r.Figures.Allocs) }},
	{"again", func(r Result) string { return fmt.Sprint(r.Again) }},
}

// WriteTable writes one row for each work and, below, what the columns mean and the floors.
func (r Report) WriteTable(out io.Writer) error {
	e := r.Environment
	if _, err := fmt.Fprintf(out, "Redis %s, %s, %s, %d CPUs, load %.2f; medians of %d rounds of %s\n\n",
		e.Redis, e.Go, e.System, e.CPUs, e.Load, e.Rounds, e.Slice); err != nil {
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range columns {
		fmt.Fprint(t, c.head, "\t")
	}
	fmt.Fprintln(t)
	for _, result := range r.Results {
		for _, c := range columns {
			fmt.Fprint(t, c.cell(result), "\t")
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := r.writeNotes(out); err != nil {
		return err
	}
	return r.writeScripts(out)
}

func (r Report) writeNotes(out io.Writer) error {
	_, err := fmt.Fprint(out, `
/cycle, /message: rate by the rate of the floor, more is better; gap/paced: time by time, less is better.
Scripts, others (commands, also those that scripts call), bytes, µs of Redis and allocations are for a cycle.
Floors, µs:
`)
	if err != nil {
		return err
	}
	for _, result := range r.Results {
		line := "  " + result.Contender + " " + result.Work.String()
		for _, kind := range result.floors() {
			if floor, ok := result.Floors[kind.name]; ok {
				line += fmt.Sprintf("  %s %.1f", kind.name, floor)
			}
		}
		if result.Rounds < r.Environment.Rounds {
			line += fmt.Sprintf("  restless machine: only %d rounds count", result.Rounds)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// ratioCell is the ratio to the first of the floors that the work has.
func ratioCell(r Result, floors ...string) string {
	for _, name := range floors {
		if ratio, ok := r.Ratios[name]; ok {
			return fmt.Sprintf("%.2f", ratio)
		}
	}
	return "-"
}

func contendedCell(r Result, v float64) string {
	if !r.contended() {
		return "-"
	}
	return whole(v)
}

func whole(v float64) string { return fmt.Sprintf("%.0f", v) }
