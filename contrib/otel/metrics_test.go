package otel_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/otel"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

func TestTheFiguresAreWhatHappened(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		r, d := meter(), faults.NewDialer(t, s.Dial)
		tracer := kit.Got(otel.New(otel.Options{MeterProvider: r.provider}))(t)
		long := func(o *headwaiter.Options) { o.HeldTooLong = 5 * time.Second }
		a, b := kit.Dial(t, s, kit.Observed(tracer), long), kit.Dial(t, s, kit.Observed(tracer), kit.Over(d))
		first := fairlock.New(a, "name", headwaiter.WithLease(3*time.Second))
		second := fairlock.New(b, "name", headwaiter.WithLease(3*time.Second))

		l := kit.Got(first.Lock(t.Context()))(t)
		next := kit.Lock(t.Context(), second.Lock)
		synctest.Wait()
		require.EqualValues(t, 1, r.sum(t, "headwaiter.waiting"))
		require.EqualValues(t, 1, r.sum(t, "headwaiter.holds"))
		require.ErrorIs(t, kit.Err(first.TryLock(t.Context())), lease.ErrBusy)
		synctime.Pass(5500 * time.Millisecond) // Five renewals.
		l = kit.Next(t, l, next)
		d.Away()
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
		synctest.Wait()
		d.Heal()
		kit.Release(t, kit.Lock(t.Context(), first.Lock).Value(t))
		require.NoError(t, b.Shutdown(t.Context()))

		require.Equal(t, []series{{kind: "lock", outcome: "busy", value: 1}, {kind: "lock", outcome: "granted", value: 3}},
			r.of(t, "headwaiter.attempts"))
		waits := r.of(t, "headwaiter.wait.duration")
		require.EqualValues(t, 3, waits[1].value)
		require.InDelta(t, 5.5, waits[1].sum, 0.5)
		held := r.of(t, "headwaiter.hold.duration")
		require.Equal(t, []string{"expired", "released"}, []string{held[0].outcome, held[1].outcome})
		require.EqualValues(t, 2, held[1].value)
		require.InDelta(t, 5.5, held[1].sum, 0.5)
		require.Equal(t, []series{{kind: "lock", outcome: "expired", value: 1}}, r.of(t, "headwaiter.losses"))
		require.Zero(t, r.sum(t, "headwaiter.waiting"))
		require.Zero(t, r.sum(t, "headwaiter.holds"))
		stats := a.Stats()
		require.GreaterOrEqual(t, r.sum(t, "headwaiter.renewals", "renewed"), int64(5))
		require.Positive(t, r.sum(t, "headwaiter.renewals", "failed"))
		require.Equal(t, r.sum(t, "headwaiter.renewals"), r.sum(t, "headwaiter.renewal.margin"))
		require.EqualValues(t, 1, r.sum(t, "headwaiter.holds.long"))
		require.EqualValues(t, stats.HandOffs+b.Stats().HandOffs, r.sum(t, "headwaiter.handoffs"))
		require.Positive(t, stats.HandOffs)
		require.EqualValues(t, stats.Messages+b.Stats().Messages, r.sum(t, "headwaiter.wakeups"))
		require.EqualValues(t, stats.Expired+b.Stats().Expired, r.sum(t, "headwaiter.expired"))
		require.EqualValues(t, stats.Suspected+b.Stats().Suspected, r.sum(t, "headwaiter.suspected"))
	})
}

// cycle locks and releases a name.
func cycle(t *testing.T, c *headwaiter.Client, name string) {
	t.Helper()
	require.NoError(t, fairlock.New(c, name).Do(t.Context(), func(context.Context) error { return nil }))
}

