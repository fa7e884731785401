package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

func barrierCases() []trial {
	return []trial{
		{name: "parties go on together, each in its place", run: meet, needs: []need{waits}},
		{name: "nobody is a generation ahead", run: generations},
		{name: "a party that gives up breaks the barrier for all", run: giveUp},
		{name: "a reset breaks the barrier and lets it begin anew", run: reset},
		{name: "a party that closes breaks the barrier", run: closeParty},
		{name: "a party that is cut off breaks the barrier", run: cutParty, timed: true, needs: []need{cuttable}},
	}
}

func (x *scene) barrier(i, parties int) Barrier {
	return x.clients[i].Barrier(x.name, parties, x.steady())
}

// beginIndex begins to wait for the other parties.
func beginIndex(ctx context.Context, b Barrier) *call[int] {
	return begin(func() (int, error) { return b.Await(ctx) })
}

// arrive begins to wait, and returns when n parties do.
func (x *scene) arrive(b Barrier, n int) *call[int] {
	c := beginIndex(x.soon(), b)
	x.queued(b, n)
	return c
}

// anew checks that a barrier of three does its work.
func (x *scene) anew() {
	x.Helper()
	var all []*call[int]
	for i := range clients {
		all = append(all, beginIndex(x.soon(), x.barrier(i, clients)))
	}
	for _, c := range all {
		value(x, c, "to meet at a barrier that was reset")
	}
}

func (x *scene) resets(b Barrier) {
	x.Helper()
	ctx := x.soon()
	value(x, beginError(func() error { return b.Reset(ctx) }), "to reset a barrier")
}

func meet(x *scene) {
	for range 2 {
		first := x.arrive(x.barrier(0, 3), 1)
		second := x.arrive(x.barrier(1, 3), 2)
		waiting(x, first, "to wait for the last party")
		waiting(x, second, "to wait for the last party")
		last := beginIndex(x.soon(), x.barrier(2, 3))
		for want, c := range []*call[int]{last, second, first} {
			if got := value(x, c, "to wait for all parties"); got != want {
				x.Fatalf("the place of a party is %d instead of %d", got, want)
			}
		}
	}
	alone := x.clients[0].Barrier(x.next(), 1, x.steady())
	if got := value(x, beginIndex(x.soon(), alone), "to wait for nobody else"); got != 0 {
		x.Fatalf("the place of the only party is %d", got)
	}
}

// generations lets the parties meet again and again, as fast as each can.
func generations(x *scene) {
	const times = 8
	var arrived [times]atomic.Int64
	var mu sync.Mutex
	places := map[[2]int]bool{}
	x.crowd(1, func(ctx context.Context, client, _ int) error {
		b := x.barrier(client, clients)
		for n := range times {
			arrived[n].Add(1)
			place, err := b.Await(ctx)
			if err != nil {
				return err
			}
			if all := arrived[n].Load(); all != clients {
				return fmt.Errorf("a party went on when %d of %d had come", all, clients)
			}
			mu.Lock()
			again := places[[2]int{n, place}]
			places[[2]int{n, place}] = true
			mu.Unlock()
			if again || place < 0 || place >= clients {
				return fmt.Errorf("the place of a party is %d, of %d, twice or never", place, clients)
			}
		}
		return nil
	})
}

func giveUp(x *scene) {
	broken := x.engine.Errors.Broken
	first := x.arrive(x.barrier(0, clients), 1)
	ctx, cancel := x.cancellable()
	second := beginIndex(ctx, x.barrier(1, clients))
	x.queued(x.barrier(1, clients), 2)
	cancel()
	failed(x, second, context.Canceled, "to cancel a wait at a barrier")
	failed(x, first, broken, "to wait with a party that gives up")
	failed(x, beginIndex(x.soon(), x.barrier(2, clients)), broken, "to come to a barrier that is broken")
	x.resets(x.barrier(2, clients))
	x.anew()

	// By itself: where nobody knows whether it has come, a reset cannot tell which generation it will be in.
	alone := x.clients[0].Barrier(x.next(), clients, x.steady())
	failed(x, beginIndex(x.shortly(), alone), context.DeadlineExceeded, "to wait longer than the context")
}

func reset(x *scene) {
	broken := x.engine.Errors.Broken
	x.resets(x.barrier(0, clients))
	x.anew()
	first := x.arrive(x.barrier(0, clients), 1)
	second := x.arrive(x.barrier(1, clients), 2)
	x.resets(x.barrier(2, clients))
	failed(x, first, broken, "to wait at a barrier that is reset")
	failed(x, second, broken, "to wait at a barrier that is reset")
	x.anew()
}

func closeParty(x *scene) {
	client, _ := x.dial()
	mine := client.Barrier(x.name, clients, x.steady())
	gone := x.arrive(mine, 1)
	other := x.arrive(x.barrier(0, clients), 2)
	ctx := x.soon()
	value(x, beginError(func() error { return client.Close(ctx) }), "to close a client")
	failed(x, gone, x.engine.Errors.Closed, "to wait at a barrier as the client closes")
	failed(x, other, x.engine.Errors.Broken, "to wait with a party whose client closes")
	failed(x, beginIndex(x.soon(), mine), x.engine.Errors.Closed, "to come to a barrier with a client that is closed")
	x.resets(x.barrier(1, clients))
	x.anew()
}

func cutParty(x *scene) {
	client, cut := x.dial()
	ctx, cancel := x.cancellable()
	lasts := x.engine.Lease
	gone := beginIndex(ctx, client.Barrier(x.name, clients, lasts))
	b := x.clients[0].Barrier(x.name, clients, lasts)
	x.queued(b, 1)
	other := beginIndex(x.within(2*lasts), b)
	x.queued(b, 2)
	cut()
	failed(x, other, x.engine.Errors.Broken, "to wait with a party that is cut off")
	cancel()
	failed(x, gone, nil, "to cancel a wait at a barrier, cut off")
}
