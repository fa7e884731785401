// Package cohort lets the calls of one client for one lock pass a hold on among themselves: a layer over a hold of the
// queue. A lock without a cohort does not come by here.
//
// One of the calls, the leader, asks the queue and has the hold; the others, its mates, wait for that one in the order of
// their calls, and the server knows nothing of them. Each call gets a lease of its own on the hold, with a context, a
// release and a token of its own, one above that of the call before. A release decides what becomes of the hold
// ([cohort.release]):
//
//   - there is a mate, and the hold may be passed on: the mate has it next. Nothing is sent.
//   - there is a mate, but no pass is left, or there is doubt whether the hold lasts: it is given back, and the mate leads.
//     It comes into the queue with the time of its call, in the same round trip as the end of the hold. So each
//     hold that is served before a waiter of another client lets as many later calls go first as it has passes, and no
//     more: with k clients that is up to k times. To be queued it must hear, so the client subscribes once a mate has
//     come whom the passes that are left do not reach.
//   - there is no mate: it is given back.
//
// The ticket of the leader says how many tokens the hold may come to, the end of the hold the last that was used. Which
// token is certain the queue knows ([waitqueue.Hold.Pass]).
//
// Source: the passing is that of Dice, Marathe, Shavit, "Lock Cohorting", PPoPP 2012, with the queue in Redis as the
// global lock.
package cohort

import (
	"container/list"
	"container/ring"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// Max is how often a hold may be passed on at the most. Of one whose client does not say how often it was, because it
// died, the server takes that for granted: the next token is up to a millisecond above that of the grant then.
const Max = 1 << 10

// Check is why a hold cannot be passed on so many times, if it cannot.
func Check(passes int) error {
	if passes < 0 {
		return fmt.Errorf("%w: WithCohort: %d passes must be from 0 to %d", lease.ErrInvalid, passes, Max)
	}
	if passes > Max {
		return fmt.Errorf("%w: WithCohort: %d passes must be from 0 to %d", lease.ErrTooLarge, passes, Max)
	}
	return nil
}

// A Queue is a queue whose calls pass holds on.
type Queue struct {
	queue  waitqueue.Queue
	passes int
	keep   time.Duration
}

// Of returns a queue whose calls pass a hold on at most so many times, which asks for one permit more. Calls are of one
// cohort if their clients, names, terms, passes and keep are the same. A hold that is released without a mate is kept for a
// call that comes within keep, as long as nobody is known to wait for it; 0 is not at all.
func Of(q waitqueue.Queue, passes int, keep time.Duration) *Queue {
	return &Queue{q, passes, keep}
}

// Tokens is how many a hold of such a queue may come to: what the queue asks for as permits.
func Tokens(passes int, keep time.Duration) int64 {
	if keep > 0 {
		passes = max(passes, reserved)
	}
	return int64(1 + passes)
}

// Acquire waits for a hold as one of the cohort.
func (q *Queue) Acquire(ctx context.Context) (*lease.Lease, error) {
	all, err := q.cohorts()
	if err != nil {
		return nil, err
	}
	ctx, free, err := retry.InTime(ctx, q.queue.Terms().MaxWait)
	if err != nil {
		return nil, err
	}
	defer free()
	if l, err := q.again(ctx, all); l != nil || err != nil {
		return l, err
	}
	claim, err := q.queue.Claim(ctx, false)
	if err != nil {
		return nil, err
	}
	m := &mate{claim: claim}
	co, err := all.join(q, m)
	switch {
	case err != nil:
		return nil, claim.GiveUp(err)
	case m.called == nil:
		return co.lead(m)
	}
	return co.wait(ctx, m)
}

func (q *Queue) cohorts() (*cohorts, error) {
	all, err := q.queue.Layer(layerKey{}, func() waitqueue.Layer { return &cohorts{open: make(map[key]*cohort)} })
	if err != nil {
		return nil, err
	}
	return all.(*cohorts), nil
}

func (q *Queue) key() key { return key{q.queue.Name(), q.queue.Terms(), q.passes, q.keep} }

// layerKey finds the cohorts of a client.
type layerKey struct{}

// A key finds a cohort among those of its client.
type key struct {
	name   string
	terms  waitqueue.Terms
	passes int
	keep   time.Duration
}

// cohorts are those of a client.
type cohorts struct {
	mu     sync.Mutex // guards the fields below; nothing is called under it
	open   map[key]*cohort
	closed bool

	resting ring.Ring // of *cohort whose holds are idle: behind this, which is none, the one that was used first
	rest    int       // how many they are
}

// A cohort is calls for one name. There is one as long as somebody leads it.
type cohort struct {
	of    *cohorts
	key   key
	queue waitqueue.Queue

	// Before the lock of cohorts, and before those of the queue.
	mu     sync.Mutex                  // guards the fields below
	hold   *waitqueue.Hold             // nil while its leader waits
	keeper *lease.Keeper               // of the lease of the call that has it; nil if no call has it
	stop   func() bool                 // ends the watch over the hold
	wants  bool                        // that call wants to be told when somebody waits
	back   func(context.Context) error // what the release of its lease does
	left   int                         // passes of the present hold, or of the next
	mates  list.List                   // of *mate, by their calls
	gone   bool                        // nobody leads any more, or the client closes

	idle bool // the hold is kept, and no call uses it

	// The lock of cohorts guards these.
	place *ring.Ring // among those that are idle, if it rests; nil before it first has
	rests bool
}

// A mate is a call of a cohort.
type mate struct {
	claim  *waitqueue.Claim
	place  *list.Element // nil once it was called
	called chan struct{} // closed when it has the hold, is the leader, or failed; nil if it led at once

	lease *lease.Lease // if it has the hold
	err   error        // if it failed
}

// join makes a call a mate, or the leader where there is none.
func (all *cohorts) join(q *Queue, m *mate) (*cohort, error) {
	for {
		co, leads, err := all.find(q)
		if leads || err != nil || co.await(m) {
			return co, err
		}
	}
}

// find returns the cohort of a queue, which the caller leads if there was none.
func (all *cohorts) find(q *Queue) (co *cohort, leads bool, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return nil, false, lease.ErrClosed
	}
	k := q.key()
	if co = all.open[k]; co != nil {
		return co, false, nil
	}
	co = &cohort{of: all, key: k, queue: q.queue, left: q.passes}
	all.open[k] = co
	return co, true, nil
}

