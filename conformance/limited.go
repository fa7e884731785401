package conformance

import (
	"context"

	"github.com/headwaiter/headwaiter/lease"
)

func limits(_ *stage, c Client, _ any) string {
	return unless(c.Limited != nil, "the client has no Limited")
}

// fullQueue lets calls come to a queue that has room for two.
func fullQueue(x *scene) {
	door := func(i int) door { return newDoor(x.clients[i].Limited(x.name, 2, x.steady())) }
	a, b, c := door(0), door(1), door(2)
	l := x.lock(a, "to lock what is free, though its queue has a limit")
	ctx, cancel := x.cancellable()
	first := x.waits(ctx, b, 1)
	second := x.waits(x.soon(), c, 2)
	for range 3 {
		x.refused(beginLock(x.soon(), a.Lock), lease.ErrQueueFull, "to lock though the queue is full")
		x.refused(beginLock(x.soon(), b.Lock), lease.ErrQueueFull, "to lock though the queue is full")
	}
	x.busy(c, "to try though the queue is full")
	x.queued(a.object, 2)
	waiting(x, first, "to wait in a queue that is full")
	waiting(x, second, "to wait in a queue that is full")

	cancel()
	x.refused(first, context.Canceled, "to cancel a wait in a queue that is full")
	x.queued(a.object, 1)
	third := x.waits(x.soon(), b, 2)
	x.release(l)
	l = x.held(second, "to be next in a queue with a limit")
	x.release(l)
	x.release(x.held(third, "to come into a queue that was full"))
	x.free(a, "what nobody waits for should be free")
}
