package fairlock_test

import (
	"context"
	"fmt"
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

// longGrant is for clients whose grants wait long for them.
func longGrant(o *headwaiter.Options) { o.GrantLease = 10 * time.Second }

// buried makes a client queue n tickets for the lock of the test, and cuts it off.
func buried(t *testing.T, s *redistest.Embedded, m *fairlock.Mutex, n int, changes ...func(*headwaiter.Options)) {
	t.Helper()
	d := faults.NewDialer(t, s.Dial)
	dead := fairlock.New(kit.Dial(t, s, append(changes, kit.Over(d))...), kit.Name(t))
	before := inspect(t, m).Waiting
	for range n {
		begin(t.Context(), dead)
	}
	queued(t, m, before+n)
	d.Refuse()
	d.Cut()
	t.Cleanup(d.Heal)
}

// A grant that ran out makes the server call the other clients: one that does not answer soon is passed over. A client without
// subscriptions has to look in time, however long its grants may wait, and however many are ahead.
func TestAWaiterThatLooksIsNotTakenForDead(t *testing.T) {
	for _, x := range []struct {
		change        func(*headwaiter.Options)
		between, dead int
	}{{longGrant, 8, 0}, {polling, 0, 1300}} {
		t.Run(fmt.Sprint(x.dead), func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				holder := fairlock.New(kit.Dial(t, s, polling, x.change), kit.Name(t))
				l := hold(t, holder)
				buried(t, s, holder, 1, polling, x.change)
				first := begin(t.Context(), holder)
				queued(t, holder, 2)
				var calls []*call
				var clients []*headwaiter.Client
				served := make(chan int, 32)
				follow := func() {
					c, i := kit.Dial(t, s, polling, x.change), len(calls)
					clients = append(clients, c)
					calls = append(calls, kit.Go(func() (*lease.Lease, error) {
						l, err := fairlock.New(c, kit.Name(t)).Lock(t.Context())
						if err == nil {
							served <- i
							err = l.Release(t.Context())
						}
						return l, err
					}))
				}
				for range x.between {
					follow()
					queued(t, holder, 2+len(calls))
				}
				ahead := 2
				if x.dead > 0 {
					buried(t, s, holder, x.dead, polling, x.change)
					kit.Release(t, l)
					synctime.Pass(1950 * time.Millisecond) // The grant to the dead one is about to run out.
					ahead = 1 + x.dead
				}
				for range 12 {
					follow()
					queued(t, holder, ahead+len(calls))
				}
				if x.dead == 0 {
					kit.Release(t, l)
				}
				l = first.Value(t) // When that grant has run out.
				synctime.Pass(1200 * time.Millisecond)
				kit.Release(t, l)
				for i, c := range calls {
					c.Value(t)
					require.Equal(t, i, <-served)
					require.Zero(t, clients[i].Stats().Rejoined, "it was passed over")
				}
			})
		})
	}
}

// Processes that died together cost two grant leases, however many they are: the first that runs out makes the server call
// the others, and none of them answers.
func TestManyDeadWaitersAmongThoseThatLookCostTwoGrantLeases(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := fairlock.New(kit.Dial(t, s, polling), kit.Name(t))
		l := hold(t, holder)
		for range 20 {
			buried(t, s, holder, 2, polling)
		}
		w := begin(t.Context(), fairlock.New(kit.Dial(t, s, polling), kit.Name(t)))
		queued(t, holder, 41)
		released := time.Now()
		kit.Release(t, l)
		w.Value(t)
		require.InDelta(t, 4.7, time.Since(released).Seconds(), 0.8)
	})
}

// Where tokens are ahead of the clock, as after it was set back, they do not say when the last grant was.
func TestLooksThinOutAlsoWhereTokensAreAheadOfTheClock(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		lock, _, _ := keysOf(kit.Name(t))
		client := kit.Dial(t, s, polling)
		holder, waiter := fairlock.New(kit.Dial(t, s, polling), kit.Name(t)), fairlock.New(client, kit.Name(t))
		kit.Release(t, hold(t, holder))
		s.Do("HSET", lock, "token", fmt.Sprint(time.Now().Add(time.Hour).UnixMicro()))
		l := hold(t, holder)
		require.Greater(t, l.Token(), uint64(time.Now().Add(time.Minute).UnixMicro()))
		w := begin(t.Context(), waiter)
		queued(t, holder, 1)
		synctime.Pass(10 * time.Second)
		require.Less(t, client.Stats().Checks, uint64(90))
		kit.Release(t, l)
		kit.Release(t, w.Value(t))
	})
}

