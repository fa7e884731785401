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

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

func benchClient(b testing.TB) *Client {
	b.Helper()
	c := must.Got(Dial(Options{Redis: redistest.Start(b).Option()}))(b)
	b.Cleanup(func() { require.NoError(b, c.Shutdown(context.Background())) })
	return c
}

func benchQueue(c *Client, i int) Queue {
	return c.Queue(lua.Fairlock, "name"+strconv.Itoa(i), Terms{Lease: lease.DefaultLease})
}

// What a waiting call costs next to others of its client, and what it keeps meanwhile, on the heap and in the stack of
// its caller, beyond what a goroutine has that only waits for a context.
func BenchmarkWaitingTickets(b *testing.B) {
	for _, waiting := range []int{1_000, 10_000} {
		b.Run(strconv.Itoa(waiting), func(b *testing.B) {
			q := benchQueue(benchClient(b), 0)
			held := must.Got(q.Acquire(b.Context()))(b)
			defer func() { require.NoError(b, held.Release(context.Background())) }()
			queued := func() int64 { return int64(must.Got(q.Inspect(b.Context()))(b).Waiting) }
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

// What a lock and its release cost that nobody contends for.
func BenchmarkCycle(b *testing.B) {
	q := benchQueue(benchClient(b), 0)
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, must.Got(q.Acquire(b.Context()))(b).Release(b.Context()))
	}
}

// The same with an Unlock, whose end goes with the next ask.
func BenchmarkUnlockCycle(b *testing.B) {
	q := benchQueue(benchClient(b), 0)
	b.ReportAllocs()
	for b.Loop() {
		must.Got(q.Acquire(b.Context()))(b).Unlock()
	}
}

// quiet is an observer that does nothing.
type quiet struct{}

func (quiet) Observe(context.Context, observe.Observation) {}

// room is the memory of a call's teller.
var room notify.Teller

// tellAll is what is told of a call that waits, holds, is renewed and released: all that a cycle can meet.
func tellAll(ctx context.Context, w *wait, h *hold, now time.Time) {
	t := w.ticket
	t.teller = w.entry.client.notifier.Teller(&room, "lock", "name", &t.Text)
	h.teller = t.teller
	t.teller.Asked(ctx)
	t.teller.Queued(1, 1)
	t.teller.Granted(ctx, 1, time.Second, "", "")
	t.teller.Tell(observe.Observation{Event: observe.Renewed, Token: h.Token, Margin: time.Second})
	h.teller.Holds(h.UseToken, time.Second)
	h.tellLost(nil)
	h.teller.Note()
	h.released(time.Second, nil)
	w.ended(nil)
	w.entry.tell(observe.Observation{Event: observe.Woken, Count: 1})
	w.entry.client.notifier.Served("lock", "name", 1, 1, true, false)
}

// observedBy returns a call of a client with the given observer.
func observedBy(o observe.Observer) (*wait, *hold) {
	c := &client{notifier: notify.New(o, nil, time.Minute, 0, "who")}
	e := &lockEntry{entry: entry{client: c, proto: lua.Fairlock, name: "name"}}
	t := &ticket{entry: e}
	t.Begun = time.Now()
	t.Text, t.queue = "text", &binding{client: c, proto: e.proto, name: e.name}
	return &wait{ticket: t}, &hold{ticket: t, Hold: core.Hold{Since: time.Now()}}
}

func TestWhereNobodyLooksNothingIsAllocated(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	w, h := observedBy(nil)
	require.Zero(t, testing.AllocsPerRun(100, func() { tellAll(ctx, w, h, now) }))
	w, h = observedBy(quiet{})
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { tellAll(ctx, w, h, now) }), 1.0, "the context of the call")
}

// BenchmarkTell is what it costs to tell of one call, a dozen moments, by who looks.
func BenchmarkTell(b *testing.B) {
	for _, x := range []struct {
		name string
		o    observe.Observer
	}{{"nobody", nil}, {"observer", quiet{}}, {"tracer", observe.Observers(quiet{}, quiet{})}} {
		b.Run(x.name, func(b *testing.B) {
			ctx, now := context.Background(), time.Now()
			w, h := observedBy(x.o)
			b.ReportAllocs()
			for b.Loop() {
				tellAll(ctx, w, h, now)
			}
		})
	}
}
