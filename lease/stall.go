package lease

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A Stall is the clock that [Lease.Progress] sets back. An engine makes one for a hold, and gives it to each of its
// leases; nil is one that never ends. It is for engines.
type Stall struct {
	begun time.Time
	after time.Duration
	last  atomic.Int64 // ns from begun to the last progress, or one of those below
}

const (
	stalled = -1 // the clock has ended
	paused  = -2 // it does not run yet
)

// NewStall begins one that ends after d without progress; nil for 0.
func NewStall(d time.Duration) *Stall {
	if d == 0 {
		return nil
	}
	return &Stall{begun: time.Now(), after: d}
}

// Pause keeps a clock that has just begun from running until [Stall.Resume]: the call for the hold has not returned yet, so
// nobody could call Progress.
func (s *Stall) Pause() {
	if s != nil {
		s.last.Store(paused)
	}
}

// Resume lets a paused clock run, with its whole time.
func (s *Stall) Resume() {
	if s != nil {
		s.last.CompareAndSwap(paused, int64(time.Since(s.begun)))
	}
}

// Earlier returns when the clock ends without further progress, or t if that comes first.
func (s *Stall) Earlier(t time.Time) time.Time {
	if s == nil {
		return t
	}
	last := s.last.Load()
	if end := s.begun.Add(time.Duration(last) + s.after); last != paused && end.Before(t) {
		return end
	}
	return t
}

// progress sets the clock back, unless it has ended or does not run.
func (s *Stall) progress() {
	now := time.Since(s.begun)
	for {
		last := s.last.Load()
		if last < 0 || now-time.Duration(last) >= s.after || int64(now) <= last || s.last.CompareAndSwap(last, int64(now)) {
			return
		}
	}
}

// err is the loss, once the clock has ended: then it stays so, for all leases of the hold.
func (s *Stall) err() error {
	if s == nil {
		return nil
	}
	for {
		last := s.last.Load()
		if last == paused || last != stalled && time.Since(s.begun)-time.Duration(last) < s.after {
			return nil
		}
		if last == stalled || s.last.CompareAndSwap(last, stalled) {
			return fmt.Errorf("%w for %v", ErrStalled, s.after)
		}
	}
}

// Progress says that the work moves on, to a hold that ends without that: its time by headwaiter.WithMaxStall begins
// anew. It costs no request, so a loop may call it at each step. On a hold without such an end, and on one that has
// ended, it does nothing.
func (l *Lease) Progress() {
	if l.inner.Err() != nil {
		return // Others may use the hold still, whose work this is not.
	}
	if l.terms.Stall != nil {
		l.terms.Stall.progress()
	}
	for _, part := range l.terms.Parts {
		part.Progress()
	}
}
