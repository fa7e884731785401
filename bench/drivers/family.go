package drivers

import (
	"context"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/countdown"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

// acquire is a call that waits for a hold.
type acquire func(context.Context) (*lease.Lease, error)

// Lock implements [bench.Mutex].
func (f acquire) Lock(ctx context.Context) (bench.Hold, error) {
	l, err := f(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Of implements [bench.Family].
func (c headwaiterClient) Of(kind string, permits int, name string) bench.Mutex {
	switch kind {
	case bench.KindReentrant:
		return acquire(reentrant.New(c.Client, name).Lock)
	case bench.KindSemaphore:
		s := semaphore.New(c.Client, name, int64(permits))
		return acquire(func(ctx context.Context) (*lease.Lease, error) { return s.Acquire(ctx, 1) })
	case bench.KindRead:
		return acquire(rwlock.New(c.Client, name).RLock)
	}
	return nil
}

// Latch implements [bench.Family].
func (c headwaiterClient) Latch(name string) bench.Latch {
	return latch{countdown.New(c.Client, name), c.Client}
}

type latch struct {
	latch  *countdown.Latch
	client *headwaiter.Client
}

func (l latch) Set(ctx context.Context, count int64) error {
	_, err := l.latch.TrySetCount(ctx, count)
	return err
}

func (l latch) CountDown(ctx context.Context) error {
	_, err := l.latch.CountDown(ctx)
	return err
}

func (l latch) Wait(ctx context.Context) error { return l.latch.Wait(ctx) }

func (l latch) Waiting(ctx context.Context) (int, error) {
	info, err := l.latch.Inspect(ctx)
	return info.Waiting, err
}

func (l latch) Sent() (asks, scripts uint64) {
	s := l.client.Stats()
	return s.AcquireRequests, s.AcquireRequests + s.Checks
}