// A holder that hears of nothing learns by its renewals that somebody waits, which come more often while it wants to know it:
// also where its first renewal was the last.
func TestAHolderThatLooksIsToldByItsRenewals(t *testing.T) {
	for name, opts := range map[string][]fairlock.Option{
		"plain": {}, "longest hold": {headwaiter.WithMaxHold(9500 * time.Millisecond)}, "cohort": {fairlock.WithCohort(8)},
	} {
		t.Run(name, func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				client := kit.Dial(t, s, polling)
				m, waiter := fairlock.New(client, kit.Name(t), opts...), fairlock.New(kit.Dial(t, s, polling), kit.Name(t))
				l := hold(t, m)
				wanted := l.Wanted()
				synctime.Pass(5500 * time.Millisecond)
				require.False(t, kit.Closed(wanted))
				require.InDelta(t, 6, client.Stats().Renewals, 1, "one a second")
				require.True(t, inspect(t, waiter).Holder.Wants)
				begun := time.Now()
				c := begin(t.Context(), waiter)
				kit.Await(t, wanted, "the word that somebody waits")
				require.Less(t, time.Since(begun), 1100*time.Millisecond)
				renewals := client.Stats().Renewals
				synctime.Pass(2 * time.Second)
				require.LessOrEqual(t, client.Stats().Renewals, renewals+1, "it knows")
				kit.Release(t, l)
				kit.Release(t, c.Value(t))

				// And where somebody waits already, at once.
				l = hold(t, m)
				c = begin(t.Context(), waiter)
				queued(t, waiter, 1)
				begun = time.Now()
				kit.Await(t, l.Wanted(), "the word that somebody waits")
				require.Less(t, time.Since(begun), 100*time.Millisecond)
				kit.Release(t, l)
				kit.Release(t, c.Value(t))
			})
		})
	}
}

// Neither the one that gives a hold nor the one that adopts it needs a message; a waiter finds out by its looks that the hold
// was not adopted.
func TestAHoldIsHandedOverWithoutSubscriptions(t *testing.T) {
	const soon = 700 * time.Millisecond
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		from, to, waits := kit.Dial(t, s, polling), kit.Dial(t, s, polling), kit.Dial(t, s, polling)
		m, waiter := fairlock.New(from, kit.Name(t)), fairlock.New(waits, kit.Name(t))
		l := hold(t, m)
		c := begin(t.Context(), waiter)
		queued(t, m, 1)
		next, err := fairlock.Adopt(t.Context(), to, give(t, l))
		require.NoError(t, err)
		synctime.Pass(5 * time.Second)
		require.NoError(t, next.Context().Err())
		require.False(t, c.Returned())
		released := time.Now()
		kit.Release(t, next)
		l = c.Value(t)
		require.Less(t, time.Since(released), soon)

		c = begin(t.Context(), m)
		queued(t, m, 1)
		synctime.Pass(5 * time.Second)
		text, begun := give(t, l), time.Now()
		kit.Release(t, c.Value(t))
		require.GreaterOrEqual(t, time.Since(begun), 2*time.Second)
		require.Less(t, time.Since(begun), 2*time.Second+soon)
		notAdopted(t, to, text, lease.ErrExpired)
		for _, c := range []*headwaiter.Client{from, to, waits} {
			require.Zero(t, c.Stats().Suspected)
			require.Zero(t, c.Stats().Subscribes)
		}
	})
}

// A queue refuses by how many wait and since when, which the server knows of itself; a hold that was looked for is in its
// history like any other.
func TestBoundsAndHistoryNeedNoSubscriptions(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		client := kit.Dial(t, s, polling)
		opts := []fairlock.Option{fairlock.WithHistory(4), headwaiter.WithQueueLimit(2)}
		m, n := fairlock.New(client, kit.Name(t), opts...), fairlock.New(kit.Dial(t, s, polling), kit.Name(t), opts...)
		l := hold(t, m)
		first := begin(t.Context(), n)
		queued(t, m, 1)
		second := begin(t.Context(), m)
		queued(t, m, 2)
		require.Equal(t, 2, full(t, begin(t.Context(), n).Err(t)).Waiting)
		kit.Release(t, l)
		held := first.Value(t)
		third := begin(t.Context(), n) // There is room again.
		queued(t, m, 2)
		kit.Release(t, held)
		last := second.Value(t)
		synctime.Pass(time.Minute)

		// The first has waited for a minute, so one that has a second is not let in.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := begin(ctx, fairlock.New(client, kit.Name(t), headwaiter.WithAdmission())).Err(t)
		require.Positive(t, full(t, err).Left)
		kit.Release(t, last)
		kit.Release(t, third.Value(t))
		all := past(t, client)
		require.Len(t, all, 4)
		for i, want := range []*lease.Lease{third.Value(t), last, held, l} {
			require.Equal(t, want.Token(), all[i].Token)
			require.Equal(t, "released", all[i].How)
		}
	})
}
