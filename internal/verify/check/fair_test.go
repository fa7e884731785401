package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/verify/judge"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// queueSlack is how long a call may take to get its place on a machine that others use too.
const queueSlack = 500 * time.Millisecond

// clockSlack is the most by which the wall clocks of the server and of the recorder may differ: they are one clock, read
// by two processes.
const clockSlack = 2 * time.Millisecond

// fairHistory is the history of a lock with the places that its holds had in the queue, as the server tells.
func (a *arena) fairHistory() []Op {
	grants := map[uint64]*Grant{}
	for _, g := range a.truth.Grants {
		grants[g.Token] = g
	}
	at := func(us int64) time.Duration { return a.At(time.UnixMicro(us)) }
	var ops []Op
	for _, o := range a.History() {
		if o.Verb == Acquire && o.Outcome != OK {
			continue // What gave up is not known to the model, and what it had of the lock keeps nobody out.
		}
		if o.Verb == Acquire {
			g := grants[o.Token]
			require.NotNil(a.t, g, "the server knows nothing of token %d", o.Token)
			place := Op{Verb: Enqueue, Name: o.Name, Lane: partyLanes + o.Lane, Hold: o.Hold, Call: o.Call, Return: o.Return, Ticket: g.Arrival}
			if g.Queued > 0 {
				place.Return = min(o.Return, at(g.Queued)+clockSlack)
			} else {
				place.Ticket = g.Since
			}
			ops = append(ops, place)
		}
		ops = append(ops, o)
	}
	return ops
}

// Eight undisturbed clients, two of them giving up again and again: nobody is overtaken, and the waiters get as much as
// each other.
func TestALockIsFair(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients, quitters, total = 8, 2, 90
		a := newArena(t, s, clients, lua.Fairlock, 0)
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			m := fairlock.New(c, kit.Name(t))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if lane < quitters {
				defer wait(a.ctx, 30*time.Millisecond) // Their tickets are many enough.
				time.AfterFunc(time.Duration(rng.IntN(8))*time.Millisecond, cancel)
			}
			l, err := a.Acquire(Want{Name: m.Name(), Lane: lane}, func() (*lease.Lease, error) { return m.Lock(ctx) })
			if a.expect(err, context.Canceled) {
				wait(l.Context(), 5*time.Millisecond)
				a.expect(l.Release(context.Background()))
			}
			if a.heldSoFar() >= total {
				a.finish()
			}
		})
		hs := a.Holds(kit.Name(t))
		t.Logf("dropped %v, lapsed %v, %d strays for up to %v", a.truth.Dropped, a.truth.Lapses, a.truth.Strays, a.truth.Astray)
		require.Empty(t, a.errors)
		require.Empty(t, hs.Wrong(1))
		require.Empty(t, hs.Overtaken(queueSlack))
		require.Empty(t, a.truth.Wrong)
		require.Less(t, a.truth.Astray, longAstray)
		require.Empty(t, a.truth.Dropped)
		require.Zero(t, a.truth.Lapsed)
		Linearizable(t, Mutex, a.History())
		judged := Linearizable(t, Fair, a.fairHistory())
		shares := make([]int, clients)
		for _, h := range hs {
			shares[h.Lane]++
		}
		t.Logf("%d operations, holds by client: %v", judged, shares)
		// On a machine that others use a worker may stand still between two calls.
		require.Greater(t, judge.Jain(shares[quitters:]), 0.95)
	})
}

// longAstray is far more than an end takes that is repeated when what it overtook has landed, and less than one
// that is repeated when that can run no more (three seconds), or a grant that lapses.
const longAstray = 1500 * time.Millisecond

// A client whose answers are slow asks in the background. A call that gives up meanwhile ends its ticket. If that
// end comes before the ask it must come again soon: the ticket is in the queue, with no request left that ends it (R1).
func TestACallThatGivesUpLeavesNoTicketBehind(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		name := kit.Name(t)
		truth := NewTruth(lua.Fairlock.Keys("headwaiter", name), 0)
		stop := Follow(t, s, truth.Feed)
		holder := fairlock.New(kit.Dial(t, s), name)
		held := kit.Got(holder.Lock(t.Context()))(t)
		p := kit.Proxy(t, s)
		slow := fairlock.New(kit.Dial(t, s, kit.Through(p)), name)
		// It hears of this lock from here on, so its asks queue.
		patient := kit.Joins(t, 1, slow.Lock, holder.Inspect)
		// The first answer that is slow is one to a call that does not give up: to give up before the client knows that
		// its answers are slow cuts the connection, and what was under way then may run late.
		p.Delay(130 * time.Millisecond)
		require.ErrorIs(t, kit.Err(slow.TryLock(t.Context())), lease.ErrBusy)
		var quitters sync.WaitGroup
		for i := range 8 {
			rng := rand.New(rand.NewPCG(uint64(i), 13))
			quitters.Go(func() {
				for range 40 {
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(time.Duration(rng.IntN(300))*time.Microsecond, cancel)
					if l, err := slow.Lock(ctx); err == nil {
						t.Errorf("two hold the lock: %d and %d", held.Token(), l.Token())
					}
				}
			})
		}
		kit.All(t, &quitters)
		p.Heal()
		kit.Release(t, held)
		if err := patient.Value(t).Release(t.Context()); !errors.Is(err, lease.ErrLost) {
			require.NoError(t, err) // A machine that is too busy to renew for two seconds loses it, which is not the point.
		}
		kit.Eventually(t, "the lock to be free, with nobody in its queue", func() bool {
			info := kit.Got(holder.Inspect(t.Context()))(t)
			return !info.Held && info.Waiting == 0
		})
		stop()
		truth.Settle()
		t.Logf("%d tickets came after their ends, for up to %v", truth.Strays, truth.Astray)
		require.Less(t, truth.Astray, longAstray)
		require.Empty(t, truth.Wrong)
	})
}

