package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// keeper starts a process that holds a lock until it is told otherwise, or killed.
func (r *run) keeper(name string, lasts time.Duration) (*crowd.Crowd, crowd.Event) {
	r.Helper()
	c := r.crowd(crowd.Plan{Names: []string{name}, Clients: 1, Waiters: 1, Lease: lasts, Keep: true})
	return c, c.Await(crowd.Held, 1, kit.Patience)[0]
}

// crowd starts a process in addition to the load.
func (r *run) crowd(p crowd.Plan) *crowd.Crowd {
	r.Helper()
	p.Addr = r.server.Addr()
	return crowd.Start(r, p)
}

// lock is a lock of a client of its own.
func (r *run) lock(name string, options ...fairlock.Option) *fairlock.Mutex {
	r.Helper()
	return fairlock.New(r.dial(), name, options...)
}

// What is held by a process of the load goes with it: locks, permits and reads.
func aHolderIsKilled(t *testing.T, r *run) {
	waiter := r.lock("victim")
	spans := make([]span, either(2, 15))
	for i := range spans {
		victim, held := r.keeper("victim", time.Second)
		next := queued(t, waiter, 1)
		victim.Kill()
		until := r.until("victim")
		l := next.Value(t)
		spans[i] = span{time.UnixMicro(until), time.Now()}
		require.Greater(t, l.Token(), held.Token)
		require.Positive(t, spans[i].took(), "before the lease of the dead holder was over")
		kit.Release(t, l)
	}
	r.measured(deadHolder, spans)
	r.load[0].kill()
}

func aHolderIsPausedPastItsLease(t *testing.T, r *run) {
	m := r.lock("paused")
	for range either(1, 10) {
		victim, held := r.keeper("paused", time.Second)
		victim.Watch()
		next := queued(t, m, 1)
		victim.Stop()
		r.load[0].signal(t, syscall.SIGSTOP) // Whatever its workers hold or wait for.
		l := next.Value(t)
		require.Greater(t, l.Token(), held.Token, "a resource could not refuse the holder that was paused")
		r.load[1:].allIn(t, evidence.Now(), back)
		victim.Cont()
		r.load[0].signal(t, syscall.SIGCONT)
		require.True(t, victim.Await(crowd.Looked, 1, kit.Patience)[0].Lost, "its first look")
		victim.Release()
		require.True(t, victim.Await(crowd.Released, 1, kit.Patience)[0].Lost)
		require.NoError(t, l.Context().Err(), "the release of a hold that was over has freed another")
		require.Equal(t, l.Token(), kit.Got(m.Inspect(t.Context()))(t).Token)
		kit.Release(t, l)
		victim.Kill()
		r.everybody()
	}
}

// The lease is the default: with one processor and goroutines that do not give way, Go's scheduler needs up to a
// second for a round trip, and nothing can be promised for a lease of two. That a holder is told can.
func renewalsAreStarved(t *testing.T, r *run) {
	const lasts = lease.DefaultLease
	holds := either(50, 200)
	p := kit.Proxy(t, r.server)
	a := newProcess(t, plan{
		Role: starved, Addrs: []string{p.Addr()}, Names: []string{"starved"}, Clients: holds, Lease: lasts,
	})
	a.line(t, "K")
	nameOf := func(i int) string { return fmt.Sprintf("starved:%d", i) }
	first := make([]int64, holds)
	for i := range first {
		first[i] = r.until(nameOf(i))
	}
	for i := range first { // Long after the lease that it began with each is still held.
		kit.Eventually(t, "renewals of all", func() bool {
			told, _ := a.told()
			require.Empty(t, told, "lost for want of a renewal")
			return r.until(nameOf(i)) > first[i]+lasts.Microseconds()
		})
	}
	p.Drop()
	var told []hold
	kit.Eventually(t, "all holders to be told", func() bool {
		told, _ = a.told()
		return len(told) == holds
	})
	for _, h := range told {
		require.LessOrEqual(t, h.To, mono(r.until(h.Name)), "%s was certain after the end of its lease", h.Name)
	}
	a.kill()
}

// dead is how many tickets there are in front.
const dead = 1000

// crowded queues the tickets of another process, and after them one of this process.
func (r *run) crowded(holder, waiter *fairlock.Mutex, clients int) (*crowd.Crowd, *kit.Call[*lease.Lease]) {
	r.Helper()
	victims := r.crowd(crowd.Plan{
		Names: []string{holder.Name()}, Clients: clients, Waiters: dead / clients, Lease: 10 * time.Second,
	})
	kit.Waiting(r, dead, holder.Inspect)
	return victims, queued(r, waiter, dead+1)
}

func waitersInFrontAreKilled(t *testing.T, r *run) {
	holder, waiter := r.lock("front"), r.lock("front")
	spans := make([]span, either(2, 15))
	for i := range spans {
		l := granted(t, holder)
		victims, next := r.crowded(holder, waiter, 10)
		victims.Kill()
		kit.Eventually(t, "the server to see that the connections are gone", func() bool {
			return len(r.server.List("PUBSUB", "CHANNELS", keyOf("front")+":*")) == 1
		})
		spans[i], l = r.handOff(l, next)
		kit.Release(t, l)
	}
	r.measured(killedWaiter, spans)
	r.load[0].kill()
}

