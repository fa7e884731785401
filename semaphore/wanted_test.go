package semaphore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/semaphore"
)

// Each holder that has asked is told, by one message a client, and those that have not are not.
func TestEachHolderOfPermitsThatHasAskedIsTold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 5)
		first, second, third, silent := take(t, x, 1), take(t, x, 1), take(t, y, 1), take(t, y, 1)
		for _, l := range []*lease.Lease{first, second, third} {
			require.False(t, kit.Closed(l.Wanted()))
		}
		synctime.Pass(time.Second)
		s.ResetStats()
		small, err := x.TryAcquire(t.Context(), 1)
		require.NoError(t, err)
		synctest.Wait()
		require.False(t, kit.Closed(first.Wanted()), "it fitted")
		begun := time.Now()
		calls := queue(t, y, x, 2, 2, 2)
		for _, l := range []*lease.Lease{first, second, third} {
			kit.Await(t, l.Wanted(), "the word that somebody waits")
		}
		require.Less(t, time.Since(begun), time.Second)
		require.Equal(t, int64(2), kit.Scripts(s)["publish"], "one for each client")
		kit.Await(t, silent.Wanted(), "the word that somebody waits") // It asks now, and the renewal says so.
		kit.Release(t, small)
		for _, l := range []*lease.Lease{first, second, third, silent} {
			l.Unlock()
		}
		for _, c := range calls {
			kit.Release(t, c.Value(t))
		}
	})
}

func TestALostWordToHoldersOfPermitsIsMadeUpForByTheirRenewals(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 1)
		l := take(t, x, 1)
		require.False(t, kit.Closed(l.Wanted()))
		synctime.Pass(5 * time.Second)
		s.DropPublish(1)
		begun := time.Now()
		c := queue(t, y, y, 1)[0]
		kit.Await(t, l.Wanted(), "the word that somebody waits")
		require.Equal(t, 1, s.Dropped())
		require.Less(t, time.Since(begun), lease.DefaultLease/3+100*time.Millisecond)
		kit.Release(t, l)
		kit.Release(t, c.Value(t))
	})
}

func TestAHolderWithoutRenewalIsTold(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		x, y := semaphores(t, kit.Dial(t, s), kit.Dial(t, s), 1, headwaiter.WithLease(7*time.Second), semaphore.WithoutRenewal())
		l, begun := take(t, x, 1), time.Now()
		require.False(t, kit.Closed(l.Wanted()))
		synctime.Pass(time.Second)
		c := queue(t, y, y, 1)[0]
		kit.Await(t, l.Wanted(), "the word that somebody waits")
		next := c.Value(t)
		require.InDelta(t, 7*time.Second, time.Since(begun), float64(200*time.Millisecond), "it lasts no longer for that")
		require.ErrorIs(t, kit.Lost(t, l), lease.ErrMaxHold)
		kit.Release(t, next)
	})
}
