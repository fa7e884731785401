package otel_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
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
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

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
			s := redistest.Start(b)
			groups := make([][]*fairlock.Mutex, len(setups))
			for i, x := range setups {
				for range clients {
					var changes []func(*headwaiter.Options)
					if x.options != nil {
						tracer, err := otel.New(x.options(b))
						require.NoError(b, err)
						changes = append(changes, observed(tracer))
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
			tracer, err := otel.New(x.options(b))
			require.NoError(b, err)
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
		tracer, err := otel.New(x.options(t))
		require.NoError(t, err)
		got := testing.AllocsPerRun(2000, func() { told(tracer, lease.ErrExpired) })
		t.Logf("%s: %v allocations", x.name, got)
		require.LessOrEqual(t, got, x.allocs, x.name)
		require.Greater(t, 2*got, x.allocs, "%s: the bound is too high to see anything", x.name)
	}
}

// told tells a tracer of a call that waits, holds and loses.
func told(t *otel.Tracer, cause error) {
	o := observe.Observation{Kind: "lock", Name: "name", Ticket: "client:1:x:1:10000:2000", Place: 1, Waited: 1, Held: 1, Token: 1}
	tell := func(ctx context.Context, m observe.Moment) {
		o.Moment = m
		t.Observe(ctx, o)
	}
	ctx := t.Wait(context.Background(), o)
	tell(ctx, observe.Asked)
	tell(ctx, observe.Queued)
	tell(context.Background(), observe.Woken)
	o.Note = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx = t.Hold(ctx, o)
	tell(ctx, observe.Granted)
	o.Note = t.Note(ctx)
	o.Err = cause
	tell(ctx, observe.Lost)
}
