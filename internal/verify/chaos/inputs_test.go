package chaos

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

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
