package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// attempts is a call whose attempts come to these ends, and then to a hold. Each sets a place.
func attempts(life context.Context, ends ...error) (Call, *lease.Lease) {
	held := new(Grip).Take(context.Background(), keeper.Terms{
		Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}, Release: func(context.Context) error { return nil },
	}, Limits{}, nil)
	return Call{Line: &Line{}, Life: life, Again: passes, Once: func(_ context.Context, _ time.Time, at *Place) (*lease.Lease, error) {
		if len(ends) == 0 {
			return held, nil
		}
		err := ends[0]
		at.Ahead, ends = 7, ends[1:]
		return nil, err
	}}, held
}

func TestACallGoesOnAfterAnAttemptThatWasLostByNoFaultOfIts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, want := attempts(t.Context(), errPasses, errPasses)
		var between []error
		c.Between = func(_ context.Context, err error) { between = append(between, err) }
		held := kit.Got(c.Acquire(t.Context()))(t)
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
		c.Once = func(context.Context, time.Time, *Place) (*lease.Lease, error) { return nil, errPasses }
		limit, ended := kit.Within(t, time.Minute), make(chan error)
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
		wait := kit.As[*lease.WaitError](t, err)
		require.Equal(t, 7, wait.Place)
		require.Positive(t, wait.Waited, "it has rested")
		require.NoError(t, wait.Last, "what is final says it all")

		c.Once = func(context.Context, time.Time, *Place) (*lease.Lease, error) { return nil, lease.ErrBusy }
		_, err = c.Acquire(t.Context())
		require.Equal(t, lease.ErrBusy, err)

		c.Once = func(context.Context, time.Time, *Place) (*lease.Lease, error) { return nil, errPasses }
		short := kit.Within(t, time.Minute)
		_, err = c.Acquire(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, wait.Last, errPasses)
		require.ErrorIs(t, err, lease.ErrUnavailable)
		require.Equal(t, -1, wait.Place)

		trouble := errors.New("trouble")
		c.Trouble = func() error { return trouble }
		require.ErrorAs(t, kit.Err(c.insist(short)), &wait)
		require.ErrorIs(t, wait.Last, trouble, "the reason that is known for it all")
		require.ErrorIs(t, wait, lease.ErrUnavailable)

		seen := errPasses
		c.Once = func(ctx context.Context, _ time.Time, at *Place) (*lease.Lease, error) {
			if seen == nil {
				at.Answered = true
				<-ctx.Done()
				return nil, ctx.Err()
			}
			err := seen
			seen = nil
			return nil, err
		}
		c.Trouble = func() error { return nil }
		require.ErrorAs(t, kit.Err(c.insist(kit.Within(t, time.Minute))), &wait)
		require.NotErrorIs(t, wait, lease.ErrUnavailable, "it was answered since")
		require.NoError(t, wait.Last)
		c.Trouble = func() error { return trouble }
		require.ErrorIs(t, kit.Err(c.insist(kit.Within(t, time.Minute))), lease.ErrUnavailable, "it was, but is not any more")

		end()
		err = kit.Err(c.insist(kit.Within(t, time.Minute)))
		require.ErrorIs(t, err, lease.ErrClosed)
		require.NotErrorIs(t, err, lease.ErrUnavailable)
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
		how := keeper.Terms{
			Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}, Release: func(context.Context) error { return nil },
		}
		over := 0
		take := func() (*Grip, *lease.Lease) {
			g := new(Grip)
			g.Lose(errStays) // It has none yet.
			return g, g.Take(t.Context(), how, Limits{Hold: time.Minute}, func() { over++ })
		}
		long, held := take()
		require.Equal(t, time.Minute, time.Until(held.Deadline()), "more is not certain")
		require.True(t, long.Extend(keeper.Until{Deadline: time.Now().Add(2 * time.Hour), Slept: keeper.Slept()}))
		require.Equal(t, time.Minute, time.Until(held.Deadline()))
		lost, other := take()
		lost.Lose(lease.ErrForced)
		require.ErrorIs(t, lost.Ended(), lease.ErrForced)
		require.ErrorIs(t, context.Cause(other.Context()), lease.ErrForced)
		short, third := take()
		require.NoError(t, third.Release(t.Context()))
		require.ErrorIs(t, short.Ended(), lease.ErrReleased)

		require.NoError(t, calls.Rest(t.Context(), 2*time.Minute))
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
	slept := keeper.Slept()
	renewed := keeper.Until{Deadline: time.Now().Add(time.Minute), Slept: slept - 30*time.Second}
	g := new(Grip)
	l := g.Take(t.Context(), keeper.Terms{Until: renewed}, Limits{Hold: 20 * time.Second}, func() {})
	require.NoError(t, l.Context().Err(), "the session has 30s, and the hold may have 20s of them")
	require.Equal(t, lease.ErrMaxHold, (*keeper.Keeper)(l).Until().Cause)
	renewed.Deadline = renewed.Deadline.Add(-15 * time.Second)
	require.True(t, g.Extend(renewed))
	require.Equal(t, renewed, (*keeper.Keeper)(l).Until(), "the session ends first")
	require.NoError(t, l.Context().Err())
	g.Lose(lease.ErrForced)
}

func TestAGripEndsWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		how := keeper.Terms{
			Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}, Release: func(context.Context) error { return nil },
		}
		g, begun, over := new(Grip), time.Now(), time.Duration(0)
		l := g.Take(t.Context(), how, Limits{Stall: time.Minute}, func() {
			if g.Over() {
				over = time.Since(begun)
			}
		})
		for range 3 {
			require.NoError(t, calls.Rest(t.Context(), 50*time.Second))
			l.Progress()
		}
		require.NoError(t, l.Context().Err())
		require.NoError(t, calls.Rest(t.Context(), 2*time.Minute))
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

func (s *seen) moments() (all []observe.EventKind) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		all = append(all, o.Event)
	}
	return all
}

var errRelease = errors.New("no answer")

// held is a call that waits for so long and gets a hold whose release ends with err.
func held(wait time.Duration, err error, grip *Grip) func(context.Context) (*lease.Lease, error) {
	return func(ctx context.Context) (*lease.Lease, error) {
		time.Sleep(wait) // Of the bubble.
		how := keeper.Terms{
			Token: 7, Waited: wait, Until: keeper.Until{Deadline: time.Now().Add(time.Hour), Slept: keeper.Slept()},
			Release: func(context.Context) error { return err }, Unlock: func() {},
		}
		return grip.Take(ctx, how, Limits{}, nil), nil
	}
}

func TestAWatchTellsEachCallAndHoldToItsEnd(t *testing.T) {
	for name, x := range map[string]struct {
		wait time.Duration
		end  func(l *lease.Lease, g *Grip)
		want []observe.EventKind
		err  error
	}{
		"a release": {0, func(l *lease.Lease, _ *Grip) { _ = l.Release(context.Background()) }, []observe.EventKind{observe.Released}, errRelease},
		"an unlock": {0, func(l *lease.Lease, _ *Grip) { l.Unlock() }, []observe.EventKind{observe.Released}, nil},
		"a loss":    {0, func(_ *lease.Lease, g *Grip) { g.Lose(lease.ErrForced) }, []observe.EventKind{observe.Lost}, lease.ErrForced},
		"a loss, then released": {0, func(l *lease.Lease, g *Grip) {
			g.Lose(lease.ErrForced)
			synctest.Wait()
			_ = l.Release(context.Background())
		}, []observe.EventKind{observe.Lost}, lease.ErrForced},
		"a loss, and an unlock at once": {0, func(l *lease.Lease, g *Grip) {
			g.Lose(lease.ErrForced)
			l.Unlock()
			synctest.Wait()
		}, []observe.EventKind{observe.Lost}, lease.ErrForced},
		"a long hold": {0, func(l *lease.Lease, _ *Grip) { time.Sleep(25 * time.Second); l.Unlock() }, // Of the bubble.
			[]observe.EventKind{observe.HeldLong, observe.HeldLong, observe.Released}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, g := &seen{}, &Grip{}
				w := NewWatch(s, nil, 10*time.Second, 10*time.Second, "who", "some", "where")
				l := kit.Got(w.Acquire(t.Context(), "lock", "name", held(45*time.Second, errRelease, g)))(t)
				x.end(l, g)
				want := append([]observe.EventKind{observe.Began, observe.WaitedLong, observe.WaitedLong, observe.WaitedLong, observe.Granted}, x.want...)
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
		require.Equal(t, []observe.EventKind{observe.Began, observe.Failed}, s.moments())
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
		require.Equal(t, []observe.EventKind{observe.Began, observe.WaitedLong, observe.Queued, observe.WaitedLong, observe.Granted}, s.moments())
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
		kit.Got(nobody.Acquire(outer.Context(), "lock", "inner", held(0, nil, &Grip{})))(t).Unlock()
		require.Equal(t, []observe.EventKind{observe.Began, observe.Granted}, s.moments())
		outer.Unlock()
		require.Equal(t, []observe.EventKind{observe.Began, observe.Granted, observe.Released}, s.moments())
	})
}
