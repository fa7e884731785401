package fairlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// In these tests no time passes on the way to the server: what does not come at once has waited for a timer.

func TestAFirstWaitQueuesWhenItsChannelIsConfirmed(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder, waiter := dialMutex(t, s), dialMutex(t, s)
		l := hold(t, holder)
		c := begin(t.Context(), waiter)
		synctest.Wait()
		require.Equal(t, 1, inspect(t, holder).Waiting, "its place comes with a later look")
		kit.Release(t, l)
		synctest.Wait()
		require.True(t, c.Returned())
		kit.Release(t, c.Value(t))
	})
}

func TestATicketDoesNotQueueBeforeItsClientHears(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		holder, waiter := dialMutex(t, s), fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t))
		l := hold(t, holder)
		confirmations := func(push []string) bool { return push[0] == "subscribe" }
		d.LosePushes(1, confirmations)
		c := begin(t.Context(), waiter)
		synctest.Wait()
		_, lost := d.Lost()
		require.Equal(t, 1, lost)
		require.Zero(t, inspect(t, holder).Waiting, "a message to it would be lost")
		synctime.Pass(12 * time.Second) // Until the connection is asked whether it lives.
		queued(t, holder, 1)
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
		kit.Free(t, holder)
	})
}

// What comes to pass while the connection is down is seen when it is back, not when a timer runs out.
func TestAWaiterLooksWhenItsSubscriptionIsBack(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		d := faults.NewDialer(t, s.Dial)
		holder, waiter := dialMutex(t, s), fairlock.New(kit.Dial(t, s, kit.Over(d)), kit.Name(t))
		l := hold(t, holder)
		c := begin(t.Context(), waiter)
		queued(t, holder, 1)
		synctime.Pass(300 * time.Millisecond) // Its early looks are over.
		cut := time.Now()
		d.Cut()
		kit.Release(t, l)
		l = c.Value(t)
		require.Less(t, time.Since(cut), 80*time.Millisecond)
		kit.Release(t, l)
		kit.Free(t, holder)
	})
}

func TestADeadlockIsNotWaitedFor(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		m := dialMutex(t, s)
		l := hold(t, m)
		ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := m.Lock(ctx)
		require.ErrorIs(t, err, lease.ErrDeadlock)
		require.Equal(t, begun, time.Now())
		kit.Release(t, l)
	})
}
