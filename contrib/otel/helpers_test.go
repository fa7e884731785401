package otel_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/otel"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
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
	return kit.Observed(kit.Got(otel.New(otel.Options{TracerProvider: s.provider}))(t))
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

// truth is what the callers saw.
type truth struct {
	granted, busy, timeout, cancelled, released, lost atomic.Int64
	unasked                                           atomic.Int64 // calls whose context had ended before: nothing is told
}

// cycle takes m in one of several ways, and notes what comes of it.
func (x *truth) cycle(t *testing.T, m *fairlock.Mutex, random *rand.Rand) {
	ctx, lock := context.Background(), m.Lock
	switch random.IntN(8) {
	case 0:
		lock = m.TryLock
	case 1:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
		defer cancel()
	case 2:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		stop := time.AfterFunc(time.Duration(random.IntN(3000))*time.Microsecond, cancel)
		defer stop.Stop()
	}
	l, err := lock(ctx)
	var waited *lease.WaitError
	switch {
	case errors.As(err, &waited) && waited.Waited == 0:
		x.unasked.Add(1)
	case err == nil:
		x.granted.Add(1)
		if random.IntN(16) == 0 {
			_, _ = m.ForceRelease(context.Background(), l.Token())
		}
		switch err := l.Release(context.Background()); {
		case err == nil:
			x.released.Add(1)
		case errors.Is(err, lease.ErrLost):
			x.lost.Add(1)
		default:
			t.Errorf("release: %v", err)
		}
	case errors.Is(err, lease.ErrBusy):
		x.busy.Add(1)
	case errors.Is(err, context.DeadlineExceeded):
		x.timeout.Add(1)
	case errors.Is(err, context.Canceled):
		x.cancelled.Add(1)
	default:
		t.Errorf("lock: %v", err)
	}
}

