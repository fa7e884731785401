package sim

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/lease"
)

// Quirks are what a world does wrong on purpose, to see whether the judge notices.
type Quirks struct {
	// Ignorant callers go on when they are told of a loss.
	Ignorant bool
	// Innocent hides the faults from the judge.
	Innocent bool
}

// A Result is what came of a plan.
type Result struct {
	Plan       Plan
	Violations []string
	Calls      int
	Holds      int
	Faults     int
	Recovery   time.Duration // from the healing to the last return of a waiter
	Beyond     time.Duration // what of it was longer than a lease that was left
	history    *history
}

// slack is how long after the healing, and the leases of the dead, everybody has to be served: looks come every
// two and a half seconds at most, connections are made again within a second, echoes are waited for.
const slack = 6 * time.Second

// Run plays a plan in the bubble of t, and judges it.
func Run(t testing.TB, p Plan, q Quirks) Result {
	w := &world{
		history: &history{began: time.Now()}, t: t, plan: p, quirks: q,
		peace: make(chan struct{}), names: map[string]int{},
	}
	for i := range p.Servers {
		w.servers = append(w.servers, newServer(t, w, i))
	}
	w.server = w.servers[0]
	w.employ()
	var actors sync.WaitGroup
	for i, c := range p.Clients {
		n := newNode(w, i, c)
		w.nodes = append(w.nodes, n)
		for _, way := range n.ways {
			w.background(way.start)
		}
	}
	for i, a := range p.Actors {
		one := &actor{world: w, node: w.nodes[a.Client], id: i, plan: a, object: p.Objects[a.Object]}
		actors.Go(one.run)
	}
	ctx, lookAway := context.WithCancel(context.Background())
	for i, o := range p.Objects {
		for _, n := range w.nodes {
			if o.Kind == Election {
				w.background(func() { w.observe(ctx, n, i) })
			}
		}
	}
	w.disturb()
	w.heal()
	for _, n := range w.ways() {
		<-n.ready // Who could not connect until now can.
	}
	if w.any(LateRequests, DieLate) {
		time.Sleep(ghosts) // What arrives only now is not of the calls that come now.
	}
	left := w.leaseLeft()
	recovery := w.recover(left+slack, &actors)
	w.leave(lookAway)
	w.work.Wait()
	if q.Innocent {
		w.touches = nil
	}
	judgeAll(w.history, p)
	r := Result{
		Plan: p, Violations: w.violations, Calls: len(w.calls), Faults: len(w.touches), Recovery: recovery, history: w.history,
	}
	for _, c := range w.calls {
		if c.Hold != nil {
			r.Holds++
		}
	}
	r.Beyond = max(0, recovery-left)
	return r
}

// employ makes the operator, who sets the latches before all begins.
func (w *world) employ() {
	c, err := headwaiter.Dial(headwaiter.Options{Redis: w.server.operatorOption(), Name: "operator", WithoutSubscribe: w.plan.Polls})
	if err != nil {
		w.t.Fatal(err)
	}
	w.operator = c
	for i, o := range w.plan.Objects {
		if o.Kind != Latch {
			continue
		}
		call := w.begin(Call{Actor: -1, Client: everyone, Object: i, Step: Step{Do: Set}})
		if done, err := latchOf(c, i).TrySetCount(context.Background(), o.Size); !done {
			w.t.Fatal("a latch could not be set", err)
		}
		w.end(call, 1, nil, false)
	}
}

// recover lets everybody who is alive make one more call, and waits until all have returned. It returns how
// long that took.
func (w *world) recover(limit time.Duration, actors *sync.WaitGroup) time.Duration {
	for i, o := range w.plan.Objects {
		switch o.Kind {
		case Latch:
			actors.Go(func() { w.openLatch(i) })
		case Barrier:
			actors.Go(func() { w.meet(i, o, actors) })
		default:
			for _, n := range w.nodes {
				w.last(n, i, o, Lock, actors)
			}
		}
	}
	done := make(chan struct{})
	go func() {
		actors.Wait()
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		w.violate("stuck: not everybody got in within %v after everything was healed", limit)
		for _, n := range w.ways() {
			_ = n.close(0)
		}
		<-done
	}
	return w.now() - w.healed
}

// leaseLeft is how long a lease may last that nobody ends: of the dead, of those whose farewell was refused, and
// those that were cut to their length because the clock went back; and a server that has restarted has no vote in a Redlock
// for as long.
func (w *world) leaseLeft() time.Duration {
	left := time.Duration(0)
	if w.plan.Servers > 1 || w.any(Die, DieSilent, DieLate, ReadOnly, ClockBack) {
		for _, o := range w.plan.Objects {
			left = max(left, o.Lease)
		}
	}
	return left
}