// handOff gives a hold back, and measures the time until the next is there.
func (r *run) handOff(l *lease.Lease, next *kit.Call[*lease.Lease]) (span, *lease.Lease) {
	r.Helper()
	since := time.Now()
	kit.Release(r, l)
	l = next.Value(r)
	return span{since, time.Now()}, l
}

func stoppedInFront(clients int) func(*testing.T, *run) {
	return func(t *testing.T, r *run) {
		holder, waiter := r.lock("front"), r.lock("front")
		spans := make([]span, either(1, 5))
		for i := range spans {
			l := granted(t, holder)
			victims, next := r.crowded(holder, waiter, clients)
			victims.Stop()
			spans[i], l = r.handOff(l, next)
			kit.Release(t, l)
			victims.Kill()
			kit.Free(t, waiter)
		}
		r.measured(stopped, spans)
	}
}

func aWaiterIsPaused(t *testing.T, r *run) {
	const waiters = 20
	holder := r.lock("paused")
	for range either(1, 5) {
		l := granted(t, holder)
		paused := r.crowd(crowd.Plan{Names: []string{"paused"}, Clients: 2, Waiters: waiters / 2, Lease: 3 * time.Second})
		kit.Waiting(t, waiters, holder.Inspect)
		paused.Stop()
		r.load[0].signal(t, syscall.SIGSTOP)
		kit.Release(t, l)
		for range 3 { // Others go on: the paused ones lose their places.
			kit.Release(t, granted(t, holder))
		}
		l = granted(t, holder)
		paused.Cont()
		r.load[0].signal(t, syscall.SIGCONT)
		kit.Release(t, l)
		paused.Await(crowd.Held, waiters, kit.Patience)
		for _, e := range paused.Await(crowd.Released, waiters, kit.Patience) {
			require.Empty(t, e.Error)
		}
		paused.Kill()
		r.everybody()
	}
	kit.Free(t, holder)
}

func aWaiterGivesUpAtTheMomentOfTheGrant(t *testing.T, r *run) {
	holder, waiter, next := r.lock("quit"), r.lock("quit"), r.lock("quit")
	var spans []span // of rounds in which the waiter gave up
	kept := 0
	for i := 0; i < either(100, 1000) || kept == 0 || len(spans) == 0; i++ {
		l := granted(t, holder)
		ctx, cancel := context.WithCancel(t.Context())
		c := kit.Lock(ctx, waiter.Lock)
		kit.Waiting(t, 1, holder.Inspect)
		n := queued(t, next, 2)
		timer := time.AfterFunc(rand.N(time.Millisecond<<(i%5)), cancel) // Up to many hand-offs: the machine may get slower.
		since := time.Now()
		kit.Release(t, l)
		err := c.Err(t)
		if err == nil {
			kept++
			mine := c.Value(t)
			require.NoError(t, mine.Context().Err(), "the end of the wait's context has ended the hold")
			kit.Release(t, mine)
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		l = n.Value(t)
		if err != nil {
			spans = append(spans, span{since, time.Now()})
		}
		timer.Stop()
		cancel()
		kit.Release(t, l)
		kit.Waiting(t, 0, holder.Inspect)
	}
	t.Logf("%d held, %d gave up", kept, len(spans))
	r.measured(quitter, spans)
	evidence.Fault(r, "wait given up at the moment of its grant", len(spans))
}

// Processes are killed and started again, calls are cancelled, connections are cut, and after a minute nothing
// shows that anybody was ever there. The minute passes on the server's own clock.
func nothingIsLeft(t *testing.T) {
	for range either(1, 4) { // What one of them was told is judged, and forgotten, before the next.
		t.Run("round", nothingIsLeftOfARound)
	}
}

func nothingIsLeftOfARound(t *testing.T) {
	cycles := either(1_500, 2_500_000)
	r := begin(t, ownClock, ends("expired"), func(o *options) {
		o.processes, o.plan.Cancel, o.plan.Hold = 3, 300, 3*time.Millisecond
		if long() { // As fast as it goes: with enough names to keep Redis busy while one waits for the end of a lease.
			o.plan.Hold, o.plan.Clients = time.Millisecond, 1
			for i := range 63 {
				o.plan.Names = append(o.plan.Names, fmt.Sprint("load", i))
			}
		}
	})
	kills := 0
	victim := r.load[2]
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for replaced := time.Now(); r.load.count() < cycles || kills < 3; <-tick.C {
		if time.Since(replaced) < time.Second {
			continue
		}
		victim.kill()
		kills++
		p := victim.plan
		p.Index = 3 + kills
		victim = newProcess(t, p)
		r.load = append(r.load, victim)
		r.server.Int("CLIENT", "KILL", "TYPE", []string{"pubsub", "normal"}[kills%2])
		replaced = time.Now()
	}
	victim.kill()
	r.everybody()
	r.finish()
	t.Logf("%d holds, %d kills", r.load.count(), kills)
	kit.Eventually(t, "the connections of the dead to be gone", func() bool { return len(r.server.List("PUBSUB", "CHANNELS", "*")) == 0 })
	r.clock.Shift(time.Minute + 15*time.Second) // From the last use of a lock, whose lease is 3 s.
	require.Empty(t, r.server.List("KEYS", "*"))
}
