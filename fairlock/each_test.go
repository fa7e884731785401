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

// several names n locks as a client sees them.
func several(t testing.TB, c *headwaiter.Client, n int) []*fairlock.Mutex {
	t.Helper()
	locks := make([]*fairlock.Mutex, n)
	for i := range locks {
		locks[i] = fairlock.New(c, fmt.Sprintf("%s:%d", kit.Name(t), i))
	}
	return locks
}

// leasesOf returns the leases of n outcomes, which all went well.
func leasesOf(t testing.TB, n int, all []fairlock.Outcome) []*lease.Lease {
	t.Helper()
	require.Len(t, all, n)
	leases := make([]*lease.Lease, len(all))
	for i, o := range all {
		require.NoError(t, o.Err)
		require.NoError(t, o.Lease.Context().Err())
		leases[i] = o.Lease
	}
	return leases
}

// releaseEach gives all of them back, which goes well.
func releaseEach(t testing.TB, leases ...*lease.Lease) {
	t.Helper()
	errs := fairlock.ReleaseEach(t.Context(), leases...)
	require.Len(t, errs, len(leases))
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func TestManyLocksAreTakenAndReleasedTogether(t *testing.T) {
	t.Parallel()
	c := kit.Dial(t, redistest.Start(t))
	const n = 1200 // More than a batch.
	locks := several(t, c, n)
	for range 3 {
		leases := leasesOf(t, len(locks), fairlock.LockEach(t.Context(), locks...))
		releaseEach(t, leases...)
		for _, l := range leases {
			require.ErrorIs(t, context.Cause(l.Context()), lease.ErrReleased)
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrReleased)
		}
	}
	// On a busy machine some answers are late, and those requests are sent again.
	require.GreaterOrEqual(t, c.Stats().AcquireRequests, uint64(3*n))
	require.Less(t, c.Stats().AcquireRequests, uint64(2*3*n))
	require.GreaterOrEqual(t, c.Stats().ReleaseRequests, uint64(3*n))
	require.Less(t, c.Stats().ReleaseRequests, uint64(2*3*n))
	require.Equal(t, uint64(3*n), c.Stats().Granted)
}

func TestATryOfManyTakesThoseThatAreFree(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		locks, others := several(t, kit.Dial(t, s), 10), several(t, kit.Dial(t, s), 10)
		held := []*lease.Lease{hold(t, others[3]), hold(t, others[7])}
		all := fairlock.TryLockEach(t.Context(), locks...)
		var taken []*lease.Lease
		for i, o := range all {
			if i == 3 || i == 7 {
				kit.Fails(t, o.Err, lease.ErrBusy, locks[i].Name())
				require.Nil(t, o.Lease)
				continue
			}
			require.NoError(t, o.Err)
			taken = append(taken, o.Lease)
		}
		releaseEach(t, append(taken, held...)...)
		releaseEach(t, leasesOf(t, len(locks), fairlock.TryLockEach(t.Context(), locks...))...)
	})
}

func TestManyWaitForThoseThatAreHeld(t *testing.T) {
	kit.Each(t, func(t *testing.T, s redistest.Backend) {
		locks, others := several(t, kit.Dial(t, s), 5), several(t, kit.Dial(t, s), 5)
		held := []*lease.Lease{hold(t, others[1]), hold(t, others[4])}
		done := make(chan []fairlock.Outcome)
		go func() { done <- fairlock.LockEach(t.Context(), locks...) }()
		for _, i := range []int{1, 4} {
			queued(t, others[i], 1)
		}
		kit.Release(t, held...)
		leases := leasesOf(t, len(locks), <-done)
		releaseEach(t, leases...)
	})
}

func TestWhatOneOfManyCannotHaveIsItsOwnFailure(t *testing.T) {
	kit.BubbleOne(t, func(t *testing.T, s *redistest.Embedded, c *headwaiter.Client) {
		locks := several(t, c, 4)
		locks[2] = fairlock.New(c, "")
		locks[3] = locks[0] // Twice: it would wait for itself.
		held := hold(t, fairlock.New(kit.Dial(t, s), locks[1].Name()))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // Enough for the first.
		defer cancel()
		all := fairlock.LockEach(ctx, locks...)
		require.NoError(t, all[0].Err)
		require.ErrorIs(t, all[1].Err, context.DeadlineExceeded)
		require.ErrorIs(t, all[2].Err, lease.ErrInvalid)
		require.ErrorIs(t, all[3].Err, lease.ErrDeadlock)
		kit.Release(t, all[0].Lease, held)
		require.ErrorIs(t, fairlock.ReleaseEach(t.Context(), all[0].Lease)[0], lease.ErrReleased)
	})
}

