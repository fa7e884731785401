package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = 7

// engine makes a hold for a minute, and counts how often it is given back.
type engine struct {
	*keeper.Keeper
	released atomic.Int64
	answer   error // of Release
}

func newEngine(ctx context.Context, change ...func(*keeper.Terms)) *engine {
	e := &engine{}
	terms := keeper.Terms{
		Token: token,
		Until: keeper.Until{Deadline: time.Now().Add(time.Minute), Slept: keeper.Slept()},
		Release: func(context.Context) error {
			e.released.Add(1)
			return e.answer
		},
	}
	for _, c := range change {
		c(&terms)
	}
	e.Keeper = keeper.New(ctx, terms)
	return e
}

// passed is an end that has passed.
func passed(t *keeper.Terms) { t.Until.Deadline = time.Now().Add(-time.Millisecond) }

var losses = []error{lease.ErrExpired, lease.ErrForced, lease.ErrForgotten, lease.ErrMaxHold, lease.ErrClientClosed}

func TestEveryLossIsErrLostAndItself(t *testing.T) {
	for i, loss := range losses {
		wrapped := fmt.Errorf("somewhere: %w", loss)
		require.ErrorIs(t, wrapped, lease.ErrLost)
		require.ErrorContains(t, loss, "lease lost: ")
		for j, other := range losses {
			require.Equal(t, i == j, errors.Is(wrapped, other))
		}
	}
	require.NotErrorIs(t, lease.ErrReleased, lease.ErrLost)
	require.NotErrorIs(t, lease.ErrUnconfirmed, lease.ErrLost)
	require.NotErrorIs(t, lease.ErrLost, lease.ErrExpired)
}

func TestARelease(t *testing.T) {
	t.Parallel()
	e := newEngine(t.Context())
	ctx := e.Context()
	require.NoError(t, ctx.Err())
	require.Equal(t, uint64(token), e.Token())
	require.NoError(t, e.Release(t.Context()))
	require.Equal(t, context.Canceled, ctx.Err())
	require.ErrorIs(t, context.Cause(ctx), lease.ErrReleased)
	require.ErrorIs(t, e.Release(t.Context()), lease.ErrReleased)
	require.Equal(t, int64(1), e.released.Load())
	e.Lose(lease.ErrForced)
	require.ErrorIs(t, context.Cause(ctx), lease.ErrReleased, "a hold that was released cannot be lost")
	require.True(t, e.Overdue())
}

func TestTheFirstReleaseAnswersWhatTheEngineSays(t *testing.T) {
	t.Parallel()
	e := newEngine(t.Context())
	e.answer = lease.ErrUnconfirmed
	require.Equal(t, lease.ErrUnconfirmed, e.Release(t.Context()))
	require.ErrorIs(t, e.Release(t.Context()), lease.ErrReleased)
	require.ErrorIs(t, context.Cause(e.Context()), lease.ErrReleased)
}

func TestTheCauseSaysByWhichCallTheHoldWasReleased(t *testing.T) {
	t.Parallel()
	released, unlocked, done := newEngine(t.Context()), newEngine(t.Context()), newEngine(t.Context())
	require.NoError(t, released.Release(t.Context()))
	unlocked.Unlock()
	lock := func(context.Context) (*lease.Lease, error) { return (*lease.Lease)(done.Keeper), nil }
	var kept context.Context
	require.NoError(t, lease.Do(t.Context(), lock, func(ctx context.Context) error { kept = ctx; return nil }))
	require.EqualError(t, context.Cause(kept), "lease released at the end of Do")
	for _, c := range []struct {
		lease *engine
		text  string
	}{
		{released, "lease released by Release"},
		{unlocked, "lease released by Unlock"},
		{done, "lease released at the end of Do"},
	} {
		require.EqualError(t, context.Cause(c.lease.Context()), c.text)
		require.ErrorContains(t, c.lease.Release(t.Context()), c.text)
	}
}

