package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// arrivals says when calls are due that arrive at a rate, whatever became of those before: a Poisson process, the
// same one in every slice. Workers take the arrivals in turn. One that is free waits for its arrival; one that was
// still busy when a call was due makes it late, and the delay belongs to the call: leaving it out would be
// coordinated omission.
type arrivals struct {
	from int64 // stamp of its begin

	mu   sync.Mutex // guards the fields below
	rng  *rand.Rand
	gap  float64 // mean, in ns
	next float64 // stamp of the next one
}

func newArrivals(rate float64, from int64) *arrivals {
	a := &arrivals{from: from, rng: rand.New(rand.NewPCG(1, 2)), gap: 1e9 / rate, next: float64(from)}
	a.take()
	return a
}

// take returns the next arrival.
func (a *arrivals) take() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	due := a.next
	a.next += -math.Log(1-a.rng.Float64()) * a.gap
	return int64(due)
}

// wait takes an arrival and waits for it. It returns when the call was due: 0 if its worker was there in time, so
// that how late a timer fires is not counted as a wait for the lock. It returns false if the slice ends before.
func (a *arrivals) wait(ctx context.Context, end <-chan struct{}) (due int64, ok bool) {
	due = a.take()
	left := due - stamp()
	if left <= 0 {
		return due, true
	}
	timer := time.NewTimer(time.Duration(left))
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, true
	case <-end:
		return 0, false
	case <-ctx.Done():
		return 0, false
	}
}

// dueUntil counts the arrivals of a process that begins at one moment until another.
func dueUntil(rate float64, from, to int64) int {
	a := newArrivals(rate, from)
	n := 0
	for a.take() < to {
		n++
	}
	return n
}
