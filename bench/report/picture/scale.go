package picture

import (
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"

	"github.com/headwaiter/headwaiter/bench/report"
)

// bounds are the least and the largest value, for logarithms whole decades.
func bounds(values []float64, log bool) (low, high float64) {
	if len(values) == 0 {
		return 1, 10
	}
	low, high = slices.Min(values), slices.Max(values)
	if !log {
		if low == high {
			high = low + 1
		}
		return low, high
	}
	low, high = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
	if low == high {
		high *= 10
	}
	return low, high
}

// label is a number on an axis. The blanks after it keep it off the axis where a reader's font is wider.
func label(v float64) string {
	return strings.TrimSuffix(strings.TrimSuffix(report.Short(v), ".00"), ".0") + "  "
}

// decades are the ticks of a logarithm: a label at each power of ten.
type decades struct{}

// Ticks implements [plot.Ticker].
func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for v := math.Pow(10, math.Floor(math.Log10(low)+1e-9)); v <= high*1.0001; v *= 10 {
		ticks = append(ticks, plot.Tick{Value: v, Label: label(v)})
		for m := 2.0; m < 10 && v*m < high; m++ {
			ticks = append(ticks, plot.Tick{Value: v * m})
		}
	}
	return ticks
}

// at has a label at each value that occurs.
type at []float64

// Ticks implements [plot.Ticker].
func (a at) Ticks(float64, float64) (ticks []plot.Tick) {
	for _, v := range slices.Compact(slices.Sorted(slices.Values(a))) {
		ticks = append(ticks, plot.Tick{Value: v, Label: label(v)})
	}
	return ticks
}

// even are ticks at even distances.
type even struct{}

// Ticks implements [plot.Ticker].
func (even) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = strings.TrimSpace(label(ticks[i].Value))
		}
	}
	return ticks
}

// named has the names of categories.
type named []string

// Ticks implements [plot.Ticker].
func (n named) Ticks(float64, float64) (ticks []plot.Tick) {
	for i, name := range n {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: name})
	}
	return ticks
}
