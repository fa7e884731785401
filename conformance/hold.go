package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// doorCases are the cases of all that one at a time may hold.
func doorCases() []trial {
	return []trial{
		{name: "one holds at a time", run: exclude},
		{name: "what is held is busy", run: tryBusy},
		{name: "calls of one client exclude each other", run: excludeAlone},
		{name: "holds are in the order of the calls", run: inOrder, needs: []need{fair, waits}},
		{name: "a try overtakes nobody who waits", run: tryBehind, needs: []need{fair, waits}},
		{name: "tokens rise", run: tokensRise, needs: []need{fenced}},

		{name: "a context that has ended gets nothing", run: waitEnded},
		{name: "a wait ends with its deadline", run: waitDeadline},
		{name: "a cancelled wait gives up its place", run: waitCancelled},
		{name: "a call cancelled as it begins holds or has left", run: cancelAtBegin},
		{name: "a wait cancelled as it is granted holds or has left", run: cancelAtGrant},
		{name: "the context of a call does not bound its hold", run: holdOutlivesCall},
		{name: "a bound context ends with either of the two", run: boundEnds},
		{name: "a bound context ends with a loss", run: boundLost, timed: true, needs: []need{told, breaks}},

		{name: "a release ends the context of the hold", run: releaseEndsContext},
		{name: "a second release says so and frees nothing", run: releaseTwice},
		{name: "of many releases at once one is the release", run: releaseByMany},
		{name: "a loss is told to its holder", run: lossTold, timed: true, needs: []need{told, breaks}},
		{name: "a release after a loss says so and frees nothing", run: releaseLost, needs: []need{breaks}},

		{name: "a hold is renewed", run: renewed, timed: true},
		{name: "a hold that was waited for is renewed", run: renewedNext, timed: true},
		{name: "a holder that is cut off loses its hold", run: cutHolder, timed: true, needs: []need{cuttable}},
		{name: "a waiter that is cut off holds up nobody", run: cutWaiter, timed: true, needs: []need{cuttable}},
		{name: "a client that is cut off can be closed", run: cutClose, timed: true, needs: []need{cuttable}},
		{name: "a release waits for a silent server no longer than the lease", run: silentRelease, timed: true, needs: []need{silenceable}},
		{name: "a wait says that it was the server that was silent", run: silentWait, timed: true, needs: []need{silenceable}},
		{name: "a client can be closed though the server is silent", run: silentClose, timed: true, needs: []need{silenceable}},
		{name: "a client that closes gives everything back", run: closing},
		{name: "calls and clients leave no goroutine behind", run: goroutines},
	}
}

// doCases are those of what has a Do.
func doCases() []trial {
	return []trial{
		{name: "Do holds while its function runs", run: doHolds, needs: []need{does}},
		{name: "Do releases when its function panics", run: doPanics, needs: []need{does}},
		{name: "Do calls nothing without a hold", run: doNothing, needs: []need{does}},
		{name: "Do ends the context of its function with the call's", run: doCancelled, needs: []need{does}},
		{name: "Do tells a loss", run: doLost, timed: true, needs: []need{does, told, breaks}},
		{name: "Do waits for a silent server no longer than the lease", run: silentDo, timed: true, needs: []need{does, silenceable}},
	}
}

