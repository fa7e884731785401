package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/semaphore"
)

// The names are those that break other libraries. The load uses some of them for everything.
func TestI1NamesAreUnusual(t *testing.T) {
	t.Parallel()
	r := begin(t, "I1", func(o *options) { o.plan.Names = []string{"load", "{load}x", "a}b {load}", "ünïcode:*?[load]"} })
	client := r.dial()
	for _, name := range []string{"", "}", "}x", "a\nb", "a\x00b", "\xff", strings.Repeat("x", 1<<20), strings.Repeat("x", lease.MaxName+1)} {
		asks := client.Stats().Asks
		_, err := fairlock.New(client, name).Lock(t.Context())
		require.True(t, errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrTooLarge), "%.20q: %v", name, err)
		require.Equal(t, asks, client.Stats().Asks)
	}
	for _, name := range []string{"{}x", "{x}", "a}b", strings.Repeat("x", lease.MaxName)} {
		m := fairlock.New(client, name)
		l := granted(t, m)
		c := queued(t, fairlock.New(r.dial(), name), 1)
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
		keys := r.server.List("KEYS", "*")
		slots := map[string]bool{}
		for _, key := range keys {
			if strings.HasPrefix(key, keyOf(name)) {
				slots[hashTag(key)] = true
			}
		}
		require.Len(t, slots, 1, "the keys of %.20q are not in one slot", name)
	}
	r.everybody()
	r.finish()
}

// hashTag is the part of a key that decides on its slot, as Redis defines it.
func hashTag(key string) string {
	_, rest, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !open || !closed || tag == "" {
		return key
	}
	return tag
}

// The load has a lock, a semaphore and a read-write lock of one name all the time. So have the others here.
func TestI2ObjectsHaveOneName(t *testing.T) {
	t.Parallel()
	r := begin(t, "I2")
	client := r.dial()
	for range either(3, 30) {
		re := kit.Lock(t.Context(), reentrant.New(client, "load").Lock).Value(t)
		latch := countdown.New(client, "load", countdown.WithLifetime(time.Minute))
		set, err := latch.TrySetCount(t.Context(), 1)
		require.NoError(t, err)
		require.True(t, set)
		left, err := latch.CountDown(t.Context())
		require.NoError(t, err)
		require.Zero(t, left)
		require.NoError(t, latch.Wait(t.Context()))
		_, err = latch.Remove(t.Context())
		require.NoError(t, err)
		index, err := barrier.New(client, "load", 1).Await(t.Context())
		require.NoError(t, err)
		require.Zero(t, index)
		kit.Release(t, re)
	}
	r.options.keep = 48 * time.Hour // That of the barrier.
	r.everybody()
	r.finish()
}

func TestI3TimesAreUnusable(t *testing.T) {
	t.Parallel()
	r := begin(t, "I3")
	client := r.dial()
	asks := client.Stats().Asks
	for _, lasts := range []time.Duration{0, -1, -time.Hour, 1, time.Millisecond - 1, math.MaxInt64, lease.MaxLease + 1, math.MinInt64} {
		_, err := fairlock.New(client, "times", headwaiter.WithLease(lasts)).Lock(t.Context())
		require.ErrorIs(t, err, lease.ErrInvalid, "%v", lasts)
	}
	require.Equal(t, asks, client.Stats().Asks)
	for _, lasts := range []time.Duration{1500*time.Microsecond + 50*time.Millisecond, lease.MaxLease} {
		m, since := fairlock.New(client, fmt.Sprintf("times:%d", lasts), headwaiter.WithLease(lasts)), time.Now()
		l := granted(t, m)
		require.False(t, l.Deadline().Before(since))
		require.LessOrEqual(t, time.Until(l.Deadline()), lasts)
		if lasts == lease.MaxLease {
			require.Positive(t, r.server.Int("PTTL", keyOf(m.Name())))
		}
		if err := l.Release(t.Context()); err != nil { // The short one may have ended before.
			require.ErrorIs(t, err, lease.ErrExpired)
			require.False(t, time.Now().Before(l.Deadline()))
		}
	}
	r.everybody()
	r.finish()
}

