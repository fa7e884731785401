package bench

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"
)

// slack is how much later than another a call must begin to count as one that should be served later.
const slack = int64(5 * time.Millisecond)

// watch sees who is inside one lock, whatever the driver says.
type watch struct {
	limit    int32 // how many may be inside; 0 stands for 1
	inside   atomic.Int32
	token    atomic.Uint64 // the newest
	overlaps atomic.Int64
	backward atomic.Int64
}

// enter is called as soon as Lock has returned.
func (w *watch) enter(token uint64) {
	if w.inside.Add(1) > max(w.limit, 1) {
		w.overlaps.Add(1)
	}
	if w.limit <= 1 && token != 0 && w.token.Swap(token) >= token {
		w.backward.Add(1)
	}
}

// leave is called just before the release.
func (w *watch) leave() { w.inside.Add(-1) }

// event is one cycle of a worker. Times are stamps.
type event struct {
	start     int64 // just before Lock was called
	acquired  int64 // when it returned
	releasing int64 // just before Release was called
	released  int64 // when it returned
	token     uint64
	lock      int
}

// window is the part of a slice that counts: neither the start nor the end of its workers.
type window struct{ from, to int64 }

func (w window) has(t int64) bool { return w.from <= t && t < w.to }

// Figures are what one slice says.
type Figures struct {
	Seconds float64 `json:"seconds"`
	Cycles  int     `json:"cycles"`
	Rate    float64 `json:"rate"` // cycles a second
	// Acquire is the time from the call of Lock to its return: the wait.
	Acquire Quantiles `json:"acquire"`
	Release Quantiles `json:"release"`
	// HandOff is from just before Release is called to the return of the next Lock.
	HandOff Quantiles `json:"hand_off"`
	// Waiting is the share of the hand-offs whose next had called Lock before that.
	Waiting float64 `json:"waiting"`
	// Inversions are among calls that began when every worker had held once. A client that is new to a
	// lock may have to subscribe before it has a place; Cold counts those calls too.
	Inversions int `json:"inversions"`
	Cold       int `json:"inversions_cold"`
	Overlaps   int `json:"overlaps"`
	// Backward counts tokens that were not larger than the one before.
	Backward int     `json:"backward"`
	Server   Server  `json:"server"`
	Allocs   float64 `json:"allocs"`      // objects a cycle, in this whole process
	Bytes    float64 `json:"alloc_bytes"` // bytes a cycle, likewise
}

// figures reads the events of all workers of a slice, in any order.
func figures(events []event, counted window, contended bool) Figures {
	var f Figures
	acquire, release := newTimes(), newTimes()
	for _, e := range events {
		if counted.has(e.acquired) {
			f.Cycles++
			acquire.record(e.acquired - e.start)
			release.record(e.released - e.releasing)
		}
	}
	f.Seconds = time.Duration(counted.to - counted.from).Seconds()
	f.Rate = float64(f.Cycles) / f.Seconds
	f.Acquire, f.Release = acquire.quantiles(), release.quantiles()
	if contended {
		f.HandOff, f.Waiting = handOffs(events, counted)
		f.Inversions, f.Cold = inversions(events, counted.from), inversions(events, 0)
	}
	return f
}

// handOffs pairs each hold of a lock with the next, by their tokens, or by time where there are none.
func handOffs(events []event, counted window) (Quantiles, float64) {
	ordered := slices.SortedFunc(slices.Values(events), func(a, b event) int {
		return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.token, b.token), cmp.Compare(a.acquired, b.acquired))
	})
	t, waiting := newTimes(), 0
	for i := 1; i < len(ordered); i++ {
		last, next := ordered[i-1], ordered[i]
		if last.lock != next.lock || !counted.has(next.acquired) {
			continue
		}
		t.record(next.acquired - last.releasing)
		if next.start < last.releasing {
			waiting++
		}
	}
	q := t.quantiles()
	return q, float64(waiting) / float64(max(q.Count, 1))
}

// inversions counts the pairs of calls for one lock of which one began more than the slack after the
// other and was served before it, among the calls that did not begin before from.
func inversions(events []event, from int64) int {
	events = slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.start < from })
	ordered := slices.SortedFunc(slices.Values(events), func(a, b event) int {
		return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.acquired, b.acquired))
	})
	count := 0
	// From the last served to the first: later holds the starts of those served after this one, in order.
	// A call overtakes few others, so the place to insert is near the front and copying is cheap.
	var later []int64
	for i := len(ordered) - 1; i >= 0; i-- {
		e := ordered[i]
		if i+1 < len(ordered) && ordered[i+1].lock != e.lock {
			later = later[:0]
		}
		early, _ := slices.BinarySearch(later, e.start-slack)
		count += early
		at, _ := slices.BinarySearch(later, e.start)
		later = slices.Insert(later, at, e.start)
	}
	return count
}
