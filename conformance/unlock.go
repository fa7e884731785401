package conformance

import (
	"context"
	"errors"

	"github.com/headwaiter/headwaiter/lease"
)

// unlockCases are those of an Unlock, which every lease has.
func unlockCases() []trial {
	return []trial{
		{name: "an Unlock gives back without a word", run: unlockGives},
		{name: "a second Unlock does nothing", run: unlockTwice},
		{name: "an Unlock after a release does nothing", run: unlockReleased},
		{name: "an Unlock after a loss does nothing", run: unlockLost, timed: true, needs: []need{breaks}},
		{name: "no call overtakes the Unlock of its client", run: unlockThenTry},
		{name: "a client that closes waits for its Unlocks", run: unlockThenClose},
		{name: "what cannot be handed over stays as it is", run: unsupported},
		{name: "an Unlock that is cut off costs a lease", run: unlockThenCut, timed: true, needs: []need{cuttable}},
	}
}

// unlocked checks how a lease ends that is unlocked.
func (x *scene) unlocked(l *lease.Lease) {
	x.Helper()
	l.Unlock()
	if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrReleased) {
		x.Fatalf("the context of a hold that was unlocked has ended with %v", cause)
	}
}

func unlockGives(x *scene) {
	a, b, c := x.door(0), x.door(1), x.door(2)
	l := x.lock(a, "to lock what is free")
	next := x.waits(x.soon(), b, 1)
	x.unlocked(l)
	l = x.held(next, "to be next after an Unlock")
	x.busy(c, "to try for what the next holds after an Unlock")
	x.unlocked(l)
	x.free(c, "what was unlocked should be free")
	var nobody *lease.Lease
	nobody.Unlock()
}

// idle checks that an Unlock has no effect on the hold of another.
func (x *scene) idle(l, another *lease.Lease) {
	x.Helper()
	l.Unlock()
	x.busy(x.door(2), "to try for what the next holds, after an Unlock that is to do nothing")
	if err := context.Cause(another.Context()); err != nil {
		x.Fatalf("an Unlock that is to do nothing has ended another hold: %v", err)
	}
}

func unlockTwice(x *scene) {
	l := x.lock(x.door(0), "to lock what is free")
	next := x.waits(x.soon(), x.door(1), 1)
	x.unlocked(l)
	second := x.held(next, "to be next after an Unlock")
	x.idle(l, second)
	x.unreleased(l, lease.ErrReleased, "to release what was unlocked")
	x.busy(x.door(2), "to try for what the next holds, after a release of what was unlocked")
	x.release(second)
}

func unlockReleased(x *scene) {
	l := x.lock(x.door(0), "to lock what is free")
	next := x.waits(x.soon(), x.door(1), 1)
	x.release(l)
	second := x.held(next, "to be next after a release")
	x.idle(l, second)
	x.release(second)
}

func unlockLost(x *scene) {
	a, b := x.brief(0), x.door(1)
	l := x.lock(a, "to lock what is free")
	next := x.waits(x.soon(), b, 1)
	x.brokenBy(b.object)
	second := x.held(next, "to be next after a loss")
	if x.engine.Told {
		x.lost(l, "when it was taken away")
	}
	x.idle(l, second)
	if cause := context.Cause(l.Context()); x.engine.Told && !errors.Is(cause, lease.ErrLost) {
		x.Fatalf("an Unlock has changed the cause of a loss to %v", cause)
	}
	x.release(second)
}

// unlockThenTry tries at once for what was unlocked, which only its own Unlock could keep it from.
func unlockThenTry(x *scene) {
	a, b := x.door(0), x.door(1)
	l := x.lock(a, "to lock what is free")
	for range 20 {
		before := l.Token()
		x.unlocked(l)
		l = x.try(a, "to try right after an Unlock of the same client")
		if x.engine.Fenced && l.Token() <= before {
			x.Fatalf("the token of a hold right after an Unlock is %d, the one before was %d", l.Token(), before)
		}
		x.unlocked(l)
		l = x.lock(a, "to lock right after an Unlock of the same client")
	}
	next := x.waits(x.soon(), b, 1)
	x.unlocked(l)
	x.busy(a, "to try right after an Unlock that somebody has waited for")
	x.release(x.held(next, "to be next after an Unlock"))
}

func unlockThenClose(x *scene) {
	client, _ := x.dial()
	l := x.lock(x.doorOf(client, x.name, x.steady()), "to lock what is free")
	x.unlocked(l)
	ctx := x.soon()
	value(x, beginError(func() error { return client.Close(ctx) }), "to close a client after an Unlock")
	if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrReleased) {
		x.Fatalf("the context of a hold that was unlocked has ended with %v when its client closed", cause)
	}
	x.release(x.try(x.door(1), "to try for what a client has unlocked that is closed"))
}

func unlockThenCut(x *scene) {
	client, cut := x.dial()
	l := x.lock(x.doorOf(client, x.name, x.engine.Lease), "to lock what is free")
	next := x.waits(x.within(2*x.engine.Lease), x.door(1), 1)
	l.Unlock()
	cut()
	x.release(x.held(next, "to be next after an Unlock that was cut off"))
}

// unlockPermits gives back several permits at once.
func unlockPermits(x *scene) {
	s, others := x.permits(0, 4), x.permits(1, 4)
	l := x.lock(s.some(3), "to take 3 permits of 4")
	next := x.waits(x.soon(), others.some(4), 1)
	x.unlocked(l)
	x.release(x.held(next, "to take all permits after an Unlock of 3"))
}

// unlockEntries takes off one entry each.
func unlockEntries(x *scene) {
	d := x.door(0)
	outer := x.lock(d, "to lock what is free")
	inner := x.held(beginLock(outer.Context(), d.Lock), "to enter again")
	x.unlocked(inner)
	if err := context.Cause(outer.Context()); err != nil {
		x.Fatalf("the Unlock of an inner hold has ended the outer one: %v", err)
	}
	x.busy(x.door(1), "to try for what is held after the Unlock of an inner hold")
	x.unlocked(outer)
	x.free(x.door(1), "it should be free after the last Unlock")
}
