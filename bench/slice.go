package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"sync/atomic"
	"time"
)

const (
	// slicePatience is how much longer than planned a slice may take before its locks count as stuck.
	slicePatience = 30 * time.Second
	// warmPatience is how long a slice waits at its start for the last worker to have held once. An unfair
	// lock may starve one for longer.
	warmPatience = 2 * time.Second
)

// The phases of a slice.
const (
	warming   int32 = iota // until each worker has held once; without holding for long
	measuring              // what counts
	draining               // each worker ends when it has held
)

// crew is the clients and workers of one work. It lives through all rounds.
type crew struct {
	work     Work
	clients  []Client
	workers  []*worker
	endless  bool     // calls have a context that cannot end
	watches  []*watch // one for each lock
	observer *observer
}

type worker struct {
	mutex  Mutex
	watch  *watch
	lock   int // index of the watch
	events []event
}

// newCrew makes the clients, and takes and releases each lock once from each worker, so that nothing is
// dialled or loaded in a slice.
func newCrew(ctx context.Context, d Driver, w Work, o *observer, name string) (*crew, error) {
	c := &crew{work: w, observer: o}
	for range w.Clients {
		client, err := d.NewClient(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("bench: %s: new client: %w", d.Name(), err), c.close(ctx))
		}
		c.clients = append(c.clients, client)
		for range w.Workers {
			if err := c.hire(client, name); err != nil {
				return nil, errors.Join(fmt.Errorf("bench: %s: %w", d.Name(), err), c.close(ctx))
			}
		}
	}
	for _, w := range c.workers {
		if _, err := w.cycle(ctx, 0); err != nil {
			return nil, errors.Join(fmt.Errorf("bench: %s: %w", d.Name(), err), c.close(ctx))
		}
	}
	return c, nil
}

// hire adds a worker of the client.
func (c *crew) hire(client Client, name string) error {
	if c.work.Own || len(c.watches) == 0 {
		c.watches = append(c.watches, &watch{limit: int32(c.work.inside())})
	}
	lock := len(c.watches) - 1
	w := &worker{watch: c.watches[lock], lock: lock}
	name = fmt.Sprintf("%s:%d", name, lock)
	if c.work.Kind == "" {
		w.mutex = client.Mutex(name)
	} else if family, ok := client.(Family); ok {
		w.mutex = family.Of(c.work.Kind, c.work.inside(), name)
	}
	if w.mutex == nil {
		return fmt.Errorf("there is no %s", c.work.Kind)
	}
	c.workers = append(c.workers, w)
	return nil
}

func (c *crew) close(ctx context.Context) error {
	errs := make([]error, len(c.clients))
	for i, client := range c.clients {
		errs[i] = client.Close(ctx)
	}
	return errors.Join(errs...)
}

// cycle acquires, holds and releases.
func (w *worker) cycle(ctx context.Context, hold time.Duration) (event, error) {
	e := event{lock: w.lock, start: stamp()}
	h, err := w.mutex.Lock(ctx)
	e.acquired = stamp()
	if err != nil {
		return e, fmt.Errorf("lock: %w", err)
	}
	e.token = h.Token()
	w.watch.enter(e.token)
	if hold > 0 {
		time.Sleep(hold)
	}
	w.watch.leave()
	e.releasing = stamp()
	err = h.Release(ctx)
	e.released = stamp()
	if err != nil {
		return e, fmt.Errorf("release: %w", err)
	}
	return e, nil
}

// slice is one measurement under way.
type slice struct {
	phase atomic.Int32
	cold  atomic.Int64  // workers that have not held yet
	warm  chan struct{} // closed when there is none
}

func (s *slice) run(ctx context.Context, w *worker, hold time.Duration) error {
	w.events = w.events[:0]
	for s.phase.Load() != draining {
		held := time.Duration(0)
		if s.phase.Load() == measuring {
			held = hold
		}
		e, err := w.cycle(ctx, held)
		if err != nil {
			return err
		}
		w.events = append(w.events, e)
		if len(w.events) == 1 && s.cold.Add(-1) == 0 {
			close(s.warm)
		}
	}
	return nil
}

// measure lets all workers run for d and returns the figures of that time.
func (c *crew) measure(ctx context.Context, d time.Duration) (Figures, error) {
	// Garbage of an earlier slice is not this one's.
	runtime.GC()
	ctx, cancel := context.WithTimeoutCause(ctx, d+warmPatience+slicePatience, errors.New("the slice does not end"))
	defer cancel()
	// A context that can end costs a library more than one that cannot: whoever calls decides.
	calls := ctx
	if c.endless {
		calls = context.WithoutCancel(ctx)
	}
	s := &slice{warm: make(chan struct{})}
	s.cold.Store(int64(len(c.workers)))
	ended := make(chan error, 1)
	go func() {
		ended <- inParallel(ctx, len(c.workers), func(_ context.Context, i int) error {
			return s.run(calls, c.workers[i], c.work.Hold)
		})
	}()
	m, err := c.observe(ctx, s, d, ended)
	s.phase.Store(draining)
	if !m.workersEnded {
		select {
		case last := <-ended:
			err = errors.Join(err, last)
		case <-ctx.Done():
			err = errors.Join(err, context.Cause(ctx))
		}
	}
	if err != nil {
		return Figures{}, fmt.Errorf("bench: %v: %w", c.work, err)
	}
	return c.figures(m), nil
}

// measured is what is read at both ends of the window.
type measured struct {
	window        window
	before, after counters
	allocs, bytes uint64
	workersEnded  bool
}

// observe waits for the workers to be warm, then for d, and reads the counters around that.
func (c *crew) observe(ctx context.Context, s *slice, d time.Duration, ended <-chan error) (m measured, err error) {
	wait := func(until <-chan struct{}, limit time.Duration) error {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-until:
			return nil
		case <-timer.C:
			return nil
		case err := <-ended:
			m.workersEnded = true
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := wait(s.warm, warmPatience); err != nil {
		return m, err
	}
	s.phase.Store(measuring)
	if m.before, err = c.observer.snapshot(ctx); err != nil {
		return m, err
	}
	objects, bytes := allocations()
	m.window.from = stamp()
	if err := wait(nil, d); err != nil {
		return m, err
	}
	m.window.to = stamp()
	m.allocs, m.bytes = allocations()
	m.allocs, m.bytes = m.allocs-objects, m.bytes-bytes
	m.after, err = c.observer.snapshot(ctx)
	return m, err
}

func (c *crew) figures(m measured) Figures {
	var events []event
	for _, w := range c.workers {
		events = append(events, w.events...)
	}
	f := figures(events, m.window, c.work.contended())
	for _, w := range c.watches {
		f.Overlaps += int(w.overlaps.Swap(0))
		f.Backward += int(w.backward.Swap(0))
	}
	f.Server = serverFigures(m.before, m.after, f.Cycles)
	if f.Cycles > 0 {
		f.Allocs = float64(m.allocs) / float64(f.Cycles)
		f.Bytes = float64(m.bytes) / float64(f.Cycles)
	}
	return f
}

// allocations returns how many objects and bytes this process has allocated so far.
func allocations() (objects, bytes uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64()
}

// labelled runs f so that a CPU profile can tell its goroutines, and those they start, from the others'.
func labelled(ctx context.Context, slice string, f func(ctx context.Context) error) (err error) {
	pprof.Do(ctx, pprof.Labels("slice", slice), func(ctx context.Context) { err = f(ctx) })
	return err
}
