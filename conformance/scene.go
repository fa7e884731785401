package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// A scene is one case at work: its test, its clients, and the name of its object.
type scene struct {
	testing.TB
	*stage
	make func(c Client, name string, lease time.Duration) any // an object of the kind
	name string
}

// A door is a name that one at a time may hold, whatever its kind.
type door struct {
	Lock, TryLock func(ctx context.Context) (*lease.Lease, error)
	Do            func(ctx context.Context, f func(context.Context) error) error // nil if there is none
	object        any
}

type locker interface {
	Lock(ctx context.Context) (*lease.Lease, error)
	TryLock(ctx context.Context) (*lease.Lease, error)
}

type doer interface {
	Do(ctx context.Context, f func(context.Context) error) error
}

// door returns the name of the case as one of the clients sees it.
func (x *scene) door(i int) door { return x.doorOf(x.clients[i], x.name, x.steady()) }

// brief is a door with the shortest lease.
func (x *scene) brief(i int) door { return x.doorOf(x.clients[i], x.name, x.engine.Lease) }

func (x *scene) doorOf(c Client, name string, lasts time.Duration) door {
	return newDoor(x.make(c, name, lasts))
}

func newDoor(object any) door {
	if s, is := object.(Semaphore); is {
		return door{
			Lock:    func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 1) },
			TryLock: func(ctx context.Context) (*lease.Lease, error) { return s.TryAcquire(ctx, 1) },
			Do:      func(ctx context.Context, f func(context.Context) error) error { return s.Do(ctx, 1, f) },
			object:  object,
		}
	}
	l := object.(locker)
	d := door{Lock: l.Lock, TryLock: l.TryLock, object: object}
	if l, is := object.(doer); is {
		d.Do = l.Do
	}
	return d
}

// steady is a lease that no case sees the end of.
func (x *scene) steady() time.Duration { return max(steady*x.engine.Patience, x.engine.Lease) }

// dial returns a client for this case alone, and what cuts it off. After that nothing that its Close says matters.
func (x *scene) dial() (c Client, cut func()) {
	x.Helper()
	c, alone := x.dialAlone()
	return c, func() { alone(c.Cut) }
}

// dialSilent is dial for a client whose server is to be silent.
func (x *scene) dialSilent() (c Client, silence func()) {
	x.Helper()
	c, alone := x.dialAlone()
	return c, func() { alone(c.Silence) }
}

// dialAlone returns a client, and what does something to it after which nobody answers it.
func (x *scene) dialAlone() (c Client, leave func(how func())) {
	x.Helper()
	c = x.engine.Dial(x.TB)
	alone := false
	x.Cleanup(func() {
		limit := x.engine.Patience
		if alone {
			limit = time.Second / 10 // Nobody will answer it.
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := c.Close(ctx); err != nil && !alone {
			x.Errorf("closing a client: %v", err)
		}
	})
	return c, func(how func()) {
		alone = true
		how()
	}
}

// soon is a context for what must come.
func (x *scene) soon() context.Context { return x.within(0) }

// within is one for what must come after so much time.
func (x *scene) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(x.Context(), d+x.engine.Patience)
	x.Cleanup(cancel)
	return ctx
}

// shortly is one for what must not come. It gives what has gone wrong the time to show, also on a busy machine.
func (x *scene) shortly() context.Context {
	ctx, cancel := context.WithTimeout(x.Context(), 200*time.Millisecond)
	x.Cleanup(cancel)
	return ctx
}

// cancellable is a context that the case ends, and that ends with it.
func (x *scene) cancellable() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(x.Context())
	x.Cleanup(cancel)
	return ctx, cancel
}

// A call runs at the same time as the case.
type call[T any] struct {
	done  chan struct{} // closed when it has returned; then the fields below are set
	value T
	err   error
}

// begin begins a call.
func begin[T any](f func() (T, error)) *call[T] {
	c := &call[T]{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.value, c.err = f()
	}()
	return c
}

// beginLock begins a call for a hold.
func beginLock(ctx context.Context, lock func(context.Context) (*lease.Lease, error)) *call[*lease.Lease] {
	return begin(func() (*lease.Lease, error) { return lock(ctx) })
}

// beginError begins a call that returns an error alone.
func beginError(f func() error) *call[struct{}] {
	return begin(func() (struct{}, error) { return struct{}{}, f() })
}

func (c *call[T]) returned() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// result waits for the end of a call. It waits longer than any context lasts, so that what takes no notice of
// its context is told apart.
func result[T any](x *scene, c *call[T], what string) (T, error) {
	x.Helper()
	if !closed(c.done, 2*x.engine.Patience+3*x.engine.Lease) {
		x.Fatalf("%s: the call did not return, though its context or its wait had ended", what)
	}
	return c.value, c.err
}

// value is the result of a call that must succeed.
func value[T any](x *scene, c *call[T], what string) T {
	x.Helper()
	v, err := result(x, c, what)
	if err != nil {
		x.Fatalf("%s: %v", what, err)
	}
	return v
}

// held is the lease that a call must return.
func (x *scene) held(c *call[*lease.Lease], what string) *lease.Lease {
	x.Helper()
	l := value(x, c, what)
	if l == nil {
		x.Fatalf("%s: the call returned neither a lease nor an error", what)
	}
	return l
}

