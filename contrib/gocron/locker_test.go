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
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// newLocker returns a locker with a client of its own, as another process would have.
func newLocker(t *testing.T, s *headwaitertest.Server, opts ...locks.Option) *locks.Locker {
	return locks.NewLocker(s.Client(t), opts...)
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
		"kept for as long as told": {[]locks.Option{locks.WithMinHold(time.Second)}, 5},
		"not kept":                 {[]locks.Option{locks.WithMinHold(0)}, 10},
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
		require.NoError(t, kit.Err(locks.NewLocker(client).Lock(t.Context(), "report")))
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
		lock := kit.Got(one.Lock(t.Context(), "report"))(t)
		began := time.Now()
		kit.Fails(t, kit.Err(two.Lock(t.Context(), "report")), lease.ErrBusy, `gocron: job "report": `)
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, kit.Err(two.Lock(t.Context(), "another")))
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
				s.ForceRelease("gocron:report")
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
		one, two := newLocker(t, s, locks.WithMinHold(0)), newLocker(t, s)
		lock := kit.Got(one.Lock(t.Context(), "report"))(t)
		held := one.Lease("report")
		s.Expire("gocron:report")
		other := kit.Got(two.Lock(t.Context(), "report"))(t)
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
	one, two := newLocker(t, s, locks.WithMinHold(0)), newLocker(t, s)
	began := make(chan struct{})
	job := func(ctx context.Context) {
		close(began)
		<-ctx.Done()
	}
	scheduler := schedule(t, time.Now().Add(100*time.Millisecond), job, gocron.WithDistributedLocker(one))
	<-began
	require.NoError(t, scheduler.StopJobs())
	require.NoError(t, kit.Err(two.Lock(t.Context(), "report")))
}

func TestUnlockWaitsForTheServerThoughItsContextHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		lock := kit.Got(locks.NewLocker(client, locks.WithMinHold(0)).Lock(t.Context(), "report"))(t)
		ended, end := context.WithCancel(t.Context())
		end()
		s.Pause(client)
		time.AfterFunc(time.Second, func() { s.Resume(client) })
		require.NoError(t, lock.Unlock(ended))
	})
}

// A deploy ends processes right after a tick, while others may be late.
func TestTheEndOfAProcessLeavesTheLockTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		one, two := locks.NewLocker(client, locks.WithMinHold(time.Minute)), newLocker(t, s)
		require.NoError(t, kit.Got(one.Lock(t.Context(), "ended"))(t).Unlock(t.Context()))
		require.NoError(t, kit.Err(one.Lock(t.Context(), "runs")))
		require.NoError(t, client.Close())
		require.ErrorIs(t, kit.Err(two.Lock(t.Context(), "ended")), lease.ErrBusy)
		require.ErrorIs(t, kit.Err(two.Lock(t.Context(), "runs")), lease.ErrBusy)
		synctime.Pass(time.Minute)
		require.NoError(t, kit.Err(two.Lock(t.Context(), "ended")))
		require.NoError(t, kit.Err(two.Lock(t.Context(), "runs")))
	})
}

func TestAKeptLockIsGivenBackInTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		one, two := newLocker(t, s, locks.WithMinHold(time.Minute)), newLocker(t, s)
		require.NoError(t, kit.Got(one.Lock(t.Context(), "report"))(t).Unlock(t.Context()))
		synctime.Pass(time.Minute - time.Second)
		require.ErrorIs(t, kit.Err(two.Lock(t.Context(), "report")), lease.ErrBusy)
		synctime.Pass(time.Second)
		synctest.Wait()
		require.NoError(t, kit.Err(two.Lock(t.Context(), "report")))
	})
}

func TestPrefixesAndTermsAreTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		client := s.Client(t)
		shop := locks.NewLocker(client, locks.WithPrefix("shop:"),
			locks.WithLock(headwaiter.WithMaxHold(3*time.Second)), locks.WithMinHold(0))
		lock := kit.Got(shop.Lock(t.Context(), "report"))(t)
		require.NoError(t, kit.Err(newLocker(t, s).Lock(t.Context(), "report")), "another prefix")
		require.ErrorIs(t, kit.Err(fairlock.New(client, "shop:report").TryLock(t.Context())), lease.ErrBusy)
		require.ErrorIs(t, kit.Lost(t, shop.Lease("report")), lease.ErrMaxHold)
		require.ErrorIs(t, lock.Unlock(t.Context()), lease.ErrMaxHold)
	})
}

// For so long the job of a process that died stays locked.
func TestALockHasTheLeaseOfItsOptions(t *testing.T) {
	for lasts, opts := range map[time.Duration][]locks.Option{
		lease.DefaultLease: nil,
		19 * time.Second:   {locks.WithLock(headwaiter.WithLease(19 * time.Second))},
	} {
		t.Run(lasts.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *headwaitertest.Server) {
				client := s.Client(t)
				dying, other := locks.NewLocker(client, opts...), newLocker(t, s)
				require.NoError(t, kit.Err(dying.Lock(t.Context(), "report")))
				s.Pause(client)
				synctime.Pass(lasts - time.Millisecond)
				require.ErrorIs(t, kit.Err(other.Lock(t.Context(), "report")), lease.ErrBusy)
				synctime.Pass(2 * time.Millisecond)
				require.NoError(t, kit.Err(other.Lock(t.Context(), "report")))
				s.Resume(client)
			})
		})
	}
}

