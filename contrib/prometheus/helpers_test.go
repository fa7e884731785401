package prometheus_test

import (
	"context"
	"fmt"
	"runtime"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// values are what a scrape gets: by names such as headwaiter_attempts_total{kind="lock",outcome="granted"}, of
// histograms the numbers and sums. Labels that are empty are left out, as Prometheus does.
type values map[string]float64

// scrape gathers what collectors have, in one registry.
func scrape(t testing.TB, collectors ...prom.Collector) values {
	t.Helper()
	registry := prom.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, registry.Register(c))
	}
	families := kit.Got(registry.Gather())(t)
	found := values{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
			}
			sort.Strings(labels)
			name, rest := f.GetName(), ""
			if len(labels) > 0 {
				rest = "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				found[name+rest] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				found[name+rest] = m.GetGauge().GetValue()
			default:
				found[name+"_count"+rest] = float64(m.GetHistogram().GetSampleCount())
				found[name+"_sum"+rest] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return found
}

// since returns what has changed.
func (v values) since(before values) values {
	changed := values{}
	for name, value := range v {
		if was, ok := before[name]; !ok || was != value {
			changed[name] = value - was
		}
	}
	return changed
}

// of returns what there is of a metric.
func (v values) of(metric string) values {
	found := values{}
	for name, value := range v {
		if base, _, _ := strings.Cut(name, "{"); base == metric {
			found[name] = value
		}
	}
	return found
}

// plus adds what another scrape got.
func (v values) plus(other values) values {
	all := values{}
	for _, each := range []values{v, other} {
		for name, value := range each {
			all[name] += value
		}
	}
	return all
}

// sum adds up the values of a metric whose labels have all of the given parts.
func (v values) sum(metric string, parts ...string) (sum float64) {
	for name, value := range v {
		base, labels, _ := strings.Cut(name, "{")
		all := base == metric
		for _, part := range parts {
			all = all && strings.Contains(labels, part)
		}
		if all {
			sum += value
		}
	}
	return sum
}

// tell tells a collector of events of locks.
func tell(c *prometheus.Collector, all ...observe.Observation) {
	for _, o := range all {
		if o.Kind == "" {
			o.Kind = "lock"
		}
		c.Observe(context.Background(), o)
	}
}

func TestMain(m *testing.M) {
	crowd.Main()
	leaks.Main(m)
}

// cycle is all that can be told of a call and a hold.
var cycle = []observe.Observation{
	{Event: observe.Began}, {Event: observe.Queued, Place: 1}, {Event: observe.Woken, Count: 1},
	{Event: observe.Granted, Waited: time.Millisecond, Token: 7},
	{Event: observe.RenewalFailed, Margin: time.Second, Lease: 2 * time.Second, Err: context.DeadlineExceeded},
	{Event: observe.Renewed, Margin: time.Second, Lease: 2 * time.Second},
	{Event: observe.Released, Held: 3 * time.Second}, {Event: observe.HandedOff},
	{Event: observe.Skipped, Count: 1}, {Event: observe.Expired, Count: 1}, {Event: observe.Missed},
	{Event: observe.Began}, {Event: observe.Failed, Waited: time.Second, Err: context.Canceled},
	{Event: observe.Began}, {Event: observe.Granted}, {Event: observe.Lost, Held: time.Second, Err: lease.ErrExpired},
}

// request is one that was answered.
var request = observe.Request{Engine: "redis", Server: "a:6379", Client: "worker", Took: 3 * time.Millisecond}

// collectors are those whose cost is to be known.
func collectors() map[string]*prometheus.Collector {
	return map[string]*prometheus.Collector{
		"one class": prometheus.NewCollector(prometheus.Options{}),
		"classes":   prometheus.NewCollector(prometheus.Options{Class: func(name string) string { return name[:1] }}),
	}
}

func TestAnObservationAllocatesNothing(t *testing.T) {
	for name, c := range collectors() {
		require.Zero(t, testing.AllocsPerRun(100, func() { c.ObserveRequest(request) }), name)
		for _, o := range cycle {
			o.Kind, o.Name, o.Ticket = "lock", "orders:42", "a ticket"
			got := testing.AllocsPerRun(100, func() { c.Observe(context.Background(), o) })
			require.Zero(t, got, "%s: %v", name, o.Event)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	for name, c := range collectors() {
		for _, o := range cycle[:8] {
			o.Kind, o.Name, o.Ticket = "lock", "orders:42", "a ticket"
			b.Run(fmt.Sprintf("%s/%v", name, o.Event), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.Observe(context.Background(), o)
				}
			})
		}
	}
}

