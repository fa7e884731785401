package bench

import (
	"slices"
	"strings"
	"testing"
)

func TestRatiosCompareWhatWasMeasuredTogether(t *testing.T) {
	w := Work{ID: "W4", Clients: 8, Workers: 1}
	round := func(rate, cycle, message float64) Round {
		return Round{
			Floors:  map[string]float64{floorCycle: cycle, floorMessage: message},
			Figures: Figures{Rate: rate, Cycles: 10, Inversions: 1, HandOff: Quantiles{P50: 90, Count: 10}},
		}
	}
	// 100 µs are 10,000 a second. The second round was slow together with its floors.
	result := summarize(w, []Round{round(9000, 100, 80), round(4500, 200, 160), round(8000, 100, 80)}, 2)
	if got := result.Ratios[floorCycle]; !near(got, 0.9) {
		t.Errorf("%v of the cycle floor, want 0.9", got)
	}
	if got := result.Ratios[floorMessage]; !near(got, 0.72) {
		t.Errorf("%v of the message floor, want 0.72", got)
	}
	if result.Figures.Rate != 8000 || result.Floors[floorCycle] != 100 {
		t.Errorf("rate %v and floor %v, want the medians 8000 and 100", result.Figures.Rate, result.Floors[floorCycle])
	}
	if result.Figures.Cycles != 30 || result.Figures.Inversions != 3 || result.Rounds != 3 || result.Again != 2 {
		t.Errorf("got %+v, want sums of counts", result)
	}
}

func TestGapIsComparedAsATime(t *testing.T) {
	w := Work{ID: "W4h", Clients: 2, Workers: 1, Hold: pause}
	if got := ratio(w, 60, Figures{Rate: 190, HandOff: Quantiles{P50: 75}}); got != 1.25 {
		t.Errorf("got %v, want 1.25", got)
	}
}

func TestTableHasARowForEachWorkAndSaysWhatWasRunAgain(t *testing.T) {
	rounds := []Round{{Floors: map[string]float64{floorCycle: 100}, Figures: Figures{Rate: 8500}}}
	report := Report{
		Environment: Environment{Rounds: 3},
		Results: []Result{
			summarize(Work{ID: "W1", Clients: 1, Workers: 1}, rounds, 4),
			summarize(Work{ID: "W4", Clients: 8, Workers: 1}, nil, 9),
		},
	}
	var text strings.Builder
	if err := report.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text.String(), "\n")
	row := func(start string) []string {
		for _, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), start) {
				return strings.Fields(line)
			}
		}
		t.Fatalf("no row of %s in\n%s", start, text.String())
		return nil
	}
	w1, w4 := row("W1"), row("W4 C=8")
	if want := []string{"W1", "0.85", "-", "-", "-", "8500"}; !slices.Equal(w1[:6], want) || w1[len(w1)-1] != "4" {
		t.Errorf("row %q, want it to begin with %q and to end with 4", w1, want)
	}
	if want := []string{"W4", "C=8", "-", "-", "-"}; !slices.Equal(w4[:5], want) || w4[len(w4)-1] != "9" {
		t.Errorf("row %q, want no ratios and 9 at the end", w4)
	}
	if !strings.Contains(text.String(), "only 0 rounds count") {
		t.Errorf("it does not say that rounds are missing:\n%s", text.String())
	}
}

func TestFaultNamesTheWorkThatWasNotExclusive(t *testing.T) {
	good := Result{Work: Work{ID: "W1", Clients: 1}}
	if err := (Report{Results: []Result{good}}).Fault(); err != nil {
		t.Errorf("a clean run is at fault: %v", err)
	}
	bad := Result{Work: Work{ID: "W4", Clients: 8}, Figures: Figures{Overlaps: 2}}
	if err := (Report{Results: []Result{good, bad}}).Fault(); err == nil || !strings.Contains(err.Error(), "W4 C=8: 2 holds") {
		t.Errorf("got %v", err)
	}
}

func TestSelectKeepsTheOrderAndRefusesTheUnknown(t *testing.T) {
	works := Standard([]int{2, 8})
	selected, err := Select(works, []string{"W4", "W1"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range selected {
		names = append(names, w.String())
	}
	if want := []string{"W1", "W4 C=2", "W4 C=8"}; !slices.Equal(names, want) {
		t.Errorf("selected %v, want %v", names, want)
	}
	if _, err := Select(works, []string{"W9"}); err == nil || !strings.Contains(err.Error(), "W1, W2, W3, W4, W4h") {
		t.Errorf("got %v, want an error that names what there is", err)
	}
}