// exclude lets two goroutines of each client count, a step that takes all of them for itself.
func exclude(x *scene) {
	const each, rounds = 2, 6
	var inside, count atomic.Int64
	var last atomic.Uint64
	x.crowd(each, func(ctx context.Context, client, _ int) error {
		d := x.door(client)
		for range rounds {
			l, err := d.Lock(ctx)
			if err != nil {
				return err
			}
			if inside.Add(1) != 1 {
				return errors.New("two hold at once")
			}
			n := count.Load()
			x.pause(time.Millisecond) // A client that should not be let in comes now.
			count.Store(n + 1)
			if before := last.Swap(l.Token()); x.engine.Fenced && l.Token() <= before {
				return errors.New("a token is not above the one before")
			}
			inside.Add(-1)
			if err := l.Release(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if n := count.Load(); n != each*clients*rounds {
		x.Fatalf("%d holds have counted to %d", each*clients*rounds, n)
	}
}

func tryBusy(x *scene) {
	a, b, c := x.door(0), x.door(1), x.door(2)
	l := x.try(a, "to try for what is free")
	x.busy(b, "to try for what another client holds")
	x.queued(b.object, 0)
	x.release(l)
	x.release(x.try(c, "to try after a try that failed"))
	x.release(x.lock(b, "to lock after that"))
}

// excludeAlone is for engines in which a session holds, not a call.
func excludeAlone(x *scene) {
	one, other := x.door(0), x.door(0)
	l := x.lock(one, "to lock what is free")
	x.busy(one, "to try for what the same handle holds")
	x.busy(other, "to try for what another handle of the same client holds")
	second := x.waits(x.soon(), one, 1)
	third := x.waits(x.soon(), other, 2)
	waiting(x, second, "to lock what the same handle holds")
	waiting(x, third, "to lock what another handle of the same client holds")
	x.release(l)
	// Whichever comes first, the other waits for it.
	var next *lease.Lease
	rest := third
	select {
	case <-second.done:
		next = x.held(second, "to lock after a release by the same client")
	case <-third.done:
		next, rest = x.held(third, "to lock after a release by the same client"), second
	case <-x.soon().Done():
		x.Fatalf("nobody holds after a release by the same client")
	}
	x.busy(other, "to try for what a call of the same client waited for")
	waiting(x, rest, "to lock what another call of the same client waited for")
	x.release(next)
	x.release(x.held(rest, "to lock after another call of the same client"))
}

func inOrder(x *scene) {
	l := x.lock(x.door(0), "to lock what is free")
	var mu sync.Mutex
	var got, want []int
	var calls []*call[struct{}]
	for i, client := range []int{1, 2, 0, 0, 2, 1} {
		d, ctx := x.door(client), x.soon()
		calls = append(calls, beginError(func() error {
			l, err := d.Lock(ctx)
			if err != nil {
				return err
			}
			mu.Lock()
			got = append(got, i)
			mu.Unlock()
			return l.Release(ctx)
		}))
		x.queued(d.object, i+1)
		want = append(want, i)
	}
	x.release(l)
	for _, c := range calls {
		value(x, c, "to wait after others")
	}
	if !slices.Equal(got, want) {
		x.Fatalf("calls that came one after the other got their holds in the order %v", got)
	}
}

// tryBehind tries at once after a release: then somebody who waited holds, or still waits.
func tryBehind(x *scene) {
	for range 5 {
		a, b, c := x.door(0), x.door(1), x.door(2)
		l := x.lock(a, "to lock what is free")
		queued := x.waits(x.soon(), b, 1)
		x.busy(c, "to try for what is held and waited for")
		x.release(l)
		x.busy(c, "to try after a release that somebody has waited for")
		x.release(x.held(queued, "to wait while others try"))
	}
}

// tokensRise takes a token in all ways in which one is got.
func tokensRise(x *scene) {
	var last uint64
	rises := func(l *lease.Lease, how string) {
		x.Helper()
		if l.Token() <= last {
			x.Fatalf("the token of a hold that was got %s is %d, the one before was %d", how, l.Token(), last)
		}
		last = l.Token()
	}
	a, b, c := x.door(0), x.door(1), x.door(2)
	l := x.lock(a, "to lock what is free")
	if rises(l, "first"); l.Token() != last {
		x.Fatalf("the token of a hold changed from %d to %d", last, l.Token())
	}
	x.release(l)
	l = x.lock(a, "to lock again")
	rises(l, "by the same client")
	x.release(l)
	l = x.try(c, "to try")
	rises(l, "by a try of another client")
	next := x.waits(x.soon(), b, 1)
	x.release(l)
	l = x.held(next, "to wait")
	rises(l, "by a wait")
	if _, is := b.object.(Breaks); is {
		next = beginLock(x.soon(), a.Lock)
		x.queued(a.object, 1)
		x.brokenBy(b.object)
		l = x.held(next, "to wait for a hold that is taken away")
		rises(l, "after a loss")
	}
	x.release(l)
}