// Close ends the calls of all mates. Those of the leaders end with the client.
func (all *cohorts) Close() {
	all.mu.Lock()
	all.closed = true
	open := make([]*cohort, 0, len(all.open))
	for _, co := range all.open {
		open = append(open, co)
	}
	all.mu.Unlock()
	for _, co := range open {
		co.close()
		co.giveBack(nil)
	}
}

func (co *cohort) close() {
	co.mu.Lock()
	defer co.mu.Unlock()
	co.gone = true
	for m := co.takeLocked(); m != nil; m = co.takeLocked() {
		m.err = m.claim.GiveUp(lease.ErrClosed)
		close(m.called)
	}
}

// await puts a mate behind the others, and reports whether the cohort is still there for it.
func (co *cohort) await(m *mate) bool {
	if l := co.takeUp(m.claim); l != nil {
		m.lease, m.called = l, make(chan struct{})
		close(m.called)
		return true
	}
	co.mu.Lock()
	if co.gone || co.idle { // Of a hold that rests since this has looked, the next look finds it.
		co.mu.Unlock()
		return false
	}
	m.called = make(chan struct{})
	m.place = co.mates.PushBack(m)
	if co.wants {
		co.keeper.Awaited()
	}
	behind := co.mates.Len() > co.left
	co.mu.Unlock()
	if behind {
		co.queue.Subscribe()
	}
	return true
}

// wait is a mate's wait for its turn.
func (co *cohort) wait(ctx context.Context, m *mate) (*lease.Lease, error) {
	select {
	case <-m.called:
	case <-ctx.Done():
		if co.leave(m) {
			return nil, m.claim.GiveUp(nil)
		}
		<-m.called // Somebody is about to.
	}
	if m.lease != nil || m.err != nil {
		return m.lease, m.err
	}
	return co.lead(m)
}

// leave takes a mate out whose context has ended, and reports whether it was not called yet.
func (co *cohort) leave(m *mate) bool {
	co.mu.Lock()
	defer co.mu.Unlock()
	if m.place == nil {
		return false
	}
	co.mates.Remove(m.place)
	m.place = nil
	return true
}

