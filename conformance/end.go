package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

func releaseEndsContext(x *scene) {
	a, b := x.door(0), x.door(1)
	l := x.lock(a, "to lock what is free")
	ctx := l.Context()
	if err := ctx.Err(); err != nil {
		x.Fatalf("the context of a hold has ended as it begins: %v", context.Cause(ctx))
	}
	if left := time.Until(l.Deadline()); left <= 0 {
		x.Fatalf("the deadline of a hold passed %v before it began", -left)
	}
	next := x.waits(x.soon(), b, 1)
	x.release(l)
	if cause := context.Cause(ctx); !errors.Is(cause, lease.ErrReleased) {
		x.Fatalf("the cause of the end of a hold that was released is %v", cause)
	}
	x.release(x.held(next, "to be next"))
}

func releaseTwice(x *scene) {
	a, b, c := x.door(0), x.door(1), x.door(2)
	l := x.lock(a, "to lock what is free")
	next := x.waits(x.soon(), b, 1)
	x.release(l)
	second := x.held(next, "to be next")
	x.unreleased(l, lease.ErrReleased, "to release a second time")
	x.busy(c, "to try for what the next holds, after a second release by the one before")
	if second.Context().Err() != nil {
		x.Fatalf("a second release has ended the hold of the next: %v", context.Cause(second.Context()))
	}
	x.release(second)
}

func releaseByMany(x *scene) {
	const many = 8
	a, b := x.door(0), x.door(1)
	l := x.lock(a, "to lock what is free")
	ctx := x.soon()
	var calls []*call[struct{}]
	for range many {
		calls = append(calls, beginError(func() error { return l.Release(ctx) }))
	}
	good := 0
	for _, c := range calls {
		_, err := result(x, c, "to release")
		if err == nil {
			good++
			continue
		}
		x.wraps(err, lease.ErrReleased, "to release what another goroutine releases")
	}
	if good != 1 {
		x.Fatalf("%d releases of one hold have returned nil", good)
	}
	x.free(b, "what was released should be free")
}

// lossTold takes a hold away that nobody waits for: its client may hear of that as late as with its next renewal.
func lossTold(x *scene) {
	a, b := x.brief(0), x.brief(1)
	l := x.lock(a, "to lock what is free")
	x.brokenBy(b.object)
	x.lost(l, "when the hold was taken away")
	x.unreleased(l, lease.ErrLost, "to release what was lost")
	x.free(b, "what was taken away should be free")
}

func releaseLost(x *scene) {
	a, b, c := x.door(0), x.door(1), x.door(2)
	l := x.lock(a, "to lock what is free")
	next := x.waits(x.soon(), b, 1)
	x.brokenBy(c.object)
	second := x.held(next, "to be next after a loss")
	x.unreleased(l, lease.ErrLost, "to release what was lost")
	x.busy(c, "to try for what the next holds, after the release of the one that lost it")
	if second.Context().Err() != nil {
		x.Fatalf("the release of a lost hold has ended the next one's: %v", context.Cause(second.Context()))
	}
	x.release(second)
}

// renewed holds for more than a lease, while another waits.
func renewed(x *scene) {
	a, b, c := x.brief(0), x.door(1), x.door(2)
	l := x.lock(a, "to lock what is free")
	first := l.Deadline()
	next := x.waits(x.within(2*x.engine.Lease), b, 1)
	x.keeps(l)
	if !l.Deadline().After(first) {
		x.Fatalf("the deadline of a hold that was renewed is still %v", first)
	}
	waiting(x, next, "to wait for longer than a lease")
	x.busy(c, "to try for what has been held for longer than a lease")
	x.release(l)
	x.release(x.held(next, "to be next after a long hold"))
}