func TestTheContextHasEndedBeforeTheHoldIsGivenBack(t *testing.T) {
	t.Parallel()
	var e *engine
	e = newEngine(t.Context(), func(terms *keeper.Terms) {
		terms.Release = func(context.Context) error { return context.Cause(e.Context()) }
	})
	require.ErrorIs(t, e.Release(t.Context()), lease.ErrReleased)
}

// giver notes how the context ends that a hold is given away with.
type giver struct{ given context.Context }

func (g *giver) Gives() bool { return true }

func (g *giver) HandOver(ctx context.Context) (string, error) {
	g.given = ctx
	return "text", ctx.Err()
}

func TestAHoldIsGivenBackWithItsOwnContext(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]func(e *engine) context.Context{
		"its context":     func(e *engine) context.Context { return e.Context() },
		"a child":         func(e *engine) context.Context { return context.WithValue(e.Context(), key{}, "value") },
		"a bound context": func(e *engine) context.Context { return e.Bind(t.Context()) },
		"a context that another hold is bound to": func(e *engine) context.Context {
			return newEngine(t.Context()).Bind(e.Context())
		},
		"that of a hold within a hold within it": func(e *engine) context.Context {
			second := newEngine(e.Context())
			return newEngine(second.Bind(e.Context())).Bind(second.Bind(e.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &giver{}
			mine := func(terms *keeper.Terms) {
				terms.Engine = g
				terms.Release = func(ctx context.Context) error { _, err := g.HandOver(ctx); return err }
			}
			e := newEngine(t.Context(), mine)
			whole := e.Deadline()
			require.NoError(t, e.Release(from(e)))
			until, _ := g.given.Deadline()
			require.Equal(t, whole, until)

			e = newEngine(t.Context(), mine)
			ctx, cancel := context.WithTimeout(from(e), time.Second)
			defer cancel()
			require.NoError(t, must.Err(e.HandOver(ctx)))
			want, _ := ctx.Deadline()
			until, _ = g.given.Deadline()
			require.Equal(t, want, until)

			e = newEngine(t.Context(), mine)
			ctx, cancel = context.WithCancel(from(e))
			cancel()
			require.ErrorIs(t, e.Release(ctx), context.Canceled, "it had ended before")
		})
	}
}

func TestALossTellsWhyAndStays(t *testing.T) {
	t.Parallel()
	for _, loss := range losses {
		e := newEngine(t.Context())
		e.answer = loss
		e.Lose(loss)
		e.Lose(lease.ErrForgotten)
		e.End()
		require.Equal(t, context.Canceled, e.Context().Err())
		require.Equal(t, loss, context.Cause(e.Context()))
		require.Equal(t, loss, e.Release(t.Context()))
		require.Equal(t, loss, e.Release(t.Context()))
		require.Equal(t, int64(1), e.released.Load())
	}
}

// Whatever the engine answers: it may not even know that the hold was lost.
func TestAReleaseAfterALossIsNeverNil(t *testing.T) {
	t.Parallel()
	e := newEngine(t.Context())
	e.Lose(lease.ErrForced)
	require.ErrorIs(t, e.Release(t.Context()), lease.ErrForced)
	e = newEngine(t.Context(), passed)
	require.ErrorIs(t, e.Release(t.Context()), lease.ErrExpired)
}

func TestAPassedDeadlineIsALossAtTheFirstLook(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(e *engine) error{
		"Err":   func(e *engine) error { return e.Context().Err() },
		"Cause": func(e *engine) error { return context.Cause(e.Context()) },
		"Done": func(e *engine) error {
			select {
			case <-e.Context().Done():
				return context.Cause(e.Context())
			default:
				return nil
			}
		},
		"a child": func(e *engine) error { return childCause(e.Context()) },
		"Overdue": func(e *engine) error {
			require.True(t, e.Overdue())
			return context.Cause(e.Context())
		},
		"Extend": func(e *engine) error {
			require.False(t, e.Extend(keeper.Until{Deadline: time.Now().Add(time.Hour), Slept: keeper.Slept()}))
			return context.Cause(e.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t.Context(), passed)
			err := look(e)
			if name == "Err" {
				require.Equal(t, context.Canceled, err)
				err = context.Cause(e.Context())
			}
			must.Fails(t, err, lease.ErrExpired, "its deadline passed")
			<-e.Context().Done()
		})
	}
}

