package bench

import (
	"fmt"
	"math"

	"golang.org/x/perf/benchmath"
)

// confidence is how sure an interval is.
const confidence = 0.95

// A Ratio is the median of the ratios of all rounds, with an interval. The median of all possible rounds lies in it with
// a probability of 95 %, whatever their distribution: order statistics, by package benchmath.
type Ratio struct {
	Median, Low, High float64
	Rounds            int
}

// endless stands for a ratio without an end while the interval is reckoned, which is no sum of infinities.
const endless = 1e12

// RatioOf makes it. A round without a ratio does not count; one whose ratio has no end does.
func RatioOf(ratios []float64) Ratio {
	var known []float64
	for _, r := range ratios {
		if !math.IsNaN(r) {
			known = append(known, min(r, endless))
		}
	}
	if len(known) == 0 {
		return Ratio{math.NaN(), math.NaN(), math.NaN(), 0}
	}
	s := benchmath.AssumeNothing.Summary(benchmath.NewSample(known, &benchmath.DefaultThresholds), confidence)
	back := func(v float64) float64 {
		if v >= endless/2 {
			return math.Inf(1)
		}
		return v
	}
	return Ratio{back(s.Center), back(s.Lo), back(s.Hi), len(known)}
}

// Level tells whether the interval spans 1: neither is ahead.
func (r Ratio) Level() bool { return r.Low <= 1 && 1 <= r.High }

// String is the ratio with its interval.
func (r Ratio) String() string {
	return fmt.Sprintf("%.3g (%.3g to %.3g)", r.Median, r.Low, r.High)
}

// Of are the ratios of own to other, a round each. Where other is 0 it is infinite; where both are, there is none.
func (c Compared) Of(figure func(Turn) float64) (ratios []float64) {
	for _, r := range c.Rounds {
		ratios = append(ratios, figure(r.Own)/figure(r.Other))
	}
	return ratios
}

// Speed is how many times the rate of the other the own lock has.
func (c Compared) Speed() Ratio { return RatioOf(c.Of(func(t Turn) float64 { return t.Rate })) }

// CPU is how many times the CPU of the other the own lock takes for the same, of clients and server together. It is not
// a number where a server's CPU is not known.
func (c Compared) CPU() Ratio {
	return RatioOf(c.Of(func(t Turn) float64 {
		if t.Server <= 0 {
			return math.NaN()
		}
		return t.Client + t.Server
	}))
}

// Median is the median of one figure of both, own first.
func (c Compared) Median(figure func(Turn) float64) (own, other float64) {
	return medianOf(c.Rounds, func(r PairRound) float64 { return figure(r.Own) }),
		medianOf(c.Rounds, func(r PairRound) float64 { return figure(r.Other) })
}

// String is a line for who looks on.
func (c Compared) String() string {
	own, other := c.Median(func(t Turn) float64 { return t.Rate })
	return fmt.Sprintf("%v: %s %.0f/s, %s %.0f/s: %v times as fast, %v times the CPU",
		c.Work, c.Against, own, c.Contender, other, c.Speed(), c.CPU())
}
