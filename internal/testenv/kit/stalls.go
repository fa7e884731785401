package kit

import (
	"sync"
	"testing"
	"time"
)

const (
	// probes is how often it is looked how late this machine is.
	probes = 5 * time.Millisecond
	// standstill is how late a look must be, to be more than what timers are.
	standstill = 5 * time.Millisecond
)

// Stalls are the times in which this machine had no turn for a goroutine that was due, so none for others either.
type Stalls struct {
	mu     sync.Mutex // guards the fields below
	came   sync.Cond
	all    []stall // by time
	probed time.Time
}

type stall struct{ due, woke time.Time }

// WatchStalls looks for stalls until the test ends.
func WatchStalls(t testing.TB) *Stalls {
	s := newStalls(time.Now())
	stop := make(chan struct{})
	var probe sync.WaitGroup
	probe.Go(func() {
		for {
			due := time.Now().Add(probes)
			time.Sleep(probes) // How late it returns is what is measured.
			s.woke(due, time.Now())
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		probe.Wait()
		s.woke(time.Now().Add(time.Hour), time.Now().Add(time.Hour))
	})
	return s
}

func newStalls(now time.Time) *Stalls {
	s := &Stalls{probed: now}
	s.came.L = &s.mu
	return s
}

// woke notes a look.
func (s *Stalls) woke(due, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(due) >= standstill {
		s.all = append(s.all, stall{due, now})
	}
	s.probed = now
	s.came.Broadcast()
}

// Within is how much of the time between two moments that have been this machine stood still. It returns when the look
// after the later one was made.
func (s *Stalls) Within(from, to time.Time) (stood time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.probed.Before(to) {
		s.came.Wait()
	}
	for i := len(s.all) - 1; i >= 0 && s.all[i].woke.After(from); i-- {
		due, woke := s.all[i].due, s.all[i].woke
		if due.Before(from) {
			due = from
		}
		if woke.After(to) {
			woke = to
		}
		stood += max(0, woke.Sub(due))
	}
	return stood
}
