package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

func latchCases() []trial {
	return []trial{
		{name: "a latch that is not set is an error", run: latchUnset},
		{name: "only a count of at least one can be set, and only once", run: latchSet},
		{name: "all wait for the last count, also those who come late", run: latchOpens},
		{name: "counts of many clients are each told apart", run: latchCounts},
		{name: "a wait that is cancelled changes nothing", run: latchCancelled},
		{name: "an open latch can be set again", run: latchAgain},
		{name: "the waits of a client that closes end", run: latchClosed},
	}
}

func (x *scene) latch(i int) Latch { return x.clients[i].Latch(x.name) }

// The calls of a latch, begun with contexts of their own.

func (x *scene) setTo(l Latch, n int64) *call[bool] {
	ctx := x.soon()
	return begin(func() (bool, error) { return l.TrySetCount(ctx, n) })
}

func (x *scene) down(l Latch) *call[int64] {
	ctx := x.soon()
	return begin(func() (int64, error) { return l.CountDown(ctx) })
}

func (x *scene) count(l Latch) *call[int64] {
	ctx := x.soon()
	return begin(func() (int64, error) { return l.Count(ctx) })
}

func (x *scene) latchWait(l Latch) *call[struct{}] {
	ctx := x.soon()
	return beginError(func() error { return l.Wait(ctx) })
}

// set sets a latch that is not set.
func (x *scene) set(l Latch, n int64) {
	x.Helper()
	if !value(x, x.setTo(l, n), "to set a latch") {
		x.Fatalf("a latch that is not closed could not be set")
	}
}

// left takes one off and checks what is left.
func (x *scene) left(l Latch, want int64) {
	x.Helper()
	if n := value(x, x.down(l), "to count down"); n != want {
		x.Fatalf("to count down has left %d instead of %d", n, want)
	}
}

// counted checks the count.
func (x *scene) counted(l Latch, want int64) {
	x.Helper()
	if n := value(x, x.count(l), "to ask for the count"); n != want {
		x.Fatalf("the count is %d instead of %d", n, want)
	}
}

func latchUnset(x *scene) {
	l, unset := x.latch(0), x.engine.Errors.Unset
	ctx := x.soon()
	failed(x, beginError(func() error { return l.Wait(ctx) }), unset, "to wait for a latch that is not set")
	if ctx.Err() != nil {
		x.Fatalf("to wait for a latch that is not set has taken until the end of the context")
	}
	failed(x, x.count(l), unset, "to ask for the count of a latch that is not set")
	failed(x, x.down(l), unset, "to count down a latch that is not set")
	x.set(x.latch(1), 1)
	x.counted(l, 1)
}

func latchSet(x *scene) {
	a, b := x.latch(0), x.latch(1)
	for _, n := range []int64{0, -1, -1 << 63} {
		failed(x, x.setTo(a, n), nil, fmt.Sprintf("to set a latch to %d", n))
	}
	x.set(a, 3)
	for _, l := range []Latch{a, b} {
		if value(x, x.setTo(l, 5), "to set a latch that is set") {
			x.Fatalf("a latch that is closed was set")
		}
	}
	x.counted(b, 3)
}

func latchOpens(x *scene) {
	a := x.latch(0)
	x.set(a, 2)
	var opening atomic.Bool
	var all []*call[struct{}]
	for i := range clients {
		l, ctx := x.latch(i), x.soon()
		all = append(all, beginError(func() error {
			err := l.Wait(ctx)
			if err == nil && !opening.Load() {
				err = fmt.Errorf("it has returned before the last count")
			}
			return err
		}))
		x.queued(a, i+1)
	}
	x.left(x.latch(1), 1)
	x.counted(a, 1)
	late := x.shortly()
	early := beginError(func() error { return a.Wait(late) })
	failed(x, early, context.DeadlineExceeded, "to wait for a latch with one left to count")
	for _, c := range all {
		waiting(x, c, "to wait for a latch with one left to count")
	}
	opening.Store(true)
	x.left(x.latch(2), 0)
	for _, c := range all {
		value(x, c, "to wait for a latch")
	}
	value(x, x.latchWait(x.latch(1)), "to wait for a latch that is open")
	x.counted(a, 0)
	x.left(a, 0)
}

func latchCounts(x *scene) {
	const each = 6
	const all = each * clients
	x.set(x.latch(0), all)
	var mu sync.Mutex
	seen := map[int64]bool{}
	last := x.latchWait(x.latch(1))
	x.crowd(each, func(ctx context.Context, client, _ int) error {
		n, err := x.latch(client).CountDown(ctx)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[n] || n < 0 || n >= all {
			return fmt.Errorf("to count down has left %d, of %d, twice or never", n, all)
		}
		seen[n] = true
		return nil
	})
	value(x, last, "to wait for the last of many counts")
	x.counted(x.latch(2), 0)
}

func latchCancelled(x *scene) {
	a := x.latch(0)
	x.set(a, 1)
	ctx, cancel := x.cancellable()
	first := beginError(func() error { return x.latch(1).Wait(ctx) })
	x.queued(a, 1)
	second := x.latchWait(x.latch(2))
	x.queued(a, 2)
	cancel()
	failed(x, first, context.Canceled, "to cancel a wait for a latch")
	late := x.shortly()
	failed(x, beginError(func() error { return a.Wait(late) }), context.DeadlineExceeded, "to wait longer than the context")
	failed(x, beginError(func() error { return a.Wait(ctx) }), context.Canceled, "to wait with a context that has ended")
	waiting(x, second, "to wait for a latch that another has left")
	x.counted(a, 1)
	x.left(a, 0)
	value(x, second, "to wait for a latch that another has left")
}

func latchAgain(x *scene) {
	a, b := x.latch(0), x.latch(1)
	for range 3 {
		x.set(a, 1)
		wait := x.latchWait(b)
		x.queued(a, 1)
		x.left(a, 0)
		value(x, wait, "to wait for a latch that was set again")
	}
}

func latchClosed(x *scene) {
	client, _ := x.dial()
	l := client.Latch(x.name)
	x.set(x.latch(0), 1)
	wait := x.latchWait(l)
	x.queued(x.latch(0), 1)
	ctx := x.soon()
	value(x, beginError(func() error { return client.Close(ctx) }), "to close a client")
	failed(x, wait, x.engine.Errors.Closed, "to wait for a latch as the client closes")
	failed(x, x.latchWait(l), x.engine.Errors.Closed, "to wait for a latch with a client that is closed")
	x.counted(x.latch(0), 1)
}
