package bench

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// maxStep is by how much a floor may differ from the one before it: a third.
const maxStep = 4.0 / 3

// longest is the longest time that a histogram takes; what is longer counts as that long.
const longest = 10 * time.Minute

// base is the zero of all times in this package: time.Since of it reads the monotonic clock alone. Its wall clock
// time is what relates it to the times of other processes of this machine.
var base = time.Now()

// stamp is a local time in ns since base.
func stamp() int64 { return int64(time.Since(base)) }

// fromWall is a time of another process as a stamp, toWall a stamp as what such a process understands: ns of the
// wall clock, which all processes of a machine share. Each process reads it once, at its own start, and goes on by the
// monotonic clock. So a clock that is set moves nothing among processes that run, but one that starts after that differs
// from those before it by as much.
func fromWall(ns int64) int64 { return ns - base.UnixNano() }

func toWall(stamp int64) int64 { return stamp + base.UnixNano() }

// Median is the middle of values, the mean of the two middle ones if their number is even, and NaN if there are none.
func Median(values []float64) float64 {
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
	return Median(values)
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
	P90   float64 `json:"p90_us"`
	P99   float64 `json:"p99_us"`
	P999  float64 `json:"p999_us"`
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
		P90:   micros(t.hist.ValueAtQuantile(90)),
		P99:   micros(t.hist.ValueAtQuantile(99)),
		P999:  micros(t.hist.ValueAtQuantile(99.9)),
		Max:   micros(t.hist.Max()),
		Count: t.hist.TotalCount(),
	}
}

func micros(ns int64) float64 { return float64(ns) / 1e3 }

// text is the histogram in the compressed form of the HdrHistogram libraries, for a line of JSON.
func (t times) text() string {
	if t.hist == nil || t.hist.TotalCount() == 0 {
		return ""
	}
	text, err := t.hist.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return ""
	}
	return string(text)
}

// Histogram reads [Result.WaitTimes].
func Histogram(text string) (*hdrhistogram.Histogram, error) {
	h, err := hdrhistogram.Decode([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("bench: histogram: %w", err)
	}
	return h, nil
}

// medianQuantiles returns the medians of the quantiles, the largest of all, and the sum of the counts.
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
	q.P90 = medianOf(items, func(item T) float64 { return of(item).P90 })
	q.P99 = medianOf(items, func(item T) float64 { return of(item).P99 })
	q.P999 = medianOf(items, func(item T) float64 { return of(item).P999 })
	return q
}
