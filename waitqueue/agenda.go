package waitqueue

import (
	"container/heap"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// An agenda is the one heap of timers of a client, for leases, looks, and ends that are to be repeated.
//
// What is due is called on the agenda's goroutine, one after the other, and must not block. Entries move
// lazily: a later time need not be told, because an entry that is called early may ask to be called
// again.
type agenda struct {
	flush func() // called after all that was due at one moment has been called

	mu      sync.Mutex // guards the fields below; held during no call
	entries entryHeap
	next    time.Time // when the loop wakes; zero if it sleeps without limit
	stopped bool
	kick    chan struct{} // wakes the loop, because an entry comes before next
	done    chan struct{} // closed when the loop has ended
}

// An appointment is what is called when its time has come.
type appointment interface{ fired(now time.Time) }

// call is a function as an appointment.
type call func(now time.Time)

func (f call) fired(now time.Time) { f(now) }

// An entry is one appointment. The zero value, with call set, is not on the agenda.
type entry struct {
	call  appointment
	at    time.Time
	index int // in the heap, from 1; 0 when it is not on the agenda
}

func newAgenda(flush func()) *agenda {
	a := &agenda{flush: flush, kick: make(chan struct{}, 1), done: make(chan struct{})}
	go a.loop()
	return a
}

// before puts e on the agenda at the given time, unless it is there for an earlier one.
func (a *agenda) before(e *entry, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.stopped || (e.index > 0 && !at.Before(e.at)):
		return
	case e.index > 0:
		e.at = at
		heap.Fix(&a.entries, e.index-1)
	default:
		e.at = at
		heap.Push(&a.entries, e)
	}
	if a.next.IsZero() || at.Before(a.next) {
		a.next = at
		select {
		case a.kick <- struct{}{}:
		default:
		}
	}
}

// remove takes e off the agenda. A call that has begun is not waited for.
func (a *agenda) remove(e *entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.index > 0 && !a.stopped {
		heap.Remove(&a.entries, e.index-1)
	}
}

// stop ends the loop and waits for it.
func (a *agenda) stop() {
	a.mu.Lock()
	a.stopped = true
	a.entries = nil
	a.mu.Unlock()
	select {
	case a.kick <- struct{}{}:
	default:
	}
	<-a.done
}

func (a *agenda) loop() {
	defer close(a.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	slept, called := lease.Slept(), 0
	for {
		if now := lease.Slept(); now-slept > wokeUp {
			slept = now
			a.advance()
		}
		due, wait, stopped := a.take(time.Now())
		if stopped {
			return
		}
		if due != nil {
			due.call.fired(time.Now())
			if called++; called%flushEvery == 0 {
				a.flush()
			}
			continue
		}
		a.flush()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-a.kick:
		}
	}
}

const (
	// idle is how long the loop sleeps with nothing to do.
	idle = time.Hour
	// glance is how long it sleeps at most with something to do, so that it soon sees that the machine was
	// suspended: timers stand still meanwhile, leases do not.
	glance = time.Second
	// flushEvery is how many calls a flush waits for at most.
	flushEvery = 256
	// wokeUp is how much sleep counts as a suspension.
	wokeUp = 500 * time.Millisecond
)

// advance makes every entry due: each looks by itself whether the time has come.
func (a *agenda) advance() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.entries {
		e.at = time.Time{}
	}
}

// take removes and returns the first entry that is due, or says how long to wait for it.
func (a *agenda) take(now time.Time) (due *entry, wait time.Duration, stopped bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return nil, 0, true
	}
	if len(a.entries) == 0 {
		a.next = time.Time{}
		return nil, idle, false
	}
	first := a.entries[0]
	if first.at.After(now) {
		a.next = first.at
		return nil, min(first.at.Sub(now), glance), false
	}
	return heap.Pop(&a.entries).(*entry), 0, false
}

// entryHeap is the heap of container/heap, the earliest entry first.
type entryHeap []*entry

func (h entryHeap) Len() int           { return len(h) }
func (h entryHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h entryHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *entryHeap) Push(x any) {
	e := x.(*entry)
	*h = append(*h, e)
	e.index = len(*h)
}

func (h *entryHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = 0
	return e
}
