package enginetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// ClientsHoldInOrder has 32 clients with two calls each.
func (r Rig) ClientsHoldInOrder(t *testing.T) {
	const clients, rounds = 32, 2
	first := r.one(t, Long)
	var locks []Mutex
	for range clients {
		locks = append(locks, r.one(t, Long))
	}
	var mu sync.Mutex
	var got, want []int
	l := Locked(t, first)
	var calls []*kit.Call[struct{}]
	for i := range clients * rounds {
		calls = append(calls, kit.Run(func() error {
			return locks[i%clients].Do(t.Context(), func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, i)
				return nil
			})
		}))
		kit.Waiting(t, i+1, first.Inspect)
		want = append(want, i)
	}
	kit.Release(t, l)
	for _, call := range calls {
		require.NoError(t, call.Err(t))
	}
	require.Equal(t, want, got)
}

// CyclesWithCancels has four workers, two on each of two clients, lock and release a thousand times, or give up; and
// waits until nothing is left of that.
func (r Rig) CyclesWithCancels(t *testing.T, a, b Client) {
	const workers, cycles = 4, 250
	locks := []Mutex{a.Mutex("one", engine.Limits{}), b.Mutex("one", engine.Limits{})}
	var held, gaveUp atomic.Int64
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := range cycles {
				cycle(t, locks[w%2], time.Duration(i%8)*time.Millisecond, &held, &gaveUp)
			}
		})
	}
	kit.AllMoving(t, &group, func() int64 { return held.Load() + gaveUp.Load() })
	require.NotZero(t, held.Load())
	require.NotZero(t, gaveUp.Load())
	require.EqualValues(t, workers*cycles, held.Load()+gaveUp.Load())
	r.Empty(t)
}

// cycle locks and releases, with an end after which it gives up; 0 stands for none.
func cycle(t *testing.T, m Mutex, limit time.Duration, held, gaveUp *atomic.Int64) {
	ctx, cancel := context.WithCancel(t.Context())
	if limit > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), limit)
	}
	defer cancel()
	l, err := m.Lock(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		gaveUp.Add(1)
		return
	}
	if err != nil {
		t.Error(err)
		return
	}
	held.Add(1)
	_ = l.Release(ctx) // Where that has ended, what is there goes in the background.
}

// AWaiterThatLeavesFromTheMiddleLetsNobodyIn early.
func (r Rig) AWaiterThatLeavesFromTheMiddleLetsNobodyIn(t *testing.T) {
	m := r.one(t, Short)
	l := Locked(t, m)
	ctx, cancel := context.WithCancel(t.Context())
	middle := kit.Lock(ctx, r.one(t, Short).Lock)
	kit.Waiting(t, 1, m.Inspect)
	last := Queued(t, r.one(t, Short), 2)
	cancel()
	require.ErrorIs(t, middle.Err(t), context.Canceled)
	kit.Waiting(t, 1, m.Inspect)
	ended, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	_, err := m.TryLock(ended)
	require.Error(t, err)
	require.False(t, last.Returned())
	require.NoError(t, l.Context().Err())
	kit.Release(t, l)
	kit.Release(t, last.Value(t))
}
