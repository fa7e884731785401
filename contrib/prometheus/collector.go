package prometheus

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/headwaiter/headwaiter/observe"
)

// Options is what can be chosen. The zero value will do.
type Options struct {
	// Class returns the class that a name counts to: what names have in common, such as "orders" of "orders:42". It
	// must return the same for the same name, soon, and no more classes than MaxClasses. The default is one class, "".
	//
	// Answers are remembered for some thousand names. A name for which it panics, or returns one class too many, counts
	// to "other". A call waits for it for a second at the most; after that, or ten answers in a row that took longer
	// than 10 ms, it is not asked again, and every name that is not remembered counts to "other".
	Class func(name string) string
	// MaxClasses is how many classes there may be in addition to "other". The default is 100. A kind and class cost about 90
	// time series.
	MaxClasses int
	// Buckets are the bounds of the classic buckets of the times waited and held, in seconds. The default goes from
	// 0.1 ms to a minute. Where Prometheus scrapes native histograms, they do not matter.
	Buckets []float64
	// Log is told once why names count to "other". The next scrape writes it. The default is not to tell.
	Log *slog.Logger
}

const defaultMaxClasses = 100

// A Collector counts what its clients observe, and is collected by a registry. It has no goroutine, and needs no end.
type Collector struct {
	metrics *metrics
	classes *classes
	all     table[key, series]
	servers table[serverKey, server]
	tooLong tooLong
}

var (
	_ prom.Collector          = (*Collector)(nil)
	_ observe.RequestObserver = (*Collector)(nil)
)

// NewCollector makes a collector: register it, and give it to clients as [headwaiter.Options].Observer. One is enough
// for all clients of a process.
func NewCollector(o Options) *Collector {
	if o.MaxClasses <= 0 {
		o.MaxClasses = defaultMaxClasses
	}
	if o.Buckets == nil {
		o.Buckets = defaultBuckets
	}
	c := &Collector{metrics: newMetrics(o.Buckets)}
	c.classes = newClasses(o, c.metrics.unclassified)
	return c
}

// Describe is for the registry.
func (c *Collector) Describe(to chan<- *prom.Desc) {
	for _, each := range c.metrics.all {
		each.Describe(to)
	}
	to <- c.metrics.smallest
	to <- c.metrics.up
}

// Collect is for the registry.
func (c *Collector) Collect(to chan<- prom.Metric) {
	c.classes.warn()
	for _, each := range c.metrics.all {
		each.Collect(to)
	}
	for k, s := range c.all.every() {
		if margin, ok := s.smallest.get(); ok {
			to <- prom.MustNewConstMetric(c.metrics.smallest, prom.GaugeValue, margin.Seconds(), k.kind, k.class)
		}
	}
	for k, s := range c.servers.every() {
		if up, ok := s.isUp(); ok {
			to <- prom.MustNewConstMetric(c.metrics.up, prom.GaugeValue, up, k.engine, k.server, k.client)
		}
	}
}

// Observe is for the client.
func (c *Collector) Observe(_ context.Context, o observe.Observation) {
	if o.Event == observe.TwoMasters { // It has no name.
		c.metrics.twoMasters.Inc()
		return
	}
	if o.Event == observe.Replaced { // Nor this.
		c.metrics.replaced.Inc()
		return
	}
	s := c.of(o.Kind, c.classes.of(o.Name))
	if o.Event >= observe.HandedOff {
		s.heard(&o)
		return
	}
	s.told(&o)
	switch o.Event {
	case observe.HeldLong:
		if c.tooLong.begins(o.Ticket) {
			s.longHolds.Inc()
		}
	case observe.Released, observe.HandedOver, observe.Lost:
		if c.tooLong.ends(o.Ticket) {
			s.longHolds.Dec()
		}
	}
}

// key is what the time series of a name are found by.
type key struct{ kind, class string }

// of returns the time series of a kind and class, which it makes if there are none.
func (c *Collector) of(kind, class string) *series {
	k := key{kind, class}
	if s := c.all.every()[k]; s != nil {
		return s
	}
	return c.all.add(k, func() *series { return c.metrics.series(kind, class) })
}

// A table has few entries, and none that goes. It is never changed, but replaced: reading it costs no lock.
type table[K comparable, V any] struct {
	now atomic.Pointer[map[K]*V]
	mu  sync.Mutex // held to replace it
}

func (t *table[K, V]) every() map[K]*V {
	if all := t.now.Load(); all != nil {
		return *all
	}
	return nil
}

// add adds what is made, unless there is one by now.
func (t *table[K, V]) add(k K, made func() *V) *V {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.every()
	if v := all[k]; v != nil {
		return v
	}
	more := make(map[K]*V, len(all)+1)
	maps.Copy(more, all)
	v := made()
	more[k] = v
	t.now.Store(&more)
	return v
}

// tooLong are the holds that last for longer than they should, by their tickets.
type tooLong struct {
	count atomic.Int64 // of holds: most often none, and then nothing is looked up

	mu    sync.Mutex // guards holds
	holds map[string]struct{}
}

func (l *tooLong) begins(ticket string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.holds[ticket]; ok {
		return false
	}
	if l.holds == nil {
		l.holds = make(map[string]struct{})
	}
	l.holds[ticket] = struct{}{}
	l.count.Add(1)
	return true
}

// ends forgets a hold, and reports whether it was known.
func (l *tooLong) ends(ticket string) bool {
	if l.count.Load() == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.holds[ticket]; !ok {
		return false
	}
	delete(l.holds, ticket)
	l.count.Add(-1)
	return true
}
