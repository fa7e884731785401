package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/lease"
)

// attempts is a call whose attempts come to these ends, and then to a hold. Each sets a place.
func attempts(life context.Context, ends ...error) (Call, *lease.Lease) {
	held := new(Grip).Take(context.Background(), lease.Terms{
		Until: lease.Until{Deadline: time.Now().Add(time.Hour)}, Release: func(context.Context) error { return nil },
	}, Limits{}, nil)
	return Call{Line: &Line{}, Life: life, Again: passes, Once: func(_ context.Context, _ time.Time, place *int) (*lease.Lease, error) {
		if len(ends) == 0 {
			return held, nil
		}
		err := ends[0]
		*place, ends = 7, ends[1:]
		return nil, err
	}}, held
}

func TestACallGoesOnAfterAnAttemptThatWasLostByNoFaultOfIts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, want := attempts(t.Context(), errPasses, errPasses)
		var between []error
		c.Between = func(_ context.Context, err error) { between = append(between, err) }
		held, err := c.Acquire(t.Context())
		require.NoError(t, err)
		require.Same(t, want, held)
		require.Equal(t, []error{errPasses, errPasses}, between)
		require.NoError(t, held.Release(t.Context()))
	})
}

func TestACallThatRestsEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		c, held := attempts(life, errPasses)
		defer func() { _ = held.Release(t.Context()) }() // It ends its clock.
		c.Once = func(context.Context, time.Time, *int) (*lease.Lease, error) { return nil, errPasses }
		limit, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan error)
		go func() {
			_, err := c.Acquire(limit)
			ended <- err
		}()
		synctest.Wait()
		begun := time.Now()
		end()
		require.ErrorIs(t, <-ended, lease.ErrClosed)
		require.Equal(t, begun, time.Now())
	})
}

func TestTheErrorOfACallSaysHowFarItHadCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, end := context.WithCancel(t.Context())
		c, held := attempts(ended, errPasses, errStays)
		defer func() { _ = held.Release(t.Context()) }() // It ends its clock.
		_, err := c.Acquire(t.Context())
		require.ErrorIs(t, err, errStays)
		var wait *lease.WaitError
		require.ErrorAs(t, err, &wait)
		require.Equal(t, 7, wait.Place)
		require.Positive(t, wait.Waited, "it has rested")
		require.NoError(t, wait.Last, "what is final says it all")

		c.Once = func(context.Context, time.Time, *int) (*lease.Lease, error) { return nil, lease.ErrBusy }
		_, err = c.Acquire(t.Context())
		require.Equal(t, lease.ErrBusy, err)

		c.Once = func(context.Context, time.Time, *int) (*lease.Lease, error) { return nil, errPasses }
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = c.Acquire(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, wait.Last, errPasses)
		require.Equal(t, -1, wait.Place)

		trouble := errors.New("trouble")
		c.Trouble = func() error { return trouble }
		_, err = c.insist(short)
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, wait.Last, trouble, "the reason that is known for it all")

		end()
		_, err = c.insist(t.Context())
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

func TestACallIsRefusedBeforeAnythingIsSent(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	fine, wrong := &Line{}, &Line{Err: errStays}
	require.NoError(t, fine.Usable(t.Context(), t.Context()))
	require.Equal(t, errStays, wrong.Usable(ended, ended))
	require.ErrorIs(t, fine.Usable(ended, ended), context.Canceled)
	require.ErrorIs(t, fine.Usable(t.Context(), ended), lease.ErrClosed)
}

func TestAGripEndsAtItsMaximumUnlessItHasEndedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		how := lease.Terms{
			Until: lease.Until{Deadline: time.Now().Add(time.Hour)}, Release: func(context.Context) error { return nil },
		}
		over := 0
		take := func() (*Grip, *lease.Lease) {
			g := new(Grip)
			g.Lose(errStays) // It has none yet.
			return g, g.Take(t.Context(), how, Limits{Hold: time.Minute}, func() { over++ })
		}
		long, held := take()
		require.Equal(t, time.Minute, time.Until(held.Deadline()), "more is not certain")
		require.True(t, long.Extend(lease.Until{Deadline: time.Now().Add(2 * time.Hour), Slept: lease.Slept()}))
		require.Equal(t, time.Minute, time.Until(held.Deadline()))
		lost, other := take()
		lost.Lose(lease.ErrForced)
		require.ErrorIs(t, lost.Ended(), lease.ErrForced)
		require.ErrorIs(t, context.Cause(other.Context()), lease.ErrForced)
		short, third := take()
		require.NoError(t, third.Release(t.Context()))
		require.ErrorIs(t, short.Ended(), lease.ErrReleased)

		require.NoError(t, retry.Rest(t.Context(), 2*time.Minute))
		synctest.Wait()
		require.Equal(t, 1, over)
		require.ErrorIs(t, held.Context().Err(), context.Canceled, "it looks at the clock by itself")
		require.False(t, short.Over(), "it was released")
		require.True(t, lost.Over())
		require.True(t, long.Over())
		require.ErrorIs(t, context.Cause(held.Context()), lease.ErrMaxHold)
	})
}

// The session may have been renewed before the machine slept; the maximum begins with the hold.
func TestWhatWasSleptBeforeAHoldIsNotOfItsMaximum(t *testing.T) {
	slept := lease.Slept()
	renewed := lease.Until{Deadline: time.Now().Add(time.Minute), Slept: slept - 30*time.Second}
	g := new(Grip)
	l := g.Take(t.Context(), lease.Terms{Until: renewed}, Limits{Hold: 20 * time.Second}, func() {})
	require.NoError(t, l.Context().Err(), "the session has 30s, and the hold may have 20s of them")
	require.Equal(t, lease.ErrMaxHold, l.Until().Cause)
	renewed.Deadline = renewed.Deadline.Add(-15 * time.Second)
	require.True(t, g.Extend(renewed))
	require.Equal(t, renewed, l.Until(), "the session ends first")
	require.NoError(t, l.Context().Err())
	g.Lose(lease.ErrForced)
}

func TestAGripEndsWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		how := lease.Terms{
			Until: lease.Until{Deadline: time.Now().Add(time.Hour)}, Release: func(context.Context) error { return nil },
		}
		g, begun, over := new(Grip), time.Now(), time.Duration(0)
		l := g.Take(t.Context(), how, Limits{Stall: time.Minute}, func() {
			if g.Over() {
				over = time.Since(begun)
			}
		})
		for range 3 {
			require.NoError(t, retry.Rest(t.Context(), 50*time.Second))
			l.Progress()
		}
		require.NoError(t, l.Context().Err())
		require.NoError(t, retry.Rest(t.Context(), 2*time.Minute))
		synctest.Wait()
		require.Equal(t, 150*time.Second+time.Minute, over)
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrStalled)
		require.ErrorIs(t, g.Ended(), lease.ErrStalled)
	})
}

func TestAHoldHasItsMaximumWithinALimit(t *testing.T) {
	require.NoError(t, Limits{time.Hour, time.Hour}.Check(time.Hour))
	require.NoError(t, Limits{}.Check(time.Hour))
	for _, l := range []Limits{{Hold: time.Hour + 1}, {Hold: -1}, {Stall: time.Hour + 1}, {Stall: -1}, {Stall: time.Microsecond}} {
		require.ErrorIs(t, l.Check(time.Hour), lease.ErrInvalid, "%+v", l)
	}
}
