package otel

import (
	"context"
	"encoding/hex"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// The names of the spans.
const (
	waitSpan = "headwaiter wait"
	holdSpan = "headwaiter hold"
)

// The attributes. OpenTelemetry's conventions have none for locks, except for what failed.
const (
	kindKey     = attribute.Key("headwaiter.kind")
	nameKey     = attribute.Key("headwaiter.name")
	ticketKey   = attribute.Key("headwaiter.ticket")
	tokenKey    = attribute.Key("headwaiter.token")
	outcomeKey  = attribute.Key("headwaiter.outcome")
	placeKey    = attribute.Key("headwaiter.place")
	waitingKey  = attribute.Key("headwaiter.waiting")
	marginKey   = attribute.Key("headwaiter.margin") // seconds, as all spans of time
	heldKey     = attribute.Key("headwaiter.held")
	holderKey   = attribute.Key("headwaiter.holder")
	relationKey = attribute.Key("headwaiter.relation")
	previousKey = attribute.Key("headwaiter.previous")
	errorKey    = attribute.Key("error.type")
	messageKey  = attribute.Key("error.message")
)

// startWait begins the span of a wait. There is none where the provider makes none, and no span around the call either.
func (t *Tracer) startWait(ctx context.Context, o *observe.Observation) (context.Context, trace.Span) {
	within, span := t.start(ctx, waitSpan, o)
	if !span.SpanContext().IsValid() {
		return ctx, nil
	}
	return within, span
}

// startHold ends the span of the wait, and begins the span of the hold.
func (t *Tracer) startHold(c *call, o *observe.Observation) trace.Span {
	if c.wait.IsRecording() {
		if former := spanOf(o.Note); former.IsValid() {
			c.wait.AddLink(trace.Link{
				SpanContext: former, Attributes: []attribute.KeyValue{relationKey.String("former holder")},
			})
		}
		c.wait.SetAttributes(outcomeKey.String(granted))
	}
	c.wait.End()
	_, span := t.start(c.home, holdSpan, o)
	if span.IsRecording() {
		span.SetAttributes(tokenKey.Int64(int64(o.Token)))
		if o.Previous != "" {
			span.SetAttributes(previousKey.String(o.Previous))
		}
	}
	return span
}

// start begins a span with what a sampler may want to know.
func (t *Tracer) start(ctx context.Context, name string, o *observe.Observation) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name,
		trace.WithAttributes(kindKey.String(o.Kind), nameKey.String(o.Name), ticketKey.String(o.Ticket)))
}

// tell tells the spans of a call what has happened to it.
func (c *call) tell(o *observe.Observation) {
	switch o.Event {
	case observe.Queued:
		of := []attribute.KeyValue{placeKey.Int(o.Place), waitingKey.Int(o.Waiting)}
		if o.Waiting == 0 {
			of = of[:1]
		}
		event(c.wait, o, of...)
	case observe.WaitedLong:
		event(c.wait, o, placeKey.Int(o.Place))
	case observe.Entered, observe.Passed, observe.Failed:
		end(c.wait, o)
	case observe.Renewed:
		event(c.hold, o, marginKey.Float64(o.Margin.Seconds()))
	case observe.RenewalFailed:
		event(c.hold, o, marginKey.Float64(o.Margin.Seconds()), errorKey.String(typeOf(o.Err)), messageKey.String(text(o.Err)))
	case observe.HeldLong:
		event(c.hold, o, heldKey.Float64(o.Held.Seconds()), holderKey.String(o.Who))
	case observe.Wanted:
		event(c.hold, o, heldKey.Float64(o.Held.Seconds()))
	case observe.Released, observe.HandedOver, observe.Lost:
		end(c.hold, o)
	}
}

// event adds one to a span, if there is such a span.
func event(span trace.Span, o *observe.Observation, attrs ...attribute.KeyValue) {
	if span != nil && span.IsRecording() {
		span.AddEvent(o.Event.String(), trace.WithAttributes(attrs...))
	}
}

// end ends a span, if there is such a span. To find a lock busy, or to be called back, is no failure.
func end(span trace.Span, o *observe.Observation) {
	if span == nil {
		return
	}
	if span.IsRecording() {
		what := outcome(o)
		span.SetAttributes(outcomeKey.String(what))
		if o.Err != nil && what != busy && what != cancelled {
			span.SetAttributes(errorKey.String(typeOf(o.Err)))
			span.SetStatus(codes.Error, o.Err.Error())
		}
	}
	span.End()
}

// The outcomes of waits and holds, in addition to what typeOf says of failures and losses.
const (
	granted  = "granted"
	entered  = "entered"
	passed   = "passed"
	released = "released"

	handedOver = "handed_over"

	busy      = "busy"
	cancelled = "cancelled"
	other     = "other"
)

// outcome is what a call or hold has come to: one of a few words.
func outcome(o *observe.Observation) string {
	switch o.Event {
	case observe.Granted:
		return granted
	case observe.Entered:
		return entered
	case observe.Passed:
		return passed
	case observe.Released:
		if o.Err == nil {
			return released
		}
	case observe.HandedOver:
		if o.Err == nil {
			return handedOver
		}
	}
	return typeOf(o.Err)
}

// types are words for errors. The first that an error wraps is meant.
var types = []struct {
	err  error
	word string
}{
	{lease.ErrBusy, busy},
	{lease.ErrQueueFull, "full"},
	{lease.ErrExpired, "expired"},
	{lease.ErrForced, "forced"},
	{lease.ErrReplaced, "replaced"},
	{lease.ErrForgotten, "forgotten"},
	{lease.ErrMaxHold, "max_hold"},
	{lease.ErrStalled, "stalled"},
	{lease.ErrClientClosed, "closed"},
	{lease.ErrUnconfirmed, "unconfirmed"},
	{lease.ErrUnwoken, "unwoken"},
	{lease.ErrClosed, "closed"},
	{lease.ErrReplicas, "replicas"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, cancelled},
}

// typeOf is a word for an error: one of a few.
func typeOf(err error) string {
	for _, t := range types {
		if errors.Is(err, t.err) {
			return t.word
		}
	}
	return other
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A note is the identity of a span as the header traceparent of W3C Trace Context has it, the flag of sampling included.
// What tracestate adds to it is left out: a note has no room for that.

// noteOf is what a grant carries of a span.
func noteOf(span trace.SpanContext) string {
	in, id := span.TraceID(), span.SpanID()
	note := append(make([]byte, 0, len("00-")+2*len(in)+len("-")+2*len(id)+len("-01")), "00-"...)
	note = append(hex.AppendEncode(note, in[:]), '-')
	note = append(hex.AppendEncode(note, id[:]), '-')
	return string(hex.AppendEncode(note, []byte{byte(span.TraceFlags() & trace.FlagsSampled)}))
}

// spanOf is the span whose identity a grant carried. What makes no sense is none: the holder before may have
// been of another program.
func spanOf(note string) trace.SpanContext {
	if note == "" {
		return trace.SpanContext{}
	}
	header := propagation.MapCarrier{"traceparent": note}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), header))
}
