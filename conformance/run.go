package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// clients is how many meet: two contend, the third sees what the two make of it.
	clients = 3
	// atOnce is how many cases run at the same time, except cases that mostly wait for a lease to end.
	atOnce = 8
	// steady is how long a lease is, in times of Patience, where a case is to fail rather than see it end.
	steady = 6
)

// Run takes an engine through all cases that it offers something for, each a subtest <object>/<case>. It logs
// and returns those that it does not run, with what is missing. A promise that nothing is there to show is a
// failure.
func Run(t *testing.T, e Engine) (missed []string) {
	t.Helper()
	s := newStage(t, e)
	plan, missed := planned(t, s)
	for _, m := range missed {
		t.Logf("conformance: not run: %s", m)
	}
	play(t, s, plan)
	return missed
}

// play runs the cases: first those that do all they can, then, when nothing else loads the machine, those that
// mind the time.
func play(t *testing.T, s *stage, plan []part) {
	slots := make(chan struct{}, atOnce)
	var all, busy sync.WaitGroup
	busy.Add(len(plan))
	for _, p := range plan {
		all.Go(func() {
			rest := sync.OnceFunc(busy.Done)
			defer rest() // The kind may be one that the test was told to leave out.
			t.Run(p.kind.name, func(t *testing.T) {
				p.together(t, s, false, slots)
				rest()
				busy.Wait()
				p.together(t, s, true, nil)
			})
		})
	}
	all.Wait()
}

// together runs cases of a kind at the same time, as far as there are slots, if these are limited.
func (p part) together(t *testing.T, s *stage, timed bool, slots chan struct{}) {
	var all sync.WaitGroup
	for _, c := range p.cases {
		if c.timed != timed {
			continue
		}
		all.Go(func() {
			if slots != nil {
				slots <- struct{}{}
				defer func() { <-slots }()
			}
			t.Run(c.name, func(t *testing.T) { perform(t, s, p.kind, c) })
		})
	}
	all.Wait()
}

// A kind is a primitive: how an object of it is made, and what is asked of it.
type kind struct {
	name  string
	make  func(c Client, name string, lease time.Duration) any // nil if it is not offered
	cases []trial
}

// A trial is a case.
type trial struct {
	name  string // a sentence
	run   func(x *scene)
	timed bool // it asks for the shortest lease
	needs []need
}

// kinds are all that there is. The first four can be held by one at a time, and share the cases of that.
func kinds() []kind {
	return []kind{
		{"mutex", makeMutex, slices.Concat(doorCases(), unlockCases(), doCases(), wantedCases(), previousCases(), mutexCases())},
		{"reentrant", makeReentrant, slices.Concat(doorCases(), unlockCases(), doCases(), wantedCases(), previousCases(), reentrantCases())},
		{"rwlock", makeRWLock, slices.Concat(doorCases(), unlockCases(), doCases(), wantedCases(), previousCases(), rwlockCases())},
		{"semaphore", makeSemaphore, slices.Concat(doorCases(), unlockCases(), doCases(), wantedCases(), previousCases()[1:], semaphoreCases())},
		{"latch", makeLatch, latchCases()},
		{"barrier", makeBarrier, barrierCases()},
	}
}

func makeMutex(c Client, name string, lease time.Duration) any {
	if c.Mutex == nil {
		return nil
	}
	return c.Mutex(name, lease)
}

func makeReentrant(c Client, name string, lease time.Duration) any {
	if c.Reentrant == nil {
		return nil
	}
	return c.Reentrant(name, lease)
}

func makeRWLock(c Client, name string, lease time.Duration) any {
	if c.RWLock == nil {
		return nil
	}
	return c.RWLock(name, lease)
}

func makeSemaphore(c Client, name string, lease time.Duration) any {
	if c.Semaphore == nil {
		return nil
	}
	return c.Semaphore(name, 1, lease)
}

func makeLatch(c Client, name string, _ time.Duration) any {
	if c.Latch == nil {
		return nil
	}
	return c.Latch(name)
}

func makeBarrier(c Client, name string, lease time.Duration) any {
	if c.Barrier == nil {
		return nil
	}
	return c.Barrier(name, 2, lease)
}

// A stage is what the cases of a run share.
type stage struct {
	engine  Engine
	clients []Client
	id      string // of this run: another on the same server must not meet it
	numbers atomic.Int64
}

