package conformance

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"

	"github.com/headwaiter/headwaiter/lease"
)

// closing closes a client that holds one name and waits for another.
func closing(x *scene) {
	client, _ := x.dial()
	other := x.next()
	theirs := x.lock(x.doorOf(x.clients[1], other, x.steady()), "to lock what is free")
	mine := x.doorOf(client, x.name, x.steady())
	l := x.lock(mine, "to lock what is free")
	next := x.waits(x.soon(), x.door(1), 1)
	away := x.doorOf(client, other, x.steady())
	wait := x.waits(x.soon(), away, 1)

	ctx := x.soon()
	value(x, beginError(func() error { return client.Close(ctx) }), "to close a client")
	x.refused(wait, x.engine.Errors.Closed, "to wait as the client closes")
	x.lost(l, "when the client has closed")
	failed(x, beginError(func() error { return l.Release(ctx) }), lease.ErrLost, "to release what was lost by closing")
	x.refused(beginLock(ctx, mine.Lock), x.engine.Errors.Closed, "to lock with a client that is closed")
	x.refused(beginLock(ctx, mine.TryLock), x.engine.Errors.Closed, "to try with a client that is closed")
	value(x, beginError(func() error { return client.Close(ctx) }), "to close a client again")

	x.release(x.held(next, "to be next after a client that has closed"))
	x.release(theirs)
	x.free(x.doorOf(x.clients[2], other, x.steady()), "what a client waited for that has closed should be free")
}

// label marks goroutines; those that they start inherit it.
const label = "conformance"

// goroutines counts those that a client of its own has started, in all that a call can come to.
func goroutines(x *scene) {
	const times = 12
	mark := x.next()
	if n := x.born(mark); n != 0 {
		x.Fatalf("%d goroutines have the label of nobody", n)
	}
	inside := func(f func()) { pprof.Do(x.Context(), pprof.Labels(label, mark), func(context.Context) { f() }) }
	var client Client
	inside(func() {
		if n := x.born(mark); n != 1 {
			x.Fatalf("the goroutines of a client cannot be counted: this one counts as %d", n)
		}
		client, _ = x.dial()
	})
	mine, theirs := x.doorOf(client, x.name, x.steady()), x.door(1)
	turn := func() {
		l := x.lock(theirs, "to lock what is free")
		inside(func() { x.busy(mine, "to try for what is held") })
		ctx, cancel := x.cancellable()
		var wait, next *call[*lease.Lease]
		inside(func() { wait = beginLock(ctx, mine.Lock) })
		x.queued(theirs.object, 1)
		inside(func() { next = beginLock(x.soon(), mine.Lock) })
		x.queued(theirs.object, 2)
		cancel()
		x.refused(wait, context.Canceled, "to cancel a wait")
		x.release(l)
		l = x.held(next, "to be next")
		inside(func() { x.release(l) })
	}
	turn()
	before := x.born(mark)
	for range times {
		turn()
	}
	// Pools may have grown by a few; what leaks leaks every time.
	x.eventually(fmt.Sprintf("%d calls should leave no goroutines, there were %d", 3*times, before), func() bool {
		return x.born(mark) < before+times/2
	})
	inside(func() {
		ctx := x.soon()
		value(x, beginError(func() error { return client.Close(ctx) }), "to close a client")
	})
	x.eventually("a client that is closed should leave no goroutines", func() bool { return x.born(mark) == 0 })
}

// born counts the goroutines with a label.
func (x *scene) born(mark string) int {
	x.Helper()
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		x.Fatalf("to count goroutines: %v", err)
	}
	// 3 @ 0x47f0ce 0x41b1b6
	// # labels: {"conformance":"the mark"}
	count, same := 0, 0
	for line := range strings.Lines(profile.String()) {
		var n int
		if _, err := fmt.Sscanf(line, "%d @ ", &n); err == nil {
			same = n
			continue
		}
		if strings.HasPrefix(line, "# labels:") && strings.Contains(line, fmt.Sprintf("%q:%q", label, mark)) {
			count += same
		}
	}
	return count
}