func TestReleasesOfManyTellOfLosses(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c := kit.Dial(t, s, kit.Over(d))
		locks := several(t, c, 3)
		leases := leasesOf(t, len(locks), fairlock.LockEach(t.Context(), locks...))
		require.NoError(t, kit.Err(fairlock.New(kit.Dial(t, s), locks[1].Name()).ForceRelease(t.Context(), 0)))
		require.ErrorIs(t, kit.Lost(t, leases[1]), lease.ErrForced)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		errs := fairlock.ReleaseEach(t.Context(), leases[:2]...)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], lease.ErrLost)
		d.Freeze(faults.ToClient) // Else the answer may be there first, and is told.
		require.ErrorIs(t, fairlock.ReleaseEach(ctx, leases[2])[0], lease.ErrUnconfirmed)
		d.Heal()
		kit.Release(t, hold(t, locks[2]))
	})
}

func TestManyLocksOfAClosedClient(t *testing.T) {
	kit.One(t, func(t *testing.T, _ redistest.Backend, c *headwaiter.Client) {
		locks := several(t, c, 3)
		leases := leasesOf(t, len(locks), fairlock.LockEach(t.Context(), locks...))
		require.NoError(t, c.Shutdown(t.Context()))
		errs := fairlock.ReleaseEach(t.Context(), leases...)
		require.Len(t, errs, len(leases))
		for _, err := range errs {
			require.ErrorIs(t, err, lease.ErrClientClosed)
		}
		for _, o := range fairlock.LockEach(t.Context(), locks...) {
			require.ErrorIs(t, o.Err, lease.ErrClosed)
		}
	})
}

func TestALeaseThatIsNilIsPassedOver(t *testing.T) {
	require.Equal(t, []error{nil}, fairlock.ReleaseEach(t.Context(), nil))
}

// The answer to a batch of asks comes as the context ends: with the race detector, nothing is read while it is written.
func TestABatchIsAnsweredAsItsContextEnds(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c := kit.Dial(t, s, kit.Over(d))
		d.Delay(10 * time.Millisecond)
		locks := several(t, c, 8)
		for i := range 60 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond+time.Duration(i%3-1)*time.Microsecond)
			for _, o := range fairlock.LockEach(ctx, locks...) {
				if o.Err == nil {
					kit.Release(t, o.Lease)
				} else {
					require.ErrorIs(t, o.Err, context.DeadlineExceeded)
				}
			}
			cancel()
		}
	})
}

// A server that does not know the scripts, as after a restart or a failover, is told them once, and not for each name.
func TestManyLocksAtAServerWithoutScriptsTakeFewRoundTrips(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		locks := several(t, kit.Dial(t, s, kit.Over(d)), 500)
		const roundTrip = 20 * time.Millisecond
		d.Delay(roundTrip / 2)
		begun := time.Now()
		leases := leasesOf(t, len(locks), fairlock.LockEach(t.Context(), locks...))
		require.Less(t, time.Since(begun), 5*roundTrip)
		begun = time.Now()
		releaseEach(t, leases...)
		require.Less(t, time.Since(begun), 5*roundTrip)
	})
}

// A release of many goes in several round trips; Close waits for all of them.
func TestCloseWaitsForAReleaseOfMany(t *testing.T) {
	kit.BubbleOver(t, func(t *testing.T, s *redistest.Embedded, d *faults.Dialer) {
		c := kit.Dial(t, s, kit.Over(d))
		locks := several(t, c, 2*512)
		leases := leasesOf(t, len(locks), fairlock.LockEach(t.Context(), locks...))
		d.Delay(20 * time.Millisecond)
		released := kit.Go(func() ([]error, error) { return fairlock.ReleaseEach(t.Context(), leases...), nil })
		synctime.Pass(10 * time.Millisecond)
		require.NoError(t, c.Shutdown(context.Background()))
		for _, err := range released.Value(t) {
			require.NoError(t, err)
		}
		d.Heal()
		next := kit.Dial(t, s, kit.Over(d)) // Which reads for a client that still writes, as the buffers of a kernel do.
		leasesOf(t, len(locks), fairlock.TryLockEach(t.Context(), several(t, next, len(locks))...))
	})
}