// Latches that all clients set, look at, count down once and wait for, one after the other.
func TestALatchInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const clients = 6
		a := newArena(t, s, clients, nil, 0)
		var passed atomic.Int64
		var rounds [clients]int
		a.trouble(func() int { return int(passed.Load()) })
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			rounds[lane]++
			name := fmt.Sprintf("%s:%d", kit.Name(t), rounds[lane])
			l := countdown.New(c, name)
			ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
			defer cancel()
			a.expect(a.Set(name, lane, clients, func() (bool, error) { return l.TrySetCount(ctx, clients) }))
			// It is repeated for three seconds only; what has no answer is not judged, as it changes nothing.
			_ = a.Count(name, lane, func() (int64, error) { return l.Count(ctx) })
			wait(a.ctx, time.Duration(rng.IntN(10))*time.Millisecond)
			a.expect(a.Down(name, lane, func() (int64, error) { return l.CountDown(ctx) }))
			// When it is over, parties that wait for a stopped one give up.
			if a.expect(a.Wait(name, lane, func() error { return l.Wait(a.ctx) }), context.Canceled) {
				passed.Add(1)
			}
		})
		require.Empty(t, a.errors)
		judged := Linearizable(t, Latch, a.History())
		replies, pushes := a.proxy.Lost()
		t.Logf("%d latches, %d waits, %d operations, %d replies and %d messages lost", rounds[0], passed.Load(), judged, replies, pushes)
		require.GreaterOrEqual(t, int(passed.Load()), enough)
		require.Positive(t, replies)
	})
}

// A barrier at which parties meet, of whom some give up; whoever finds it broken resets it.
func TestABarrierInTrouble(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		const parties = 4
		a := newArena(t, s, parties, nil, 0)
		var passed, broken atomic.Int64
		a.trouble(func() int { return int(passed.Load()) })
		a.each(func(lane int, c *headwaiter.Client, rng *rand.Rand) {
			b := barrier.New(c, kit.Name(t), parties, headwaiter.WithLease(shortLease))
			lasts := 2 * time.Second // Who waits longer waits for one who has stopped to come.
			if rng.IntN(40) == 0 {
				lasts = time.Duration(rng.IntN(20)) * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), lasts)
			defer cancel()
			wait(a.ctx, time.Duration(5+rng.IntN(10))*time.Millisecond) // More rounds than can be judged are no use.
			_, err := a.Await(b.Name(), lane, shortLease, func() (int, error) { return b.Await(ctx) })
			switch {
			case err == nil:
				passed.Add(1)
			case errors.Is(err, barrier.ErrBroken):
				broken.Add(1)
				ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
				defer cancel()
				a.expect(a.Reset(b.Name(), lane, func() error { return b.Reset(ctx) }))
			default:
				a.expect(err)
			}
		})
		require.Empty(t, a.errors)
		judged := Linearizable(t, Barrier(parties), a.History())
		replies, pushes := a.proxy.Lost()
		t.Logf("%d passes, %d times broken, %d operations, %d replies and %d messages lost", passed.Load(), broken.Load(), judged, replies, pushes)
		require.GreaterOrEqual(t, int(passed.Load()), enough)
		require.Positive(t, replies)
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// enough holds make a run, within runLimit, which a slow machine may need.
	enough   = 40
	runLimit = 2 * time.Minute
	// delay is what a network in trouble takes at the most, each way, and holdTime what a hold lasts: so long that
	// an over-grant shows though nobody knows exactly when a hold began.
	delay    = 3 * time.Millisecond
	holdTime = 8 * delay
	// shortLease ends in the longest of the troubles; troubleLasts is how long that is.
	shortLease   = time.Second
	troubleLasts = 1300 * time.Millisecond
)

// arena is a server, clients, half of them with a network in trouble, and a recorder.
type arena struct {
	*Recorder
	t       *testing.T
	server  redistest.Backend
	clients []*headwaiter.Client
	proxy   *faults.Proxy
	ctx     context.Context // ends when no more is to be begun
	finish  context.CancelFunc
	work    sync.WaitGroup
	truth   *Truth
	passes  int // how often clients may pass a grant on among their calls
	stop    func()

	mu     sync.Mutex // guards errors
	errors []error    // that nobody expects
}

