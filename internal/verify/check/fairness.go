package check

import (
	"slices"
	"time"
)

// Fairness says how evenly callers were served.
type Fairness struct {
	Jain    float64       // Jain's index: 1 if all lanes had as much, 1/n if one had all
	Bypass  int           // how many later calls were served before one, at the most
	Longest time.Duration // wait
}

// Fairness returns the figures of the holds. A call is later that was made more than slack after another.
func (hs Holds) Fairness(slack time.Duration) Fairness {
	f := Fairness{Bypass: hs.bypass(slack)}
	lanes := map[int]int{}
	for i := range hs {
		lanes[hs[i].Lane]++
		f.Longest = max(f.Longest, hs[i].Got-hs[i].Called)
	}
	var sum, squares float64
	for _, n := range lanes {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	f.Jain = sum * sum / (float64(len(lanes)) * squares)
	return f
}

// bypass counts, for the call that was overtaken most, the later calls with lower tokens. It goes through the
// holds by their tokens and keeps in a Fenwick tree how many calls there were until when.
func (hs Holds) bypass(slack time.Duration) (most int) {
	var calls []time.Duration
	for i := range hs {
		calls = append(calls, hs[i].Called)
	}
	slices.Sort(calls)
	tree := make([]int, len(calls)+1)
	sorted := hs.by(byToken)
	for from, to := 0, 0; from < len(sorted); from = to {
		// Those with one token were served together.
		for to = from; to < len(sorted) && sorted[to].Token == sorted[from].Token; to++ {
			if sorted[to].Tried {
				continue
			}
			upTo, _ := slices.BinarySearch(calls, sorted[to].Called+slack+1)
			inTime := 0 // calls with lower tokens that are not later
			for k := upTo; k > 0; k -= k & -k {
				inTime += tree[k]
			}
			most = max(most, from-inTime)
		}
		for _, h := range sorted[from:to] {
			at, _ := slices.BinarySearch(calls, h.Called)
			for k := at + 1; k < len(tree); k += k & -k {
				tree[k]++
			}
		}
	}
	return most
}
