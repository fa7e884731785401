package otel

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/headwaiter/headwaiter/observe"
)

const classKey = attribute.Key("headwaiter.class")

// seconds are the bounds of the histograms, from a round trip to a long wait.
var seconds = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
}

// figures are the instruments.
type figures struct {
	attempts, losses, renewals metric.Int64Counter
	waiting, holds             metric.Int64UpDownCounter
	waits, held, margins       metric.Float64Histogram
	roundTrips                 metric.Float64Histogram
	servers                    servers
	cut                        metric.Int64Counter
	events                     map[observe.EventKind]metric.Int64Counter // those that are just counted

	mu      sync.RWMutex // guards options
	options map[labels]*options
}

// labels tell the series of an instrument apart: by kind, class and outcome, or by engine, server and client.
type labels struct {
	by     *[3]attribute.Key
	values [3]string
}

var (
	byKind   = &[3]attribute.Key{kindKey, classKey, outcomeKey}
	byServer = &[3]attribute.Key{"headwaiter.engine", "headwaiter.server", "headwaiter.client"}
)

// options are labels as the instruments want them, made once: there are few.
type options struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

// counted are the moments that are just counted, each by an instrument of its own.
var counted = []struct {
	event                   observe.EventKind
	name, unit, description string
}{
	{observe.HeldLong, "headwaiter.holds.long", "{hold}", "Holds that lasted longer than Options.HeldTooLong."},
	{observe.WaitedLong, "headwaiter.waits.long", "{call}", "Calls that waited longer than Options.WaitedTooLong."},
	{observe.Wanted, "headwaiter.wanted", "{hold}", "Holds whose holders had asked to be told when somebody waits, and were."},
	{observe.HandedOff, "headwaiter.handoffs", "{handoff}", "Grants to other clients, by message, in this client's scripts."},
	{observe.Woken, "headwaiter.wakeups", "{message}", "Messages that came."},
	{observe.Skipped, "headwaiter.skipped", "{ticket}", "Tickets of dead clients that this client's scripts dropped."},
	{observe.Expired, "headwaiter.expired", "{lease}", "Leases of others that had run out when this client's scripts came."},
	{observe.Died, "headwaiter.died", "{hold}", "Holds of dead clients that this client has ended."},
	{observe.Replaced, "headwaiter.replaced", "{client}", "Clients whose identity another client has taken."},
	{observe.Rejoined, "headwaiter.rejoined", "{ticket}", "Tickets that a check found unknown and queued again."},
	{observe.Missed, "headwaiter.missed", "{message}", "Grants that a check found and no message told of."},
	{observe.Suspected, "headwaiter.suspected", "{notice}", "Times the server said that this client let a lease run out."},
	{observe.TwoMasters, "headwaiter.two_masters", "{sighting}", "Times two connections of a client saw two masters with different data."},
	{observe.Differs, "headwaiter.differing_numbers", "{request}", "Requests that stated another number of permits than the newest client before."},
	{observe.GivenBack, "headwaiter.given_back", "{grant}", "Grants that came for tickets that had ended."},
}

func newFigures(m metric.Meter) (*figures, error) {
	f := &figures{options: make(map[labels]*options), events: make(map[observe.EventKind]metric.Int64Counter)}
	var errs []error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	level := func(name, unit, description string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		errs = append(errs, err)
		return c
	}
	histogram := func(name, description string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(seconds...))
		errs = append(errs, err)
		return h
	}
	f.attempts = counter("headwaiter.attempts", "{call}", "Calls that have ended, by outcome.")
	f.losses = counter("headwaiter.losses", "{hold}", "Holds that were lost, by cause.")
	f.renewals = counter("headwaiter.renewals", "{renewal}", "Renewals, by outcome.")
	f.waiting = level("headwaiter.waiting", "{call}", "Calls of this client that wait. Those of all clients are the length of the queue.")
	f.holds = level("headwaiter.holds", "{hold}", "Holds of this client.")
	f.waits = histogram("headwaiter.wait.duration", "How long calls waited, by outcome.")
	f.held = histogram("headwaiter.hold.duration", "How long holds lasted, by outcome.")
	f.margins = histogram("headwaiter.renewal.margin", "What was left of the lease when it was renewed, or when that failed.")
	f.roundTrips = histogram("headwaiter.server.round_trip", "How long answers of a server took.")
	f.servers.known = make(map[*options]*server)
	_, err := m.Int64ObservableGauge("headwaiter.server.up", metric.WithUnit("1"), metric.WithInt64Callback(f.servers.observe),
		metric.WithDescription("1 if a server answered the last request of a client, 0 if not. It goes five minutes after that."))
	errs = append(errs, err)
	f.cut = counter("headwaiter.classes.cut", "{call}", "Calls whose class was one too many, or could not be told.")
	for _, c := range counted {
		f.events[c.event] = counter(c.name, c.unit, c.description)
	}
	return f, errors.Join(errs...)
}

