package keeper

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
)

// A Stall is the clock that [Keeper.Progress] sets back. An engine makes one for a hold, and gives it to each of its
// leases; nil is one that never ends.
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
			return fmt.Errorf("%w for %v", reason.ErrStalled, s.after)
		}
	}
}

// Progress starts the time of the Stall anew.
func (k *Keeper) Progress() {
	if k.inner.Err() != nil {
		return // Others may use the hold still, whose work this is not.
	}
	if k.terms.Stall != nil {
		k.terms.Stall.progress()
	}
	for _, part := range k.terms.Parts {
		part.Progress()
	}
}
