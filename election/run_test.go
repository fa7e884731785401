package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

var errStop = errors.New("stop")

func TestARunCampaignsAgainAfterEachLossAndEndsWithItsFunction(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, other := kit.Dial(t, s), kit.Dial(t, s)
		e := election.New(c, "name")
		losses := []func(){
			func() {
				_, err := election.New(other, "name").ForceRelease(t.Context(), 0)
				require.NoError(t, err)
			},
			func() { s.Do("FLUSHALL") },
		}
		var last uint64
		calls, running := 0, false
		err := e.Run(t.Context(), "value", func(ctx context.Context) error {
			require.False(t, running)
			running = true
			defer func() { running = false }()
			l, ok := lease.FromContext(ctx)
			require.True(t, ok)
			require.Greater(t, l.Token(), last)
			last = l.Token()
			leader, err := e.Leader(ctx)
			require.NoError(t, err)
			require.Equal(t, "value", leader.Value)
			calls++
			if calls > len(losses) {
				return errStop
			}
			losses[calls-1]()
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lease.ErrLost)
			synctime.Pass(time.Minute) // It comes back when it likes.
			return errors.New("whatever it returns then")
		})
		require.Equal(t, errStop, err)
		require.Equal(t, 3, calls)
		_, err = e.Leader(t.Context())
		require.ErrorIs(t, err, lease.ErrNoLeader, "it has resigned")
	})
}

func TestARunEndsWithItsContext(t *testing.T) {
	gone := errors.New("terminated")
	for name, leads := range map[string]bool{"while it leads": true, "while it waits": false} {
		t.Run(name, func(t *testing.T) {
			kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
				c, other := kit.Dial(t, s), kit.Dial(t, s)
				var l *lease.Lease
				if !leads {
					var err error
					l, err = election.New(other, "name").Campaign(t.Context(), "other")
					require.NoError(t, err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				run := kit.Run(func() error {
					return election.New(c, "name").Run(ctx, "value", func(ctx context.Context) error {
						require.True(t, leads)
						<-ctx.Done()
						return context.Cause(ctx)
					})
				})
				synctime.Pass(time.Minute)
				require.False(t, run.Returned())
				cancel(gone)
				require.ErrorIs(t, run.Err(t), gone)
				if l != nil {
					kit.Release(t, l)
				}
				synctest.Wait()
				next, err := election.New(other, "name").Campaign(t.Context(), "other")
				require.NoError(t, err)
				kit.Release(t, next)
			})
		})
	}
}

// The maximum wait is that of each campaign, and it ends the run: somebody else leads for longer than was expected.
func TestARunWhoseCampaignFailsEnds(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c, other := kit.Dial(t, s), kit.Dial(t, s)
		never := func(context.Context) error { panic("it leads") }
		l, err := election.New(other, "name").Campaign(t.Context(), "other")
		require.NoError(t, err)
		err = election.New(c, "name", headwaiter.WithMaxWait(time.Second)).Run(t.Context(), "value", never)
		require.ErrorIs(t, err, lease.ErrWaitTimeout)
		require.ErrorContains(t, err, `election: campaign "name": `)
		err = election.New(c, "name").Run(t.Context(), string(make([]byte, lease.MaxValue+1)), never)
		require.ErrorIs(t, err, lease.ErrTooLarge)
		err = election.New(c, "").Run(t.Context(), "value", never)
		require.ErrorIs(t, err, lease.ErrInvalid)
		run := kit.Run(func() error { return election.New(c, "name").Run(t.Context(), "value", never) })
		synctest.Wait()
		require.NoError(t, c.Close(t.Context()))
		require.ErrorIs(t, run.Err(t), lease.ErrClosed)
		kit.Release(t, l)
	})
}

// What ends the lead of a client that closes is a loss, and the campaign behind it finds the client closed.
func TestARunEndsWithItsClient(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		c := kit.Dial(t, s)
		run := kit.Run(func() error {
			return election.New(c, "name").Run(t.Context(), "value", func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
		})
		synctime.Pass(time.Second)
		require.NoError(t, c.Close(t.Context()))
		require.ErrorIs(t, run.Err(t), lease.ErrClosed)
	})
}

func TestARunResignsWhenItsFunctionPanics(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		e := election.New(kit.Dial(t, s), "name")
		require.PanicsWithValue(t, "no", func() {
			_ = e.Run(t.Context(), "value", func(context.Context) error { panic("no") })
		})
		_, err := e.Leader(t.Context())
		require.ErrorIs(t, err, lease.ErrNoLeader)
	})
}

// A function may lose a lock of its own while it leads.
func TestARunTakesNoOtherLossForItsOwn(t *testing.T) {
	kit.Bubble(t, func(t *testing.T, s *redistest.Embedded) {
		calls := 0
		err := election.New(kit.Dial(t, s), "name").Run(t.Context(), "value", func(context.Context) error {
			if calls++; calls > 1 {
				return errStop
			}
			return lease.ErrForced
		})
		require.ErrorIs(t, err, lease.ErrForced)
		require.Equal(t, 1, calls)
	})
}
