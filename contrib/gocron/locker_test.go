package gocron_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	locks "github.com/headwaiter/headwaiter/contrib/gocron"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// newLocker returns a locker with a client of its own, as another process would have.
func newLocker(t *testing.T, s *headwaitertest.Server, opts ...locks.Option) *locks.Locker {
	l := locks.NewLocker(s.Client(t), opts...)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func TestAJobOfTwoSchedulersRunsOnceATick(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		first := time.Now().Add(every)
		var shared, alone counter
		for range 2 {
			schedule(t, first, shared.run, gocron.WithDistributedLocker(newLocker(t, s)))
			schedule(t, first, alone.run)
		}
		synctime.Pass(5*every + every/2)
		require.EqualValues(t, 5, shared.runs.Load())
		require.EqualValues(t, 10, alone.runs.Load(), "it would run once without the lock, too")
	})
}

func TestASchedulerWhoseClockIsBehindFindsAShortJobLocked(t *testing.T) {
	for name, c := range map[string]struct {
		opts []locks.Option
		runs int64
	}{
		"kept for half a second":   {nil, 5},
		"kept for as long as told": {[]locks.Option{locks.WithAtLeast(time.Second)}, 5},
		"not kept":                 {[]locks.Option{locks.WithAtLeast(0)}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *headwaitertest.Server) {
				first := time.Now().Add(every)
				var jobs counter
				schedule(t, first, jobs.run, gocron.WithDistributedLocker(newLocker(t, s, c.opts...)))
				schedule(t, first.Add(300*time.Millisecond), jobs.run, gocron.WithDistributedLocker(newLocker(t, s, c.opts...)))
				synctime.Pass(5*every + every/2)
				require.Equal(t, c.runs, jobs.runs.Load())
			})
		})
	}
}

func TestALongJobKeepsItsLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		first := time.Now().Add(every)
		var inside, most, runs atomic.Int64
		job := func() {
			most.Store(max(most.Load(), inside.Add(1)))
			synctime.Pass(2*every + every/2) // Longer than the lease, and past two ticks.
			inside.Add(-1)
			runs.Add(1)
		}
		for range 2 {
			schedule(t, first, job, gocron.WithDistributedLocker(newLocker(t, s)), gocron.WithStopTimeout(time.Minute))
		}
		synctime.Pass(9*every + every/2 + time.Second)
		require.EqualValues(t, 1, most.Load())
		require.EqualValues(t, 3, runs.Load(), "at the first tick, the fourth and the seventh")
	})
}

func TestAJobThatTheOtherBrokeOffRunsAgainAtItsNextTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		broken := locks.NewLocker(client)
		_, err := broken.Lock(t.Context(), "report")
		require.NoError(t, err)
		s.Pause(client) // For good: its process is dead.
		var jobs counter
		schedule(t, time.Now().Add(time.Second), jobs.run, gocron.WithDistributedLocker(newLocker(t, s)))
		synctime.Pass(2 * time.Second)
		require.Zero(t, jobs.runs.Load(), "its lease has not run out")
		synctime.Pass(every)
		require.EqualValues(t, 1, jobs.runs.Load())
	})
}

func TestWhoFindsAJobLockedDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		one, two := newLocker(t, s), newLocker(t, s)
		lock, err := one.Lock(t.Context(), "report")
		require.NoError(t, err)
		began := time.Now()
		_, err = two.Lock(t.Context(), "report")
		require.ErrorIs(t, err, lease.ErrBusy)
		require.ErrorContains(t, err, `gocron: job "report": `)
		require.Less(t, time.Since(began), time.Second)
		_, err = two.Lock(t.Context(), "another")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestAJobFindsItsHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		locker := newLocker(t, s)
		var tokens []uint64
		ends := make(chan error, 1)
		job := func() {
			held := locker.Lease("report")
			tokens = append(tokens, held.Token())
			if len(tokens) == 2 {
				s.Force("gocron:report")
				<-held.Context().Done()
				ends <- context.Cause(held.Context())
			}
		}
		schedule(t, time.Now().Add(every), job, gocron.WithDistributedLocker(locker))
		require.ErrorIs(t, <-ends, lease.ErrForced)
		synctime.Pass(every)
		synctest.Wait()
		require.Len(t, tokens, 3, "a job whose lock was lost has broken its scheduler")
		require.IsIncreasing(t, tokens)
		require.Nil(t, locker.Lease("report"), "it has ended")
	})
}

func TestALostHoldIsSaidAndFreesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		one, two := newLocker(t, s), newLocker(t, s)
		lock, err := one.Lock(t.Context(), "report")
		require.NoError(t, err)
		held := one.Lease("report")
		s.Expire("gocron:report")
		other, err := two.Lock(t.Context(), "report")
		require.NoError(t, err)
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrExpired)
		require.ErrorIs(t, lock.Unlock(t.Context()), lease.ErrLost)
		require.NoError(t, two.Lease("report").Context().Err())
		require.NoError(t, other.Unlock(t.Context()))
	})
}

// gocron unlocks with the context of the job, which has ended when the job is removed or the scheduler shut down. Not in
// a bubble: gocron turns in a loop until its jobs have ended, so the clock would stand still.
func TestAnEndedContextDoesNotKeepTheLock(t *testing.T) {
	t.Parallel()
	s := headwaitertest.Start(t)
	one, two := newLocker(t, s, locks.WithAtLeast(0)), newLocker(t, s)
	began := make(chan struct{})
	job := func(ctx context.Context) {
		close(began)
		<-ctx.Done()
	}
	scheduler := schedule(t, time.Now().Add(100*time.Millisecond), job, gocron.WithDistributedLocker(one))
	<-began
	require.NoError(t, scheduler.StopJobs())
	_, err := two.Lock(t.Context(), "report")
	require.NoError(t, err)
}

func TestUnlockWaitsForTheServerThoughItsContextHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		lock, err := locks.NewLocker(client, locks.WithAtLeast(0)).Lock(t.Context(), "report")
		require.NoError(t, err)
		ended, end := context.WithCancel(t.Context())
		end()
		s.Pause(client)
		time.AfterFunc(time.Second, func() { s.Resume(client) })
		require.NoError(t, lock.Unlock(ended))
	})
}

func TestCloseGivesBackWhatWasKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		one, two := locks.NewLocker(s.Client(t), locks.WithAtLeast(time.Hour)), newLocker(t, s)
		ended, err := one.Lock(t.Context(), "ended")
		require.NoError(t, err)
		runs, err := one.Lock(t.Context(), "runs")
		require.NoError(t, err)
		require.NoError(t, ended.Unlock(t.Context()))
		_, err = two.Lock(t.Context(), "ended")
		require.ErrorIs(t, err, lease.ErrBusy, "it was not kept")

		require.NoError(t, one.Close(t.Context()))
		_, err = two.Lock(t.Context(), "ended")
		require.NoError(t, err)
		_, err = two.Lock(t.Context(), "runs")
		require.ErrorIs(t, err, lease.ErrBusy, "the job still runs")
		require.NoError(t, runs.Unlock(t.Context()))
		_, err = two.Lock(t.Context(), "runs")
		require.NoError(t, err)
		require.NoError(t, one.Close(t.Context()))
	})
}

func TestAKeptLockIsGivenBackInTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		one, two := newLocker(t, s, locks.WithAtLeast(time.Minute)), newLocker(t, s)
		lock, err := one.Lock(t.Context(), "report")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
		synctime.Pass(time.Minute - time.Second)
		_, err = two.Lock(t.Context(), "report")
		require.ErrorIs(t, err, lease.ErrBusy)
		synctime.Pass(time.Second)
		synctest.Wait()
		_, err = two.Lock(t.Context(), "report")
		require.NoError(t, err)
	})
}

func TestPrefixesAndTermsAreTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		shop := locks.NewLocker(client, locks.WithPrefix("shop:"),
			locks.WithLock(headwaiter.WithMaxHold(3*time.Second)), locks.WithAtLeast(0))
		lock, err := shop.Lock(t.Context(), "report")
		require.NoError(t, err)
		_, err = newLocker(t, s).Lock(t.Context(), "report")
		require.NoError(t, err, "another prefix")
		_, err = fairlock.New(client, "shop:report").TryLock(t.Context())
		require.ErrorIs(t, err, lease.ErrBusy)
		require.ErrorIs(t, kit.Lost(t, shop.Lease("report")), lease.ErrMaxHold)
		require.ErrorIs(t, lock.Unlock(t.Context()), lease.ErrMaxHold)
	})
}
