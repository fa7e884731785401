package otel_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/otel"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/observe"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// spans records all spans of a tracer provider.
type spans struct {
	*tracetest.SpanRecorder
	provider *sdktrace.TracerProvider
}

// record returns a provider whose spans are recorded.
func record(opts ...sdktrace.TracerProviderOption) spans {
	r := tracetest.NewSpanRecorder()
	return spans{r, sdktrace.NewTracerProvider(append(opts, sdktrace.WithSpanProcessor(r))...)}
}

// observed makes a client tell a tracer whose spans go to s.
func (s spans) observed(t testing.TB) func(*headwaiter.Options) {
	t.Helper()
	tracer, err := otel.NewTracer(s.provider)
	require.NoError(t, err)
	return observed(tracer)
}

func observed(o observe.Observer) func(*headwaiter.Options) {
	return func(opts *headwaiter.Options) { opts.Observer = o }
}

// begin begins a span of the caller.
func (s spans) begin(ctx context.Context) (context.Context, trace.Span) {
	return s.provider.Tracer("caller").Start(ctx, "caller")
}

// ended returns the spans of a name that have ended, in that order.
func (s spans) ended(name string) []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(s.Ended(), func(x sdktrace.ReadOnlySpan) bool { return x.Name() != name })
}

// only returns the one span of a name that has ended.
func (s spans) only(t testing.TB, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	found := s.ended(name)
	require.Len(t, found, 1, name)
	return found[0]
}

// allEnd asserts that nothing that was begun goes on.
func (s spans) allEnd(t testing.TB) {
	t.Helper()
	require.Len(t, s.Ended(), len(s.Started()))
}

const (
	wait = "headwaiter wait"
	hold = "headwaiter hold"
)

// attribute reads one as text; "" if there is none.
func attr(all []attribute.KeyValue, key string) string {
	for _, x := range all {
		if string(x.Key) == key {
			return x.Value.String()
		}
	}
	return ""
}

// reading is what a manual reader collects.
type reading struct {
	reader   *sdkmetric.ManualReader
	provider metric.MeterProvider
}

func meter() reading {
	r := sdkmetric.NewManualReader()
	return reading{r, sdkmetric.NewMeterProvider(sdkmetric.WithReader(r))}
}

// series is one of an instrument: its attributes and what it stands at. Of a histogram the value is the count.
type series struct {
	kind, class, outcome string
	value                int64
	sum                  float64
}

// of returns the series of an instrument, sorted by outcome and class.
func (r reading) of(t testing.TB, name string) (found []series) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(context.Background(), &all))
	add := func(attrs attribute.Set, value int64, sum float64) {
		list := attrs.ToSlice()
		found = append(found, series{
			attr(list, "headwaiter.kind"), attr(list, "headwaiter.class"), attr(list, "headwaiter.outcome"), value, sum,
		})
	}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value, 0)
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value, 0)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, int64(p.Count), p.Sum)
				}
			default:
				t.Fatalf("%s is a %T", name, data)
			}
		}
	}
	slices.SortFunc(found, func(a, b series) int {
		return slices.Compare([]string{a.outcome, a.class}, []string{b.outcome, b.class})
	})
	return found
}

// sum is what all series of an instrument add up to, or those of an outcome.
func (r reading) sum(t testing.TB, name string, outcomes ...string) (n int64) {
	t.Helper()
	for _, s := range r.of(t, name) {
		if len(outcomes) == 0 || slices.Contains(outcomes, s.outcome) {
			n += s.value
		}
	}
	return n
}
