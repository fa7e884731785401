package prometheus_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

var (
	seed     = flag.Uint64("seed", 0, "of the run with losses; a new one each time if it is 0")
	runCalls = flag.Int("calls", 1600, "that the run with losses makes")
)

const (
	runMembers = 4
	runWorkers = 4 // of each member
	// runLease is short, so that a loss takes no long time, and long enough for a machine that is busy.
	runLease = 600 * time.Millisecond
)

// member is a client of a run, as a process of its own would have it.
type member struct {
	*prometheus.Collector
	client *headwaiter.Client
	line   *faults.Proxy
}

// classOf is what the names of a run have in common.
func classOf(name string) string {
	class, _, _ := strings.Cut(name, ":")
	return class
}

// join makes a member.
func join(t testing.TB, s *redistest.Server, o headwaiter.Options) *member {
	m := &member{
		Collector: prometheus.NewCollector(prometheus.Options{Class: classOf}), line: faults.NewProxy(t, s.Addr()),
	}
	o.Redis, o.Observer = rueidis.ClientOption{InitAddress: []string{m.line.Addr()}, ForceSingleClient: true}, m
	m.client = kit.Got(headwaiter.Dial(o))(t)
	t.Cleanup(func() { m.close(t) })
	return m
}

// close ends the member's client. What it says is of no interest where its connections are in trouble.
func (m *member) close(testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), kit.Patience)
	defer cancel()
	_ = m.client.Shutdown(ctx)
}

// call is a random one.
func (m *member) call(r *rand.Rand) call {
	names := []string{"orders:1", "orders:2", "jobs:1"}
	name := names[r.IntN(len(names))]
	hold := time.Duration(r.IntN(2000)) * time.Microsecond
	if r.IntN(50) == 0 {
		hold = runLease // Long enough to be renewed, and to be called long.
	}
	c := call{kind: "lock", class: classOf(name), hold: func(l *lease.Lease) { linger(l, hold) }}
	lasts := headwaiter.WithLease(runLease)
	switch n := r.IntN(20); {
	case n < 12:
		c.acquire = fairlock.New(m.client, name, lasts).Lock
	case n < 14:
		c.acquire = fairlock.New(m.client, name, lasts).TryLock
	case n < 17:
		c.kind, c.class = "semaphore", "pool"
		c.acquire = func(ctx context.Context) (*lease.Lease, error) {
			return semaphore.New(m.client, "pool:1", 3, lasts).Acquire(ctx, 1+int64(n-14))
		}
	case n < 18:
		c.kind, c.class = "rwlock", "page"
		c.acquire = rwlock.New(m.client, "page:1", lasts).RLock
	case n < 19:
		c.kind, c.class = "rwlock", "page"
		c.acquire = rwlock.New(m.client, "page:1", lasts).Lock
	default:
		c.acquire = fairlock.New(m.client, name, lasts, headwaiter.WithMaxHold(20*time.Millisecond)).Lock
		if r.IntN(4) == 0 {
			c.hold = func(l *lease.Lease) { linger(l, runLease) }
		}
	}
	return c
}

// linger holds for a time, or until the hold is lost.
func linger(l *lease.Lease, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.Context().Done():
	}
}

// patience is a context for a random call: most wait as long as it takes.
func patience(r *rand.Rand) (context.Context, context.CancelFunc) {
	d := time.Duration(r.IntN(20_000)) * time.Microsecond
	switch r.IntN(8) {
	case 0:
		return context.WithTimeout(context.Background(), d)
	case 1:
		ctx, cancel := context.WithCancelCause(context.Background())
		stop := time.AfterFunc(d, func() { cancel(errors.New("on purpose")) })
		return ctx, func() { stop.Stop(); cancel(nil) }
	}
	return context.WithTimeout(context.Background(), time.Minute)
}

