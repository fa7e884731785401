package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
)

// sham is a driver without a server, whose faults and delays are known. One that takes time is for a bubble.
type sham struct {
	locks  time.Duration  // how long a Lock takes, once it is its turn
	leaves time.Duration  // how long a Release takes
	stall  time.Duration  // of one call, a fifth of a second after the first
	last   bool           // serves the last that came first
	broken bool           // lets everybody in
	pace   func() float64 // so many times as long as usual it takes now; nil for once
	line   *line
}

// line is who waits.
type line struct {
	mu      sync.Mutex // guards the fields below
	held    bool
	waiting []chan struct{}
	began   time.Time
	stalled bool
	tokens  uint64
}

func newSham() sham {
	return sham{line: &line{}}
}

func (d sham) Name() string                              { return "sham" }
func (d sham) NewClient(context.Context) (Client, error) { return d, nil }
func (d sham) Mutex(string) Mutex                        { return d }
func (d sham) Close(context.Context) error               { return nil }

var errStuck = errors.New("stuck")

func (d sham) Lock(ctx context.Context) (Hold, error) {
	d.line.mu.Lock()
	if d.line.began.IsZero() {
		d.line.began = time.Now()
	}
	if d.stall > 0 && !d.line.stalled && time.Since(d.line.began) > time.Second/5 {
		d.line.stalled = true
		d.line.mu.Unlock()
		synctime.Pass(d.stall) // The pause that the harness has to see.
		d.line.mu.Lock()
	}
	if d.line.held && !d.broken {
		turn := make(chan struct{})
		d.line.waiting = append(d.line.waiting, turn)
		d.line.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			return nil, errStuck
		}
		d.line.mu.Lock()
	}
	d.line.held = true
	d.line.tokens++
	token := d.line.tokens
	d.line.mu.Unlock()
	if d.pace != nil {
		d.locks = time.Duration(float64(d.locks) * d.pace())
	}
	take(d.locks)
	return shamHold{d, token}, nil
}

func take(d time.Duration) {
	if d > 0 {
		synctime.Pass(d)
	}
}

type shamHold struct {
	sham
	token uint64
}

func (h shamHold) Token() uint64 { return h.token }

func (h shamHold) Release(context.Context) error {
	take(h.leaves)
	l := h.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		l.held = false
		return nil
	}
	i := 0
	if h.last {
		i = len(l.waiting) - 1
	}
	close(l.waiting[i])
	l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
	return nil
}
