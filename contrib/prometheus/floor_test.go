package prometheus_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/prometheus"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/observe"
)

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
	switch o.Moment {
	case observe.Asked:
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
		{Moment: observe.Asked}, {Moment: observe.Granted, Waited: time.Millisecond, Token: 7}, {Moment: observe.Released, Held: 3 * time.Second},
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
func TestACycleCostsACollectorLittleMoreThanItsCounters(t *testing.T) {
	const most = 1.7
	collector := func() observe.Observer { return prometheus.NewCollector(prometheus.Options{Class: classOf}) }
	took := least(newFloor(), collector(), twice{collector(), collector()})
	bare := took[0].Seconds()
	t.Logf("bare counters %v, a collector %.2f of it, two %.2f", took[0], took[1].Seconds()/bare, took[2].Seconds()/bare)
	require.Less(t, took[1].Seconds()/bare, most)
	require.Greater(t, took[2].Seconds()/bare, most, "the bound is too high to see anything")
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
			l, err := m.Lock(context.Background())
			require.NoError(t, err)
			require.NoError(t, l.Release(context.Background()))
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / cycles
	}
	bare, seen := allocated(), allocated(means("metrics"))
	t.Logf("%.2f allocations a cycle, %.2f with metrics", bare, seen)
	require.Less(t, seen, bare+1.5)
}
