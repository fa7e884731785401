package conformance

import (
	"context"

	"github.com/headwaiter/headwaiter/lease"
)

// inTime waits for a call that nobody answers. It must return when the lease is over; there is some time more for a
// machine that is busy.
func inTime[T any](x *scene, c *call[T], what string) error {
	x.Helper()
	if !closed(c.done, x.engine.Lease+x.engine.Patience/2) {
		x.Fatalf("%s: the call did not return, though the lease is over", what)
	}
	return c.err
}

// silentRelease releases without a limit of its own.
func silentRelease(x *scene) {
	client, silence := x.dialSilent()
	l := x.lock(x.doorOf(client, x.name, x.engine.Lease), "to lock what is free")
	silence()
	release := beginError(func() error { return l.Release(context.Background()) })
	if inTime(x, release, "to release while the server is silent") == nil {
		x.Fatalf("a release has succeeded that nobody answered")
	}
	next := beginLock(x.within(2*x.engine.Lease), x.door(1).Lock)
	x.release(x.held(next, "to be next when the lease of a client is over whose server was silent"))
}

// silentDo is that for the release that Do makes.
func silentDo(x *scene) {
	client, silence := x.dialSilent()
	d := x.doorOf(client, x.name, x.engine.Lease)
	do := beginError(func() error {
		return d.Do(x.Context(), func(context.Context) error {
			silence()
			return nil
		})
	})
	if inTime(x, do, "to release in Do while the server is silent") == nil {
		x.Fatalf("Do has succeeded, though nobody answered its release")
	}
}

// silentWait waits in line while the server falls silent, and then asks it. Either says that it was the server.
func silentWait(x *scene) {
	client, silence := x.dialSilent()
	l := x.lock(x.doorOf(x.clients[1], x.name, x.steady()), "to lock what is free")
	d := x.doorOf(client, x.name, x.steady())
	ctx, cancel := context.WithTimeout(x.Context(), 2*x.engine.Lease)
	defer cancel()
	queued := x.waits(ctx, d, 1)
	silence()
	x.refused(queued, lease.ErrUnavailable, "to wait while the server falls silent")
	x.wraps(queued.err, context.DeadlineExceeded, "to wait while the server falls silent")
	short, stop := context.WithTimeout(x.Context(), x.engine.Lease)
	defer stop()
	x.refused(beginLock(short, d.Lock), lease.ErrUnavailable, "to lock while the server is silent")
	x.release(l)
}

// silentClose closes a client that holds and waits.
func silentClose(x *scene) {
	client, silence := x.dialSilent()
	other := x.next()
	theirs := x.lock(x.doorOf(x.clients[1], other, x.steady()), "to lock what is free")
	l := x.lock(x.doorOf(client, x.name, x.engine.Lease), "to lock what is free")
	wait := x.waits(x.soon(), x.doorOf(client, other, x.engine.Lease), 1)
	silence()
	ctx, cancel := context.WithTimeout(x.Context(), x.engine.Lease/4)
	defer cancel()
	// That not all was given back may be said.
	_ = inTime(x, beginError(func() error { return client.Close(ctx) }), "to close a client whose server is silent")
	x.refused(wait, x.engine.Errors.Closed, "to wait as the client closes, whose server is silent")
	x.lost(l, "when the client has closed, whose server is silent")
	x.release(theirs)
}
