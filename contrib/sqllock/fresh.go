package sqllock

import (
	"sync"
	"time"
)

// watchAfter is how old a hold is when its connection begins to be watched: to begin that and to end it takes several
// changes of goroutines and threads, more than all else that a client does for a hold.
const watchAfter = 20 * time.Millisecond

// fresh are the holds that nobody watches yet, of all clients of this process.
//
// One timer serves them all and runs on when they end: to set one wakes a thread that looks after it, and so does its
// end. With a timer of 2 ms an uncontended cycle took a tenth longer.
var fresh = watcher{holds: map[*sessionHold]struct{}{}}

type watcher struct {
	mu    sync.Mutex // guards the fields below; a hold's is taken after it
	holds map[*sessionHold]struct{}
	timer *time.Timer
	runs  bool // the timer
}

// add lets a new hold be watched if it lasts.
func (w *watcher) add(h *sessionHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds[h] = struct{}{}
	if !w.runs {
		w.again(watchAfter)
	}
}

// remove is for a hold that has ended. The timer finds out.
func (w *watcher) remove(h *sessionHold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holds, h)
}

// again sets the timer.
func (w *watcher) again(after time.Duration) {
	w.runs = true
	if w.timer == nil {
		w.timer = time.AfterFunc(after, w.fired)
		return
	}
	w.timer.Reset(after)
}

// fired begins to watch the holds that have lasted so long.
func (w *watcher) fired() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	next := watchAfter
	for h := range w.holds {
		if left := watchAfter - now.Sub(h.begun); left > 0 {
			next = min(next, left)
			continue
		}
		delete(w.holds, h)
		h.begin()
	}
	if w.runs = len(w.holds) > 0; w.runs {
		w.again(next)
	}
}