// takeLocked takes the first mate out, to be called. There may be none.
func (co *cohort) takeLocked() *mate {
	first := co.mates.Front()
	if first == nil {
		return nil
	}
	m := co.mates.Remove(first).(*mate)
	m.place = nil
	return m
}

// lead waits for a hold as the leader. One that was a mate before keeps the place of the time of its call.
func (co *cohort) lead(m *mate) (*lease.Lease, error) {
	h, err := m.claim.Wait(m.called != nil)
	co.mu.Lock()
	defer co.mu.Unlock()
	if err != nil {
		if next := co.overLocked(); next != nil {
			close(next.called)
		}
		return nil, err
	}
	co.hold = h
	co.stop = context.AfterFunc(h.Context(), func() { co.lost(h) })
	co.back = func(ctx context.Context) error { return co.release(ctx, h) }
	l := co.lendLocked(h)
	if co.key.keep > 0 {
		h.Want(func() { co.awaited(h) })
	}
	return l, nil
}

// lendLocked makes the lease of the call that has the hold now.
func (co *cohort) lendLocked(h *waitqueue.Hold) *lease.Lease {
	co.keeper, co.wants = h.Lease(co.back, co), false
	return co.keeper.Lease()
}

// Want is what the first Wanted of a lease does: mates count, and calls that the server knows of. It does nothing for a
// lease that was released since: its hold may be kept, or be another call's by now.
func (co *cohort) Want(of *lease.Lease) {
	co.mu.Lock()
	if co.keeper == nil || co.keeper.Lease() != of {
		co.mu.Unlock()
		return
	}
	h := co.hold
	co.wants = true
	if co.mates.Len() > 0 {
		co.keeper.Awaited()
	}
	co.mu.Unlock()
	h.Want(func() { co.awaited(h) })
}

// awaited tells the call that has a hold that somebody waits for that in the queue, or gives it back if no call has it.
func (co *cohort) awaited(h *waitqueue.Hold) {
	co.mu.Lock()
	if co.hold == h && co.wants {
		co.keeper.Awaited()
	}
	co.mu.Unlock()
	co.giveBack(h)
}

// release is what the release of a lease does: here it is decided what becomes of the hold.
func (co *cohort) release(ctx context.Context, h *waitqueue.Hold) error {
	next, last, over := co.passOn(h)
	switch {
	case !over:
		if last != nil {
			last.giveBack(nil)
		}
		return nil
	case next == nil:
		return h.Release(ctx, nil, nil)
	}
	return h.Release(ctx, next.claim, func() { close(next.called) })
}

// passOn gives the hold to the first mate, if it may be passed on, or keeps it where there is none. Else it is over, and
// the mate leads next. Where more holds are kept than may be, the one that was used first is to be given back.
func (co *cohort) passOn(h *waitqueue.Hold) (next *mate, last *cohort, over bool) {
	co.mu.Lock()
	defer co.mu.Unlock()
	first := co.mates.Front()
	switch {
	case co.hold != h:
		return nil, nil, true // It was lost, and the mates have gone on.
	case first == nil && co.key.keep > 0 && !co.gone && h.Rest(co.key.keep):
		return nil, co.restLocked(), false
	case first == nil || !h.Pass(first.Value.(*mate).claim, co.left > 0):
		return co.overLocked(), nil, true
	}
	m := co.takeLocked()
	co.left--
	m.lease = co.lendLocked(h)
	close(m.called)
	return m, nil, false
}

// lost ends the lease of the call that has a hold which was lost, and lets the first mate lead.
func (co *cohort) lost(h *waitqueue.Hold) {
	co.mu.Lock()
	defer co.mu.Unlock()
	if co.hold != h {
		return
	}
	if co.idle {
		co.takenUpLocked()
	} else {
		co.keeper.Lose(context.Cause(h.Context()))
	}
	if next := co.overLocked(); next != nil {
		close(next.called)
	}
}

// overLocked ends what the leader had, and returns the mate that leads next, to be called. Without one the cohort ends.
func (co *cohort) overLocked() *mate {
	if co.stop != nil {
		co.stop()
	}
	co.hold, co.keeper, co.stop, co.wants = nil, nil, nil, false
	next := co.takeLocked()
	if next == nil {
		co.gone = true
		co.of.drop(co)
	}
	co.left = co.key.passes
	return next
}

func (all *cohorts) drop(co *cohort) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.open, co.key)
}