// count counts one observation.
func (f *figures) count(ctx context.Context, o *observe.Observation, class string) {
	if o.Event == observe.TwoMasters || o.Event == observe.Replaced { // It has no name.
		f.events[o.Event].Add(ctx, 1)
		return
	}
	plain := f.of(byKind, o.Kind, class, "")
	switch o.Event {
	case observe.Began:
		f.waiting.Add(ctx, 1, plain.add...)
	case observe.Granted, observe.Entered, observe.Passed, observe.Failed:
		f.waiting.Add(ctx, -1, plain.add...)
		if o.Event == observe.Granted {
			f.holds.Add(ctx, 1, plain.add...)
		}
		by := f.of(byKind, o.Kind, class, outcome(o))
		f.attempts.Add(ctx, 1, by.add...)
		f.waits.Record(ctx, o.Waited.Seconds(), by.record...)
	case observe.Renewed, observe.RenewalFailed:
		word := "renewed"
		if o.Event == observe.RenewalFailed {
			word = "failed"
		}
		by := f.of(byKind, o.Kind, class, word)
		f.renewals.Add(ctx, 1, by.add...)
		f.margins.Record(ctx, o.Margin.Seconds(), by.record...)
	case observe.Released, observe.HandedOver, observe.Lost:
		f.holds.Add(ctx, -1, plain.add...)
		by := f.of(byKind, o.Kind, class, outcome(o))
		f.held.Record(ctx, o.Held.Seconds(), by.record...)
		if o.Event == observe.Lost {
			f.losses.Add(ctx, 1, by.add...)
		}
	default:
		if c := f.events[o.Event]; c != nil {
			n := int64(1)
			switch o.Event {
			case observe.Skipped, observe.Expired, observe.Died:
				n = int64(o.Count)
			case observe.HeldLong, observe.WaitedLong:
				if o.Count > 1 { // It was told before.
					return
				}
			}
			c.Add(ctx, n, plain.add...)
		}
	}
}

// of returns the options for labels. Those that are empty are left out.
func (f *figures) of(by *[3]attribute.Key, values ...string) *options {
	l := labels{by, [3]string(values)}
	f.mu.RLock()
	found := f.options[l]
	f.mu.RUnlock()
	if found != nil {
		return found
	}
	var attrs []attribute.KeyValue
	for i, value := range l.values {
		if value != "" {
			attrs = append(attrs, by[i].String(value))
		}
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	f.mu.Lock()
	defer f.mu.Unlock()
	if found = f.options[l]; found == nil {
		found = &options{[]metric.AddOption{set}, []metric.RecordOption{set}, []metric.ObserveOption{set}}
		f.options[l] = found
	}
	return found
}

// classes tells a bounded number of classes of names apart.
type classes struct {
	class func(name string) string
	most  int
	cut   metric.Int64Counter

	mu    sync.RWMutex // guards known
	known map[string]struct{}
}

func newClasses(class func(string) string, most int, cut metric.Int64Counter) *classes {
	return &classes{class: class, most: most, cut: cut, known: make(map[string]struct{})}
}

// of is the class of a name, or other where there are too many, or the function panics: that must not end a lock.
func (c *classes) of(name string) (class string) {
	defer func() {
		if recover() != nil {
			c.cut.Add(context.Background(), 1)
			class = other
		}
	}()
	class = c.class(name)
	c.mu.RLock()
	_, ok := c.known[class]
	c.mu.RUnlock()
	if ok {
		return class
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok = c.known[class]; !ok && len(c.known) >= c.most {
		c.cut.Add(context.Background(), 1)
		return other
	}
	c.known[class] = struct{}{}
	return class
}