// renewedNext holds for more than a lease what was waited for.
func renewedNext(x *scene) {
	a, b, c := x.door(0), x.brief(1), x.door(2)
	l := x.lock(a, "to lock what is free")
	next := x.waits(x.soon(), b, 1)
	x.release(l)
	l = x.held(next, "to be next")
	x.keeps(l)
	x.busy(c, "to try for what has been held for longer than a lease after a wait")
	x.release(l)
}

// keeps waits for more than a lease, in which the hold must not end.
func (x *scene) keeps(l *lease.Lease) {
	x.Helper()
	if closed(l.Context().Done(), x.engine.Lease+x.engine.Lease/4) {
		x.Fatalf("a hold has ended in spite of renewals: %v", context.Cause(l.Context()))
	}
	if l.Context().Err() != nil || !l.Deadline().After(time.Now()) {
		x.Fatalf("the deadline of a hold has passed in spite of renewals: %v", l.Deadline())
	}
}

// cutHolder is what a lease is for: the next holds when it is over, not earlier, and he who held knows.
func cutHolder(x *scene) {
	client, cut := x.dial()
	a, b, c := x.doorOf(client, x.name, x.engine.Lease), x.door(1), x.door(2)
	l := x.lock(a, "to lock what is free")
	next := x.waits(x.within(2*x.engine.Lease), b, 1)
	cut()
	second := x.held(next, "to be next when the lease of a client that was cut off is over")
	if x.engine.Told && l.Context().Err() == nil {
		x.Fatalf("the next holds, and the client that was cut off does not know that it lost: its deadline is %v from now",
			time.Until(l.Deadline()))
	}
	if x.engine.Told {
		x.lost(l, "when the client was cut off")
	}
	if x.engine.Fenced && second.Token() <= l.Token() {
		x.Fatalf("the token after a loss is %d, the one before was %d", second.Token(), l.Token())
	}
	ctx, cancel := context.WithTimeout(x.Context(), x.engine.Lease)
	defer cancel()
	failed(x, beginError(func() error { return l.Release(ctx) }), nil, "to release what was lost, cut off")
	x.busy(c, "to try for what the next holds")
	x.release(second)
}

// cutWaiter cuts off the one whose turn it is.
func cutWaiter(x *scene) {
	client, cut := x.dial()
	a, b, c := x.door(0), x.doorOf(client, x.name, x.engine.Lease), x.door(2)
	l := x.lock(a, "to lock what is free")
	ctx, cancel := x.cancellable()
	gone := x.waits(ctx, b, 1)
	next := x.waits(x.within(3*x.engine.Lease), c, 2)
	cut()
	x.release(l)
	l = x.held(next, "to be next after a client that was cut off while it waited")
	waiting(x, gone, "to lock, cut off")
	x.release(l)
	cancel()
	x.refused(gone, context.Canceled, "to cancel a wait, cut off")
	x.free(a, "it should be free when who waited cut off has left")
}

// cutClose closes a client that can reach nobody, while it holds and waits.
func cutClose(x *scene) {
	client, cut := x.dial()
	other := x.next()
	theirs := x.lock(x.doorOf(x.clients[1], other, x.steady()), "to lock what is free")
	l := x.lock(x.doorOf(client, x.name, x.engine.Lease), "to lock what is free")
	unreachable := x.doorOf(client, other, x.engine.Lease)
	wait := x.waits(x.soon(), unreachable, 1)
	cut()
	ctx, cancel := context.WithTimeout(x.Context(), x.engine.Lease)
	defer cancel()
	done := beginError(func() error { return client.Close(ctx) })
	_, _ = result(x, done, "to close a client that is cut off") // That not all was given back may be said.
	x.refused(wait, x.engine.Errors.Closed, "to wait as the client closes, cut off")
	x.lost(l, "when the client has closed, cut off")
	x.release(theirs)
	ends := x.within(2 * x.engine.Lease)
	for _, name := range []string{x.name, other} {
		d := x.doorOf(x.clients[2], name, x.steady())
		x.release(x.held(beginLock(ends, d.Lock), "to lock what a client had that is closed and cut off"))
	}
}