// last has a client make one more call, if it lives.
func (w *world) last(n *node, i int, o Object, do Verb, actors *sync.WaitGroup) {
	if n.alive() == nil {
		return
	}
	a := &actor{
		world: w, node: n, id: len(w.plan.Actors) + n.id, object: o,
		plan: ActorPlan{Client: n.id, Object: i},
	}
	c := n.alive()
	step := Step{Do: do}
	switch o.Kind {
	case Striped:
		step.Parts = 1 << (n.id % o.parts())
	case Several:
		step.Parts = 1<<o.parts() - 1
	}
	actors.Go(func() {
		for call := a.do(c, step); call.unknown() && w.any(ClockBack) || call.early(); {
			call = a.do(c, step) // By the new clock it has asked before the last generation ended, or it connects anew.
		}
	})
}

// openLatch counts a latch down until nobody waits for it. One that was lost may be set again meanwhile, by a call
// that was under way.
func (w *world) openLatch(i int) {
	l := latchOf(w.operator, i)
	for {
		call := w.begin(Call{Actor: -1, Client: everyone, Object: i, Step: Step{Do: Down}})
		left, err := l.CountDown(context.Background())
		w.end(call, left, err, false)
		if err == nil && left > 0 {
			continue
		}
		if !w.waiting(i) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// meet breaks a barrier for the parties that still wait, until nobody does, and then lets as many come as there are
// parties.
func (w *world) meet(i int, o Object, actors *sync.WaitGroup) {
	b := w.barrierOf(w.operator, i, o)
	for w.waiting(i) {
		if err := b.Reset(context.Background()); err != nil {
			w.violate("reset: %v", err)
		}
		time.Sleep(time.Second)
	}
	_ = b.Reset(context.Background())
	time.Sleep(100 * time.Millisecond) // A party that asks twice so soon after it is refused: the first attempt may have come before.
	var alive []*node
	for _, n := range w.nodes {
		if n.alive() != nil {
			alive = append(alive, n)
		}
	}
	for k := range int(o.Size) {
		w.last(alive[k%len(alive)], i, o, Await, actors)
	}
}

// waiting reports whether calls for an object have not returned.
func (w *world) waiting(i int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.calls, func(c *Call) bool { return c.Object == i && !c.Returned })
}

// ghosts is how long a request may run that was given up, and is waited for.
const ghosts = 4 * time.Second

// leave closes all clients, and judges what is left over. Observers look until all leases are over.
func (w *world) leave(lookAway func()) {
	var longest, back time.Duration
	for _, o := range w.plan.Objects {
		longest = max(longest, o.Lease)
		if o.Kind == Striped {
			longest = max(longest, 2*lease.DefaultLease) // The lease of the entry that tells the number of stripes.
		}
	}
	time.Sleep(longest + slack)
	settle()
	w.nobodyLeads()
	lookAway()
	const linger = 5 * time.Second
	// Names are looked at once in a linger, when the last ghost is gone and the last hand-off was looked after.
	time.Sleep(2*linger + ghosts + longest)
	settle()
	// Channels go with their connection, which stays as long as a client holds something: of stripes their number.
	holds := slices.ContainsFunc(w.plan.Objects, func(o Object) bool { return o.Kind == Striped })
	for _, s := range w.servers {
		for _, channel := range s.List("PUBSUB", "CHANNELS") {
			if !holds {
				w.violate("left over: client %d subscribes to %s", w.clientOf(channel), channel)
			}
		}
	}
	w.depart()
	for _, n := range w.ways() {
		if steps := n.refused(); steps > 0 {
			w.violate("client %d: %d steps of tickets that do not exist", n.id, steps)
		}
	}
	_ = w.operator.Shutdown(context.Background())
	time.Sleep(time.Second) // The end of a connection is under way, too.
	for _, s := range w.servers {
		if n := s.mini.CurrentConnectionCount(); n > 0 {
			w.violate("left over: %d connections", n)
		}
	}
	for _, t := range w.touches {
		if t.Kind == ClockBack { // Keys were to last until a time that has moved away.
			d, _ := time.ParseDuration(t.Note)
			back += d
		}
	}
	time.Sleep(2*time.Minute + longest + back)
	w.left(":requests:") // What was said to requests without a ticket is noted for as long as they may come again.
	time.Sleep(10 * time.Minute)
	w.left("")
}

// left judges that no server has keys, except those with this in their names.
func (w *world) left(but string) {
	for _, s := range w.servers {
		if left := s.left(but); len(left) > 0 {
			w.violate("left over: keys %v", left)
		}
	}
}
