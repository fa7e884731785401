package waitqueue

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/renewals"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

func benchClient(b testing.TB) *Client {
	b.Helper()
	c, err := Dial(Options{Redis: redistest.Start(b).Option()})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close(context.Background())) })
	return c
}

func benchQueue(c *Client, i int) Queue {
	return c.Queue(lua.Fairlock, "name"+strconv.Itoa(i), Terms{Lease: lease.DefaultLease})
}

// What a call costs that waits beside others of its client, and what it keeps meanwhile, on the heap and in the stack of
// its caller, beyond what a goroutine has that only waits for a context.
func BenchmarkWaitingTickets(b *testing.B) {
	for _, waiting := range []int{1_000, 10_000} {
		b.Run(strconv.Itoa(waiting), func(b *testing.B) {
			q := benchQueue(benchClient(b), 0)
			held, err := q.Acquire(b.Context())
			require.NoError(b, err)
			defer func() { require.NoError(b, held.Release(context.Background())) }()
			queued := func() int64 {
				info, err := q.Inspect(b.Context())
				require.NoError(b, err)
				return int64(info.Waiting)
			}
			for b.Loop() {
				// The runtime keeps what it has for goroutines that ended: those that come next find it.
				var begun atomic.Int64
				callers := gather(b, waiting, func(ctx context.Context) { begun.Add(1); <-ctx.Done() }, begun.Load)
				calls := gather(b, waiting, func(ctx context.Context) { _, _ = q.Acquire(ctx) }, queued)
				for queued() > 0 {
					runtime.Gosched() // They leave in the background.
				}
				b.ReportMetric(calls.heap, "heap-B/ticket")
				b.ReportMetric(calls.stack-callers.stack, "stack-B/ticket")
				b.ReportMetric(float64(calls.took.Microseconds())/float64(waiting), "µs/ask")
			}
		})
	}
}

// gathered is what goroutines use that wait, each, and how long it took until all did.
type gathered struct {
	heap, stack float64
	took        time.Duration
}

// gather lets n goroutines wait in call until all are there.
func gather(b *testing.B, n int, call func(ctx context.Context), there func() int64) (g gathered) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	memory := func() (m runtime.MemStats) {
		runtime.GC()
		runtime.GC() // What is in a sync.Pool outlives one.
		runtime.ReadMemStats(&m)
		return m
	}
	before, begun := memory(), time.Now()
	for range n {
		calls.Go(func() { call(ctx) })
	}
	for there() < int64(n) {
		runtime.Gosched()
	}
	g.took = time.Since(begun)
	after := memory()
	g.heap = (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(n)
	g.stack = (float64(after.StackInuse) - float64(before.StackInuse)) / float64(n)
	return g
}

// What a renewal costs in a batch of as many as there can be.
func BenchmarkRenewals(b *testing.B) {
	c := benchClient(b)
	var batch []renewals.Hold
	for i := range renewals.Batch {
		q := benchQueue(c, i)
		l, err := q.Acquire(b.Context())
		require.NoError(b, err)
		defer func() { require.NoError(b, l.Release(context.Background())) }()
		s := c.siteLocked(q.binding)
		s.mu.Lock()
		for _, t := range s.tickets {
			batch = append(batch, t.hold)
		}
		s.mu.Unlock()
	}
	require.Len(b, batch, renewals.Batch)
	b.ReportAllocs()
	for b.Loop() {
		c.renewals.Renew(c.servers.Single(), batch, conn.Acks{})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/renewals.Batch, "ns/renewal")
}

// What a lock and its release cost that nobody contends for.
func BenchmarkCycle(b *testing.B) {
	q := benchQueue(benchClient(b), 0)
	b.ReportAllocs()
	for b.Loop() {
		l, err := q.Acquire(b.Context())
		require.NoError(b, err)
		require.NoError(b, l.Release(b.Context()))
	}
}

// The same with an Unlock, whose end goes with the next ask.
func BenchmarkUnlockCycle(b *testing.B) {
	q := benchQueue(benchClient(b), 0)
	b.ReportAllocs()
	for b.Loop() {
		l, err := q.Acquire(b.Context())
		require.NoError(b, err)
		l.Unlock()
	}
}
