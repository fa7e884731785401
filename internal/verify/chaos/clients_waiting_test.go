package chaos

import (
	"context"
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

// dead is how many tickets there are in front.
const dead = 1000

// crowded queues the tickets of another process, and behind them one of this.
func (r *run) crowded(holder, waiter *fairlock.Mutex, clients int) (*crowd.Crowd, *kit.Call[*lease.Lease]) {
	r.Helper()
	victims := r.crowd(crowd.Plan{
		Names: []string{holder.Name()}, Clients: clients, Waiters: dead / clients, Lease: 10 * time.Second,
	})
	kit.Waiting(r, dead, holder.Inspect)
	c := queued(r, waiter, dead+1)
	return victims, c
}

func TestC5WaitersInFrontAreKilled(t *testing.T) {
	const clients = 10
	r := begin(t, "C5")
	holder, waiter := fairlock.New(r.dial(), "front"), fairlock.New(r.dial(), "front")
	spans := make([]span, either(3, 15))
	for i := range spans {
		l := granted(t, holder)
		victims, next := r.crowded(holder, waiter, clients)
		victims.Kill()
		kit.Eventually(t, "the server to see that the connections are gone", func() bool {
			return len(r.server.List("PUBSUB", "CHANNELS", keyOf("front")+":*")) == 1
		})
		since := time.Now()
		kit.Release(t, l)
		l = next.Value(t)
		spans[i] = span{since, time.Now()}
		kit.Release(t, l)
	}
	r.measured(killedWaiter, spans)
	r.load[0].kill()
	r.everybody()
	r.finish()
}

func TestC5OneClientInFrontIsStopped(t *testing.T) {
	t.Parallel()
	r := begin(t, "C5")
	r.stoppedInFront(1)
}

func TestC5ManyClientsInFrontAreStopped(t *testing.T) {
	t.Parallel()
	r := begin(t, "C5")
	r.stoppedInFront(10)
}

func (r *run) stoppedInFront(clients int) {
	r.Helper()
	holder, waiter := fairlock.New(r.dial(), "front"), fairlock.New(r.dial(), "front")
	spans := make([]span, either(1, 5))
	for i := range spans {
		l := granted(r, holder)
		victims, next := r.crowded(holder, waiter, clients)
		victims.Stop()
		since := time.Now()
		kit.Release(r, l)
		l = next.Value(r)
		spans[i] = span{since, time.Now()}
		kit.Release(r, l)
		victims.Kill()
		kit.Free(r, waiter)
	}
	r.everybody()
	r.finish()
	r.measured(stopped, spans)
}

func TestC6AWaiterThatWasPausedGetsInLater(t *testing.T) {
	t.Parallel()
	r := begin(t, "C6", func(o *options) { o.outcomes = []string{"expired"} })
	const waiters = 20
	holder := fairlock.New(r.dial(), "paused")
	for range either(1, 5) {
		l := granted(t, holder)
		paused := r.crowd(crowd.Plan{Names: []string{"paused"}, Clients: 2, Waiters: waiters / 2, Lease: 3 * time.Second})
		kit.Waiting(t, waiters, holder.Inspect)
		paused.Stop()
		r.load[0].signal(t, syscall.SIGSTOP)
		kit.Release(t, l)
		for range 3 { // Others go on: the paused ones lose their places.
			l = granted(t, holder)
			kit.Release(t, l)
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
	r.finish()
}

func TestC7AWaiterGivesUpAtTheMomentOfTheGrant(t *testing.T) {
	r := begin(t, "C7", func(o *options) { o.plan.Cancel = 300 })
	holder, waiter, next := fairlock.New(r.dial(), "quit"), fairlock.New(r.dial(), "quit"), fairlock.New(r.dial(), "quit")
	handOffs := make([]time.Duration, 21)
	for i := range handOffs {
		l := granted(t, holder)
		c := queued(t, next, 1)
		since := time.Now()
		kit.Release(t, l)
		l = c.Value(t)
		handOffs[i] = time.Since(since)
		kit.Release(t, l)
	}
	usual := kit.Median(handOffs)
	rounds := either(150, 1000)
	var spans []span // of rounds in which the waiter gave up
	kept := 0
	for i := range rounds {
		l := granted(t, holder)
		ctx, cancel := context.WithCancel(t.Context())
		c := kit.Lock(ctx, waiter.Lock)
		kit.Waiting(t, 1, holder.Inspect)
		n := queued(t, next, 2)
		timer := time.AfterFunc(rand.N(usual<<(i%4)), cancel) // Up to 8 hand-offs: the machine may get slower.
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
	t.Logf("hand-offs of %v: %d of %d held", usual, kept, rounds)
	require.NotZero(t, kept)
	require.NotEqual(t, rounds, kept)
	r.measured(quitter, spans)
	evidence.Fault(r, "wait given up at the moment of its grant", rounds-kept)
	r.everybody()
	r.finish()
}

func TestC8AWaitLastsNoLongerThanItWasGiven(t *testing.T) {
	t.Parallel()
	r := begin(t, "C8")
	p := kit.Proxy(t, r.server)
	client := r.dial(kit.Through(p))
	l := granted(t, fairlock.New(r.dial(), "busy"))
	m := fairlock.New(client, "busy")
	asks := client.Stats().Asks
	for _, given := range []time.Duration{0, -1, -time.Hour} {
		ctx, cancel := context.WithTimeout(t.Context(), given)
		_, err := m.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	}
	require.Equal(t, asks, client.Stats().Asks, "asked though there was no time for it")
	limit := func(given, most time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), given)
		defer cancel()
		since := time.Now()
		_, err := m.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(since), given+most)
	}
	const much = time.Second // for a machine that has other things to do; a command may take 2 s
	for _, given := range []time.Duration{1, time.Millisecond, 300 * time.Millisecond} {
		limit(given, much)
	}
	since := time.Now()
	_, err := m.TryLock(t.Context())
	require.ErrorIs(t, err, lease.ErrBusy)
	require.Less(t, time.Since(since), much)
	p.Freeze()
	for _, given := range []time.Duration{1, time.Millisecond, 300 * time.Millisecond} {
		limit(given, much)
	}
	p.Heal()
	ctx, cancel := context.WithTimeout(t.Context(), 1<<62)
	defer cancel()
	c := kit.Lock(ctx, m.Lock)
	kit.Waiting(t, 1, m.Inspect)
	kit.Release(t, l)
	kit.Release(t, c.Value(t))
	r.everybody()
	r.finish()
}
