// Package timers calls what is due: for leases, polls, and requests that are to be repeated. A client has one heap of
// timers and one goroutine for them, however much it holds.
package timers

import (
	"container/heap"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/keeper"
)

// Timers are a heap of timers. What is due is called on their goroutine, one after the other, and must not block.
//
// Timers move lazily: a later time need not be told, because what is called early may ask to be called again.
type Timers struct {
	flush func() // called after all that was due at one moment has been called

	mu      sync.Mutex // guards the fields below; held during no call
	heap    timerHeap
	next    time.Time // when the loop wakes; zero if it sleeps without limit
	stopped bool
	wake    chan struct{} // wakes the loop, because a timer comes before next
	done    chan struct{} // closed when the loop has ended
}

// A Batch collects what is due at one moment, for the flush after it.
type Batch[T any] struct {
	mu  sync.Mutex // guards due; nothing is called under it
	due []T
}

// Add puts something into the batch. The caller may hold locks.
func (b *Batch[T]) Add(x T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.due = append(b.due, x)
}

// Take returns what is in the batch, and empties it.
func (b *Batch[T]) Take() []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	due := b.due
	b.due = nil
	return due
}

// Due is how much is in the batch.
func (b *Batch[T]) Due() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.due)
}

// A Target is what is called when its time has come.
type Target interface{ Fired(now time.Time) }

// Func is a function as a Target.
type Func func(now time.Time)

// Fired calls f.
func (f Func) Fired(now time.Time) { f(now) }

// A Timer calls its target. The zero value, with Target set, is not set to any time.
type Timer struct {
	Target Target
	at     time.Time
	index  int // in the heap, from 1; 0 when it is set to no time
}

// New starts a goroutine, which [Timers.Stop] ends. It calls flush after all that was due at one moment.
func New(flush func()) *Timers {
	t := &Timers{flush: flush, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go t.loop()
	return t
}

// Before sets a timer to the given time, unless it is set to an earlier one.
func (t *Timers) Before(e *Timer, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.stopped || (e.index > 0 && !at.Before(e.at)):
		return
	case e.index > 0:
		e.at = at
		heap.Fix(&t.heap, e.index-1)
	default:
		e.at = at
		heap.Push(&t.heap, e)
	}
	if t.next.IsZero() || at.Before(t.next) {
		t.next = at
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// Remove sets a timer to no time. A call that has begun is not waited for.
func (t *Timers) Remove(e *Timer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.index > 0 && !t.stopped {
		heap.Remove(&t.heap, e.index-1)
	}
}

// Len is how many timers are set.
func (t *Timers) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.heap)
}

// Stop ends the loop and waits for it.
func (t *Timers) Stop() {
	t.mu.Lock()
	t.stopped = true
	t.heap = nil
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
	<-t.done
}

func (t *Timers) loop() {
	defer close(t.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	slept, called := keeper.Slept(), 0
	for {
		if now := keeper.Slept(); now-slept > WokeUp {
			slept = now
			t.advance()
		}
		due, wait, stopped := t.take(time.Now())
		if stopped {
			return
		}
		if due != nil {
			due.Target.Fired(time.Now())
			if called++; called == flushEvery {
				called = 0
				t.flush()
			}
			continue
		}
		called = 0
		t.flush()
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-t.wake:
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
	flushEvery = 512
	// WokeUp is how much sleep counts as a suspension.
	WokeUp = 500 * time.Millisecond
)

// advance makes every Timer due: each looks by itself whether the time has come.
func (t *Timers) advance() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.heap {
		e.at = time.Time{}
	}
}

// take removes and returns the first Timer that is due, or says how long to wait for it.
func (t *Timers) take(now time.Time) (due *Timer, wait time.Duration, stopped bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return nil, 0, true
	}
	if len(t.heap) == 0 {
		t.next = time.Time{}
		return nil, idle, false
	}
	first := t.heap[0]
	if first.at.After(now) {
		t.next = first.at
		return nil, min(first.at.Sub(now), glance), false
	}
	return heap.Pop(&t.heap).(*Timer), 0, false
}

// timerHeap is the heap of container/heap, the earliest Timer first.
type timerHeap []*Timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	e := x.(*Timer)
	*h = append(*h, e)
	e.index = len(*h)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = 0
	return e
}
