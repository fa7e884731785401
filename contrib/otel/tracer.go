package otel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// scope is what the spans and instruments are made under.
const scope = "github.com/headwaiter/headwaiter/contrib/otel"

// Options says where spans and figures go. One of the providers at least must be set; nothing is read from OpenTelemetry's
// globals, which are otel.GetTracerProvider() and otel.GetMeterProvider().
type Options struct {
	// TracerProvider makes the spans. Without one there are none.
	TracerProvider trace.TracerProvider
	// MeterProvider counts. Without one nothing is counted.
	MeterProvider metric.MeterProvider
	// Class tells what a name belongs to, for the attribute headwaiter.class of the figures: of "orders:42" perhaps
	// "orders". Each of its values costs a series in each instrument. The default is no such attribute. It is called
	// for each call, must return soon, and may be called by several goroutines.
	Class func(name string) string
	// MaxClasses is how many classes are told apart. Further ones are counted as "other", and by headwaiter.classes.cut.
	// The default is 100.
	MaxClasses int
}

const defaultMaxClasses = 100

// A Tracer is the [observe.Tracer] that makes spans and figures of what it is told. It may serve several clients.
type Tracer struct {
	tracer  trace.Tracer // nil: no spans
	figures *figures     // nil: no metrics
	classes *classes     // nil: none are told apart
}

var (
	_ observe.Tracer          = (*Tracer)(nil)
	_ observe.RequestObserver = (*Tracer)(nil)
)

// New returns a tracer for [headwaiter.Options].Observer.
func New(o Options) (*Tracer, error) {
	if o.TracerProvider == nil && o.MeterProvider == nil {
		return nil, fmt.Errorf("otel: %w: neither a tracer provider nor a meter provider", lease.ErrInvalid)
	}
	if o.MaxClasses < 0 {
		return nil, fmt.Errorf("otel: %w: %d classes at the most", lease.ErrInvalid, o.MaxClasses)
	}
	if o.MaxClasses == 0 {
		o.MaxClasses = defaultMaxClasses
	}
	t := &Tracer{}
	if o.TracerProvider != nil {
		t.tracer = o.TracerProvider.Tracer(scope)
	}
	if o.MeterProvider == nil {
		return t, nil
	}
	var err error
	if t.figures, err = newFigures(o.MeterProvider.Meter(scope)); err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	if o.Class != nil {
		t.classes = newClasses(o.Class, o.MaxClasses, t.figures.cut)
	}
	return t, nil
}

// A call is what the tracer keeps of one in its context. It does not change.
type call struct {
	class string
	home  context.Context // the parent of its spans
	wait  trace.Span      // nil without spans
	hold  trace.Span      // nil before the grant
}

// callKey finds the call of a tracer in a context.
type callKey struct{ tracer *Tracer }

func (t *Tracer) call(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{t}).(*call)
	return c
}

// Wait begins the span of a wait.
func (t *Tracer) Wait(ctx context.Context, o observe.Observation) context.Context {
	c := &call{class: t.classOf(o.Name), home: ctx}
	if t.tracer != nil {
		ctx, c.wait = t.startWait(ctx, &o)
		if !trace.SpanContextFromContext(c.home).IsValid() {
			c.home = ctx // Else the two spans of a call without one around it were strangers.
		}
	}
	return context.WithValue(ctx, callKey{t}, c)
}

// Hold ends the span of a wait and begins the span of its hold, which the context of the lease then has.
func (t *Tracer) Hold(ctx context.Context, o observe.Observation) context.Context {
	c := t.call(ctx)
	if c == nil || c.wait == nil {
		return ctx
	}
	h := *c
	h.hold = t.startHold(c, &o)
	return context.WithValue(trace.ContextWithSpan(ctx, h.hold), callKey{t}, &h)
}

// Note returns the identity of the span of a hold.
func (t *Tracer) Note(ctx context.Context) string {
	if c := t.call(ctx); c != nil && c.hold != nil {
		return noteOf(c.hold.SpanContext())
	}
	return ""
}

// Observe counts, and tells the span that it concerns.
func (t *Tracer) Observe(ctx context.Context, o observe.Observation) {
	c := t.call(ctx)
	if c != nil {
		c.tell(&o)
	}
	if t.figures == nil {
		return
	}
	class := ""
	if c != nil {
		class = c.class
	} else {
		class = t.classOf(o.Name)
	}
	t.figures.count(ctx, &o, class)
}

// ObserveRequest counts.
func (t *Tracer) ObserveRequest(r observe.Request) {
	if t.figures != nil {
		t.figures.request(&r)
	}
}

func (t *Tracer) classOf(name string) string {
	if t.classes == nil || name == "" {
		return ""
	}
	return t.classes.of(name)
}
