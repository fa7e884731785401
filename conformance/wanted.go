package conformance

import (
	"github.com/headwaiter/headwaiter/lease"
)

// wantedCases are those of a holder that asks to be told when somebody waits.
func wantedCases() []trial {
	return []trial{
		{name: "a holder that asks is told when somebody waits", run: wantedWhenSomebodyWaits, needs: []need{wanted}},
		{name: "an engine that cannot tell who waits has no channel", run: wantedNever},
	}
}

// sees waits until a holder is told that somebody waits.
func (x *scene) sees(l *lease.Lease, what string) {
	x.Helper()
	select {
	case <-l.Wanted():
	case <-x.soon().Done():
		x.Fatalf("%s: nobody has told the holder", what)
	}
	if err := l.Context().Err(); err != nil {
		x.Fatalf("%s: the hold has ended with that: %v", what, err)
	}
}

// unseen fails if a holder was told.
func (x *scene) unseen(l *lease.Lease, what string) {
	x.Helper()
	select {
	case <-l.Wanted():
		x.Fatalf("%s: the holder is told that somebody waits", what)
	default:
	}
}

func wantedWhenSomebodyWaits(x *scene) {
	a, b := x.door(0), x.door(1)
	l := x.lock(a, "to lock what is free")
	x.unseen(l, "nobody waits")
	for range 20 {
		x.busy(b, "to try for what is held")
	}
	x.unseen(l, "there were tries alone")
	next := x.waits(x.soon(), b, 1)
	x.sees(l, "somebody waits")
	x.release(l)
	l = x.held(next, "to be next after a release")
	next = x.waits(x.soon(), a, 1)
	x.sees(l, "somebody has waited since before")
	x.release(l)
	x.release(x.held(next, "to be next after a release"))
}

func wantedNever(x *scene) {
	l := x.lock(x.door(0), "to lock what is free")
	if ch := l.Wanted(); (ch != nil) != x.engine.Wanted {
		x.Fatalf("there is a channel: %t, and it is promised: %t", ch != nil, x.engine.Wanted)
	}
	x.release(l)
}
