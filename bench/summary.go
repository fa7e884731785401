package bench

import "fmt"

// ratio compares a slice with one of its floors, whose cost is in µs.
//
// Rates are compared with rates. The gap of W4h is a time and is compared with the floor's time, so there
// less is better.
func ratio(w Work, floor float64, f Figures) float64 {
	if w.LessIsBetter() {
		return f.HandOff.P50 / floor
	}
	return f.Rate * floor / 1e6
}

// brief is a round in a few words.
func brief(w Work, r Round) string {
	text := fmt.Sprintf("%.0f/s", r.Figures.Rate)
	if w.paced() && w.contended() {
		text = fmt.Sprintf("gap %.0f µs", r.Figures.HandOff.P50)
	}
	if !w.compared() {
		return text
	}
	for _, kind := range w.floors() {
		floor := r.Floors[kind.name]
		text += fmt.Sprintf(", %.2f of %s (%.1f µs)", ratio(w, floor, r.Figures), kind.name, floor)
	}
	return text
}

// summarize returns the medians of the rounds.
func summarize(w Work, rounds []Round, again int) Result {
	result := Result{Work: w, Rounds: len(rounds), Again: again, Ratios: map[string]float64{}, Floors: map[string]float64{}}
	if len(rounds) == 0 {
		return result
	}
	for _, kind := range w.floors() {
		result.Floors[kind.name] = medianOf(rounds, func(r Round) float64 { return r.Floors[kind.name] })
		if !w.compared() {
			continue
		}
		// The median of the ratios, not the ratio of the medians: what is compared was measured together.
		result.Ratios[kind.name] = medianOf(rounds, func(r Round) float64 {
			return ratio(w, r.Floors[kind.name], r.Figures)
		})
	}
	result.Figures = medianFigures(rounds)
	result.WaitTimes = waitTimes(rounds)
	return result
}

// waitTimes is a histogram of those of all rounds.
func waitTimes(rounds []Round) string {
	sum := newTimes()
	for _, r := range rounds {
		if t := r.Figures.acquire; t.hist != nil {
			sum.add(t)
		}
	}
	return sum.text()
}

// medianFigures returns the medians of all figures, the largest of each maximum, and the sums of counts.
func medianFigures(rounds []Round) Figures {
	of := func(figure func(Figures) float64) float64 {
		return medianOf(rounds, func(r Round) float64 { return figure(r.Figures) })
	}
	f := Figures{
		Rate:    of(func(f Figures) float64 { return f.Rate }),
		Passed:  of(func(f Figures) float64 { return f.Passed }),
		Allocs:  of(func(f Figures) float64 { return f.Allocs }),
		CPU:     of(func(f Figures) float64 { return f.CPU }),
		Jain:    of(func(f Figures) float64 { return f.Jain }),
		Waits:   rounds[len(rounds)-1].Figures.Waits,
		Acquire: medianQuantiles(rounds, func(r Round) Quantiles { return r.Figures.Acquire }),
		Release: medianQuantiles(rounds, func(r Round) Quantiles { return r.Figures.Release }),
		HandOff: medianQuantiles(rounds, func(r Round) Quantiles { return r.Figures.HandOff }),
		Server: Server{
			Scripts:      of(func(f Figures) float64 { return f.Server.Scripts }),
			Others:       of(func(f Figures) float64 { return f.Server.Others }),
			BytesIn:      of(func(f Figures) float64 { return f.Server.BytesIn }),
			BytesOut:     of(func(f Figures) float64 { return f.Server.BytesOut }),
			CPUMicros:    of(func(f Figures) float64 { return f.Server.CPUMicros }),
			ScriptMicros: of(func(f Figures) float64 { return f.Server.ScriptMicros }),
		},
	}
	for _, r := range rounds {
		f.Seconds += r.Figures.Seconds
		f.Cycles += r.Figures.Cycles
		f.Inversions += r.Figures.Inversions
		f.Overtaken += r.Figures.Overtaken
		f.Late += r.Figures.Late
		f.Overlaps += r.Figures.Overlaps
		f.Backward += r.Figures.Backward
	}
	return f
}
