package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

func semaphoreCases() []trial {
	return []trial{
		{name: "never are more permits held than there are", run: permitsUnderLoad},
		{name: "permits are counted", run: permitsCounted},
		{name: "a small request does not overtake a large one", run: largeFirst, needs: []need{fair, waits}},
		{name: "a release serves all who fit", run: serveAll},
		{name: "an Unlock gives all permits back", run: unlockPermits},
		{name: "a large request that leaves lets small ones in", run: largeLeaves},
		{name: "what never fits is refused at once", run: neverFits},
		{name: "more permits serve those who wait, fewer keep others out", run: resize, needs: []need{resizes}},
		{name: "permits of a client that is cut off come back", run: cutPermits, timed: true, needs: []need{cuttable}},
	}
}

// permits is a semaphore of a number of permits, as a client sees it, and a number to ask for.
type permits struct {
	x *scene
	s Semaphore
}

func (x *scene) permits(i int, of int64) permits {
	return permits{x, x.clients[i].Semaphore(x.name, of, x.steady())}
}

// some is the door to n permits.
func (p permits) some(n int64) door {
	return door{
		Lock:    func(ctx context.Context) (*lease.Lease, error) { return p.s.Acquire(ctx, n) },
		TryLock: func(ctx context.Context) (*lease.Lease, error) { return p.s.TryAcquire(ctx, n) },
		object:  p.s,
	}
}

// available checks how many are free, sooner or later: who leaves may do so a little later than its call returns.
func (p permits) available(want int64) {
	p.x.Helper()
	ctx := p.x.soon()
	p.x.eventually(fmt.Sprintf("%d permits should be free", want), func() bool {
		return want == value(p.x, begin(func() (int64, error) { return p.s.Available(ctx) }), "to ask how many are free")
	})
}

