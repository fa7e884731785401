package prometheus

import (
	"math"
	"sync"
	"time"
)

// marginWindow is half of how far back the smallest margin reaches at the most: longer than most scrape intervals, so
// that a margin is seen by one scrape at least.
const marginWindow = time.Minute

// smallest is the smallest of the values of the last one to two windows. It is time that resets it, not a scrape:
// there may be several who scrape.
type smallest struct {
	mu     sync.Mutex // guards the fields below
	window int64      // the number of the present one
	now    time.Duration
	before time.Duration // of the window before
}

// none is the smallest of no values.
const none = time.Duration(math.MaxInt64)

// turnLocked begins a new window if it is time.
func (s *smallest) turnLocked() {
	window := time.Now().UnixNano() / int64(marginWindow)
	switch {
	case window == s.window:
		return
	case window == s.window+1:
		s.before = s.now
	default:
		s.before = none
	}
	s.window, s.now = window, none
}

func (s *smallest) add(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turnLocked()
	s.now = min(s.now, d)
}

// get returns the smallest value, if there was any.
func (s *smallest) get() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turnLocked()
	d := min(s.now, s.before)
	return d, d != none
}