func TestI4CountsAreAtTheirLimits(t *testing.T) {
	t.Parallel()
	r := begin(t, "I4")
	client := r.dial()
	for _, n := range []int64{0, -1, math.MinInt64} {
		_, err := semaphore.New(client, "counts", n).Acquire(t.Context(), 1)
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = semaphore.New(client, "counts", 1).Acquire(t.Context(), n)
		require.ErrorIs(t, err, lease.ErrInvalid)
	}
	for _, n := range []int64{semaphore.MaxPermits + 1, math.MaxInt64} {
		_, err := semaphore.New(client, "counts", n).Acquire(t.Context(), 1)
		require.ErrorIs(t, err, lease.ErrTooLarge)
	}
	s := semaphore.New(client, "counts:most", semaphore.MaxPermits)
	l, err := s.Acquire(t.Context(), semaphore.MaxPermits-1)
	require.NoError(t, err)
	available := func() int64 {
		n, err := s.Available(t.Context())
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 1, available())
	one, err := s.TryAcquire(t.Context(), 1)
	require.NoError(t, err)
	require.EqualValues(t, 0, available())
	_, err = s.TryAcquire(t.Context(), 1)
	require.ErrorIs(t, err, lease.ErrBusy)
	kit.Release(t, l)
	require.EqualValues(t, semaphore.MaxPermits-1, available())
	kit.Release(t, one)
	require.EqualValues(t, semaphore.MaxPermits, available())

	re := reentrant.New(client, "counts", headwaiter.WithLease(10*time.Second))
	first := kit.Lock(t.Context(), re.Lock).Value(t)
	all := make([]*lease.Lease, 0, 1000)
	for range 1000 {
		again, err := re.Lock(first.Context())
		require.NoError(t, err)
		all = append(all, again)
	}
	require.Equal(t, 1001, re.HoldCount(first.Context()))
	kit.Eventually(t, "the server to be told of the count", func() bool {
		info, err := re.Inspect(t.Context())
		require.NoError(t, err)
		return info.Holder.Entries == 1001
	})
	for _, again := range all {
		kit.Release(t, again)
	}
	require.NoError(t, first.Context().Err())
	kit.Release(t, first)
	r.everybody()
	r.finish()
}

// The tickets are of one client that does not exist, and are behind one that does.
func TestI6AQueueOf100000(t *testing.T) {
	r := begin(t, "I6")
	const many = 100_000
	holder, waiter, last := fairlock.New(r.dial(), "long"), fairlock.New(r.dial(), "long"), fairlock.New(r.dial(), "long")
	l := granted(t, holder)
	first := queued(t, waiter, 1)
	at := kit.ServerTime(r.server)
	for i := 0; i < many; i += 1000 {
		args := []string{"ZADD", keyOf("long") + ":queue"}
		for j := range 1000 {
			ticket := lua.Ticket{Client: "nobody", Number: uint64(i + j), Kind: lua.Exclusive, Permits: 1, Lease: 10 * time.Second, Grant: 2 * time.Second}
			args = append(args, strconv.FormatInt(at+int64(i+j), 10), ticket.String())
		}
		r.server.Do(args...)
	}
	spans := make([]span, 51)
	for i := range spans { // To queue at the end, and to leave.
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		c := kit.Lock(ctx, last.Lock)
		kit.Waiting(t, many+2, holder.Inspect)
		cancel()
		require.ErrorIs(t, c.Err(t), context.Canceled)
		kit.Waiting(t, many+1, holder.Inspect)
		spans[i] = span{began, time.Now()}
	}
	require.Empty(t, overdue(without(spans, r.stalls.Within), 100*time.Millisecond), "to queue behind %d and to leave, with both seen", many)
	end := queued(t, last, many+2)
	since := time.Now()
	kit.Release(t, l)
	l = first.Value(t)
	t.Logf("a hand-off in front of %d: %v", many, time.Since(since))
	require.Less(t, time.Since(since), time.Second)
	since = time.Now()
	kit.Release(t, l)
	l = end.Value(t)
	t.Logf("behind %d dead tickets: %v", many, time.Since(since))
	require.Less(t, time.Since(since), 5*time.Second)
	kit.Release(t, l)
	kit.Free(t, holder)
	r.everybody()
	r.finish()
}