// trouble makes something go wrong, a different thing each time. What costs somebody a hold costs it a call of the
// member that the trouble is for.
func (r *truth) trouble(t *testing.T, s *redistest.Server, m *member, admin *headwaiter.Client, n int) {
	victim := func(name string, harm func()) {
		r.make(context.Background(), call{
			kind: "lock", class: classOf(name), acquire: fairlock.New(m.client, name, headwaiter.WithLease(r.lease)).Lock,
			hold: func(l *lease.Lease) {
				harm()
				linger(l, kit.Patience)
			},
		})
	}
	switch n % 6 {
	case 0:
		m.line.Cut()
	case 1:
		victim("orders:1", func() {
			_, err := fairlock.New(admin, "orders:1").ForceRelease(t.Context(), 0)
			if err != nil {
				require.ErrorIs(t, err, lease.ErrNotHeld) // It may be lost already.
			}
		})
	case 2: // Renewals go nowhere.
		victim("orders:3", func() { m.line.Freeze() })
		m.line.Heal()
	case 3: // A process dies that holds, with others of its calls in the queue.
		dies := crowd.Start(t, crowd.Plan{
			Addr: s.Addr(), Names: []string{"orders:1"}, Clients: 2, Waiters: 3, Lease: r.lease, Keep: true,
		})
		dies.Await(crowd.Held, 1, kit.Patience)
		seen := func() (holds, waits bool) {
			info := kit.Got(fairlock.New(admin, "orders:1").Inspect(t.Context()))(t)
			other := func(w lease.Waiter) bool { return !slices.Contains(r.clients, w.Client) }
			return info.Held && !slices.Contains(r.clients, info.Holder.Client), slices.ContainsFunc(info.Queue, other)
		}
		kit.Eventually(t, "its other calls to wait", func() bool { _, waits := seen(); return waits })
		dies.Kill()
		kit.Eventually(t, "the next after the dead", func() bool {
			holds, waits := seen()
			return !holds && !waits
		})
	case 4:
		victim("orders:3", func() { s.Do("FLUSHALL") })
	case 5:
		m.line.LosePushes(1, nil)
	}
}

func TestMetricsEqualWhatHappenedInARunWithKillsAndLosses(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("seed %d", *seed)
	s, members := redistest.Start(t), make([]*member, runMembers)
	for i := range members {
		members[i] = join(t, s, headwaiter.Options{HeldTooLong: runLease / 2})
	}
	admin, real := kit.Dial(t, s), newTruth(t, runLease)
	for _, m := range members {
		real.clients = append(real.clients, m.client.ID())
	}
	var all sync.WaitGroup
	for i := range runMembers * runWorkers {
		r := rand.New(rand.NewPCG(*seed, uint64(i)))
		all.Go(func() {
			for range *runCalls / (runMembers * runWorkers) {
				ctx, cancel := patience(r)
				real.make(ctx, members[i%runMembers].call(r))
				cancel()
			}
		})
	}
	r := rand.New(rand.NewPCG(*seed, 1<<32))
	const troubles = 12
	for n := range troubles {
		kit.Eventually(t, "calls to be made", func() bool { return real.calls.Load() >= int64(n**runCalls/(troubles+2)) })
		real.trouble(t, s, members[r.IntN(runMembers)], admin, n)
	}
	kit.All(t, &all)
	real.leave(t, members[0])

	found, stats := values{}, observe.Stats{}
	for _, m := range members {
		m.close(t)
		found, stats = found.plus(scrape(t, m)), add(stats, m.client.Stats())
	}
	real.equal(t, found)
	found.stats(t, stats)
	// All of what the run was made for has happened, so it was counted.
	for _, metric := range []string{
		"headwaiter_long_hold_warnings_total", "headwaiter_renewals_total", "headwaiter_skipped_tickets_total",
		"headwaiter_expired_leases_total", "headwaiter_handoffs_total", "headwaiter_queued_total",
	} {
		require.Positive(t, found.sum(metric), metric)
	}
	for _, label := range []string{`"granted"`, `"busy"`, `"timeout"`, `"cancelled"`, `"closed"`} {
		require.Positive(t, found.sum("headwaiter_attempts_total", label), label)
	}
	for _, label := range []string{`"expired"`, `"forced"`, `"forgotten"`, `"max_hold"`, `"closed"`} {
		require.Positive(t, found.sum("headwaiter_losses_total", label), label)
	}
}