func TestInACrowdEverySpanEndsAndTheFiguresAreWhatTheCallersSaw(t *testing.T) {
	t.Parallel()
	const (
		clients = 4
		workers = 4
		cycles  = 60
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s, r, figures := redistest.Start(t), record(), meter()
	tracer := kit.Got(otel.New(otel.Options{TracerProvider: r.provider, MeterProvider: figures.provider}))(t)
	var x truth
	var all sync.WaitGroup
	var dialed []*headwaiter.Client
	for i := range clients {
		c := kit.Dial(t, s, kit.Observed(tracer))
		dialed = append(dialed, c)
		for j := range workers {
			random := rand.New(rand.NewPCG(seed, uint64(i*workers+j)))
			all.Go(func() {
				for range cycles {
					x.cycle(t, fairlock.New(c, "name"), random)
				}
			})
		}
	}
	kit.All(t, &all)
	for _, c := range dialed {
		require.NoError(t, c.Shutdown(t.Context()))
	}

	for outcome, n := range map[string]int64{
		"granted": x.granted.Load(), "busy": x.busy.Load(), "timeout": x.timeout.Load(), "cancelled": x.cancelled.Load(),
	} {
		require.Equal(t, n, figures.sum(t, "headwaiter.attempts", outcome), outcome)
		require.Equal(t, n, figures.sum(t, "headwaiter.wait.duration", outcome), outcome)
	}
	require.EqualValues(t, clients*workers*cycles, figures.sum(t, "headwaiter.attempts")+x.unasked.Load())
	require.Equal(t, x.released.Load(), figures.sum(t, "headwaiter.hold.duration", "released"))
	require.Equal(t, x.lost.Load(), figures.sum(t, "headwaiter.losses"))
	require.Positive(t, x.lost.Load())
	require.Zero(t, figures.sum(t, "headwaiter.waiting"))
	require.Zero(t, figures.sum(t, "headwaiter.holds"))
	r.allEnd(t)
	linked(t, r, x.released.Load())
}

// linked asserts that links lead to holds that were released before the wait was over.
func linked(t *testing.T, r spans, released int64) {
	t.Helper()
	holds := map[trace.SpanID]sdktrace.ReadOnlySpan{}
	for _, h := range r.ended(hold) {
		holds[h.SpanContext().SpanID()] = h
	}
	links := 0
	for _, w := range r.ended(wait) {
		for _, link := range w.Links() {
			links++
			former := holds[link.SpanContext.SpanID()]
			require.NotNil(t, former)
			require.Equal(t, former.SpanContext().TraceID(), link.SpanContext.TraceID())
			require.True(t, former.StartTime().Before(w.EndTime()))
		}
		require.LessOrEqual(t, len(w.Links()), 1)
	}
	t.Logf("%d holds released, %d waits linked", released, links)
	require.Greater(t, links, int(released)/2)
}

// What the clients of etcd, ZooKeeper and Postgres tell by makes the same spans as the locks on Redis.
func TestTheSpansOfOtherEnginesAreTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := record()
		tracer := kit.Got(otel.New(otel.Options{TracerProvider: r.provider}))(t)
		watch := engine.NewWatch(tracer, nil, 0, 0, "who", "etcd", "server")
		defer watch.Stop()
		ctx, caller := r.begin(t.Context())
		grip := &engine.Grip{}
		lock := func(ctx context.Context) (*lease.Lease, error) {
			engine.Queued(ctx, 3)
			synctime.Pass(time.Second)
			engine.Queued(ctx, 1)
			return grip.Take(ctx, keeper.Terms{
				Token: 7, Until: keeper.Until{Deadline: time.Now().Add(time.Hour), Slept: keeper.Slept()},
				Release: func(context.Context) error { return nil },
			}, engine.Limits{}, nil), nil
		}
		l := kit.Got(watch.Acquire(ctx, "lock", "orders:42", lock))(t)
		_, inner := r.begin(l.Context())
		inner.End()
		require.NoError(t, l.Release(t.Context()))
		l = kit.Got(watch.Acquire(ctx, "lock", "orders:42", lock))(t)
		grip.Lose(lease.ErrForced)
		synctest.Wait()
		require.Error(t, l.Release(t.Context()))
		_, err := watch.Acquire(ctx, "lock", "orders:42", func(context.Context) (*lease.Lease, error) { return nil, lease.ErrBusy })
		require.ErrorIs(t, err, lease.ErrBusy)
		caller.End()

		waits, holds := r.ended(wait), r.ended(hold)
		require.Len(t, waits, 3)
		require.Len(t, holds, 2)
		for i, outcome := range []string{"granted", "granted", "busy"} {
			require.Equal(t, caller.SpanContext().SpanID(), waits[i].Parent().SpanID())
			require.Equal(t, "orders:42", attr(waits[i].Attributes(), "headwaiter.name"))
			require.Equal(t, outcome, attr(waits[i].Attributes(), "headwaiter.outcome"))
		}
		queued := waits[0].Events()
		require.Len(t, queued, 1, "told once")
		require.Equal(t, "queued", queued[0].Name)
		require.Equal(t, "3", attr(queued[0].Attributes, "headwaiter.place"))
		require.Empty(t, attr(queued[0].Attributes, "headwaiter.waiting"), "nobody knows")
		require.InDelta(t, time.Second, waits[0].EndTime().Sub(waits[0].StartTime()), float64(100*time.Millisecond))
		require.Equal(t, holds[0].SpanContext().SpanID(), inner.(sdktrace.ReadOnlySpan).Parent().SpanID(), "the work is below the hold")
		require.Equal(t, "7", attr(holds[0].Attributes(), "headwaiter.token"))
		require.Equal(t, "released", attr(holds[0].Attributes(), "headwaiter.outcome"))
		require.Equal(t, "forced", attr(holds[1].Attributes(), "headwaiter.outcome"))
		require.Equal(t, codes.Error, holds[1].Status().Code)
		r.allEnd(t)
	})
}

// Who uses this package chooses an SDK, and which. Nor may it bring in OpenTelemetry's globals, which have one.
func TestOfOpenTelemetryTheAPIAloneIsImported(t *testing.T) {
	out := kit.Got(exec.Command("go", "list", "-deps", ".").Output())(t)
	api := 0
	for _, path := range strings.Fields(string(out)) {
		if path == "go.opentelemetry.io/otel/trace" || path == "go.opentelemetry.io/otel/metric" {
			api++
		}
		require.NotContains(t, path, "/sdk")
		require.NotContains(t, path, "/exporters/")
		require.NotEqual(t, "go.opentelemetry.io/otel", path)
	}
	require.Equal(t, 2, api, "the list is one of this package")
}