// Not parallel: to start a thousand clients takes the whole machine.
func TestI7ManyClientsWaitForOneLock(t *testing.T) {
	r := begin(t, "I7")
	clients := either(150, 1000)
	holder := fairlock.New(r.dial(), "herd")
	l := granted(t, holder)
	herd := r.crowd(crowd.Plan{Names: []string{"herd"}, Clients: clients, Waiters: 1, Lease: 10 * time.Second})
	kit.Waiting(t, clients, holder.Inspect)
	heard, stop := monitor(t, r.server.Addr(), keyOf("herd")+":*")
	kit.Release(t, l)
	held := herd.Await(crowd.Held, clients, 2*kit.Patience)
	herd.Await(crowd.Released, clients, kit.Patience)
	stop()
	tokens := map[uint64]bool{}
	for _, e := range held {
		tokens[e.Token] = true
	}
	require.Len(t, tokens, clients)
	t.Logf("%d messages for %d hand-offs", len(heard), clients)
	require.LessOrEqual(t, len(heard), clients+clients/10, "more than those whose turn it is are woken")
	herd.Kill()
	r.everybody()
	r.finish()
}

// Not parallel: it counts the goroutines of this process.
func TestI8AClientUsesManyNames(t *testing.T) {
	r := begin(t, "I8")
	many, waits := either(3_000, 10_000), either(300, 1000)
	const ofConnections = 10 // goroutines that two clients have for three connections each, once they are used
	client, other := r.dial(func(o *headwaiter.Options) { o.Linger = 100 * time.Millisecond }), r.dial()
	kit.Release(t, granted(t, fairlock.New(client, "name")))
	before := runtime.NumGoroutine()
	connections := func() int64 { return infoField(t, r.server.Text("INFO", "clients"), "connected_clients") }
	connected := connections()
	nameOf := func(i int) string { return fmt.Sprintf("name:%d", i) }
	leases := make([]*lease.Lease, many)
	var work sync.WaitGroup
	for part := range 50 {
		work.Go(func() {
			for i := part; i < many; i += 50 {
				l, err := fairlock.New(client, nameOf(i), headwaiter.WithLease(time.Minute)).Lock(t.Context())
				if err == nil {
					leases[i] = l
				}
			}
		})
	}
	kit.All(t, &work)
	require.NotContains(t, leases, (*lease.Lease)(nil))
	require.LessOrEqual(t, runtime.NumGoroutine(), before+ofConnections, "goroutines for %d holds", many)
	require.LessOrEqual(t, connections(), connected+2, "connections for %d holds", many)
	require.LessOrEqual(t, client.Stats().Subscribes, uint64(1), "one channel for all that is held")

	calls := make([]*kit.Call[*lease.Lease], waits)
	waiting := fairlock.New(other, nameOf(waits-1))
	for i := range calls {
		calls[i] = kit.Lock(t.Context(), fairlock.New(other, nameOf(i)).Lock)
	}
	kit.Eventually(t, "all to wait", func() bool {
		return len(r.server.List("PUBSUB", "CHANNELS", "headwaiter:lock:{name:*")) == waits
	})
	kit.Waiting(t, 1, waiting.Inspect)
	require.LessOrEqual(t, connections(), connected+4, "each client renews, and listens")
	for _, l := range leases {
		kit.Release(t, l)
	}
	for _, c := range calls {
		kit.Release(t, c.Value(t))
	}
	kit.Eventually(t, "the subscriptions to end", func() bool {
		return len(r.server.List("PUBSUB", "CHANNELS", "headwaiter:lock:{name:*")) == 0
	})
	kit.Eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before+ofConnections })
	r.everybody()
	r.finish()
}
