package fairlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// passOn releases a hold for a mate, and returns what that gets.
func passOn(t *testing.T, m *fairlock.Mutex, l *lease.Lease) *lease.Lease {
	t.Helper()
	mate := kit.Lock(t.Context(), m.Lock)
	synctime.Pass(time.Millisecond) // No token is ahead of the server's clock.
	next := kit.Next(t, l, mate)
	require.Equal(t, l.Token()+1, next.Token(), "it was passed on")
	return next
}

// Whenever a hold is passed on, also as it is being renewed, it goes on to be renewed, and is lost when it cannot be.
func TestAHoldIsRenewedWheneverItIsPassedOn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const lasts = 3 * time.Second
		c := kit.Dial(t, s)
		m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(lasts), fairlock.WithCohort(fairlock.MaxCohort))
		l := hold(t, m)
		asks := c.Stats().AcquireRequests
		for i := range 40 {
			before := c.Stats().Renewals
			for c.Stats().Renewals == before { // To the moment at which a renewal is sent.
				synctime.Pass(time.Millisecond)
			}
			synctime.Pass(time.Duration(i%3) * time.Millisecond)
			l = passOn(t, m, l)
		}
		require.Equal(t, asks, c.Stats().AcquireRequests, "one hold has served all of them")
		synctime.Pass(2 * lasts)
		require.NoError(t, context.Cause(l.Context()))
		require.True(t, kit.Got(m.Inspect(t.Context()))(t).Held)
		s.Kill()
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrExpired)
	})
}

// The lease of a call knows of its hold whoever looks at it first, and whatever context it is found in.
func TestTheLeaseOfACallEndsWithItsHold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		type mark struct{}
		m := fairlock.New(kit.Dial(t, s), kit.Name(t), fairlock.WithCohort(8))
		first := hold(t, m)
		mate := kit.Lock(context.WithValue(t.Context(), mark{}, "mate"), m.Lock)
		synctime.Pass(time.Millisecond)
		l := kit.Next(t, first, mate)
		found, _ := lease.FromContext(l.Context())
		require.Same(t, l, found)
		require.Equal(t, "mate", l.Context().Value(mark{}))
		require.Equal(t, first.Deadline(), l.Deadline())
		require.ErrorIs(t, kit.Err(m.Lock(l.Context())), lease.ErrDeadlock)
		require.NoError(t, kit.Err(fairlock.New(kit.Dial(t, s), kit.Name(t)).ForceRelease(t.Context(), l.Token())))
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
		again := kit.Lock(context.WithoutCancel(first.Context()), m.Lock) // Its own use has ended: it waits for nobody.
		kit.Release(t, again.Value(t))
		require.ErrorIs(t, l.Release(t.Context()), lease.ErrForced)
		require.ErrorIs(t, first.Release(t.Context()), lease.ErrReleased)
	})
}

// Who used a hold before does not hold it any more: its calls wait for the others as all do.
func TestACallFromAUseThatHasEndedIsAMate(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, _ *redistest.Embedded, c *headwaiter.Client) {
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(8))
		first := hold(t, m)
		l := passOn(t, m, first)
		for _, lock := range []*fairlock.Mutex{m, fairlock.New(c, kit.Name(t))} { // Also past the cohort.
			call := kit.Lock(context.WithoutCancel(first.Context()), lock.Lock)
			synctime.Pass(time.Millisecond)
			require.False(t, call.Returned())
			l = kit.Next(t, l, call)
		}
		kit.Release(t, l)
	})
}

// A cohort that had no calls left, and whose client has ended its subscription since, begins anew.
func TestACohortBeginsAnewHoweverLongNobodyLed(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		const linger = 100 * time.Millisecond
		c := kit.Dial(t, s, func(o *headwaiter.Options) { o.Linger = linger })
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(1))
		for _, rest := range []time.Duration{0, linger - 1, linger, linger + 1, 2*linger - 1, 2 * linger, 10 * linger} {
			synctime.Pass(rest)
			l := hold(t, m)
			calls := []*kit.Call[*lease.Lease]{kit.Lock(t.Context(), m.Lock)}
			synctime.Pass(rest + time.Millisecond)
			calls = append(calls, kit.Lock(t.Context(), m.Lock)) // No pass is left for it: it makes the client subscribe.
			synctime.Pass(rest + time.Millisecond)
			for _, call := range calls {
				l = kit.Next(t, l, call)
			}
			kit.Release(t, l)
		}
	})
}

