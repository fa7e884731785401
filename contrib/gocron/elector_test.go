package gocron_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	locks "github.com/headwaiter/headwaiter/contrib/gocron"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// newElector returns an elector, closed with the test.
func newElector(t *testing.T, c *headwaiter.Client) *locks.Elector {
	e := locks.NewElector(c, "scheduler")
	t.Cleanup(func() { require.NoError(t, e.Close(context.Background())) })
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

		require.NoError(t, first.Close(t.Context()))
		synctime.Pass(3 * every)
		require.EqualValues(t, 3, one.runs.Load())
		require.EqualValues(t, 3, two.runs.Load())
		leader, err := election.New(a, "scheduler").Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, b.ID(), leader.Value)
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
		require.NoError(t, second.Close(t.Context()))
		synctime.Pass(10 * time.Second)
		require.NoError(t, first.IsLeader(t.Context()), "it campaigns again")
	})
}

func TestWhoWasForcedToResignCampaignsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		e := newElector(t, s.Client(t))
		held := e.Lease()
		s.Force("scheduler")
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
		err := unusable.IsLeader(t.Context())
		require.ErrorIs(t, err, locks.ErrNotLeader)
		require.ErrorContains(t, err, "campaign")
		require.NoError(t, unusable.Close(t.Context()))

		closed := newElector(t, c)
		require.NoError(t, c.Close(t.Context()))
		synctest.Wait()
		require.ErrorIs(t, closed.IsLeader(t.Context()), lease.ErrClosed)
		require.NoError(t, closed.Close(t.Context()), "it leads no more")
	})
}

func TestAnElectorThatWaitsLeavesTheQueueWhenItIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, s *headwaitertest.Server) {
		c := s.Client(t)
		newElector(t, c)
		waiting := newElector(t, s.Client(t))
		e := election.New(c, "scheduler")
		info, err := e.Inspect(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, info.Waiting)
		require.NoError(t, waiting.Close(t.Context()))
		synctest.Wait()
		info, err = e.Inspect(t.Context())
		require.NoError(t, err)
		require.Zero(t, info.Waiting)
	})
}
