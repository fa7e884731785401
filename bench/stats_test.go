package bench

import (
	"math"
	"testing"
)

func TestMedianIsTheMiddleWhateverTheOrder(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 4}, 4},
		{[]float64{4, 100, 2, 1}, 3},
	} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("median of nothing is %v, want NaN", got)
	}
}

func TestMedianLeavesItsArgumentInOrder(t *testing.T) {
	values := []float64{3, 1, 2}
	Median(values)
	if values[0] != 3 || values[1] != 1 || values[2] != 2 {
		t.Errorf("the values are now %v", values)
	}
}

func TestFloorHasMovedWhenItDiffersByMoreThanAThird(t *testing.T) {
	for _, c := range []struct {
		before, after float64
		want          bool
	}{
		{90, 90, false},
		{90, 119, false},
		{90, 120, false}, // a third, not more
		{90, 121, true},
		{121, 90, true},
		{120, 90, false},
		{90, 180, true},
		{0, 90, true}, // could not be measured
		{90, 0, true},
		{math.NaN(), 90, true},
	} {
		if got := moved(c.before, c.after); got != c.want {
			t.Errorf("from %v to %v: moved is %v, want %v", c.before, c.after, got, c.want)
		}
	}
}

func TestTimesKeepWhatIsOutOfRange(t *testing.T) {
	times := newTimes()
	for _, ns := range []int64{-5, 0, 1_000_000, int64(2 * longest)} {
		times.record(ns)
	}
	q := times.quantiles()
	if q.Count != 4 {
		t.Errorf("%d of 4 durations were kept", q.Count)
	}
	if near(q.Max, micros(int64(longest))) != true {
		t.Errorf("the largest is %v µs, want about %v", q.Max, micros(int64(longest)))
	}
}

func TestQuantilesOfRoundsAreMediansAndTheLargestOfAll(t *testing.T) {
	rounds := []Quantiles{{P50: 10, P99: 30, Max: 40, Count: 5}, {P50: 12, P99: 90, Max: 900, Count: 6}, {P50: 11, P99: 31, Max: 50, Count: 7}}
	got := medianQuantiles(rounds, func(q Quantiles) Quantiles { return q })
	if want := (Quantiles{P50: 11, P99: 31, Max: 900, Count: 18}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// near allows for the error of the histogram.
func near(got, want float64) bool { return math.Abs(got-want) <= want/500 }