// A mate whose token the server's clock has not come to, for certain, goes by the queue: another might get a lower one from a
// server that has forgotten the lock.
func TestAPassTakesNoTokenThatTheClockHasNotComeTo(t *testing.T) {
	for since, passes := range map[time.Duration]int{0: 0, time.Microsecond: 0, 3 * time.Microsecond: 2, time.Millisecond: 3} {
		kit.BubbleOf(t, since.String(), func(t *testing.T, s *redistest.Embedded) {
			c := kit.Dial(t, s)
			m := fairlock.New(c, kit.Name(t), headwaiter.WithLease(3*time.Second), fairlock.WithCohort(fairlock.MaxCohort))
			l := hold(t, m)
			var mates []*kit.Call[*lease.Lease]
			for range 3 {
				mates = append(mates, kit.Lock(t.Context(), m.Lock))
				synctest.Wait()
			}
			synctime.Pass(since)
			passed := 0
			for _, mate := range mates {
				asks, token := c.Stats().AcquireRequests, l.Token()
				l = kit.Next(t, l, mate)
				require.Greater(t, l.Token(), token)
				if asks == c.Stats().AcquireRequests {
					passed++
				}
			}
			require.Equal(t, passes, passed)
			kit.Release(t, l)
		})
	}
}

// Its ask goes with the end of the hold before, whose answer it waits for.
func TestTheNextLeaderAsksOnce(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c := kit.Dial(t, s, kit.Over(d))
		m := fairlock.New(c, kit.Name(t), fairlock.WithCohort(1))
		l := passOn(t, m, hold(t, m))
		next := kit.Lock(t.Context(), m.Lock)
		synctime.Pass(time.Second) // The client has subscribed meanwhile.
		before := c.Stats()
		d.Delay(5 * time.Millisecond)
		kit.PassOn(t, l, next)
		after := c.Stats()
		require.Equal(t, before.AcquireRequests+1, after.AcquireRequests)
		require.Equal(t, before.ReleaseRequests+2, after.ReleaseRequests)
	})
}

// wish is the second half of a first Wanted: the lease was released after Wanted had looked whether it has ended.
func wish(l *lease.Lease) {
	k := (*keeper.Keeper)(l)
	k.Engine().(interface{ Want(*keeper.Keeper) }).Want(k)
}

func TestAWishOfALeaseThatWasReleasedIsNobodys(t *testing.T) {
	keep, pass8 := fairlock.WithKeep(time.Second), fairlock.WithCohort(8)
	for when, c := range map[string]struct {
		opts []fairlock.Option
		then func(t *testing.T, m *fairlock.Mutex, l *lease.Lease) (next *lease.Lease)
	}{
		"the hold is kept": {[]fairlock.Option{keep}, func(t *testing.T, _ *fairlock.Mutex, l *lease.Lease) *lease.Lease {
			kit.Release(t, l)
			return nil
		}},
		"another call uses the kept hold": {[]fairlock.Option{keep}, func(t *testing.T, m *fairlock.Mutex, l *lease.Lease) *lease.Lease {
			kit.Release(t, l)
			synctime.Pass(time.Millisecond)
			next := hold(t, m)
			require.Equal(t, l.Token()+1, next.Token())
			return next
		}},
		"it was passed on":                    {[]fairlock.Option{pass8}, passOn},
		"it was passed on, and could be kept": {[]fairlock.Option{keep, pass8}, passOn},
		"nobody holds": {[]fairlock.Option{keep, pass8}, func(t *testing.T, _ *fairlock.Mutex, l *lease.Lease) *lease.Lease {
			kit.Release(t, l)
			synctime.Pass(2 * time.Second)
			return nil
		}},
	} {
		kit.BubbleOf(t, when, func(t *testing.T, s *redistest.Embedded) {
			client := kit.Dial(t, s)
			m, other := fairlock.New(client, kit.Name(t), c.opts...), fairlock.New(kit.Dial(t, s), kit.Name(t))
			l := hold(t, m)
			next := c.then(t, m, l)
			synctime.Pass(time.Second) // What is wanted all the time has been said.
			renewals := client.Stats().Renewals
			wish(l)
			synctime.Pass(time.Millisecond)
			require.Equal(t, renewals, client.Stats().Renewals, "nothing is asked for")
			call := kit.Lock(t.Context(), other.Lock)
			synctime.Pass(time.Second)
			if next != nil {
				wanted := next.Wanted()
				synctime.Pass(time.Second)
				require.True(t, kit.Closed(wanted))
				kit.Release(t, next)
			}
			kit.Release(t, call.Value(t))
		})
	}
}

// A short section whose watcher selects on Wanted may have ended before that is called.
func TestWatchersOfShortSectionsEndNobody(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		holder := fairlock.New(kit.Dial(t, s), kit.Name(t), fairlock.WithKeep(time.Second), fairlock.WithCohort(8))
		other := fairlock.New(kit.Dial(t, s), kit.Name(t), headwaiter.WithLease(3*time.Second))
		var watchers sync.WaitGroup
		watch := func(l *lease.Lease) {
			select {
			case <-l.Wanted():
			case <-l.Context().Done():
			}
		}
		watchers.Go(func() {
			for range 200 {
				kit.Release(t, hold(t, other))
				synctime.Pass(time.Millisecond)
			}
		})
		for range 1000 {
			l := hold(t, holder)
			watchers.Go(func() { watch(l) })
			kit.Release(t, l)
		}
		watchers.Wait()
	})
}
