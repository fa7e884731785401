package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"time"
)

const (
	// slicePatience is how much longer than planned a slice may take before its locks count as stuck.
	slicePatience = 20 * time.Second
	// warmPatience is how long a slice waits at its start for the last worker to have held once. An unfair
	// lock may starve one for longer.
	warmPatience = 2 * time.Second
)

// crew is a band with one work, and what observes it.
type crew struct {
	work     Work
	band     band
	observer *observer // nil where the server is not the Redis of the run
	pid      int       // of another server
	patience time.Duration
}

func newCrew(ctx context.Context, r *runner, c Contender, w Work, name string) (*crew, error) {
	made := &crew{work: w, pid: c.Pid, patience: warmPatience}
	if c.OnRedis && !r.blind {
		made.observer = r.observer
	}
	var err error
	switch {
	case w.Processes > 0 && c.Command != nil:
		made.band, err = newRemoteBand(ctx, &r.idle, c, w, name, w.Processes)
	case c.Driver != nil && w.Processes == 0:
		made.band, err = newLocalBand(ctx, c.Driver, w, name)
	case c.Command != nil:
		made.band, err = newRemoteBand(ctx, &r.idle, c, w, name, 1)
	default:
		err = fmt.Errorf("bench: %s cannot have clients in processes of their own", c.Name)
	}
	if err != nil {
		return nil, err
	}
	return made, nil
}

func (c *crew) close(ctx context.Context) error { return c.band.close(ctx) }

// measure lets all workers run for d and returns the figures of that time.
func (c *crew) measure(ctx context.Context, d time.Duration) (Figures, error) {
	// Garbage of an earlier slice is not this one's.
	runtime.GC()
	ctx, cancel := context.WithTimeoutCause(ctx, d+max(warmPatience, c.patience)+slicePatience, errors.New("a worker does not come back: the slice does not end"))
	defer cancel()
	s, err := c.band.begin(ctx)
	if err != nil {
		return Figures{}, fmt.Errorf("bench: %v: %w", c.work, err)
	}
	m, err := c.observe(ctx, s, d)
	err = errors.Join(err, s.drain(ctx))
	if !m.workersEnded {
		select {
		case last := <-s.ended():
			err = errors.Join(err, last)
		case <-ctx.Done():
			err = errors.Join(err, context.Cause(ctx))
		}
	}
	if err != nil {
		return Figures{}, fmt.Errorf("bench: %v: %w", c.work, err)
	}
	t, err := s.collect(ctx)
	if err != nil {
		return Figures{}, fmt.Errorf("bench: %v: %w", c.work, err)
	}
	return c.figures(m, t), nil
}

// measured is what is read at both ends of the window.
type measured struct {
	window        window
	before, after counters
	allocs        uint64
	cpu           float64 // µs of another server than the Redis of the run
	workersEnded  bool
}

// observe waits for the workers to be warm, then for d, and reads the counters around that.
func (c *crew) observe(ctx context.Context, s shift, d time.Duration) (m measured, err error) {
	wait := func(until <-chan struct{}, limit time.Duration) error {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-until:
			return nil
		case <-timer.C:
			return nil
		case err := <-s.ended():
			m.workersEnded = true
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := wait(s.warm(), c.patience); err != nil {
		return m, err
	}
	if err := s.measure(ctx); err != nil {
		return m, err
	}
	if m.before, err = c.snapshot(ctx); err != nil {
		return m, err
	}
	objects := allocations()
	used := serverMicros(c.pid)
	m.window.from = stamp()
	if err := wait(nil, d); err != nil {
		return m, err
	}
	m.window.to = stamp()
	m.cpu = serverMicros(c.pid) - used
	m.allocs = allocations() - objects
	m.after, err = c.snapshot(ctx)
	return m, err
}

func (c *crew) snapshot(ctx context.Context) (counters, error) {
	if c.observer == nil {
		return counters{}, nil
	}
	return c.observer.snapshot(ctx)
}

func (c *crew) figures(m measured, t tally) Figures {
	f := figures(t.events, m.window, c.work.contended())
	f.Overlaps, f.Backward = t.overlaps, t.backward
	if c.observer != nil {
		f.Server = serverFigures(m.before, m.after, f.Cycles)
	}
	if c.pid != 0 && f.Cycles > 0 {
		f.Server.CPUMicros = m.cpu / float64(f.Cycles)
	}
	if f.Cycles > 0 {
		if _, here := c.band.(*localBand); here {
			f.Allocs = float64(m.allocs) / float64(f.Cycles)
		}
		f.CPU = t.cpu / float64(f.Cycles)
	}
	if rate := c.work.Arrival; rate > 0 {
		f.Late = dueUntil(rate, t.arrivals, m.window.to)
		for _, e := range t.events {
			if e.arrived && e.start < m.window.to {
				f.Late--
			}
		}
		f.Late = max(f.Late, 0)
	}
	return f
}

// allocations returns how many objects this process has allocated so far: to the last, where runtime/metrics tells of
// some only when a span of memory is full, which may be after a short window.
func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// labelled runs f so that a CPU profile can tell its goroutines, and those they start, from the others'.
func labelled(ctx context.Context, slice string, f func(ctx context.Context) error) (err error) {
	pprof.Do(ctx, pprof.Labels("slice", slice), func(ctx context.Context) { err = f(ctx) })
	return err
}
