package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// rounds is how often a race is run.
const rounds = 12

// key is of a value in a context.
type key struct{}

func waitEnded(x *scene) {
	a, b := x.door(0), x.door(1)
	ctx, cancel := x.cancellable()
	cancel()
	x.refused(beginLock(ctx, a.Lock), context.Canceled, "to lock with a context that was cancelled")
	x.refused(beginLock(ctx, a.TryLock), context.Canceled, "to try with a context that was cancelled")
	late, stop := context.WithDeadline(x.Context(), time.Now().Add(-time.Hour))
	defer stop()
	x.refused(beginLock(late, a.Lock), context.DeadlineExceeded, "to lock with a deadline that has passed")
	x.free(b, "what nobody got should be free")
}

func waitDeadline(x *scene) {
	a, b, c := x.door(0), x.door(1), x.door(2)
	l := x.lock(a, "to lock what is free")
	ctx := x.shortly()
	x.refused(beginLock(ctx, b.Lock), context.DeadlineExceeded, "to wait longer than the context")
	if ctx.Err() == nil {
		x.Fatalf("a wait has ended before its deadline")
	}
	x.queued(b.object, 0)
	x.release(l)
	x.free(c, "what was waited for should be free")
}

func waitCancelled(x *scene) {
	a, b, c := x.door(0), x.door(1), x.door(2)
	l := x.lock(a, "to lock what is free")
	ctx, cancel := x.cancellable()
	first := x.waits(ctx, b, 1)
	second := x.waits(x.soon(), c, 2)
	waiting(x, first, "to lock what is held")
	cancel()
	x.refused(first, context.Canceled, "to cancel a wait")
	if errors.Is(first.err, lease.ErrUnavailable) {
		x.Fatalf("a wait for another holder says that the server does not answer: %v", first.err)
	}
	x.queued(c.object, 1)
	waiting(x, second, "to wait after a call that is cancelled")
	x.release(l)
	l = x.held(second, "to be next after a call that was cancelled")
	x.busy(b, "to try for what the next holds")
	x.release(l)
	x.free(a, "what was waited for should be free")
}

// cancelAtBegin cancels calls somewhere in their way to something free.
func cancelAtBegin(x *scene) {
	a, b := x.door(0), x.door(1)
	for i := range rounds {
		ctx, cancel := x.cancellable()
		c := beginLock(ctx, a.Lock)
		if i%2 == 1 {
			x.pause(time.Duration(i) * 30 * time.Microsecond)
		}
		cancel()
		x.either(c)
		x.release(x.lock(b, "to lock after a call that was cancelled as it began"))
	}
}

// cancelAtGrant cancels waits at about the time of the release that they wait for.
func cancelAtGrant(x *scene) {
	a, b, c := x.door(0), x.door(1), x.door(2)
	for i := range rounds {
		l := x.lock(a, "to lock what is free")
		ctx, cancel := x.cancellable()
		queued := x.waits(ctx, b, 1)
		release := x.soon()
		released := beginError(func() error { return l.Release(release) })
		if i%2 == 1 {
			x.pause(time.Duration(i) * 30 * time.Microsecond)
		}
		cancel()
		value(x, released, "to release while a wait is cancelled")
		x.either(queued)
		x.release(x.lock(c, "to lock after a wait that was cancelled as it was granted"))
	}
}

// either waits for a call that was cancelled: it holds, or says why not.
func (x *scene) either(c *call[*lease.Lease]) {
	x.Helper()
	l, err := result(x, c, "to cancel a call")
	switch {
	case err != nil && l != nil:
		x.Fatalf("a call that was cancelled returned a lease with its error: %v", err)
	case err != nil:
		x.wraps(err, context.Canceled, "to cancel a call")
	case l == nil:
		x.Fatalf("a call that was cancelled returned neither a lease nor an error")
	case l.Context().Err() != nil:
		x.Fatalf("a call returned a hold that has ended: %v", context.Cause(l.Context()))
	default:
		x.release(l)
	}
}

func holdOutlivesCall(x *scene) {
	a, b := x.door(0), x.door(1)
	for _, lock := range []func(context.Context) (*lease.Lease, error){a.Lock, a.TryLock} {
		ctx, cancel := x.cancellable()
		l := x.held(beginLock(context.WithValue(ctx, key{}, "value"), lock), "to lock what is free")
		cancel()
		x.refused(beginLock(x.shortly(), b.Lock), context.DeadlineExceeded,
			"to wait for what is held, though the context of its call has ended")
		if err := l.Context().Err(); err != nil {
			x.Fatalf("a hold has ended with the context of its call: %v", context.Cause(l.Context()))
		}
		if l.Context().Value(key{}) != "value" {
			x.Fatalf("the context of a hold has not the values of its call's")
		}
		x.release(l)
		x.free(b, "what was released should be free")
	}
}