// What a scrape costs where there are as many classes as there may be.
func BenchmarkScrape(b *testing.B) {
	c := prometheus.NewCollector(prometheus.Options{Class: func(name string) string { return name }})
	for i := range 100 {
		for _, o := range cycle {
			o.Kind, o.Name = "lock", fmt.Sprint(i)
			c.Observe(context.Background(), o)
		}
	}
	for b.Loop() {
		scrape(b, c)
	}
}

// floor counts calls and holds with the same counters as a collector, found the same way, and does nothing else.
type floor struct {
	classes sync.Map
	all     map[[2]string]*floorSeries
}

type floorSeries struct {
	attempts, released prom.Counter
	waiting, holding   prom.Gauge
	wait, hold         prom.Histogram
}

func newFloor() *floor {
	times := prom.HistogramOpts{
		Name: "seconds", Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
	}
	f := &floor{all: map[[2]string]*floorSeries{{"lock", "orders"}: {
		prom.NewCounter(prom.CounterOpts{Name: "attempts"}), prom.NewCounter(prom.CounterOpts{Name: "released"}),
		prom.NewGauge(prom.GaugeOpts{Name: "waiting"}), prom.NewGauge(prom.GaugeOpts{Name: "holding"}),
		prom.NewHistogram(times), prom.NewHistogram(times),
	}}}
	f.classes.Store("orders:42", "orders")
	return f
}

func (f *floor) Observe(_ context.Context, o observe.Observation) {
	class, _ := f.classes.Load(o.Name)
	s := f.all[[2]string{o.Kind, class.(string)}]
	switch o.Event {
	case observe.Began:
		s.waiting.Inc()
	case observe.Granted:
		s.waiting.Dec()
		s.holding.Inc()
		s.attempts.Inc()
		s.wait.Observe(o.Waited.Seconds())
	case observe.Released:
		s.holding.Dec()
		s.released.Inc()
		s.hold.Observe(o.Held.Seconds())
	}
}

// twice observes everything by two.
type twice struct{ one, other observe.Observer }

func (t twice) Observe(ctx context.Context, o observe.Observation) {
	t.one.Observe(ctx, o)
	t.other.Observe(ctx, o)
}

// least is the least time that each observer takes for what is told of some cycles, in turns.
func least(observers ...observe.Observer) []time.Duration {
	const rounds, cycles = 400, 100
	told := []observe.Observation{
		{Event: observe.Began}, {Event: observe.Granted, Waited: time.Millisecond, Token: 7}, {Event: observe.Released, Held: 3 * time.Second},
	}
	for i := range told {
		told[i].Kind, told[i].Name, told[i].Ticket = "lock", "orders:42", "a ticket"
	}
	best := make([]time.Duration, len(observers))
	for range rounds {
		for i, o := range observers {
			begun := time.Now()
			for range cycles {
				for _, x := range told {
					o.Observe(context.Background(), x)
				}
			}
			if took := time.Since(begun); best[i] == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	return best
}

// The bound is so low that a collector which did all of its work twice would be beyond it.
func BenchmarkObserveBesideBareCounters(b *testing.B) {
	const most = 1.7
	collector := func() observe.Observer { return prometheus.NewCollector(prometheus.Options{Class: classOf}) }
	for b.Loop() {
		took := least(newFloor(), collector(), twice{collector(), collector()})
		bare := took[0].Seconds()
		b.ReportMetric(took[1].Seconds()/bare, "of-bare")
		require.Less(b, took[1].Seconds()/bare, most)
		require.Greater(b, took[2].Seconds()/bare, most, "the bound is too high to see anything")
	}
}

// What the client does to tell what happens is one allocation of its own a cycle, and none of the collector's.
func TestALockThatIsObservedAllocatesOnceMore(t *testing.T) {
	s := redistest.Start(t)
	allocated := func(changes ...func(*headwaiter.Options)) float64 {
		const cycles = 3000
		m := fairlock.New(kit.Dial(t, s, changes...), "orders:42")
		var before, after runtime.MemStats
		for i := range 2 * cycles {
			if i == cycles {
				runtime.ReadMemStats(&before)
			}
			require.NoError(t, kit.Got(m.Lock(context.Background()))(t).Release(context.Background()))
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / cycles
	}
	bare, seen := allocated(), allocated(means("metrics"))
	t.Logf("%.2f allocations a cycle, %.2f with metrics", bare, seen)
	require.Less(t, seen, bare+1.5)
}