// leave closes a member that holds, and that has a call that waits.
func (r *truth) leave(t *testing.T, m *member) {
	c := call{kind: "lock", class: "last", acquire: fairlock.New(m.client, "last:1").Lock}
	begun := time.Now()
	l := r.make(context.Background(), c)
	got := time.Now()
	waits := kit.Run(func() error {
		r.make(context.Background(), c)
		return nil
	})
	kit.Waiting(t, 1, fairlock.New(m.client, "last:1").Inspect)
	m.close(t)
	require.NoError(t, waits.Err(t))
	r.release(c, l, begun, got)
}

func TestTheDeadAreCountedByThoseWhoLive(t *testing.T) {
	t.Parallel()
	const dead = 7
	s := redistest.Start(t)
	m := join(t, s, headwaiter.Options{})
	lock := fairlock.New(m.client, "orders:1")
	first := kit.Got(lock.Lock(t.Context()))(t)
	die := crowd.Start(t, crowd.Plan{Addr: s.Addr(), Names: []string{"orders:1"}, Clients: 1, Waiters: dead, Lease: time.Second, Keep: true})
	kit.Waiting(t, dead, lock.Inspect)
	die.Kill()
	other := join(t, s, headwaiter.Options{})
	next := kit.Lock(t.Context(), fairlock.New(other.client, "orders:1").Lock)
	kit.Waiting(t, dead+1, lock.Inspect)
	held := kit.Next(t, first, next)

	holds := crowd.Start(t, crowd.Plan{Addr: s.Addr(), Names: []string{"orders:2"}, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true})
	holds.Await(crowd.Held, 1, kit.Patience)
	holds.Kill()
	kit.Release(t, held, kit.Lock(t.Context(), fairlock.New(m.client, "orders:2").Lock).Value(t))

	found := scrape(t, m).plus(scrape(t, other))
	labels := `{class="orders",kind="lock"}`
	require.Equal(t, float64(dead), found["headwaiter_skipped_tickets_total"+labels])
	require.Equal(t, 1., found["headwaiter_expired_leases_total"+labels])
	require.Equal(t, 1., found["headwaiter_handoffs_total"+labels])
	require.Equal(t, 1., found["headwaiter_wakeups_total"+labels], "one message, and it was the grant")
	require.Equal(t, 2., found["headwaiter_queued_total"+labels])
}

// The sum over all processes is the length of the queue.
func TestWaitingCallsAreTheQueue(t *testing.T) {
	s := kit.Start(t)
	members := []*member{join(t, s, headwaiter.Options{}), join(t, s, headwaiter.Options{}), join(t, s, headwaiter.Options{})}
	lock := fairlock.New(members[0].client, "orders:1")
	held := kit.Got(lock.Lock(t.Context()))(t)
	ctx, cancel := context.WithCancel(t.Context())
	var calls []*kit.Call[*lease.Lease]
	for i, m := range members {
		for range i + 1 {
			calls = append(calls, kit.Lock(ctx, fairlock.New(m.client, "orders:1").Lock))
		}
	}
	kit.Waiting(t, len(calls), lock.Inspect)
	waiting := 0.
	for i, m := range members {
		own := scrape(t, m)[`headwaiter_waiting_calls{class="orders",kind="lock"}`]
		require.Equal(t, float64(i+1), own)
		waiting += own
	}
	require.Equal(t, float64(len(calls)), waiting)
	cancel()
	for _, c := range calls {
		require.ErrorIs(t, c.Err(t), context.Canceled)
	}
	kit.Release(t, held)
	for _, m := range members {
		require.Zero(t, scrape(t, m).sum("headwaiter_waiting_calls"))
	}
}

// A call that panics on its way does not wait for ever.
func TestABarrierWhoseActionPanicsDoesNotWaitAnyMore(t *testing.T) {
	t.Parallel()
	m := join(t, redistest.Start(t), headwaiter.Options{})
	b := barrier.New(m.client, "all:1", 1, barrier.WithAction(func(context.Context) error { panic("on purpose") }))
	require.Panics(t, func() { _, _ = b.Await(t.Context()) })
	found := scrape(t, m)
	require.Zero(t, found[`headwaiter_waiting_calls{class="all",kind="barrier"}`])
	require.Equal(t, 1., found[`headwaiter_attempts_total{class="all",kind="barrier",outcome="error"}`], fmt.Sprint(found.of("headwaiter_attempts_total")))
}