func permitsUnderLoad(x *scene) {
	const each, times, all = 2, 6, 4
	var held atomic.Int64
	x.crowd(each, func(ctx context.Context, client, worker int) error {
		n := int64(1 + worker%3)
		d := x.permits(client, all).some(n)
		for range times {
			l, err := d.Lock(ctx)
			if err != nil {
				return err
			}
			if now := held.Add(n); now > all {
				return fmt.Errorf("%d permits are held, of %d", now, all)
			}
			x.pause(time.Millisecond) // A client that should not be let in comes now.
			held.Add(-n)
			if err := l.Release(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	x.permits(0, all).available(all)
}

func permitsCounted(x *scene) {
	a, b := x.permits(0, 5), x.permits(1, 5)
	two := x.lock(a.some(2), "to acquire 2 of 5 permits")
	b.available(3)
	x.busy(b.some(4), "to try for 4 permits where 3 are free")
	b.available(3)
	three := x.try(b.some(3), "to try for 3 permits where 3 are free")
	a.available(0)
	x.busy(a.some(1), "to try for a permit where none is free")
	x.release(two)
	a.available(2)
	x.release(three)
	a.available(5)
	x.release(x.lock(b.some(5), "to acquire all permits"))
}

func largeFirst(x *scene) {
	a, b, c := x.permits(0, 3), x.permits(1, 3), x.permits(2, 3)
	one, two := x.lock(a.some(1), "to acquire 1 of 3 permits"), x.lock(a.some(1), "to acquire another")
	large := x.waits(x.soon(), b.some(3), 1)
	small := x.waits(x.soon(), c.some(1), 2)
	waiting(x, large, "to acquire 3 permits where 1 is free")
	waiting(x, small, "to acquire 1 permit after a larger request")
	x.busy(a.some(1), "to try for 1 permit while a larger request waits")
	x.release(one)
	a.available(2)
	x.queued(b.s, 2)
	waiting(x, small, "to acquire 1 permit after a larger request, after a release that was not enough for it")
	x.release(two)
	three := x.held(large, "to acquire all permits when they are free")
	waiting(x, small, "to acquire 1 permit where none is free")
	x.release(three)
	x.release(x.held(small, "to acquire 1 permit after a larger request"))
}

func serveAll(x *scene) {
	a, b, c := x.permits(0, 4), x.permits(1, 4), x.permits(2, 4)
	all := x.lock(a.some(4), "to acquire all permits")
	one := x.waits(x.soon(), b.some(2), 1)
	two := x.waits(x.soon(), c.some(1), 2)
	three := x.waits(x.soon(), b.some(1), 3)
	x.release(all)
	var held []*lease.Lease
	for _, c := range []*call[*lease.Lease]{one, two, three} {
		held = append(held, x.held(c, "to acquire permits with others that a release has served"))
	}
	a.available(0)
	for _, l := range held {
		x.release(l)
	}
	a.available(4)
}

func largeLeaves(x *scene) {
	a, b, c := x.permits(0, 3), x.permits(1, 3), x.permits(2, 3)
	two := x.lock(a.some(2), "to acquire 2 of 3 permits")
	ctx, cancel := x.cancellable()
	large := x.waits(ctx, b.some(2), 1)
	small := beginLock(x.soon(), c.some(1).Lock)
	if x.engine.Fair {
		x.queued(b.s, 2)
		waiting(x, small, "to acquire 1 permit after a larger request")
	}
	cancel()
	x.refused(large, context.Canceled, "to cancel a wait for 2 permits")
	x.release(x.held(small, "to acquire 1 permit when the larger request ahead has left"))
	x.release(two)
	a.available(3)
}

func neverFits(x *scene) {
	a := x.permits(0, 2)
	for _, n := range []int64{3, 1 << 40} {
		what := fmt.Sprintf("to ask for %d of 2 permits", n)
		x.refused(beginLock(x.soon(), a.some(n).Lock), x.engine.Errors.TooLarge, what)
		x.refused(beginLock(x.soon(), a.some(n).TryLock), x.engine.Errors.TooLarge, what)
	}
	for _, n := range []int64{0, -1, -1 << 63} {
		x.unusable(a.some(n), fmt.Sprintf("to ask for %d permits", n))
	}
	for _, of := range []int64{0, -1} {
		none := permits{x, x.clients[0].Semaphore(x.next(), of, x.steady())}
		x.unusable(none.some(1), fmt.Sprintf("to use a semaphore of %d permits", of))
	}
	x.release(x.try(a.some(2), "to try for all permits after requests that were refused"))
}

// unusable checks that a request is refused because of what it is, not because it would have to wait.
func (x *scene) unusable(d door, what string) {
	x.Helper()
	for _, ask := range []func(context.Context) (*lease.Lease, error){d.Lock, d.TryLock} {
		ctx := x.soon()
		c := beginLock(ctx, ask)
		x.refused(c, nil, what)
		if ctx.Err() != nil || errors.Is(c.err, x.engine.Errors.Busy) {
			x.Fatalf("%s: it is not refused, it waits: %v", what, c.err)
		}
	}
}

func resize(x *scene) {
	a, b, c := x.permits(0, 2), x.permits(1, 2), x.permits(2, 2)
	change := func(to int64) {
		ctx := x.soon()
		value(x, beginError(func() error { return a.s.(Resizes).Resize(ctx, to) }), fmt.Sprintf("to resize to %d", to))
	}
	two := x.lock(a.some(2), "to acquire all permits")
	next := x.waits(x.soon(), b.some(2), 1)
	change(4)
	more := x.held(next, "to acquire permits that a resize has added")
	x.busy(c.some(1), "to try for a permit where none is free")
	change(2)
	for _, l := range []*lease.Lease{two, more} {
		if err := l.Context().Err(); err != nil {
			x.Fatalf("a resize has ended a hold: %v", context.Cause(l.Context()))
		}
	}
	x.release(two)
	x.busy(c.some(1), "to try for a permit that a resize has taken away")
	x.release(more)
	c.available(2)
	x.release(x.try(c.some(2), "to try for all permits that are left"))
}

func cutPermits(x *scene) {
	client, cut := x.dial()
	mine := permits{x, client.Semaphore(x.name, 3, x.engine.Lease)}
	a := x.permits(0, 3)
	l := x.lock(mine.some(2), "to acquire 2 of 3 permits")
	one := x.lock(a.some(1), "to acquire what is left")
	next := x.waits(x.within(2*x.engine.Lease), x.permits(1, 3).some(2), 1)
	cut()
	theirs := x.held(next, "to acquire permits when the lease of a client that was cut off is over")
	if x.engine.Told && l.Context().Err() == nil {
		x.Fatalf("the permits are held, and the client that was cut off does not know that it lost them")
	}
	if one.Context().Err() != nil {
		x.Fatalf("a client has lost its permits because another was cut off: %v", context.Cause(one.Context()))
	}
	x.release(theirs)
	x.release(one)
	a.available(3)
}
