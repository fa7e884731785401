package sim

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/option"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
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
	l, n, err := a.acquire(ctx, c, noted)
	if err != nil {
		w.end(noted, 0, err, a.node.isDead())
		return noted
	}
	permits := n
	if a.object.Kind != Semaphore {
		permits = 1
	}
	w.hold(noted, l, permits, n, w.quirks.Ignorant)
	if s.asks() {
		w.asks(noted.Hold, l)
	}
	over := l.Context().Done()
	if w.quirks.Ignorant {
		over = nil
	}
	a.wait(s.Hold/2, over)
	switch s.Do {
	case Downgrade:
		a.downgrade(ctx, c, l, noted.Hold)
	case Enter:
		a.enter(c, l)
	case Proclaim:
		a.proclaim(c, l, noted)
	}
	a.wait(s.Hold/2, over)
	if a.moves(s) {
		a.move(l, noted)
		return noted
	}
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

// asks reports whether the holder wants to be told when somebody waits, as some do.
func (s Step) asks() bool { return s.After/time.Microsecond%4 == 1 }

// wait waits for some time, the end of a hold, or peace.
func (a *actor) wait(d time.Duration, over <-chan struct{}) {
	select {
	case <-time.After(d + a.offset()):
	case <-over:
	case <-a.world.peace:
	}
}

// acquire makes a call that holds, and returns how many permits it got.
func (a *actor) acquire(ctx context.Context, c *headwaiter.Client, noted *Call) (*lease.Lease, int64, error) {
	s := noted.Step
	lasts := a.terms(s)
	if noted.Final {
		everybody := option.Set(func(t *waitqueue.Terms) { t.QueueLimit = 0 })
		lasts = option.Join([]option.Every{lasts, everybody})
	}
	call := func(f func(context.Context) (*lease.Lease, error)) (*lease.Lease, int64, error) {
		l, err := f(ctx)
		return l, s.Permits, err
	}
	key := name(a.plan.Object)
	switch a.object.Kind {
	case Election:
		return call(a.campaign(c, noted))
	case Striped:
		return call(a.stripe(c, s))
	case Several:
		return call(a.several(c, s))
	case Redlock:
		m := redlock.New(a.node.clients(), key, a.object.voting(lasts)...)
		if s.Do == Try {
			return call(m.TryLock)
		}
		return call(m.Lock)
	case Mutex, Cohort:
		m := fairlock.New(c, key, lasts, fairlock.WithCohort(a.object.Cohort), fairlock.WithKeep(a.object.Keep))
		if s.Do == Try {
			return call(m.TryLock)
		}
		return call(m.Lock)
	case Reentrant:
		m := reentrant.New(c, key, lasts)
		if s.Do == Try {
			return call(m.TryLock)
		}
		return call(m.Lock)
	case RWLock:
		m := rwlock.New(c, key, lasts)
		return call(map[Verb]func(context.Context) (*lease.Lease, error){
			Lock: m.Lock, Try: m.TryLock, Read: m.RLock, TryRead: m.TryRLock, Downgrade: m.Lock,
		}[s.Do])
	}
	m := semaphore.New(c, key, a.object.Size, lasts)
	switch s.Do {
	case Try:
		l, err := m.TryAcquire(ctx, s.Permits)
		return l, s.Permits, err
	case Drain:
		return m.Drain(ctx)
	}
	l, err := m.Acquire(ctx, s.Permits)
	return l, s.Permits, err
}

// terms are what an actor asks for, of any primitive.
func (a *actor) terms(s Step) option.Every {
	return option.Set(func(t *waitqueue.Terms) {
		t.Lease, t.MaxHold, t.Priority, t.QueueLimit = a.object.Lease, a.object.MaxHold, s.Priority, a.object.Limit
	})
}

// downgrade goes on for reading.
func (a *actor) downgrade(ctx context.Context, c *headwaiter.Client, l *lease.Lease, hold *Hold) {
	m := rwlock.New(c, name(a.plan.Object), a.terms(Step{}))
	a.world.lowered(hold) // From the moment of the call others may read.
	_ = m.Downgrade(ctx, l)
}

// enter takes a lock again that is held, and holds the inner lease for a moment.
func (a *actor) enter(c *headwaiter.Client, l *lease.Lease) {
	m := reentrant.New(c, name(a.plan.Object), a.terms(Step{}))
	if l.Context().Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.Context(), time.Millisecond)
	defer cancel()
	inner, err := m.Lock(ctx)
	switch {
	case err != nil && l.Context().Err() == nil:
		a.world.violate("actor %d: to enter a hold again failed: %v", a.id, err)
	case err != nil:
		return
	case inner.Token() != l.Token():
		a.world.violate("actor %d: entered again with token %d instead of %d", a.id, inner.Token(), l.Token())
	}
	a.wait(time.Millisecond, l.Context().Done())
	if n := m.HoldCount(l.Context()); n != 2 && l.Context().Err() == nil {
		a.world.violate("actor %d: %d leases on a hold that was entered twice", a.id, n)
	}
	ctx, cancel = context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	err = inner.Release(ctx)
	if err != nil && l.Context().Err() == nil {
		a.world.violate("actor %d: the inner release failed: %v", a.id, err)
	}
}

// writes reports whether a step keeps everybody else out.
func writes(k Kind, v Verb) bool {
	return k != Semaphore && k != RWLock || k == RWLock && (v == Lock || v == Try || v == Downgrade)
}
