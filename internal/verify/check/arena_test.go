package check

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) {
	crowd.Main()
	goleak.VerifyTestMain(m)
}

const (
	// enough holds make a run, within runLimit, which a slow machine may need.
	enough   = 40
	runLimit = 30 * time.Second
	// delay is what a network in trouble takes at the most, each way, and holdTime what a hold lasts: so long that
	// an over-grant shows though nobody knows exactly when a hold began.
	delay    = 3 * time.Millisecond
	holdTime = 8 * delay
	// shortLease ends in the longest of the troubles; troubleLasts is how long that is.
	shortLease   = time.Second
	troubleLasts = 1300 * time.Millisecond
)

// arena is a server, clients of which half have a network in trouble, and a recorder.
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

// newArena makes so many clients for the use of one name. Where it is that of a lock or of permits, what the
// server does to it is followed.
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

// expect notes an error, unless it is one that a call may end with.
func (a *arena) expect(err error, targets ...error) bool {
	if err == nil {
		return true
	}
	for _, target := range append(targets, context.DeadlineExceeded) {
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
	require.Empty(t, hs.Tokens())
	require.Empty(t, hs.Overlaps(limit))
	require.Empty(t, hs.Losses())
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
	f := hs.Fairness(holdTime)
	t.Logf("%d holds, %d operations, %d grants, %d lapsed, %d holds lost (told up to %v after the deadline), %d replies and %d messages lost, longest wait %v",
		len(hs), judged, a.truth.Granted, a.truth.Lapsed, lost, hs.Told(), replies, pushes, f.Longest)
	require.GreaterOrEqual(t, len(hs), enough, "too little was done to judge anything")
	require.Positive(t, replies)
}