// boundEnds binds a hold to a context that ends first, and then to one that does not.
func boundEnds(x *scene) {
	a, b := x.door(0), x.door(1)
	l := x.lock(a, "to lock what is free")
	ctx, cancel := x.cancellable()
	bound := l.Bind(context.WithValue(ctx, key{}, "value"))
	rest := l.Bind(x.soon())
	if err := bound.Err(); err != nil {
		x.Fatalf("a bound context has ended from the beginning: %v", context.Cause(bound))
	}
	if bound.Value(key{}) != "value" {
		x.Fatalf("a bound context has not the values that it was bound to")
	}
	if inside, _ := lease.FromContext(bound); inside != l {
		x.Fatalf("the lease that is found in a bound context is another")
	}
	cancel()
	x.ends(bound, "when the context that it is bound to is cancelled")
	if cause := context.Cause(bound); !errors.Is(cause, context.Canceled) {
		x.Fatalf("a bound context ended with the cause %v when the other was cancelled", cause)
	}
	x.busy(b, "to try for a hold after a context bound to it has ended")
	if l.Context().Err() != nil || rest.Err() != nil {
		x.Fatalf("a hold has ended with a context that is bound to it")
	}
	x.release(l)
	x.ends(rest, "when the hold is released")
	if cause := context.Cause(rest); !errors.Is(cause, lease.ErrReleased) {
		x.Fatalf("a bound context ended with the cause %v when the hold was released", cause)
	}
	x.free(b, "what was released should be free")
}

func boundLost(x *scene) {
	a, b := x.brief(0), x.brief(1)
	l := x.lock(a, "to lock what is free")
	bound := l.Bind(x.Context())
	x.brokenBy(b.object)
	x.ends(bound, "when the hold is lost")
	if cause := context.Cause(bound); !errors.Is(cause, lease.ErrLost) {
		x.Fatalf("a bound context ended with the cause %v when the hold was lost", cause)
	}
	x.free(b, "it should be free after a loss")
}

func doHolds(x *scene) {
	a, b := x.door(0), x.door(1)
	failure := errors.New("what the function returns")
	for _, want := range []error{nil, failure} {
		calls := 0
		ctx := context.WithValue(x.soon(), key{}, "value")
		var inner context.Context
		err := a.Do(ctx, func(ctx context.Context) error {
			calls++
			inner = ctx
			if ctx.Value(key{}) != "value" {
				x.Errorf("the context of the function has not the values of the call's")
			}
			if err := ctx.Err(); err != nil {
				x.Errorf("the function was called with a context that has ended: %v", context.Cause(ctx))
			}
			x.busy(b, "to try while the function runs")
			return want
		})
		if calls != 1 || !errors.Is(err, want) || (want == nil) != (err == nil) {
			x.Fatalf("Do has called %d times a function that returns %v, and returned %v", calls, want, err)
		}
		x.ends(inner, "when Do has returned")
		x.free(b, "it should be free after Do")
	}
}

func doPanics(x *scene) {
	a, b := x.door(0), x.door(1)
	failure := errors.New("what the function panics with")
	var got any
	func() {
		defer func() { got = recover() }()
		_ = a.Do(x.soon(), func(context.Context) error { panic(failure) })
	}()
	if got != failure {
		x.Fatalf("a function panics with %v, Do with %v", failure, got)
	}
	x.free(b, "it should be free after a panic in Do")
}

func doNothing(x *scene) {
	a, b := x.door(0), x.door(1)
	never := func(context.Context) error {
		x.Errorf("Do has called its function without a hold")
		return nil
	}
	gone, cancel := x.cancellable()
	cancel()
	failed(x, beginError(func() error { return a.Do(gone, never) }), context.Canceled, "Do with a context that has ended")
	l := x.lock(b, "to lock what is free")
	ctx := x.shortly()
	failed(x, beginError(func() error { return a.Do(ctx, never) }), context.DeadlineExceeded, "Do while another holds")
	x.release(l)
	x.free(b, "it should be free after calls of Do that gave up")
}

func doCancelled(x *scene) {
	a, b := x.door(0), x.door(1)
	ctx, cancel := x.cancellable()
	failure := errors.New("what the function returns")
	err := a.Do(ctx, func(inner context.Context) error {
		cancel()
		x.ends(inner, "when the context of the call is cancelled")
		x.busy(b, "to try while the function goes on")
		return failure
	})
	if !errors.Is(err, failure) || errors.Is(err, lease.ErrLost) {
		x.Fatalf("Do returned %v for a function that returned %v", err, failure)
	}
	x.free(b, "it should be free after Do")
}

func doLost(x *scene) {
	a, b := x.brief(0), x.brief(1)
	failure := errors.New("what the function returns")
	err := a.Do(x.soon(), func(ctx context.Context) error {
		x.brokenBy(b.object)
		x.ends(ctx, "when the hold is lost")
		if cause := context.Cause(ctx); !errors.Is(cause, lease.ErrLost) {
			x.Errorf("the context of the function ended with the cause %v", cause)
		}
		return failure
	})
	if !errors.Is(err, lease.ErrLost) || !errors.Is(err, failure) {
		x.Fatalf("the hold was lost and the function returned %v, but Do %v", failure, err)
	}
	x.free(b, "it should be free after a loss")
}
