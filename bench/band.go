package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// A band is the clients and workers of one work, in this process or in others. It lives through all rounds.
type band interface {
	// begin lets all workers loop, without holding for long.
	begin(ctx context.Context) (shift, error)
	close(ctx context.Context) error
}

// A shift is a band at work.
type shift interface {
	warm() <-chan struct{} // closed when each worker has held once
	ended() <-chan error   // receives once, when all workers have ended
	measure(ctx context.Context) error
	drain(ctx context.Context) error
	// collect is called after the end.
	collect(ctx context.Context) (tally, error)
}

// tally is what a shift leaves.
type tally struct {
	events             []event
	overlaps, backward int
	arrivals           int64   // since when calls have arrived at a rate, if they do
	cpu                float64 // µs of the clients' processes from measure to drain
}

// localBand has its clients in this process.
type localBand struct {
	work    Work
	clients []Client
	workers []*worker
}

type worker struct {
	mutex  Mutex
	lock   int
	id     int
	events []event
}

// newLocalBand makes the clients, and takes and releases each lock once from each worker, so that nothing is
// dialled or loaded in a slice.
func newLocalBand(ctx context.Context, d Driver, w Work, name string) (*localBand, error) {
	b := &localBand{work: w}
	for range w.Clients {
		client, err := d.NewClient(ctx)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("bench: %s: new client: %w", d.Name(), err), b.close(ctx))
		}
		b.clients = append(b.clients, client)
		for range w.Workers {
			if err := b.hire(client, name); err != nil {
				return nil, errors.Join(fmt.Errorf("bench: %s: %w", d.Name(), err), b.close(ctx))
			}
		}
	}
	for _, w := range b.workers {
		if _, err := w.cycle(ctx, 0, stamp()); err != nil {
			return nil, errors.Join(fmt.Errorf("bench: %s: %w", d.Name(), err), b.close(ctx))
		}
	}
	return b, nil
}

// hire adds a worker of the client.
func (b *localBand) hire(client Client, name string) error {
	w := &worker{id: len(b.workers)}
	switch {
	case b.work.Own:
		w.lock = w.id
	case b.work.Locks > 1:
		w.lock = w.id % b.work.Locks
	}
	name = fmt.Sprintf("%s:%d", name, w.lock)
	if b.work.Kind == "" {
		w.mutex = client.Mutex(name)
	} else if family, ok := client.(Family); ok {
		w.mutex = family.Of(b.work.Kind, b.work.inside(), name)
	}
	if w.mutex == nil {
		return fmt.Errorf("there is no %s", b.work.Kind)
	}
	b.workers = append(b.workers, w)
	return nil
}

func (b *localBand) close(ctx context.Context) error {
	errs := make([]error, len(b.clients))
	for i, client := range b.clients {
		errs[i] = client.Shutdown(ctx)
	}
	return errors.Join(errs...)
}

// cycle acquires, holds and releases.
func (w *worker) cycle(ctx context.Context, hold time.Duration, due int64) (event, error) {
	e := event{lock: w.lock, worker: w.id, due: due, start: stamp()}
	if due == 0 {
		e.due = e.start
	}
	h, err := w.mutex.Lock(ctx)
	e.acquired = stamp()
	if err != nil {
		return e, fmt.Errorf("lock: %w", err)
	}
	e.token = h.Token()
	if hold > 0 {
		time.Sleep(hold)
	}
	e.releasing = stamp()
	err = h.Release(ctx)
	e.released = stamp()
	if err != nil {
		return e, fmt.Errorf("release: %w", err)
	}
	return e, nil
}

// The phases of a shift.
const (
	warming   int32 = iota // until each worker has held once; without holding for long
	measuring              // what counts
	draining               // each worker ends when it has held
)

// localShift is a localBand at work.
type localShift struct {
	band     *localBand
	phase    atomic.Int32
	cold     atomic.Int64  // workers that have not held yet
	allWarm  chan struct{} // closed when there is none
	end      chan error
	drained  chan struct{} // closed when draining begins
	arrivals atomic.Pointer[arrivals]
	cpu      float64
}

func (b *localBand) begin(ctx context.Context) (shift, error) {
	s := &localShift{band: b, allWarm: make(chan struct{}), end: make(chan error, 1), drained: make(chan struct{})}
	s.cold.Store(int64(len(b.workers)))
	go func() {
		s.end <- inParallel(ctx, len(b.workers), func(_ context.Context, i int) error { return s.run(ctx, b.workers[i]) })
	}()
	return s, nil
}

func (s *localShift) run(ctx context.Context, w *worker) error {
	w.events = w.events[:0]
	for s.phase.Load() != draining {
		held, due, arrived := time.Duration(0), int64(0), false
		if s.phase.Load() == measuring {
			held = s.band.work.Hold
			if a := s.arrivals.Load(); a != nil {
				if due, arrived = a.wait(ctx, s.drained); !arrived {
					break
				}
			}
		}
		e, err := w.cycle(ctx, held, due)
		if err != nil {
			return err
		}
		e.arrived = arrived
		w.events = append(w.events, e)
		if len(w.events) == 1 && s.cold.Add(-1) == 0 {
			close(s.allWarm)
		}
	}
	return nil
}

func (s *localShift) warm() <-chan struct{} { return s.allWarm }
func (s *localShift) ended() <-chan error   { return s.end }

func (s *localShift) measure(context.Context) error {
	if rate := s.band.work.Arrival; rate > 0 {
		s.arrivals.Store(newArrivals(rate, stamp()))
	}
	s.cpu = cpuMicros()
	s.phase.Store(measuring)
	return nil
}

func (s *localShift) drain(context.Context) error {
	s.cpu = cpuMicros() - s.cpu
	s.phase.Store(draining)
	close(s.drained)
	return nil
}

func (s *localShift) collect(context.Context) (tally, error) {
	t := tally{cpu: s.cpu}
	if a := s.arrivals.Load(); a != nil {
		t.arrivals = a.from
	}
	for _, w := range s.band.workers {
		t.events = append(t.events, w.events...)
	}
	t.overlaps, t.backward = overlaps(t.events, s.band.work.inside())
	return t, nil
}
