package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// shamLatch is a latch without a server. A client hears as soon as its first call asks; its other calls take a while on
// their way to the server, and find the latch open if they come too late.
type shamLatch struct {
	way     time.Duration
	clients int

	mu      sync.Mutex // guards the fields below
	opened  chan struct{}
	isOpen  bool
	hearing bool
	asks    uint64 // sent
	ran     uint64 // scripts that the server was sent
	late    int    // waits that found it open
	failure error  // of closing a client
}

func (l *shamLatch) Name() string                 { return "sham" }
func (l *shamLatch) Mutex(string) Mutex           { return nil }
func (l *shamLatch) Of(string, int, string) Mutex { return nil }
func (l *shamLatch) Latch(string) Latch           { return l }
func (l *shamLatch) Close(context.Context) error  { return l.failure }

func (l *shamLatch) NewClient(context.Context) (Client, error) {
	l.clients++
	return l, nil
}

func (l *shamLatch) Set(context.Context, int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened, l.isOpen, l.hearing = make(chan struct{}), false, false
	l.ran++
	return nil
}

func (l *shamLatch) CountDown(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran++
	l.isOpen = true
	close(l.opened)
	return nil
}

func (l *shamLatch) Wait(ctx context.Context) error {
	l.mu.Lock()
	l.asks++
	first := !l.hearing
	l.hearing = true
	l.mu.Unlock()
	if !first {
		take(l.way)
	}
	l.mu.Lock()
	l.ran++
	opened := l.opened
	if l.isOpen {
		l.late++
	}
	l.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *shamLatch) Waiting(context.Context) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran++
	if l.hearing {
		return max(l.clients, 1), nil
	}
	return 0, nil
}

func (l *shamLatch) Sent() (asks, scripts uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asks, l.asks
}

// A client that hears is not yet all its calls: those that come to an open latch have not been woken by it.
func TestALatchIsOpenedWhenAllCallsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &shamLatch{way: 20 * time.Millisecond}
		g := gate{latches: []Latch{l}, waiters: 20, ran: func(context.Context) (uint64, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.ran, nil
		}}
		awake, last := newTimes(), newTimes()
		for range 3 {
			if err := g.open(t.Context(), awake, last); err != nil {
				t.Fatal(err)
			}
		}
		if l.late != 0 || awake.quantiles().Count != 60 || last.quantiles().Count != 3 {
			t.Errorf("%d of %d calls came to an open latch", l.late, awake.quantiles().Count)
		}
	})
}

func TestALatchForWhichNobodyCanWaitIsAnErrorThatSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &shamLatch{way: time.Hour}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		g := gate{latches: []Latch{l}, waiters: 2, ran: func(context.Context) (uint64, error) { return 0, nil }}
		if err := g.open(ctx, newTimes(), newTimes()); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Errorf("got %v", err)
		}
	})
}

func TestALatchOfNobodyIsMissingAndACloseThatFailsIsTold(t *testing.T) {
	broken := &shamLatch{failure: errors.New("it does not close")}
	work := Work{ID: "L1", Clients: 2, Workers: 3, Kind: KindLatch}
	r := &runner{
		Config: Config{Rounds: 1, Contenders: []Contender{{Name: "elsewhere"}, {Name: "no family", Driver: newSham()}, {Name: "broken", Driver: broken}}},
		report: &Report{},
	}
	for _, c := range r.Contenders {
		if err := r.measure(t.Context(), c, work); err != nil {
			t.Error(err)
		}
	}
	var reasons []string
	for _, m := range r.report.Missing {
		reasons = append(reasons, m.Reason)
	}
	// Both clients of the last one.
	want := []string{"bench: elsewhere has no latch", "bench: no family has no latch", "it does not close\nit does not close"}
	if !slices.Equal(reasons, want) {
		t.Errorf("missing: %q", reasons)
	}
}