// newStage dials the clients, which are closed with the test.
func newStage(t testing.TB, e Engine) *stage {
	t.Helper()
	switch {
	case e.Dial == nil:
		t.Fatal("conformance: the engine has no Dial")
	case e.Errors.Busy == nil || e.Errors.Closed == nil:
		t.Fatal("conformance: the engine does not say what Errors.Busy and Errors.Closed are")
	case e.Lease < 0 || e.Patience < 0:
		t.Fatal("conformance: Lease and Patience must not be negative")
	}
	if e.Lease == 0 {
		e.Lease = 3 * time.Second
	}
	if e.Patience == 0 {
		e.Patience = 20 * time.Second
	}
	s := &stage{engine: e, id: rand.Text()[:8]}
	for range clients {
		c := e.Dial(t)
		if c.Close == nil {
			t.Fatal("conformance: a client has no Close")
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), e.Patience)
			defer cancel()
			if err := c.Close(ctx); err != nil {
				t.Errorf("conformance: closing a client that has given everything back: %v", err)
			}
		})
		s.clients = append(s.clients, c)
	}
	return s
}

// part is the cases of a kind that are run.
type part struct {
	kind  kind
	cases []trial
}

// planned tells what is run, and what is not and why.
func planned(t testing.TB, s *stage) (plan []part, missed []string) {
	for _, k := range kinds() {
		c := s.clients[0]
		object := k.make(c, s.next(), s.engine.Lease)
		if object == nil {
			missed = append(missed, k.name+": it is not offered")
			continue
		}
		s.showable(t, k.name, object)
		p := part{kind: k}
		for _, one := range k.cases {
			if why := one.missing(s, c, object); why != "" {
				missed = append(missed, fmt.Sprintf("%s: %s: %s", k.name, one.name, why))
				continue
			}
			p.cases = append(p.cases, one)
		}
		plan = append(plan, p)
	}
	if len(plan) == 0 {
		t.Error("conformance: the engine offers nothing")
	}
	return plan, missed
}

// showable fails the test for promises that are there but cannot be tried.
func (s *stage) showable(t testing.TB, kind string, object any) {
	_, waits := object.(Waits)
	_, breaks := object.(Breaks)
	_, isLatch := object.(Latch)
	_, isBarrier := object.(Barrier)
	if isLatch || isBarrier {
		return // They are held by nobody.
	}
	if s.engine.Fair && !waits {
		t.Errorf("conformance: Fair is promised, but the %s has no Waiting to show it by", kind)
	}
	if s.engine.Told && !breaks && s.clients[0].Cut == nil {
		t.Errorf("conformance: Told is promised, but the %s has no Break and the client no Cut to show it by", kind)
	}
}

// next is a name that no case has had.
func (s *stage) next() string {
	return fmt.Sprintf("conformance:%s:%d", s.id, s.numbers.Add(1))
}

// perform runs a case.
func perform(t testing.TB, s *stage, k kind, c trial) {
	c.run(&scene{TB: t, stage: s, make: k.make, name: s.next()})
}

// A need is what a case cannot do without: it tells what is missing, or nothing.
type need func(s *stage, c Client, object any) string

func (c trial) missing(s *stage, client Client, object any) string {
	for _, n := range c.needs {
		if why := n(s, client, object); why != "" {
			return why
		}
	}
	return ""
}

// unless is what is missing where something is not so.
func unless(is bool, what string) string {
	if is {
		return ""
	}
	return what
}

func fair(s *stage, _ Client, _ any) string   { return unless(s.engine.Fair, "it is not Fair") }
func fenced(s *stage, _ Client, _ any) string { return unless(s.engine.Fenced, "it is not Fenced") }
func told(s *stage, _ Client, _ any) string   { return unless(s.engine.Told, "losses are not Told") }
func wanted(s *stage, _ Client, _ any) string {
	return unless(s.engine.Wanted, "it is not told when it is Wanted")
}
func remembers(s *stage, _ Client, _ any) string {
	return unless(s.engine.Remembers, "it does not say that it Remembers")
}

func cuttable(_ *stage, c Client, _ any) string { return unless(c.Cut != nil, "the client has no Cut") }

func silenceable(_ *stage, c Client, _ any) string {
	return unless(c.Silence != nil, "the client has no Silence")
}

// has is the need of an object that can do more than its kind must: it is a T, which has that method.
func has[T any](method string) need {
	return func(_ *stage, _ Client, object any) string {
		_, is := object.(T)
		return unless(is, "it has no "+method)
	}
}

var (
	waits      = has[Waits]("Waiting")
	breaks     = has[Breaks]("Break")
	downgrades = has[Downgrades]("Downgrade")
	resizes    = has[Resizes]("Resize")
)

func does(_ *stage, _ Client, object any) string {
	switch object.(type) {
	case doer, Semaphore:
		return ""
	}
	return "it has no Do"
}

func deadlocks(s *stage, _ Client, _ any) string {
	return unless(s.engine.Errors.Deadlock != nil, "Errors.Deadlock is not set")
}

func upgrades(s *stage, _ Client, _ any) string {
	return unless(s.engine.Errors.Upgrade != nil, "Errors.Upgrade is not set")
}
