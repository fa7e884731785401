package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// seen keeps what an observer is told.
type seen struct {
	mu  sync.Mutex // guards all
	all []observe.Observation
}

func (s *seen) Observe(_ context.Context, o observe.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, o)
}

func (s *seen) moments() (all []observe.Moment) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		all = append(all, o.Moment)
	}
	return all
}

var errRelease = errors.New("no answer")

// held is a call that waits for so long and gets a hold whose release ends with err.
func held(wait time.Duration, err error, grip *Grip) func(context.Context) (*lease.Lease, error) {
	return func(ctx context.Context) (*lease.Lease, error) {
		time.Sleep(wait) // Of the bubble.
		how := lease.Terms{
			Token: 7, Waited: wait, Until: lease.Until{Deadline: time.Now().Add(time.Hour), Slept: lease.Slept()},
			Release: func(context.Context) error { return err }, Unlock: func() {},
		}
		return grip.Take(ctx, how, Limits{}, nil), nil
	}
}

func TestAWatchTellsEachCallAndHoldToItsEnd(t *testing.T) {
	for name, x := range map[string]struct {
		wait time.Duration
		end  func(l *lease.Lease, g *Grip)
		want []observe.Moment
		err  error
	}{
		"a release": {0, func(l *lease.Lease, _ *Grip) { _ = l.Release(context.Background()) }, []observe.Moment{observe.Released}, errRelease},
		"an unlock": {0, func(l *lease.Lease, _ *Grip) { l.Unlock() }, []observe.Moment{observe.Released}, nil},
		"a loss":    {0, func(_ *lease.Lease, g *Grip) { g.Lose(lease.ErrForced) }, []observe.Moment{observe.Lost}, lease.ErrForced},
		"a loss, then released": {0, func(l *lease.Lease, g *Grip) {
			g.Lose(lease.ErrForced)
			synctest.Wait()
			_ = l.Release(context.Background())
		}, []observe.Moment{observe.Lost}, lease.ErrForced},
		"a loss, and an unlock at once": {0, func(l *lease.Lease, g *Grip) {
			g.Lose(lease.ErrForced)
			l.Unlock()
			synctest.Wait()
		}, []observe.Moment{observe.Lost}, lease.ErrForced},
		"a long hold": {0, func(l *lease.Lease, _ *Grip) { time.Sleep(25 * time.Second); l.Unlock() }, // Of the bubble.
			[]observe.Moment{observe.HeldLong, observe.HeldLong, observe.Released}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, g := &seen{}, &Grip{}
				w := NewWatch(s, nil, 10*time.Second, 10*time.Second, "who", "some", "where")
				l, err := w.Acquire(t.Context(), "lock", "name", held(45*time.Second, errRelease, g))
				require.NoError(t, err)
				x.end(l, g)
				want := append([]observe.Moment{observe.Asked, observe.WaitedLong, observe.WaitedLong, observe.WaitedLong, observe.Granted}, x.want...)
				require.Equal(t, want, s.moments())
				last := s.all[len(s.all)-1]
				require.Equal(t, uint64(7), last.Token)
				require.ErrorIs(t, last.Err, x.err)
				require.NotEmpty(t, last.Ticket)
				time.Sleep(time.Hour) // Of the bubble: nothing more is told.
				require.Equal(t, want, s.moments())
				w.Stop()
			})
		})
	}
}

func TestAWatchTellsOfACallThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seen{}
		w := NewWatch(s, nil, time.Second, time.Second, "who", "some", "where")
		_, err := w.Acquire(t.Context(), "lock", "name", func(context.Context) (*lease.Lease, error) { return nil, lease.ErrBusy })
		require.ErrorIs(t, err, lease.ErrBusy)
		time.Sleep(time.Hour) // Of the bubble: nothing more is told.
		require.Equal(t, []observe.Moment{observe.Asked, observe.Failed}, s.moments())
		require.ErrorIs(t, s.all[1].Err, lease.ErrBusy)

		var nobody *Watch
		_, err = nobody.Acquire(t.Context(), "lock", "name", func(context.Context) (*lease.Lease, error) { return nil, lease.ErrBusy })
		require.ErrorIs(t, err, lease.ErrBusy)
		nobody.Stop()
		require.Nil(t, NewWatch(nil, nil, 0, 0, "", "some", "where"))
	})
}

func TestAWatchTellsOnceOfAPlaceAndOfALongWaitWithTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seen{}
		w := NewWatch(s, nil, 0, 10*time.Second, "who", "some", "where")
		l, err := w.Acquire(t.Context(), "lock", "name", func(ctx context.Context) (*lease.Lease, error) {
			time.Sleep(15 * time.Second) // Of the bubble.
			Queued(ctx, -1)
			Queued(ctx, 3)
			l, err := held(15*time.Second, nil, &Grip{})(ctx)
			Queued(ctx, 2)
			return l, err
		})
		require.NoError(t, err)
		Queued(l.Context(), 5)
		Queued(t.Context(), 5)
		require.Equal(t, []observe.Moment{observe.Asked, observe.WaitedLong, observe.Queued, observe.WaitedLong, observe.Granted}, s.moments())
		require.Equal(t, []int{-1, -1, 3}, []int{s.all[1].Place, s.all[2].Place, s.all[3].Place})
		l.Unlock()
		w.Stop()
	})
}

// The context of a hold leads to no other: a call with it, of a client that nobody watches, tells nothing.
func TestAHoldWithinAnotherTellsOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seen{}
		outer, err := NewWatch(s, nil, 0, 0, "who", "some", "where").Acquire(t.Context(), "lock", "outer", held(0, nil, &Grip{}))
		require.NoError(t, err)
		var nobody *Watch
		inner, err := nobody.Acquire(outer.Context(), "lock", "inner", held(0, nil, &Grip{}))
		require.NoError(t, err)
		inner.Unlock()
		require.Equal(t, []observe.Moment{observe.Asked, observe.Granted}, s.moments())
		outer.Unlock()
		require.Equal(t, []observe.Moment{observe.Asked, observe.Granted, observe.Released}, s.moments())
	})
}
