package bench

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/judge"
)

// slack is how much later than another a call must begin to count as one that should be served later.
const slack = 5 * time.Millisecond

// grossSlack is the same for a verdict on the lock: on a busy machine a call is held up for some milliseconds between
// its stamp and the server, which is nobody's fault. One that is held up for longer is overtaken by many: hence a verdict
// counts the calls that were overtaken, not the pairs.
const grossSlack = 50 * time.Millisecond

// event is one cycle of a worker. Times are stamps.
type event struct {
	due       int64 // when it was to begin; start where calls follow each other
	arrived   bool  // it came at a rate, whatever became of those before
	start     int64 // just before Lock was called
	acquired  int64 // when it returned
	releasing int64 // just before Release was called
	released  int64 // when it returned
	token     uint64
	lock      int
	worker    int
}

// window is the part of a slice that counts: neither the start nor the end of its workers.
type window struct{ from, to int64 }

func (w window) has(t int64) bool { return w.from <= t && t < w.to }

// Figures are what one slice says.
type Figures struct {
	Seconds float64 `json:"seconds"`
	Cycles  int     `json:"cycles"`
	Rate    float64 `json:"rate"` // cycles a second
	// Passed is how many of them a second were after a hold of another worker: a lock that is taken again and again by
	// the one who released it is not handed on.
	Passed float64 `json:"passed"`
	// Acquire is the time from the call of Lock to its return: the wait. With calls that arrive at a rate it is
	// from the time at which the call was due: a worker that was still busy then does not hide the delay.
	Acquire Quantiles `json:"acquire"`
	Release Quantiles `json:"release"`
	// HandOff is from just before Release is called to the return of the next Lock, by another worker. With calls that
	// arrive at a rate it is of those whose next had called Lock before: a lock that nobody wants is not handed off.
	HandOff Quantiles `json:"hand_off"`
	// Inversions are among calls that began when every worker had held once: a client that is new to a lock may have to
	// subscribe before it has a place.
	Inversions int `json:"inversions"`
	// Overtaken are the calls that were served after one that had begun far later.
	Overtaken int `json:"overtaken"`
	Overlaps  int `json:"overlaps"`
	// Backward counts tokens that were not larger than the one before.
	Backward int `json:"backward"`
	// Jain is Jain's index of how many holds each worker had: 1 if all had the same, 1/n if one had all.
	Jain   float64 `json:"jain"`
	Server Server  `json:"server"`
	Allocs float64 `json:"allocs"` // objects a cycle, in this whole process; 0 where clients are elsewhere
	CPU    float64 `json:"client_cpu_us"`
	// Late is how many of the calls that arrive at a rate were due at the end of the slice and had not begun.
	Late int `json:"late,omitempty"`
	// Waits are some of the calls in the order in which they were made, to be drawn.
	Waits []Wait `json:"waits,omitempty"`

	acquire times
}

// A Wait is one call: when it was made, from the start of the slice, and how long it waited.
type Wait struct {
	At   float64 `json:"ms"`
	Took float64 `json:"took_ms"`
}

// maxWaits is how many waits of a slice are kept.
const maxWaits = 150

// figures reads the events of all workers of a slice, in any order.
func figures(events []event, counted window, contended bool) Figures {
	f, release := Figures{acquire: newTimes()}, newTimes()
	holds := map[int]int{}
	for _, e := range events {
		if counted.has(e.acquired) {
			f.Cycles++
			f.acquire.record(e.acquired - e.due)
			release.record(e.released - e.releasing)
			holds[e.worker]++
		}
	}
	f.Seconds = time.Duration(counted.to - counted.from).Seconds()
	f.Rate = float64(f.Cycles) / f.Seconds
	f.Acquire, f.Release = f.acquire.quantiles(), release.quantiles()
	if contended {
		handOff, passed := handOffs(events, counted)
		f.HandOff = handOff.quantiles()
		f.Passed = float64(passed) / f.Seconds
		f.Inversions, _ = overtaken(events, slack, arrive)
		_, f.Overtaken = overtaken(events, grossSlack, arrive)
		f.Waits = waits(events, counted)
	}
	for _, e := range events {
		if _, known := holds[e.worker]; !known {
			holds[e.worker] = 0 // It was there and had nothing.
		}
	}
	f.Jain = judge.Jain(slices.Collect(maps.Values(holds)))
	return f
}

// waits picks calls at even distances in the order in which they were made.
func waits(events []event, counted window) (picked []Wait) {
	events = slices.DeleteFunc(slices.Clone(events), func(e event) bool { return !counted.has(e.start) })
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.start, b.start) })
	n := min(len(events), maxWaits)
	for i := range n {
		e := events[i*len(events)/n]
		picked = append(picked, Wait{At: micros(e.start-counted.from) / 1e3, Took: micros(e.acquired-e.start) / 1e3})
	}
	return picked
}

// overlaps counts the holds of a lock at whose begin more than the limit had not begun to be released, whatever the driver
// says, and, where one may hold, the tokens that do not rise.
func overlaps(events []event, limit int) (overlapping, backward int) {
	for _, holds := range judged(events, 0, 0) {
		overlapping += len(holds.Overlaps(int64(limit), nil))
		if limit == 1 {
			backward += len(holds.Tokens(1, nil))
		}
	}
	return overlapping, backward
}

// judged are the events as the judge of holds wants them, lock by lock. The first call of a worker may need longer than the
// others, by new, for its place.
func judged(events []event, slack, new time.Duration) map[int]judge.Holds {
	first := map[int]int64{}
	for _, e := range events {
		if at, known := first[e.worker]; !known || e.start < at {
			first[e.worker] = e.start
		}
	}
	locks := map[int]judge.Holds{}
	for _, e := range events {
		h := judge.Hold{
			Called: time.Duration(e.start), Placed: time.Duration(e.start) + slack, Got: time.Duration(e.acquired), Token: e.token,
			Permits: 1, Beyond: true, Releasing: time.Duration(e.releasing), Lost: judge.Never,
		}
		if e.start == first[e.worker] {
			h.Placed += new
		}
		locks[e.lock] = append(locks[e.lock], h)
	}
	return locks
}

// handOffs pairs each hold of a lock with the next, if that is another worker's, by their tokens, or by time where there
// are none. It returns how long the lock took from the one to the other where somebody waited for it, or was about to, as
// workers are that call again as soon as they have released; and how many pairs there are.
func handOffs(events []event, counted window) (spans times, passed int) {
	ordered := slices.SortedFunc(slices.Values(events), func(a, b event) int {
		return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.token, b.token), cmp.Compare(a.acquired, b.acquired))
	})
	spans = newTimes()
	for i := 1; i < len(ordered); i++ {
		last, next := ordered[i-1], ordered[i]
		if last.lock != next.lock || last.worker == next.worker || !counted.has(next.acquired) {
			continue
		}
		passed++
		if next.arrived && next.start >= last.releasing {
			continue
		}
		spans.record(next.acquired - last.releasing)
	}
	return spans, passed
}

// arrive is how long a client that is new to a lock may take until it has a place: it has to subscribe.
const arrive = 100 * time.Millisecond

// overtaken counts the pairs of calls for one lock where one began more than the slack after the other and was served
// before it, and the calls that were overtaken so.
func overtaken(events []event, slack, new time.Duration) (pairs, calls int) {
	for _, holds := range judged(events, slack, new) {
		found := holds.Overtaken(slack)
		calls += len(found)
		for _, o := range found {
			pairs += len(o.By)
		}
	}
	return pairs, calls
}
