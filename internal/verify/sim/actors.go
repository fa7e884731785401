package sim

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// releaseTime is how long an actor waits for the answer to a release.
const releaseTime = 5 * time.Second

// actor does the steps of its plan.
type actor struct {
	world  *world
	node   *node
	id     int
	plan   ActorPlan
	object Object
}

// offset keeps an actor's timers apart from those of the others.
func (a *actor) offset() time.Duration { return time.Duration(a.id*17+3) * time.Microsecond }

// run does one step after the other, until all is healed or the process dies.
func (a *actor) run() {
	for _, way := range a.node.ways {
		<-way.ready
	}
	for _, s := range a.plan.Steps {
		select {
		case <-time.After(s.After + a.offset()):
		case <-a.world.peace:
			return
		}
		c := a.node.alive()
		if c == nil {
			return
		}
		a.do(c, s)
	}
}

// do makes the call of a step, and returns what is noted of it.
func (a *actor) do(c *headwaiter.Client, s Step) *Call {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch {
	case s.Patience == 0:
		ctx = context.Background()
	case s.Cancel:
		defer time.AfterFunc(s.Patience+a.offset(), cancel).Stop()
	default:
		ctx, cancel = context.WithTimeout(ctx, s.Patience+a.offset())
		defer cancel()
	}
	call := Call{Actor: a.id, Client: a.plan.Client, Object: a.plan.Object, Step: s}
	switch {
	case a.object.Kind == Latch:
		return a.latch(ctx, c, call)
	case a.object.Kind == Barrier:
		return a.barrier(ctx, c, call)
	case s.Do == Each || s.Do == TryEach:
		return a.each(ctx, c, call)
	}
	return a.hold(ctx, c, call)
}

// hold makes a call that holds, holds for the time of its step or until it is told of a loss, and releases.
func (a *actor) hold(ctx context.Context, c *headwaiter.Client, call Call) *Call {
	w, s := a.world, call.Step
	noted := w.begin(call)
	l, err := a.acquire(ctx, c, noted)
	if err != nil {
		w.end(noted, 0, err, a.node.isDead())
		return noted
	}
	w.hold(noted, l, w.quirks.Ignorant)
	over := l.Context().Done()
	if w.quirks.Ignorant {
		over = nil
	}
	a.wait(s.Hold/2, over)
	if s.Do == Proclaim {
		a.proclaim(c, l, noted)
	}
	a.wait(s.Hold/2, over)
	if noted.Hold.Unlocked = s.unlocks(); noted.Hold.Unlocked {
		l.Unlock()
		w.released(noted.Hold, l, nil)
		return noted
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	w.released(noted.Hold, l, l.Release(ctx))
	return noted
}

// unlocks reports whether a hold ends with an Unlock, as some do.
func (s Step) unlocks() bool { return s.After/time.Microsecond%3 == 0 }

// wait waits for some time, the end of a hold, or peace.
func (a *actor) wait(d time.Duration, over <-chan struct{}) {
	select {
	case <-time.After(d + a.offset()):
	case <-over:
	case <-a.world.peace:
	}
}

// acquire makes a call that holds.
func (a *actor) acquire(ctx context.Context, c *headwaiter.Client, noted *Call) (*lease.Lease, error) {
	s := noted.Step
	lasts, key := a.terms(s), name(a.plan.Object)
	var m interface {
		Lock(ctx context.Context) (*lease.Lease, error)
		TryLock(ctx context.Context) (*lease.Lease, error)
	}
	switch a.object.Kind {
	case Election:
		return a.campaign(c, noted)(ctx)
	case Striped:
		return a.stripe(c, s)(ctx)
	case Several:
		return a.several(c, s)(ctx)
	case Redlock:
		m = redlock.New(a.node.clients(), key, a.object.voting(lasts)...)
	default:
		m = fairlock.New(c, key, lasts)
	}
	if s.Do == Try {
		return m.TryLock(ctx)
	}
	return m.Lock(ctx)
}

// terms are what an actor asks for, of any primitive.
func (a *actor) terms(s Step) option.Every {
	return option.Set(func(t *waitqueue.Terms) {
		t.Lease, t.MaxHold, t.Priority = a.object.Lease, a.object.MaxHold, s.Priority
	})
}
