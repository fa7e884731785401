package conformance

import "github.com/headwaiter/headwaiter/lease"

// previousCases are those of exclusive holds that are told how the hold before ended.
func previousCases() []trial {
	return []trial{
		{name: "a hold is told how the one before it ended", run: previousTold, needs: []need{remembers, breaks}},
		{name: "an engine that does not remember says so", run: previousUnknown},
	}
}

// ended fails unless a hold was told that the one before it, nil if there was none, ended so.
func (x *scene) ended(l, before *lease.Lease, want lease.EndingKind, what string) {
	x.Helper()
	p := l.Previous()
	if p.Kind != want {
		x.Fatalf("%s: the hold before ended %q, not %q", what, p, want)
	}
	if before != nil && p.Token != 0 && x.engine.Fenced && p.Token != before.Token() {
		x.Fatalf("%s: the hold before ended %q, and its token was %d", what, p, before.Token())
	}
}

func previousTold(x *scene) {
	a, b, c := x.door(0), x.door(1), x.door(2)
	first := x.lock(a, "to lock what is free")
	x.ended(first, nil, lease.EndingUnknown, "there was none")
	next := x.waits(x.soon(), b, 1)
	x.release(first)
	second := x.held(next, "to be next after a release")
	x.ended(second, first, lease.EndingReleased, "it was handed on")
	next = x.waits(x.soon(), a, 1)
	x.brokenBy(c.object)
	third := x.held(next, "to be next after a loss")
	x.ended(third, second, lease.EndingForced, "it was taken away")
	x.brokenBy(c.object)
	// No try: a request of the call that got third may be late, and take it for a moment. That hold was not used, and hides nothing.
	fourth := x.lock(b, "to lock what was taken away")
	x.ended(fourth, third, lease.EndingForced, "it was taken away, and nobody waited")
	x.release(fourth)
	fifth := x.lock(b, "to lock what was released")
	x.ended(fifth, fourth, lease.EndingReleased, "it was told before")
	x.ended(third, second, lease.EndingForced, "it is told once more")
	x.release(fifth)
}

func previousUnknown(x *scene) {
	l := x.lock(x.door(0), "to lock what is free")
	x.release(l)
	second := x.lock(x.door(1), "to lock what was released")
	want := lease.EndingUnknown
	if _, shared := x.door(0).object.(Semaphore); x.engine.Remembers && !shared {
		want = lease.EndingReleased
	}
	x.ended(second, l, want, "it was released")
	x.release(second)
}
