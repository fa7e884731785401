package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

func polling(o *headwaiter.Options) { o.WithoutSubscribe = true }

func TestAClientWithoutSubscriptionsMakesNone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("ACL", "SETUSER", "lock", "reset", "on", ">secret", "allkeys", "allchannels", "allcommands", "-subscribe", "-psubscribe", "-ssubscribe")
	require.ErrorIs(t, dialError(t, s, as("lock")), lease.ErrUnusable)
	a, b := kit.Dial(t, s, as("lock"), polling), kit.Dial(t, s, as("lock"), polling)
	first := fairlock.New(a, kit.Name(t))
	second := fairlock.New(b, kit.Name(t), headwaiter.WithLease(2*time.Second))
	l := hold(t, first)
	w := begin(t.Context(), second)
	queued(t, first, 1)
	kit.Release(t, l)
	held := w.Value(t)

	// What it cannot hear of its hold it learns by its next renewal.
	_, err := first.ForceRelease(t.Context(), held.Token())
	require.NoError(t, err)
	<-held.Context().Done()
	require.ErrorIs(t, context.Cause(held.Context()), lease.ErrForced)
	for _, c := range []*headwaiter.Client{a, b} {
		require.Zero(t, c.Stats().Subscribes)
		require.Zero(t, c.Stats().Missed)
		require.Zero(t, c.Stats().Suspected)
	}
	stats := s.CommandStats()
	require.NotZero(t, stats["evalsha"])
	require.Zero(t, stats["subscribe"])
}

// A grant is there when the lock is free, and its client looks for it: soon after a short hold, and in any case before the
// grant runs out.
func TestLooksFindAGrantInTime(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := fairlock.New(kit.Dial(t, s, polling), "orders:42")
		client := kit.Dial(t, s, polling)
		waiter := fairlock.New(client, "orders:42")
		type row struct {
			held, within time.Duration
			looks        uint64
		}
		rows := []row{
			{4 * time.Millisecond, 5 * time.Millisecond, 8},
			{100 * time.Millisecond, 40 * time.Millisecond, 30},
		}
		for i := range 12 {
			rows = append(rows, row{20*time.Second + time.Duration(i)*200*time.Millisecond, 700 * time.Millisecond, 90})
		}
		for _, x := range rows {
			before := client.Stats().Checks
			l := hold(t, holder)
			w := begin(t.Context(), waiter)
			queued(t, holder, 1)
			synctime.Pass(x.held)
			released := time.Now()
			kit.Release(t, l)
			held := w.Value(t)
			require.LessOrEqual(t, time.Since(released), x.within, x.held)
			require.LessOrEqual(t, client.Stats().Checks-before, x.looks, x.held)
			kit.Release(t, held)
		}
	})
}

// Order is that of the queue, and the looks of a crowd are bounded: those at its end look rarely.
func TestACrowdThatLooksIsServedInOrder(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := fairlock.New(kit.Dial(t, s, polling), "orders:42")
		l := hold(t, holder)
		const crowd = 32
		var clients []*headwaiter.Client
		var calls []*call
		served := make(chan int, crowd)
		for i := range crowd {
			c := kit.Dial(t, s, polling)
			clients = append(clients, c)
			calls = append(calls, kit.Go(func() (*lease.Lease, error) {
				l, err := fairlock.New(c, "orders:42").Lock(t.Context())
				if err == nil {
					served <- i
					err = l.Release(t.Context())
				}
				return l, err
			}))
			queued(t, holder, i+1)
		}
		looks := func() (n uint64) {
			for _, c := range clients {
				n += c.Stats().Checks
			}
			return n
		}
		synctime.Pass(5 * time.Second)
		before := looks()
		synctime.Pass(5 * time.Second)
		require.InDelta(t, 310, looks()-before, 60, "32 clients, each every 500 to 532 ms")

		kit.Release(t, l)
		begun := time.Now()
		for i := range crowd {
			calls[i].Value(t)
			require.Equal(t, i, <-served)
		}
		require.Less(t, time.Since(begun), 3*time.Second)
		for _, c := range clients {
			require.Zero(t, c.Stats().Suspected, "a grant ran out")
		}
	})
}

// Nobody can be seen to be dead, so one that is costs a grant lease.
func TestADeadWaiterAmongThoseThatLookCostsAGrantLease(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := fairlock.New(kit.Dial(t, s, polling), "orders:42")
		d := faults.NewDialer(t, s.Dial)
		l := hold(t, holder)
		begin(t.Context(), fairlock.New(kit.Dial(t, s, polling, kit.Over(d)), "orders:42"))
		queued(t, holder, 1)
		w := begin(t.Context(), fairlock.New(kit.Dial(t, s, polling), "orders:42"))
		queued(t, holder, 2)
		d.Refuse()
		d.Cut()
		released := time.Now()
		kit.Release(t, l)
		w.Value(t)
		require.InDelta(t, 2.3, time.Since(released).Seconds(), 0.4)
		d.Heal()
	})
}
