package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
)

// Holds of the fair lock that go from client to client: some are adopted at once, some late, some by two that have the same
// text, and some by nobody. How it goes follows from the step, so that plans are drawn as they were.

// moves reports whether a hold of a step is handed over. When all is healed none is: nobody might adopt it.
func (a *actor) moves(s Step) bool {
	select {
	case <-a.world.peace:
		return false
	default:
	}
	return a.object.Kind == Mutex && s.Do == Lock && s.After/time.Microsecond%3 == 1
}

// path says how a hold that is handed over goes on.
func (s Step) path() (takers int, after time.Duration) {
	n := s.After / time.Microsecond / 3
	takers = []int{1, 2, 1, 0}[n%4]
	if n/4%3 == 0 {
		after = n * 7919 * time.Microsecond % (600 * time.Millisecond)
	}
	return takers, after
}

// move hands a hold over, and lets others adopt it.
func (a *actor) move(l *lease.Lease, noted *Call) {
	w, s := a.world, noted.Step
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	w.moving(noted.Hold)
	text, err := l.HandOver(ctx)
	w.released(noted.Hold, l, err)
	if (text != "") != (err == nil || errors.Is(err, lease.ErrUnconfirmed)) {
		w.violate("actor %d: text %q with error %v", a.id, text, err)
	}
	takers, after := s.path()
	if text == "" || takers == 0 {
		return
	}
	a.wait(after, nil)
	var all sync.WaitGroup
	for i := range takers {
		all.Go(func() { a.adopt(w.nodes[(noted.Client+1+i)%len(w.nodes)], text, s) })
	}
	all.Wait()
}

// adopt lets a client adopt a hold, and give it back.
func (a *actor) adopt(n *node, text string, s Step) {
	c, w := n.alive(), a.world
	if c == nil {
		return // It has died, or is not there yet.
	}
	s.Do, s.Patience = Adopt, releaseTime
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	noted := w.begin(Call{Actor: a.id, Client: n.id, Object: a.plan.Object, Step: s})
	l, err := fairlock.Adopt(ctx, c, text, a.terms(s))
	if err != nil {
		w.end(noted, 0, err, n.isDead())
		return
	}
	w.hold(noted, l, 1, 1, w.quirks.Ignorant)
	over := l.Context().Done()
	if w.quirks.Ignorant {
		over = nil
	}
	a.wait(s.Hold, over)
	ctx, cancel = context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	w.released(noted.Hold, l, l.Release(ctx))
}

// unadopted reports whether it is as promised that a call has not adopted a hold.
func (j *judge) unadopted(c *Call, o Object) bool {
	takers, after := c.Step.path()
	touched := slices.ContainsFunc(j.touches, func(t *Touch) bool { // Of any client, the giver's too.
		return (t.Object == everyone || t.Object == c.Object) && t.From <= c.End && t.To+aftermath >= c.Begin-after-o.Lease-releaseTime
	})
	switch {
	case touched:
		return slices.ContainsFunc([]error{
			lease.ErrAdopted, lease.ErrExpired, lease.ErrForced, lease.ErrNotGenuine, lease.ErrClosed, context.DeadlineExceeded,
		}, func(err error) bool { return errors.Is(c.Err, err) })
	case errors.Is(c.Err, lease.ErrAdopted):
		return takers > 1
	}
	late := errors.Is(c.Err, lease.ErrExpired) || errors.Is(c.Err, lease.ErrNotGenuine) // Of the last one it is known why.
	return late && after+10*j.far() >= j.transit(o)
}

// transit is for how long a hold is in transit at the least.
func (j *judge) transit(o Object) time.Duration {
	least := o.Lease
	for _, c := range j.plan.Clients {
		least = min(least, c.GrantLease)
	}
	if o.MaxHold > 0 {
		least = min(least, o.MaxHold)
	}
	return least
}
