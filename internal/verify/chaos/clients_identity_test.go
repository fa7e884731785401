package chaos

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/crowd"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/reentrant"
)

// Two processes that are copies of each other: the same program, plan and name.
func TestC11CopiesOfAProcessDoNotEnterEachOthersHolds(t *testing.T) {
	t.Parallel()
	r := begin(t, "C11")
	copied := crowd.Plan{Kind: crowd.Reentrant, Names: []string{"copy"}, Clients: 1, Waiters: 1, Lease: time.Second, Keep: true, Entries: 2}
	first := r.crowd(copied)
	held := first.Await(crowd.Held, 1, kit.Patience)[0]
	second := r.crowd(copied)
	m := reentrant.New(r.dial(), "copy")
	kit.Waiting(t, 1, m.Inspect)
	kit.Eventually(t, "some renewals beside the wait", func() bool {
		info, err := m.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, held.Client, info.Holder.Client)
		require.Equal(t, 1, info.Waiting)
		return time.Since(info.Holder.Since) > 2*time.Second
	})
	first.Kill()
	next := second.Await(crowd.Held, 1, kit.Patience)[0]
	require.NotEqual(t, held.Client, next.Client)
	require.Len(t, held.Client, 22, "128 bits")
	require.Greater(t, next.Token, held.Token)
	second.Release()
	require.Empty(t, second.Await(crowd.Released, 1, kit.Patience)[0].Error)
	r.everybody()
	r.finish()
}

func TestC12AHoldThatWasLostCannotBeEnteredAgain(t *testing.T) {
	t.Parallel()
	r := begin(t, "C12")
	p := kit.Proxy(t, r.server)
	m, other := reentrant.New(r.dial(kit.Through(p)), "entered", headwaiter.WithLease(time.Second)), reentrant.New(r.dial(), "entered")
	l := kit.Lock(t.Context(), m.Lock).Value(t)
	again, err := m.Lock(l.Context())
	require.NoError(t, err)
	require.Equal(t, l.Token(), again.Token())
	next := kit.Lock(t.Context(), other.Lock)
	kit.Waiting(t, 1, other.Inspect)
	p.Drop()
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
	require.ErrorIs(t, kit.Lost(t, again), lease.ErrExpired)
	l2 := next.Value(t)
	p.Heal()
	require.Zero(t, m.HoldCount(l.Context()))
	_, err = m.Lock(l.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	anew := kit.Lock(context.WithoutCancel(l.Context()), m.Lock)
	kit.Waiting(t, 1, other.Inspect) // It asks like everybody.
	require.ErrorIs(t, again.Release(t.Context()), lease.ErrLost)
	require.ErrorIs(t, l.Release(t.Context()), lease.ErrLost)
	require.NoError(t, l2.Context().Err())
	kit.Release(t, l2)
	l3 := anew.Value(t)
	require.Greater(t, l3.Token(), l2.Token())
	require.Equal(t, 1, m.HoldCount(l3.Context()))
	kit.Release(t, l3)
	r.everybody()
	r.finish()
}

// Not parallel: it counts the goroutines of this process.
func TestC14AClientIsClosedWhileItHoldsAndWaits(t *testing.T) {
	r := begin(t, "C14")
	const n = 50
	other := r.dial()
	busy := granted(t, fairlock.New(other, "busy"))
	before := 0
	for i := range either(3, 20) {
		if i == 1 { // Now the other client has what it keeps.
			before = runtime.NumGoroutine()
		}
		client, err := headwaiter.Dial(headwaiter.Options{Redis: r.server.Option()})
		require.NoError(t, err)
		m := fairlock.New(client, "busy")
		var calls []*kit.Call[*lease.Lease]
		for range n {
			calls = append(calls, kit.Lock(t.Context(), m.Lock))
		}
		kit.Waiting(t, n, m.Inspect)
		held := granted(t, fairlock.New(client, "held"))
		next := queued(t, fairlock.New(other, "held"), 1)
		require.NoError(t, client.Close(t.Context()))
		for _, c := range calls {
			require.ErrorIs(t, c.Err(t), lease.ErrClosed)
		}
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrClientClosed)
		info, err := fairlock.New(other, "busy").Inspect(t.Context())
		require.NoError(t, err)
		require.Zero(t, info.Waiting, "tickets of the closed client are queued")
		kit.Release(t, next.Value(t))
		kit.Eventually(t, "its subscriptions to end", func() bool {
			return len(r.server.List("PUBSUB", "CHANNELS", "*:wake:"+client.ID())) == 0
		})
		if i > 0 {
			kit.Eventually(t, "its goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
		}
	}
	kit.Release(t, busy)
	r.everybody()
	r.finish()
}