func TestNamesAreToldApartByClassIfAtAll(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		plain, classed := meter(), meter()
		off := kit.Got(otel.New(otel.Options{MeterProvider: plain.provider}))(t)
		on, err := otel.New(otel.Options{MeterProvider: classed.provider, MaxClasses: 2, Class: func(name string) string {
			class, _, _ := strings.Cut(name, ":")
			if class == "panic" {
				panic("no such class")
			}
			return class
		}})
		require.NoError(t, err)
		c := kit.Dial(t, s, kit.Observed(observe.Observers(off, on)))
		for i := range 10 {
			cycle(t, c, fmt.Sprintf("orders:%d", i))
			cycle(t, c, fmt.Sprintf("users:%d", i))
			cycle(t, c, fmt.Sprintf("%d:many", i))
		}
		cycle(t, c, "panic:1")
		cycle(t, c, "orders:11")

		require.Equal(t, []series{{kind: "lock", outcome: "granted", value: 32}}, plain.of(t, "headwaiter.attempts"))
		require.Equal(t, []series{
			{kind: "lock", class: "orders", outcome: "granted", value: 11},
			{kind: "lock", class: "other", outcome: "granted", value: 11},
			{kind: "lock", class: "users", outcome: "granted", value: 10},
		}, classed.of(t, "headwaiter.attempts"))
		require.EqualValues(t, 11, classed.sum(t, "headwaiter.classes.cut"), "it says so")
		require.Zero(t, plain.sum(t, "headwaiter.classes.cut"))
	})
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	require.EqualError(t, kit.Err(otel.New(otel.Options{})), "otel: invalid argument: neither a tracer provider nor a meter provider")
	_, err := otel.New(otel.Options{MeterProvider: meter().provider, MaxClasses: -1})
	require.EqualError(t, err, "otel: invalid argument: -1 classes at the most")
}

func TestAServerIsUpIfTheLastRequestWasAnswered(t *testing.T) {
	r := meter()
	tracer := kit.Got(otel.New(otel.Options{MeterProvider: r.provider}))(t)
	seen := observe.Request{Engine: "redis", Server: "a:6379", Client: "worker", Took: 3 * time.Second}
	tracer.ObserveRequest(seen)
	require.Equal(t, []series{{value: 1}}, r.of(t, "headwaiter.server.up"))
	seen.Err = context.DeadlineExceeded
	tracer.ObserveRequest(seen)
	require.Equal(t, []series{{value: 0}}, r.of(t, "headwaiter.server.up"))
	require.Equal(t, []series{{value: 1, sum: 3}}, r.of(t, "headwaiter.server.round_trip"), "of those that were answered")
}

// The count of a hold or a wait that is told of again is how often that was; the count of a message is what was in it.
func TestAMessageWithSeveralGrantsIsCounted(t *testing.T) {
	r := meter()
	tracer := kit.Got(otel.New(otel.Options{MeterProvider: r.provider}))(t)
	for _, m := range []observe.EventKind{observe.Woken, observe.HeldLong, observe.WaitedLong} {
		for count := range 3 {
			tracer.Observe(t.Context(), observe.Observation{Event: m, Kind: "lock", Count: count + 1})
		}
	}
	require.EqualValues(t, 3, r.sum(t, "headwaiter.wakeups"))
	require.EqualValues(t, 1, r.sum(t, "headwaiter.holds.long"), "it was told before")
	require.EqualValues(t, 1, r.sum(t, "headwaiter.waits.long"), "it was told before")
}

func TestAServerThatNobodyAsksAnyMoreIsNeitherUpNorDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := meter()
		tracer := kit.Got(otel.New(otel.Options{MeterProvider: r.provider}))(t)
		tracer.ObserveRequest(observe.Request{Engine: "redis", Server: "left:6379", Err: context.DeadlineExceeded})
		synctime.Pass(4 * time.Minute)
		tracer.ObserveRequest(observe.Request{Engine: "redis", Server: "stays:6379"})
		require.Len(t, r.of(t, "headwaiter.server.up"), 2)
		synctime.Pass(time.Minute + 1)
		require.Equal(t, []series{{value: 1}}, r.of(t, "headwaiter.server.up"))
		synctime.Pass(4 * time.Minute)
		require.Empty(t, r.of(t, "headwaiter.server.up"))
		tracer.ObserveRequest(observe.Request{Engine: "redis", Server: "left:6379"})
		require.Equal(t, []series{{value: 1}}, r.of(t, "headwaiter.server.up"), "it is back")
	})
}