// refused waits for a call that must fail, with an error that wraps want if that is not nil.
func (x *scene) refused(c *call[*lease.Lease], want error, what string) {
	x.Helper()
	l, err := result(x, c, what)
	switch {
	case err == nil:
		x.Fatalf("%s: the call holds", what)
	case l != nil:
		x.Fatalf("%s: the call returned a lease with its error: %v", what, err)
	}
	x.wraps(err, want, what)
}

// failed waits for a call of another sort that must fail.
func failed[T any](x *scene, c *call[T], want error, what string) {
	x.Helper()
	_, err := result(x, c, what)
	if err == nil {
		x.Fatalf("%s: the call returned no error", what)
	}
	x.wraps(err, want, what)
}

func (x *scene) wraps(err, want error, what string) {
	x.Helper()
	if want != nil && !errors.Is(err, want) {
		x.Fatalf("%s: the error %q does not wrap %q", what, err, want)
	}
}

// lock waits for a hold.
func (x *scene) lock(d door, what string) *lease.Lease {
	x.Helper()
	return x.held(beginLock(x.soon(), d.Lock), what)
}

// try tries for a hold, which must be free.
func (x *scene) try(d door, what string) *lease.Lease {
	x.Helper()
	return x.held(beginLock(x.soon(), d.TryLock), what)
}

// busy tries for what must not be had.
func (x *scene) busy(d door, what string) {
	x.Helper()
	x.refused(beginLock(x.soon(), d.TryLock), x.engine.Errors.Busy, what)
}

// release gives a hold back.
func (x *scene) release(l *lease.Lease) {
	x.Helper()
	ctx := x.soon()
	value(x, beginError(func() error { return l.Release(ctx) }), "to release what is held")
}

// unreleased checks that a release fails with an error.
func (x *scene) unreleased(l *lease.Lease, want error, what string) {
	x.Helper()
	ctx := x.soon()
	failed(x, beginError(func() error { return l.Release(ctx) }), want, what)
}

// free waits until nobody holds, and releases: who was cancelled may leave a little later than its call returns.
func (x *scene) free(d door, what string) {
	x.Helper()
	var l *lease.Lease
	x.eventually(what, func() bool {
		got, err := result(x, beginLock(x.soon(), d.TryLock), what)
		if err != nil {
			x.wraps(err, x.engine.Errors.Busy, what)
		}
		l = got
		return err == nil
	})
	x.release(l)
}

// lost waits for the end of a hold that is not released, and checks how it ended.
func (x *scene) lost(l *lease.Lease, what string) {
	x.Helper()
	x.ends(l.Context(), what)
	if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrLost) {
		x.Fatalf("%s: the cause of the end of the context is %q, which is no lease.ErrLost", what, cause)
	}
}

// ends waits for the end of a context.
func (x *scene) ends(ctx context.Context, what string) {
	x.Helper()
	if !closed(ctx.Done(), x.engine.Patience+x.engine.Lease) {
		x.Fatalf("%s: the context did not end", what)
	}
}

// brokenBy takes the holds of an object away.
func (x *scene) brokenBy(object any) {
	x.Helper()
	ctx := x.soon()
	value(x, beginError(func() error { return object.(Breaks).Break(ctx) }), "to take the hold away")
}

// queued waits until n calls wait for an object. Where it does not tell, some time must do.
func (x *scene) queued(object any, n int) {
	x.Helper()
	w, is := object.(Waits)
	if !is {
		x.pause(max(x.engine.Lease/20, 20*time.Millisecond))
		return
	}
	ctx := x.within(x.engine.Patience) // The loop gives up before.
	what := fmt.Sprintf("%d calls should wait", n)
	if n == 1 {
		what = "1 call should wait"
	}
	x.eventually(what, func() bool {
		return n == value(x, begin(func() (int, error) { return w.Waiting(ctx) }), "to ask who waits")
	})
}

// waits begins a call for a hold, and waits until it is one of n waiters.
func (x *scene) waits(ctx context.Context, d door, n int) *call[*lease.Lease] {
	x.Helper()
	c := beginLock(ctx, d.Lock)
	x.queued(d.object, n)
	return c
}

// waiting checks that a call has not returned.
func waiting[T any](x *scene, c *call[T], what string) {
	x.Helper()
	if c.returned() {
		x.Fatalf("%s: the call did not wait, it returned %v, %v", what, c.value, c.err)
	}
}

// eventually waits until something is so that nobody reports.
func (x *scene) eventually(what string, is func() bool) {
	x.Helper()
	end := time.Now().Add(x.engine.Patience)
	for wait := time.Millisecond; !is(); wait = min(2*wait, 50*time.Millisecond) {
		if time.Now().After(end) {
			x.Fatalf("waited %v in vain: %s", x.engine.Patience, what)
		}
		x.pause(wait)
	}
}

func (x *scene) pause(d time.Duration) { closed(x.Context().Done(), d) }

// closed waits for a channel to be closed, and reports false if that takes longer than the limit.
func closed(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// crowd runs f for every client in that many goroutines each, and fails with the first error that one returns;
// it ends the context of the others.
func (x *scene) crowd(each int, f func(ctx context.Context, client, worker int) error) {
	x.Helper()
	ctx, cancel := context.WithCancelCause(x.soon())
	defer cancel(nil)
	all := beginError(func() error {
		var group sync.WaitGroup
		for i := range each * clients {
			group.Go(func() {
				if err := f(ctx, i%clients, i); err != nil {
					cancel(err)
				}
			})
		}
		group.Wait()
		return context.Cause(ctx)
	})
	value(x, all, "several clients at once")
}