// childCause is the cause that a new child of a context finds.
func childCause(ctx context.Context) error {
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(child)
}

func TestAPassedDeadlineMayHaveACauseOfItsOwn(t *testing.T) {
	t.Parallel()
	e := newEngine(t.Context(), passed, func(terms *keeper.Terms) { terms.Until.Cause = lease.ErrMaxHold })
	require.Equal(t, context.Canceled, e.Context().Err())
	require.Equal(t, lease.ErrMaxHold, context.Cause(e.Context()))
}

func TestTheTimeThatTheMachineSleptCounts(t *testing.T) {
	t.Parallel()
	e := newEngine(t.Context(), func(terms *keeper.Terms) { terms.Until.Slept = keeper.Slept() - time.Hour })
	require.Error(t, e.Context().Err(), "the machine slept for an hour, the hold lasts a minute")
	e = newEngine(t.Context(), func(terms *keeper.Terms) { terms.Until.Slept = keeper.Slept() - time.Second })
	require.NoError(t, e.Context().Err())
}

func TestSleptIsSteadyWhileTheMachineIsAwake(t *testing.T) {
	t.Parallel()
	first := keeper.Slept()
	for range 1000 {
		require.InDelta(t, first, keeper.Slept(), float64(500*time.Millisecond))
	}
}

func TestAnExtensionMovesTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t.Context())
		require.Equal(t, time.Now().Add(time.Minute), e.Deadline())
		for range 10 {
			synctime.Pass(59 * time.Second)
			require.NoError(t, e.Context().Err())
			until := time.Now().Add(time.Minute)
			require.True(t, e.Extend(keeper.Until{Deadline: until, Slept: keeper.Slept()}))
			require.Equal(t, until, e.Deadline())
		}
		synctime.Pass(time.Minute + time.Millisecond)
		require.Error(t, e.Context().Err())
		require.False(t, e.Extend(keeper.Until{Deadline: time.Now().Add(time.Hour), Slept: keeper.Slept()}))
		require.ErrorIs(t, context.Cause(e.Context()), lease.ErrExpired)
	})
}

type key struct{}

func TestTheContextHasTheValuesOfItsParentButNotItsEnd(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Minute)
	found := new(int)
	e := newEngine(parent, func(terms *keeper.Terms) { terms.Key = found })
	cancel()
	ctx := e.Context()
	require.NoError(t, ctx.Err())
	require.Equal(t, "value", ctx.Value(key{}))
	_, ok := ctx.Deadline()
	require.False(t, ok)
	require.Same(t, e.Keeper, ctx.Value(found))
	require.Nil(t, ctx.Value(new(int)))
	require.Nil(t, newEngine(parent).Context().Value(nil))
	require.Equal(t, "lease.Context", fmt.Sprint(ctx))
}

func TestChildrenEndWithTheHoldAndCostNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// In a bubble a goroutine that waits for the parent would be one that is never over.
		e := newEngine(t.Context())
		child, stop := context.WithTimeout(context.WithValue(e.Context(), key{}, "value"), time.Hour)
		defer stop()
		called := make(chan struct{})
		context.AfterFunc(child, func() { close(called) })
		orphan, drop := context.WithCancel(newEngine(t.Context()).Context())
		require.NoError(t, orphan.Err())
		_ = drop // Neither is cancelled, nor is its parent.
		e.Lose(lease.ErrForced)
		<-called
		require.Equal(t, lease.ErrForced, context.Cause(child))
	})
}

