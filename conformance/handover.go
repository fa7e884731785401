package conformance

import (
	"context"
	"errors"

	"github.com/headwaiter/headwaiter/lease"
)

func adopts(_ *stage, c Client, _ any) string {
	return unless(c.Adopt != nil, "the client has no Adopt")
}

// adopt adopts a hold as one of the clients.
func (x *scene) adopt(i int, text, what string) *lease.Lease {
	x.Helper()
	return x.held(x.adopting(i, text), what)
}

func (x *scene) adopting(i int, text string) *call[*lease.Lease] {
	ctx := x.soon()
	return begin(func() (*lease.Lease, error) { return x.clients[i].Adopt(ctx, text, x.steady()) })
}

// unsupported hands over what may not be: then nothing has changed.
func unsupported(x *scene) {
	l := x.lock(x.door(0), "to lock what is free")
	text, err := l.HandOver(x.soon())
	switch cause := context.Cause(l.Context()); {
	case err == nil && x.clients[1].Adopt == nil:
		x.Fatalf("a hold was handed over, and the client has no Adopt")
	case err == nil:
		l = x.adopt(1, text, "to adopt what was handed over")
	case !errors.Is(err, errors.ErrUnsupported) || text != "":
		x.Fatalf("to hand over: text %q, and the error %q does not wrap %q", text, err, errors.ErrUnsupported)
	case cause != nil:
		x.Fatalf("a hold that could not be handed over has ended with %v", cause)
	}
	x.busy(x.door(2), "to try for what is held, after a hand-over")
	x.release(l)
	x.free(x.door(2), "what was released should be free")
}

// handedOver lets a hold go from client to client, though another waits.
func handedOver(x *scene) {
	l := x.lock(x.door(0), "to lock what is free")
	next := x.waits(x.soon(), x.door(2), 1)
	text, err := l.HandOver(x.soon())
	if err != nil {
		x.Fatalf("to hand over: %v", err)
	}
	if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrReleased) {
		x.Fatalf("the context of a hold that was handed over has ended with %v", cause)
	}
	x.busy(x.door(1), "to try for what is in transit")
	second := x.adopt(1, text, "to adopt what was handed over")
	if x.engine.Fenced && second.Token() <= l.Token() {
		x.Fatalf("the token of a hold that was adopted is %d, the one before was %d", second.Token(), l.Token())
	}
	x.refused(x.adopting(2, text), lease.ErrAdopted, "to adopt once more")
	x.idle(l, second)
	x.unreleased(l, lease.ErrReleased, "to release what was handed over")
	x.refused(x.adopting(2, "no text"), lease.ErrNotGenuine, "to adopt by what is no text")
	if next.returned() {
		x.Fatalf("a waiter came in between")
	}
	x.release(second)
	x.release(x.held(next, "to be next after a hold that was adopted"))
}
