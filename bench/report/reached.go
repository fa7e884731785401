package report

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/bench"
)

// aim is a figure that was set for this library before it was measured.
type aim struct {
	what string
	of   func(v view) (figure float64, ok bool)
	want float64
	less bool // is better
	text string
}

// aims are those of works whose figures a run has.
var aims = []aim{
	{"W1, of the cycle floor", floorOf("W1", "cycle"), 0.85, false, "%.2f"},
	{"W2, of 64 cycle floors side by side", floorOf("W2", "parallel"), 0.6, false, "%.2f"},
	{"W3, of the cycle floor", floorOf("W3", "cycle"), 1, false, "%.2f"},
	{"W4 C=2, of the cycle floor", floorOf("W4 C=2", "cycle"), 1, false, "%.2f"},
	{"W4 C=8, of the cycle floor", floorOf("W4 C=8", "cycle"), 1, false, "%.2f"},
	{"W4 C=32, of the cycle floor", floorOf("W4 C=32", "cycle"), 1, false, "%.2f"},
	{"W4 C=128, of the cycle floor", floorOf("W4 C=128", "cycle"), 1, false, "%.2f"},
	{"W4 C=8, hand-off p99 to its p50", tail("W4 C=8"), 3, true, "%.1f"},
	{"W4 C=128, hand-off p99 to its p50", tail("W4 C=128"), 3, true, "%.1f"},
	{"W3 with a cohort of 64, to W3 without", cohort, 20, false, "%.1f"},
	{"W5, 1,000 dead waiters, ms", deadWaiters, 20, true, "%.1f"},
	{"W6, a dead holder, ms after the end of its lease", deadHolder, 100, true, "%.1f"},
	{"W7, bytes of Redis a waiter, longest queue", bytesOf(func(c bench.Crowd) float64 { return c.Server }), 200, true, "%.0f"},
	{"W7, bytes of the client a waiter, longest queue", bytesOf(bench.Crowd.Library), 1024, true, "%.0f"},
	{"W7, hand-off in the longest queue to that in the shortest, µs of Redis", growth, 2, true, "%.2f"},
	{"W8, one core of the client, 10,000 leases, %", holding(func(h bench.Holds) float64 { return h.ClientCPU }), 5, true, "%.1f"},
	{"W8, one core of Redis, 10,000 leases, %", holding(func(h bench.Holds) float64 { return h.RedisCPU }), 2, true, "%.1f"},
}

func floorOf(work, floor string) func(view) (float64, bool) {
	return func(v view) (float64, bool) {
		r, _ := v.find(Own, work)
		ratio, ok := r.Ratios[floor]
		return ratio, ok
	}
}

func tail(work string) func(view) (float64, bool) {
	return func(v view) (float64, bool) {
		r, ok := v.find(Own, work)
		h := r.Figures.HandOff
		return h.P99 / max(h.P50, 1), ok && h.P50 > 0
	}
}

func cohort(v view) (float64, bool) {
	for _, c := range v.Compared {
		if strings.HasPrefix(c.Contender, Own+"-cohort") && c.ID == "W3" {
			return 1 / c.Speed().Median, true
		}
	}
	return 0, false
}

// scene is what the next one waited, in ms.
func (v view) scene(kind string, waiters int) (float64, bool) {
	for _, r := range v.Recoveries {
		if r.Contender == Own && r.Kind == kind && r.Waiters == waiters {
			return r.Worst / 1e3, true
		}
	}
	return 0, false
}

func deadWaiters(v view) (float64, bool) { return v.scene(bench.DeadWaiters, manyWaiters) }
func deadHolder(v view) (float64, bool)  { return v.scene(bench.DeadHolder, 0) }

// queue are the shortest and the longest queue of this project's lock.
func (v view) queue() (shortest, longest bench.Crowd) {
	for _, c := range v.Crowds {
		if c.Contender != Own {
			continue
		}
		if shortest.Waiting == 0 || c.Waiting < shortest.Waiting {
			shortest = c
		}
		if c.Waiting > longest.Waiting {
			longest = c
		}
	}
	return shortest, longest
}

func bytesOf(of func(bench.Crowd) float64) func(view) (float64, bool) {
	return func(v view) (float64, bool) {
		_, longest := v.queue()
		return of(longest), of(longest) > 0
	}
}

func growth(v view) (float64, bool) {
	shortest, longest := v.queue()
	return longest.HandOff / max(shortest.HandOff, 1), longest.Waiting > shortest.Waiting && shortest.HandOff > 0
}

func holding(of func(bench.Holds) float64) func(view) (float64, bool) {
	return func(v view) (float64, bool) {
		for _, h := range v.Holds {
			if h.Contender == Own && h.Leases == 10_000 {
				return 100 * of(h), true
			}
		}
		return 0, false
	}
}

// reached sets figures beside their aims.
func (v view) reached() string {
	t := Table{Heads: []string{"what", "measured", "aim", ""}}
	for _, a := range aims {
		figure, ok := a.of(v)
		if !ok {
			continue
		}
		verdict := "reached"
		if figure < a.want && !a.less || figure > a.want && a.less {
			verdict = "missed"
		}
		t.Rows = append(t.Rows, []string{a.what, fmt.Sprintf(a.text, figure), fmt.Sprintf(a.text, a.want), verdict})
	}
	return fmt.Sprintf("%s:\n\n%s", v.source(), table(t))
}
