package sim

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/barrier"
	"github.com/headwaiter/headwaiter/countdown"
)

// lifetime is how long latches and barriers outlive their use: the least there is.
const lifetime = time.Minute

func latchOf(c *headwaiter.Client, i int) *countdown.Latch {
	return countdown.New(c, name(i), countdown.WithLifetime(lifetime))
}

func (a *actor) latch(ctx context.Context, c *headwaiter.Client, call Call) *Call {
	l := latchOf(c, a.plan.Object)
	noted := a.world.begin(call)
	var place int64
	var err error
	switch call.Step.Do {
	case Set:
		var done bool
		done, err = l.TrySetCount(ctx, a.object.Size)
		if done {
			place = 1
		}
	case Down:
		place, err = l.CountDown(ctx)
	case Await:
		err = l.Wait(ctx)
	}
	a.world.end(noted, place, err, a.node.isDead())
	return noted
}

// actionTime is how long the action of a barrier takes.
const actionTime = 3 * time.Millisecond

// acts reports whether a barrier has an action.
func (o Object) acts() bool { return o.Lease == time.Second }

// barrierOf is a barrier as one client sees it.
func (w *world) barrierOf(c *headwaiter.Client, i int, o Object) *barrier.Barrier {
	opts := []barrier.Option{headwaiter.WithLease(o.Lease), barrier.WithLifetime(lifetime)}
	if o.acts() {
		opts = append(opts, barrier.WithAction(func(ctx context.Context) error {
			begin := w.now()
			select {
			case <-time.After(actionTime):
			case <-ctx.Done():
				return ctx.Err()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.actions = append(w.actions, action{i, begin, w.now()})
			return nil
		}))
	}
	return barrier.New(c, name(i), int(o.Size), opts...)
}

func (a *actor) barrier(ctx context.Context, c *headwaiter.Client, call Call) *Call {
	b := a.world.barrierOf(c, a.plan.Object, a.object)
	noted := a.world.begin(call)
	var place int
	var err error
	if call.Step.Do == Reset {
		err = b.Reset(ctx)
	} else {
		place, err = b.Await(ctx)
	}
	a.world.end(noted, int64(place), err, a.node.isDead())
	return noted
}
