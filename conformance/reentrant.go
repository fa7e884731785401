package conformance

import (
	"context"
	"errors"

	"github.com/headwaiter/headwaiter/lease"
)

func reentrantCases() []trial {
	return []trial{
		{name: "a hold is entered again by its context", run: enter},
		{name: "the last release is that of the hold, whatever the order", run: leaveInAnyOrder},
		{name: "an Unlock takes off one entry", run: unlockEntries},
		{name: "a hold is entered though others wait", run: enterBeforeOthers},
		{name: "only the context of a hold enters it", run: enterByNobodyElse},
		{name: "Do enters a hold", run: enterByDo},
		{name: "a loss ends every lease on a hold", run: loseAll, timed: true, needs: []need{told, breaks}},
	}
}

func (x *scene) reentrant(i int) Reentrant { return x.clients[i].Reentrant(x.name, x.steady()) }

// counts checks how often a hold was entered.
func (x *scene) counts(m Reentrant, ctx context.Context, want int) {
	x.Helper()
	if n := m.HoldCount(ctx); n != want {
		x.Fatalf("a hold that was entered %d times counts %d", want, n)
	}
}

func enter(x *scene) {
	m, other := x.reentrant(0), x.door(1)
	x.counts(m, x.Context(), 0)
	l := x.lock(x.door(0), "to lock what is free")
	x.counts(m, l.Context(), 1)
	type entered struct{}
	derived := context.WithValue(l.Context(), entered{}, true)
	second := x.held(beginLock(derived, m.Lock), "to enter again")
	third := x.held(beginLock(second.Bind(x.soon()), x.reentrant(0).TryLock), "to enter by a try of another handle")
	x.counts(m, l.Context(), 3)
	x.counts(m, third.Context(), 3)
	if second.Token() != l.Token() || third.Token() != l.Token() {
		x.Fatalf("the tokens of one hold are %d, %d and %d", l.Token(), second.Token(), third.Token())
	}
	for left, one := range []*lease.Lease{l, second, third} {
		x.busy(other, "to try for what is entered")
		x.counts(m, third.Context(), 3-left)
		x.release(one)
	}
	x.counts(m, third.Context(), 0)
	x.release(x.try(other, "to try for what everybody has left"))
}

func leaveInAnyOrder(x *scene) {
	m, other := x.reentrant(0), x.door(1)
	l := x.lock(x.door(0), "to lock what is free")
	inner := x.held(beginLock(l.Context(), m.Lock), "to enter again")
	next := x.waits(x.soon(), other, 1)
	x.release(l)
	if cause := context.Cause(l.Context()); !errors.Is(cause, lease.ErrReleased) {
		x.Fatalf("the cause of the end of a lease that was released is %v", cause)
	}
	if err := inner.Context().Err(); err != nil {
		x.Fatalf("a lease has ended with another on the same hold: %v", context.Cause(inner.Context()))
	}
	x.busy(x.door(2), "to try for what one lease is left of")
	waiting(x, next, "to wait for what one lease is left of")
	x.unreleased(l, lease.ErrReleased, "to release a lease twice")
	x.busy(x.door(2), "to try after one lease was released twice")
	x.release(inner)
	x.release(x.held(next, "to be next after the last release"))
}

func enterBeforeOthers(x *scene) {
	m := x.reentrant(0)
	l := x.lock(x.door(0), "to lock what is free")
	next := x.waits(x.soon(), x.door(1), 1)
	inner := x.held(beginLock(l.Context(), m.Lock), "to enter while others wait")
	tried := x.held(beginLock(l.Context(), m.TryLock), "to enter by a try while others wait")
	waiting(x, next, "to wait for what is entered")
	for _, one := range []*lease.Lease{tried, inner, l} {
		x.release(one)
	}
	x.release(x.held(next, "to be next after the last release"))
}

func enterByNobodyElse(x *scene) {
	m, stranger := x.reentrant(0), x.reentrant(1)
	l := x.lock(x.door(0), "to lock what is free")
	x.busy(x.door(0), "to try without the context of the hold")
	x.refused(beginLock(l.Context(), stranger.TryLock), x.engine.Errors.Busy,
		"to try as another client, with the context of the hold")
	x.counts(stranger, l.Context(), 0)
	elsewhere := x.clients[0].Reentrant(x.next(), x.steady())
	x.counts(elsewhere, l.Context(), 0)
	inner := x.held(beginLock(l.Context(), elsewhere.Lock), "to lock another name from within the hold")
	x.counts(elsewhere, inner.Context(), 1)
	x.counts(m, inner.Context(), 1)
	x.release(inner)
	x.release(l)
	over := context.WithoutCancel(l.Context())
	x.counts(m, over, 0)
	theirs := x.lock(x.door(1), "to lock what was released")
	x.refused(beginLock(over, m.TryLock), x.engine.Errors.Busy, "to enter a hold that is over")
	x.release(theirs)
}

func enterByDo(x *scene) {
	m, other := x.reentrant(0), x.door(1)
	depth := 0
	err := m.Do(x.soon(), func(ctx context.Context) error {
		return m.Do(ctx, func(ctx context.Context) error {
			depth = m.HoldCount(ctx)
			x.busy(other, "to try for what is entered")
			return nil
		})
	})
	if err != nil || depth != 2 {
		x.Fatalf("Do within Do has entered %d times and returned %v", depth, err)
	}
	x.free(other, "it should be free after Do")
}

func loseAll(x *scene) {
	m, other := x.clients[0].Reentrant(x.name, x.engine.Lease), x.door(1)
	l := x.lock(x.brief(0), "to lock what is free")
	inner := x.held(beginLock(l.Context(), m.Lock), "to enter again")
	x.brokenBy(other.object)
	x.lost(l, "when the hold was taken away")
	x.lost(inner, "when the hold was taken away")
	x.counts(m, context.WithoutCancel(inner.Context()), 0)
	theirs := x.lock(other, "to lock what was taken away")
	x.unreleased(inner, lease.ErrLost, "to release what was lost")
	x.unreleased(l, lease.ErrLost, "to release what was lost")
	x.busy(x.door(2), "to try for what the next holds")
	x.release(theirs)
}
