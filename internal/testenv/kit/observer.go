package kit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/observe"
)

// An Observer keeps what it is told. As a tracer it numbers the calls, and has grants carry what Carry says.
type Observer struct {
	// Carry is the note of each hold; nil for the number of its call.
	Carry func() string

	mu    sync.Mutex // guards the fields below
	calls int
	told  []Told
}

// Told is an observation, and the number of its call: 0 for none of this client.
type Told struct {
	observe.Observation
	Call int
	Ctx  context.Context
}

// callKey and holdKey find what an observer put into a context.
type (
	callKey struct{ o *Observer }
	holdKey struct{ o *Observer }
)

// Observe keeps it.
func (o *Observer) Observe(ctx context.Context, x observe.Observation) {
	call, _ := ctx.Value(callKey{o}).(int)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = append(o.told, Told{x, call, ctx})
}

// Wait numbers a call.
func (o *Observer) Wait(ctx context.Context, _ observe.Observation) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls++
	return context.WithValue(ctx, callKey{o}, o.calls)
}

// Hold marks the context of a hold.
func (o *Observer) Hold(ctx context.Context, _ observe.Observation) context.Context {
	return context.WithValue(ctx, holdKey{o}, ctx.Value(callKey{o}))
}

// Note is what the grant to the next carries.
func (o *Observer) Note(ctx context.Context) string {
	if o.Carry != nil {
		return o.Carry()
	}
	return fmt.Sprint(ctx.Value(holdKey{o}))
}

// Holder is the number of the call from whose hold a context comes; 0 if from none.
func (o *Observer) Holder(ctx context.Context) int {
	call, _ := ctx.Value(holdKey{o}).(int)
	return call
}

// All returns what was told so far.
func (o *Observer) All() []Told {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.told)
}

// Of returns what was told of some events.
func (o *Observer) Of(kinds ...observe.EventKind) []Told {
	return slices.DeleteFunc(o.All(), func(x Told) bool { return !slices.Contains(kinds, x.Event) })
}

// Story is what was told of the calls, one after the other, and last what concerns the name: the events in order, each
// once where it came several times in a row.
func (o *Observer) Story() []string {
	var calls [][]string
	var name []string
	for _, x := range o.All() {
		to := &name
		if x.Call > 0 {
			for len(calls) < x.Call {
				calls = append(calls, nil)
			}
			to = &calls[x.Call-1]
		}
		*to = append(*to, x.Event.String())
	}
	var story []string
	for _, moments := range append(calls, name) {
		if len(moments) > 0 {
			story = append(story, strings.Join(slices.Compact(moments), ", "))
		}
	}
	return story
}

// Requests is an Observer that keeps what it is told of requests, too.
type Requests struct {
	Observer
	mu  sync.Mutex // guards all
	all []observe.Request
}

// ObserveRequest keeps it.
func (r *Requests) ObserveRequest(x observe.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, x)
}

// Made returns what was told so far.
func (r *Requests) Made() []observe.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Up reports whether the last request was answered.
func (r *Requests) Up() bool {
	all := r.Made()
	return len(all) > 0 && all[len(all)-1].Err == nil
}

// Observed makes a client tell an observer.
func Observed(o observe.Observer) func(*headwaiter.Options) {
	return func(opts *headwaiter.Options) { opts.Observer = o }
}
