package sim

import (
	"context"
	"fmt"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/multilock"
	"github.com/headwaiter/headwaiter/striped"
)

// Callers of what has several locks: all or none of them, each for itself, or one that a key is hashed to.

// several takes all of the locks of a step: one by package fairlock, several by package multilock.
func (a *actor) several(c *headwaiter.Client, s Step) func(context.Context) (*lease.Lease, error) {
	names := a.names(s.Parts)
	if len(names) == 1 {
		m := fairlock.New(c, names[0], a.terms(s))
		if s.Do == Try {
			return m.TryLock
		}
		return m.Lock
	}
	m := multilock.New(c, names, a.terms(s), multilock.WithBound(a.object.Bound))
	if s.Do == Try {
		return m.TryLock
	}
	return m.Lock
}

// names are those of locks.
func (a *actor) names(parts Parts) (names []string) {
	for _, part := range parts.each() {
		names = append(names, a.object.name(a.plan.Object, part))
	}
	return names
}

// stripe takes the lock that one of several keys is hashed to, another key each time.
func (a *actor) stripe(c *headwaiter.Client, s Step) func(context.Context) (*lease.Lease, error) {
	m := striped.New(c, name(a.plan.Object), int(a.object.Size), a.terms(s))
	wanted, key := a.names(s.Parts)[0], ""
	for n := a.id; ; n++ {
		if key = fmt.Sprint("key ", n); m.Stripe(key) == wanted {
			break
		}
	}
	return func(ctx context.Context) (*lease.Lease, error) {
		if s.Do == Try {
			return m.TryLock(ctx, key)
		}
		return m.Lock(ctx, key)
	}
}

// each takes several locks in one call, each for itself. What is noted is a call for each of them. All leases are held
// for the time of the step or until the first is lost, and are released in one call. It returns one of the calls.
func (a *actor) each(ctx context.Context, c *headwaiter.Client, call Call) *Call {
	w, s := a.world, call.Step
	var calls []*Call
	var locks []*fairlock.Mutex
	for _, part := range s.Parts.each() {
		call.Step.Parts = 1 << part
		calls = append(calls, w.begin(call))
		locks = append(locks, fairlock.New(c, a.object.name(a.plan.Object, part), a.terms(s)))
	}
	take := fairlock.LockEach
	if s.Do == TryEach {
		take = fairlock.TryLockEach
	}
	var held []*Call
	var leases []*lease.Lease
	for i, o := range take(ctx, locks...) {
		if o.Err != nil {
			w.end(calls[i], 0, o.Err, a.node.isDead())
			continue
		}
		w.hold(calls[i], o.Lease, w.quirks.Ignorant)
		held, leases = append(held, calls[i]), append(leases, o.Lease)
	}
	if len(held) == 0 {
		return calls[0]
	}
	over := leases[0].Context().Done()
	if w.quirks.Ignorant {
		over = nil
	}
	a.wait(s.Hold, over)
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	for i, err := range fairlock.ReleaseEach(ctx, leases...) {
		w.released(held[i].Hold, leases[i], err)
	}
	return held[0]
}