// newArena makes that many clients for the use of one name. For a lock or permits it follows what the server does to the
// name.
func newArena(t *testing.T, s redistest.Backend, clients int, p *lua.Protocol, limit int64) *arena {
	t.Helper()
	a := &arena{t: t, server: s, Recorder: NewRecorder(), proxy: kit.Proxy(t, s), stop: func() {}}
	for i := range clients {
		if i%2 == 0 {
			a.clients = append(a.clients, kit.Dial(t, s))
		} else {
			a.clients = append(a.clients, kit.Dial(t, s, kit.Through(a.proxy)))
		}
	}
	if p != nil {
		a.truth = NewTruth(p.Keys("headwaiter", kit.Name(t)), limit)
		a.truth.Keep = true
		a.stop = Follow(t, s, a.truth.Feed)
	}
	a.ctx, a.finish = context.WithTimeout(context.Background(), runLimit)
	t.Cleanup(a.finish)
	return a
}

// each runs a worker for each client until the time is over, and waits for their last calls.
func (a *arena) each(worker func(lane int, c *headwaiter.Client, rng *rand.Rand)) {
	a.t.Helper()
	for lane, c := range a.clients {
		rng := rand.New(rand.NewPCG(uint64(lane), 7))
		a.work.Go(func() {
			for a.ctx.Err() == nil {
				worker(lane, c, rng)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.work.Wait()
	}()
	<-a.ctx.Done() // Which takes as long as the run does.
	kit.Await(a.t, done, "the last calls to return")
	a.stop()
	if a.truth != nil {
		a.truth.Settle()
	}
}

// trouble makes the network of half of the clients worse again and again, until every trouble was there and
// enough has been done.
func (a *arena) trouble(done func() int) {
	lose := func() { a.proxy.LoseReplies(1, scripts) }
	deafen := func() { a.proxy.LosePushes(1, func(push []string) bool { return push[0] == "message" }) }
	// All subscriptions at once: then a lock may be free though somebody waits (R6), and nobody may take it.
	kill := func() {
		if _, real := a.server.(*redistest.Server); real {
			a.server.Do("CLIENT", "KILL", "TYPE", "pubsub")
		}
	}
	troubles := []func(){
		lose, kill, deafen, func() { a.proxy.Delay(delay) }, kill, lose, a.proxy.Cut, deafen, lose, a.proxy.Heal, kill,
		func() {
			a.proxy.Freeze()
			wait(a.ctx, troubleLasts)
			a.proxy.Heal()
		},
	}
	a.work.Go(func() {
		defer a.finish()
		defer a.proxy.Heal()
		tick := time.NewTicker(150 * time.Millisecond)
		defer tick.Stop()
		for i := 0; i < len(troubles) || done() < enough; i++ {
			select {
			case <-a.ctx.Done():
				return
			case <-tick.C:
				troubles[i%len(troubles)]()
			}
		}
	})
}

// heldSoFar is how many holds there were.
func (a *arena) heldSoFar() int { return len(a.Holds(kit.Name(a.t))) }

// scripts matches the commands that run any script.
func scripts(command []string) bool { return command[0] == "EVALSHA" || command[0] == "EVAL" }

// wait lets a time pass that is part of the play, or less if ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// hold keeps a lease for its time, or until it is lost, and releases it.
func (a *arena) hold(l *Lease) {
	wait(l.Context(), holdTime)
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	_ = l.Release(ctx) // The recorder judges it.
}

// patient is the context of a call that is to succeed; one in five gives up soon instead.
func patient(rng *rand.Rand) (context.Context, context.CancelFunc) {
	if rng.IntN(5) == 0 {
		return context.WithTimeout(context.Background(), time.Duration(1+rng.IntN(40))*time.Millisecond)
	}
	return context.WithTimeout(context.Background(), kit.Patience)
}

// expect notes an error, unless it is one that a call may end with: its own, its time, or the limit of a try.
func (a *arena) expect(err error, targets ...error) bool {
	if err == nil {
		return true
	}
	for _, target := range append(targets, context.DeadlineExceeded, lease.ErrUnavailable) {
		if errors.Is(err, target) {
			return false
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.errors = append(a.errors, err)
	return false
}

// judge holds what was recorded against all there is to judge holds of one name by.
func (a *arena) judge(m Model, limit int64) {
	t := a.t
	t.Helper()
	hs := a.Holds(kit.Name(t))
	require.Empty(t, a.errors)
	require.Empty(t, hs.Wrong(limit))
	require.Empty(t, a.truth.Wrong)
	require.GreaterOrEqual(t, a.truth.Granted*(1+a.passes), len(hs))
	judged := Linearizable(t, m, a.History())
	evidence.Note(t, evidence.Line{Holds: len(hs), Judged: judged})
	lost := 0
	for _, h := range hs {
		if h.Lost != Never {
			lost++
		}
	}
	replies, pushes := a.proxy.Lost()
	t.Logf("%d holds, %d operations, %d grants, %d lapsed, %d holds lost (%d told after the deadline), %d replies and %d messages lost",
		len(hs), judged, a.truth.Granted, a.truth.Lapsed, lost, len(hs.Late(0)), replies, pushes)
	require.GreaterOrEqual(t, len(hs), enough, "too little was done to judge anything")
	require.Positive(t, replies)
}