func TestAHoldEndsOnceHoweverManyEndIt(t *testing.T) {
	t.Parallel()
	for range 200 {
		e := newEngine(t.Context())
		e.answer = lease.ErrForced
		var all sync.WaitGroup
		var nils atomic.Int64
		for i := range 8 {
			all.Go(func() {
				switch i % 4 {
				case 0:
					e.Lose(lease.ErrForced)
				case 1:
					e.Extend(keeper.Until{Deadline: time.Now().Add(time.Hour), Slept: keeper.Slept()})
				default:
					if e.Release(t.Context()) == nil {
						nils.Add(1)
					}
				}
			})
		}
		all.Wait()
		require.Equal(t, int64(1), e.released.Load())
		require.Zero(t, nils.Load())
		cause := context.Cause(e.Context())
		require.True(t, cause == lease.ErrForced || errors.Is(cause, lease.ErrReleased), "%v", cause)
	}
}

func TestTheLeaseIsFoundInItsContext(t *testing.T) {
	_, found := keeper.FromContext(t.Context())
	require.False(t, found)
	outer := keeper.New(t.Context(), keeper.Terms{Token: 1, Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}})
	inner := keeper.New(outer.Context(), keeper.Terms{Token: 2, Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}, Shared: true})
	ctx, cancel := context.WithCancel(inner.Context())
	defer cancel()
	got, found := keeper.FromContext(ctx)
	require.True(t, found)
	require.Same(t, inner, got, "not the innermost")
	require.True(t, got.Shared())
	got, _ = keeper.FromContext(context.WithValue(outer.Context(), t, 1))
	require.Same(t, outer, got)
	require.False(t, got.Shared())
}

func TestALeaseIsTextForLogs(t *testing.T) {
	t.Parallel()
	e := newEngine(t.Context(), func(t *keeper.Terms) { t.Name = "orders" })
	require.Regexp(t, `^"orders", token 7: held, certain for [0-9.ms]+$`, e.String())
	require.Regexp(t, `^"orders", token 7: held, certain for [0-9.ms]+$`, fmt.Sprintf("%+v", e.Keeper))
	require.NoError(t, e.Release(t.Context()))
	require.Equal(t, `"orders", token 7: lease released by Release`, e.String())
}

// unlocking is an engine that knows Unlock, and counts its calls.
func unlocking(n *atomic.Int64) func(*keeper.Terms) {
	return func(t *keeper.Terms) { t.Unlock = func() { n.Add(1) } }
}

func TestAnUnlockGivesBackOnce(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	e := newEngine(t.Context(), unlocking(&n))
	e.Unlock()
	require.ErrorIs(t, context.Cause(e.Context()), lease.ErrReleased)
	e.Unlock()
	require.ErrorIs(t, e.Release(t.Context()), lease.ErrReleased)
	require.Equal(t, int64(1), n.Load())
	require.Zero(t, e.released.Load())
	(*lease.Lease)(nil).Unlock()
}

func TestAnUnlockAfterAReleaseDoesNothing(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	e := newEngine(t.Context(), unlocking(&n))
	require.NoError(t, e.Release(t.Context()))
	e.Unlock()
	require.Zero(t, n.Load())
}

// Its engine learns that nobody uses what it may still have of it, as by a Release.
func TestAnUnlockAfterALossLeavesTheLoss(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*keeper.Terms){passed, func(*keeper.Terms) {}} {
		e := newEngine(t.Context(), change)
		e.Lose(lease.ErrForced)
		e.Unlock()
		require.ErrorIs(t, context.Cause(e.Context()), lease.ErrLost)
		require.ErrorIs(t, e.Release(t.Context()), lease.ErrLost)
		require.Equal(t, int64(1), e.released.Load())
	}
}

func TestAnEngineWithoutAnUnlockReleasesOnAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	var on context.Context
	e := newEngine(t.Context(), func(t *keeper.Terms) {
		t.Release = func(ctx context.Context) error { on = ctx; return lease.ErrUnconfirmed }
	})
	e.Unlock()
	require.Error(t, on.Err())
}
