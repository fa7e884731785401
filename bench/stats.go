package bench

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxStep is by how much a floor may differ from the one before it: a third.
const maxStep = 4.0 / 3

// longest is the longest time that a histogram takes; what is longer counts as that long.
const longest = 10 * time.Minute

// base is the zero of all times in this package: time.Since of it reads the monotonic clock alone.
var base = time.Now()

// stamp is a local time in ns since base.
func stamp() int64 { return int64(time.Since(base)) }

// median returns the middle of values, the mean of the two middle ones if their number is even, and NaN
// if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// medianOf returns the median of one figure over all items.
func medianOf[T any](items []T, figure func(T) float64) float64 {
	values := make([]float64, len(items))
	for i, item := range items {
		values[i] = figure(item)
	}
	return median(values)
}

// moved tells whether two measurements of one floor differ by more than a third of the smaller. A floor
// that could not be measured at all has moved.
func moved(before, after float64) bool {
	low, high := min(before, after), max(before, after)
	return !(low > 0) || high > maxStep*low
}

// Quantiles are of a time, in µs.
type Quantiles struct {
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	Max   float64 `json:"max_us"`
	Count int64   `json:"count"`
}

// times is a histogram of durations with an error of a thousandth.
type times struct{ hist *hdrhistogram.Histogram }

func newTimes() times { return times{hdrhistogram.New(1, int64(longest), 3)} }

// record adds a duration in ns. A negative one is recorded as the least that the histogram knows.
func (t times) record(ns int64) {
	// The bounds are the histogram's own, so it cannot refuse.
	_ = t.hist.RecordValue(min(max(ns, 1), int64(longest)))
}

func (t times) add(other times) { t.hist.Merge(other.hist) }

func (t times) quantiles() Quantiles {
	return Quantiles{
		P50:   micros(t.hist.ValueAtQuantile(50)),
		P99:   micros(t.hist.ValueAtQuantile(99)),
		Max:   micros(t.hist.Max()),
		Count: t.hist.TotalCount(),
	}
}

func micros(ns int64) float64 { return float64(ns) / 1e3 }

// medianQuantiles returns the medians of p50 and p99, the largest of all, and the sum of the counts.
func medianQuantiles[T any](items []T, of func(T) Quantiles) Quantiles {
	var q Quantiles
	for _, item := range items {
		q.Max = max(q.Max, of(item).Max)
		q.Count += of(item).Count
	}
	if q.Count == 0 {
		return q
	}
	q.P50 = medianOf(items, func(item T) float64 { return of(item).P50 })
	q.P99 = medianOf(items, func(item T) float64 { return of(item).P99 })
	return q
}
