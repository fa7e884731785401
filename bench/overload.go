package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Limiter is a Client whose locks can refuse calls when a number of waiters are queued.
type Limiter interface {
	// Limited names a lock that does, and tells of an error whether it is such a refusal.
	Limited(name string, limit int) (m Mutex, refuses func(error) bool)
}

// Overload is W9: calls that arrive at ten times what a lock can do, at a queue with a limit.
type Overload struct {
	Contender string `json:"contender"`
	Limit     int    `json:"limit"`
	Clients   int    `json:"clients"`
	// Capacity is how many holds a second there are where each client calls again when it has released, as in W4h, and Turn
	// the time from one hold to the next then, in ms.
	Capacity float64 `json:"capacity"`
	Turn     float64 `json:"turn_ms"`
	// Offered is how many calls arrived in a second, Served how many holds ended before the deadline of their callers, which
	// is four times as many turns as may wait, Late how many calls had a hold or an error after it, Refused how many were refused.
	Offered float64 `json:"offered"`
	Served  float64 `json:"served"`
	Late    float64 `json:"late"`
	Refused float64 `json:"refused"`
	// Waits are those of the served in ms, Refusals how long a refusal took its caller.
	Waits    Quantiles `json:"waits"`
	Refusals Quantiles `json:"refusals"`
	// Micros is the server's time in scripts for one refusal, in µs: what is above the time of as many holds at capacity. CPU is
	// the same of its CPU, with all that it does to read and to answer.
	Micros float64 `json:"refusal_us"`
	CPU    float64 `json:"refusal_cpu_us"`
}

const (
	overloadTimes   = 10
	overloadClients = 8
	overloadFor     = 5 * time.Second
)

// overload measures a queue of that limit, of each contender that has one.
func (r *runner) overload(ctx context.Context, limit int) error {
	return each(ctx, r, "overload", fmt.Sprintf("W9 n=%d", limit), &r.report.Overloads, Contender.here, func(c Contender) (Overload, string, error) {
		found, err := r.flood(ctx, c, limit)
		return found, fmt.Sprintf("%.0f of %.0f holds/s in time (%.2f), p50 and p99 %.1f and %.1f turns, %.0f/s refused, %.1f µs of scripts each, %.1f of CPU",
			found.Served, found.Capacity, found.Served/found.Capacity, found.Waits.P50/1e3/found.Turn, found.Waits.P99/1e3/found.Turn, found.Refused, found.Micros, found.CPU), err
	})
}

// A flooding is the clients of W9, and what their calls came to.
type flooding struct {
	locks   []Mutex
	refuses func(error) bool

	mu             sync.Mutex // guards the fields below
	holds          []int64    // stamps at which they began
	waits, refused times
	served, late   int
	failed         error
}

func (r *runner) flood(ctx context.Context, c Contender, limit int) (found Overload, err error) {
	f := &flooding{waits: newTimes(), refused: newTimes()}
	found = Overload{Contender: c.Name, Limit: limit, Clients: overloadClients}
	for range overloadClients {
		client, err := c.Driver.NewClient(ctx)
		if err != nil {
			return found, err
		}
		defer func() { _ = client.Shutdown(context.WithoutCancel(ctx)) }()
		l, ok := client.(Limiter)
		if !ok {
			return found, errNotFor
		}
		m, refuses := l.Limited(fmt.Sprintf("%s:%s:overload:%d", r.prefix, c.Name, limit), limit)
		f.locks, f.refuses = append(f.locks, m), refuses
	}
	idle, idleCPU, err := r.observer.during(ctx, func() error { return f.closed(ctx) })
	if err != nil {
		return found, err
	}
	slices.Sort(f.holds)
	gaps := make([]int64, 0, len(f.holds))
	for i := range len(f.holds) - 1 {
		gaps = append(gaps, f.holds[i+1]-f.holds[i])
	}
	slices.Sort(gaps)
	cycles := len(f.holds)
	found.Capacity = float64(cycles) / overloadFor.Seconds()
	found.Turn = float64(gaps[len(gaps)/2]) / 1e6
	deadline := time.Duration(4 * limit * int(gaps[len(gaps)/2]))
	f.holds = nil
	calls := 0
	full, fullCPU, err := r.observer.during(ctx, func() (err error) { calls, err = f.open(ctx, overloadTimes*found.Capacity, deadline); return err })
	if err != nil {
		return found, err
	}
	seconds := overloadFor.Seconds()
	n := calls - f.served - f.late
	found.Offered, found.Served, found.Late, found.Refused = float64(calls)/seconds, float64(f.served)/seconds, float64(f.late)/seconds, float64(n)/seconds
	found.Waits, found.Refusals = f.waits.quantiles(), f.refused.quantiles()
	holds := float64(len(f.holds)) / float64(cycles)
	found.Micros, found.CPU = (full-idle*holds)/float64(max(n, 1)), (fullCPU-idleCPU*holds)/float64(max(n, 1))
	return found, f.failed
}

// closed lets each client call again when it has released.
func (f *flooding) closed(ctx context.Context) error {
	end := time.Now().Add(overloadFor)
	return inParallel(ctx, len(f.locks), func(ctx context.Context, i int) error {
		for time.Now().Before(end) {
			if err := f.call(ctx, i, stamp(), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// open lets calls arrive at a rate, whatever becomes of those before, and returns how many there were.
func (f *flooding) open(ctx context.Context, rate float64, deadline time.Duration) (calls int, err error) {
	var all sync.WaitGroup
	defer all.Wait()
	f.waits, f.served = newTimes(), 0
	a := newArrivals(rate, stamp())
	end := a.from + int64(overloadFor)
	for due := a.take(); due < end; due = a.take() {
		if left := time.Duration(due - stamp()); left > 0 {
			if err := pass(ctx, left); err != nil {
				return calls, err
			}
		}
		i := calls % len(f.locks)
		calls++
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, deadline)
			defer cancel()
			if err := f.call(ctx, i, due, deadline); err != nil {
				f.mu.Lock()
				f.failed = err
				f.mu.Unlock()
			}
		})
	}
	return calls, nil
}

// call is one call that was due at a time. What is served by its deadline counts.
func (f *flooding) call(ctx context.Context, client int, due int64, deadline time.Duration) error {
	h, err := f.locks[client].Lock(ctx)
	at := stamp()
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case deadline > 0 && f.refuses(err):
			f.refused.record(at - due)
			return nil
		case deadline > 0 && ctx.Err() != nil:
			f.late++
			return nil
		}
		return err
	}
	time.Sleep(pause)
	err = h.Release(context.WithoutCancel(ctx))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holds = append(f.holds, at)
	if deadline > 0 && stamp()-due > int64(deadline) {
		f.late++
		return err
	}
	f.served++
	f.waits.record(at - due)
	return err
}