// newElector returns an elector, closed with the test.
func newElector(t *testing.T, c *headwaiter.Client) *locks.Elector {
	e := locks.NewElector(c, "scheduler")
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) })
	synctest.Wait() // It has its place in the queue, or leads.
	return e
}

func TestOnlyTheLeaderRunsJobs(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		a, b := s.Client(t), s.Client(t)
		first, second := newElector(t, a), newElector(t, b)
		var one, two counter
		// Clocks that are apart do not matter here.
		schedule(t, time.Now().Add(every), one.run, gocron.WithDistributedElector(first))
		schedule(t, time.Now().Add(every+3*time.Second), two.run, gocron.WithDistributedElector(second))
		synctime.Pass(3*every + every/2)
		require.EqualValues(t, 3, one.runs.Load())
		require.Zero(t, two.runs.Load())

		require.NoError(t, first.Shutdown(t.Context()))
		synctime.Pass(3 * every)
		require.EqualValues(t, 3, one.runs.Load())
		require.EqualValues(t, 3, two.runs.Load())
		require.Equal(t, b.ID(), kit.Got(election.New(a, "scheduler").Leader(t.Context()))(t).Value)
	})
}

func TestALeaderThatIsPausedLeadsNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		a, b := s.Client(t), s.Client(t)
		first, second := newElector(t, a), newElector(t, b)
		require.NoError(t, first.IsLeader(t.Context()))
		held := first.Lease()
		err := second.IsLeader(t.Context())
		require.ErrorIs(t, err, locks.ErrNotLeader)
		require.EqualError(t, err, `gocron: elector "scheduler": not the leader`)
		require.Nil(t, second.Lease())

		s.Pause(a)
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrExpired)
		require.ErrorIs(t, first.IsLeader(t.Context()), locks.ErrNotLeader)
		require.ErrorIs(t, second.IsLeader(t.Context()), locks.ErrNotLeader, "two at a time")
		synctime.Pass(time.Minute)
		require.NoError(t, second.IsLeader(t.Context()))
		require.Greater(t, second.Lease().Token(), held.Token())

		s.Resume(a)
		synctime.Pass(time.Minute)
		require.ErrorIs(t, first.IsLeader(t.Context()), locks.ErrNotLeader)
		require.NoError(t, second.Shutdown(t.Context()))
		synctime.Pass(10 * time.Second)
		require.NoError(t, first.IsLeader(t.Context()), "it campaigns again")
	})
}

func TestWhoWasForcedToResignCampaignsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		e := newElector(t, s.Client(t))
		held := e.Lease()
		s.ForceRelease("scheduler")
		require.ErrorIs(t, kit.Lost(t, held), lease.ErrForced)
		synctime.Pass(time.Second)
		require.NoError(t, e.IsLeader(t.Context()))
		require.Greater(t, e.Lease().Token(), held.Token())
	})
}

func TestWhoCannotCampaignSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		c := s.Client(t)
		unusable := locks.NewElector(c, "}") // No name of an election.
		synctest.Wait()
		kit.Fails(t, unusable.IsLeader(t.Context()), locks.ErrNotLeader, "campaign")
		require.NoError(t, unusable.Shutdown(t.Context()))

		closed := newElector(t, c)
		require.NoError(t, c.Shutdown(t.Context()))
		synctest.Wait()
		require.ErrorIs(t, closed.IsLeader(t.Context()), lease.ErrClosed)
		require.NoError(t, closed.Shutdown(t.Context()), "it leads no more")
	})
}

func TestAnElectorThatWaitsLeavesTheQueueWhenItIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		c := s.Client(t)
		newElector(t, c)
		waiting, e := newElector(t, s.Client(t)), election.New(c, "scheduler")
		info := kit.Got(e.Inspect(t.Context()))(t)
		require.Equal(t, 1, info.Waiting)
		require.NoError(t, waiting.Shutdown(t.Context()))
		synctest.Wait()
		info = kit.Got(e.Inspect(t.Context()))(t)
		require.Zero(t, info.Waiting)
	})
}

func TestMain(m *testing.M) { leaks.Main(m) }

// every is the time from one run of a job to the next.
const every = 10 * time.Second

// bubble runs a case with a server in a bubble, where schedulers have its clock.
func bubble(t *testing.T, run func(t *testing.T, s *headwaitertest.Server)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { run(t, headwaitertest.Start(t)) })
}

// schedule starts a scheduler with one job, at each tick from first on. It is shut down with the test.
func schedule(t *testing.T, first time.Time, do any, options ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	scheduler := kit.Got(gocron.NewScheduler(options...))(t)
	_, err := scheduler.NewJob(gocron.DurationJob(every), gocron.NewTask(do), gocron.WithName("report"),
		gocron.WithStartAt(gocron.WithStartDateTime(first)))
	require.NoError(t, err)
	scheduler.Start()
	t.Cleanup(func() { require.NoError(t, scheduler.Shutdown()) })
	return scheduler
}

// counter is a job that counts its runs.
type counter struct{ runs atomic.Int64 }

func (c *counter) run() { c.runs.Add(1) }