// batching returns a provider whose spans go in batches to an exporter that drops them.
func batching(b testing.TB, s sdktrace.Sampler) trace.TracerProvider {
	p := sdktrace.NewTracerProvider(sdktrace.WithSampler(s), sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	b.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return p
}

// setups are what a client may be observed by. The first is what the others are measured by.
var setups = []struct {
	name    string
	options func(b testing.TB) otel.Options
	allocs  float64 // of what is told of a cycle, at the most
}{
	{"nobody", nil, 0},
	{"noop", func(testing.TB) otel.Options {
		return otel.Options{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()}
	}, 7},
	{"metrics", func(testing.TB) otel.Options { return otel.Options{MeterProvider: meter().provider} }, 3},
	{"metrics+1%", func(b testing.TB) otel.Options {
		return otel.Options{TracerProvider: batching(b, sdktrace.TraceIDRatioBased(0.01)), MeterProvider: meter().provider}
	}, 20},
	{"metrics+100%", func(b testing.TB) otel.Options {
		return otel.Options{TracerProvider: batching(b, sdktrace.AlwaysSample()), MeterProvider: meter().provider}
	}, 50},
}

// BenchmarkCost takes and releases one lock without a pause, by one client and by eight, with each setup in turn, and
// reports the cycles a second with nobody looking and what share of them each setup leaves: medians of the rounds, each
// in relation to the others of its round. One run of it is a whole measurement: -benchtime 1x. With -short it is one
// round, to see that it works.
func BenchmarkCost(b *testing.B) {
	const slice = 300 * time.Millisecond
	rounds := 15
	if testing.Short() {
		rounds = 1
	}
	for _, clients := range []int{1, 8} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			s, groups := redistest.Start(b), make([][]*fairlock.Mutex, len(setups))
			for i, x := range setups {
				for range clients {
					var changes []func(*headwaiter.Options)
					if x.options != nil {
						changes = append(changes, kit.Observed(kit.Got(otel.New(x.options(b)))(b)))
					}
					groups[i] = append(groups[i], fairlock.New(kit.Dial(b, s, changes...), x.name))
				}
				cycles(b, groups[i], slice) // Scripts are loaded, channels subscribed to.
			}
			var base []float64
			shares := make([][]float64, len(setups))
			for range b.N {
				for range rounds {
					nobody := cycles(b, groups[0], slice)
					base = append(base, nobody)
					for i := 1; i < len(setups); i++ {
						shares[i] = append(shares[i], cycles(b, groups[i], slice)/nobody)
					}
				}
			}
			b.ReportMetric(median(base), "cycles/s")
			for i := 1; i < len(setups); i++ {
				b.ReportMetric(median(shares[i]), setups[i].name)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cycles is how many cycles a second a group manages.
func cycles(b *testing.B, ms []*fairlock.Mutex, slice time.Duration) float64 {
	b.Helper()
	var done sync.WaitGroup
	counts := make([]int, len(ms))
	begun := time.Now()
	end := begun.Add(slice)
	for i, m := range ms {
		done.Go(func() {
			for time.Now().Before(end) {
				l, err := m.Lock(context.Background())
				if err == nil {
					err = l.Release(context.Background())
				}
				if err != nil {
					b.Error(err)
					return
				}
				counts[i]++
			}
		})
	}
	done.Wait()
	n := 0
	for _, c := range counts {
		n += c
	}
	return float64(n) / time.Since(begun).Seconds()
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkObserve is what one cycle costs without its lock: what is told of it, and the note.
func BenchmarkObserve(b *testing.B) {
	for _, x := range setups[1:] {
		b.Run(x.name, func(b *testing.B) {
			tracer := kit.Got(otel.New(x.options(b)))(b)
			b.ReportAllocs()
			for b.Loop() {
				told(tracer, lease.ErrExpired)
			}
		})
	}
}

// The bounds leave the exporter some room, and none to a tracer that does all of its work twice.
func TestWhatIsToldOfACycleAllocatesLittle(t *testing.T) {
	for _, x := range setups[1:] {
		tracer := kit.Got(otel.New(x.options(t)))(t)
		got := testing.AllocsPerRun(2000, func() { told(tracer, lease.ErrExpired) })
		t.Logf("%s: %v allocations", x.name, got)
		require.LessOrEqual(t, got, x.allocs, x.name)
		require.Greater(t, 2*got, x.allocs, "%s: the bound is too high to see anything", x.name)
	}
}

// told tells a tracer of a call that waits, holds and loses.
func told(t *otel.Tracer, cause error) {
	o := observe.Observation{Kind: "lock", Name: "name", Ticket: "client:1:x:1:10000:2000", Place: 1, Waited: 1, Held: 1, Token: 1}
	tell := func(ctx context.Context, m observe.EventKind) {
		o.Event = m
		t.Observe(ctx, o)
	}
	ctx := t.Wait(context.Background(), o)
	tell(ctx, observe.Began)
	tell(ctx, observe.Queued)
	tell(context.Background(), observe.Woken)
	o.Note = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx = t.Hold(ctx, o)
	tell(ctx, observe.Granted)
	o.Note = t.Note(ctx)
	o.Err = cause
	tell(ctx, observe.Lost)
}
