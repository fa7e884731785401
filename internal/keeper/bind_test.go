package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/lease"
)

var errGone = errors.New("the client has gone")

func TestABoundContextEndsWithTheFirstOfTwo(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(e *engine, gone context.CancelCauseFunc)
		cause error
	}{
		"the other context": {func(_ *engine, gone context.CancelCauseFunc) { gone(errGone) }, errGone},
		"a loss":            {func(e *engine, _ context.CancelCauseFunc) { e.Lose(lease.ErrForced) }, lease.ErrForced},
		"a release": {func(e *engine, _ context.CancelCauseFunc) {
			_ = e.Release(context.Background())
		}, lease.ErrReleased},
		"the other context, then a loss": {func(e *engine, gone context.CancelCauseFunc) {
			gone(errGone)
			synctest.Wait()
			e.Lose(lease.ErrForced)
		}, errGone},
		"a loss, then the other context": {func(e *engine, gone context.CancelCauseFunc) {
			e.Lose(lease.ErrForced)
			synctest.Wait()
			gone(errGone)
		}, lease.ErrForced},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t.Context())
				ctx, gone := context.WithCancelCause(t.Context())
				defer gone(nil)
				bound := e.Bind(ctx)
				child, stop := context.WithCancel(bound)
				defer stop()
				require.NoError(t, bound.Err())
				c.end(e, gone)
				<-child.Done() // Nobody has looked at the bound context.
				require.Equal(t, context.Canceled, bound.Err())
				require.ErrorIs(t, context.Cause(bound), c.cause)
				require.ErrorIs(t, context.Cause(child), c.cause)
				require.ErrorIs(t, context.Cause(bound), c.cause, "it stays")
			})
		})
	}
}

func TestABoundContextEndsAsTheOtherOneDoes(t *testing.T) {
	for name, lateLoss := range map[string]bool{"alone": false, "before a loss": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t.Context())
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errGone)
				defer cancel()
				work := func(bound context.Context) error {
					child, stop := context.WithTimeout(bound, time.Minute)
					defer stop()
					require.NoError(t, bound.Err())
					<-child.Done()
					require.Equal(t, context.DeadlineExceeded, child.Err())
					require.Equal(t, context.DeadlineExceeded, bound.Err())
					if lateLoss {
						e.Lose(lease.ErrForced)
						synctest.Wait()
					}
					<-bound.Done()
					require.Equal(t, errGone, context.Cause(bound))
					return bound.Err()
				}
				require.ErrorIs(t, work(e.Bind(ctx)), context.DeadlineExceeded)

				e = newEngine(t.Context())
				ctx, cancel = context.WithTimeoutCause(t.Context(), time.Second, errGone)
				defer cancel()
				err := lease.Do(ctx, func(context.Context) (*lease.Lease, error) { return (*lease.Lease)(e.Keeper), nil }, work)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		})
	}
}

func TestABoundContextSeesAtOnceThatOneOfTheTwoHasEnded(t *testing.T) {
	looks := map[string]func(context.Context) bool{
		"Err":   func(ctx context.Context) bool { return ctx.Err() != nil },
		"Cause": func(ctx context.Context) bool { return context.Cause(ctx) != nil },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"a new child": func(ctx context.Context) bool {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err() != nil
		},
	}
	for name, look := range looks {
		ctx, gone := context.WithCancelCause(t.Context())
		bound := newEngine(t.Context()).Bind(ctx)
		require.False(t, look(bound), name)
		gone(errGone)
		require.True(t, look(bound), name)
		require.Equal(t, errGone, context.Cause(bound))

		bound = newEngine(t.Context(), passed).Bind(t.Context()) // Nobody has told the hold that its time is over.
		require.True(t, look(bound), name)
		require.ErrorIs(t, context.Cause(bound), lease.ErrExpired)
	}
}

func TestABoundContextHasTheDeadlineAndTheValuesOfTheOther(t *testing.T) {
	t.Parallel()
	type of string
	lock := new(int)
	own := func(terms *keeper.Terms) { terms.Key = lock }
	old := newEngine(t.Context(), own)
	_ = old.Release(t.Context())
	e := newEngine(context.WithValue(context.WithValue(t.Context(), of("both"), "hold"), of("hold"), "hold"), own)
	ctx, cancel := context.WithTimeout(context.WithValue(
		context.WithValue(context.WithoutCancel(old.Context()), of("both"), "call"), of("call"), "call"), time.Minute)
	defer cancel()
	bound := e.Bind(ctx)
	require.Equal(t, "call", bound.Value(of("both")))
	require.Equal(t, "call", bound.Value(of("call")))
	require.Equal(t, "hold", bound.Value(of("hold")))
	require.Nil(t, bound.Value(of("neither")))
	require.Same(t, e.Keeper, bound.Value(lock), "not the one before, which has ended")
	inside, ok := keeper.FromContext(bound)
	require.True(t, ok)
	require.Same(t, e.Keeper, inside)
	want, _ := ctx.Deadline()
	got, ok := bound.Deadline()
	require.True(t, ok)
	require.Equal(t, want, got)
	_, ok = e.Bind(context.Background()).Deadline()
	require.False(t, ok)
	require.Equal(t, "lease.Bind", fmt.Sprint(bound))
}

func TestABoundContextOfSeveralNamesFindsEachOfThem(t *testing.T) {
	t.Parallel()
	lock := new(int)
	part := newEngine(t.Context(), func(terms *keeper.Terms) { terms.Key = lock })
	all := newEngine(t.Context(), func(terms *keeper.Terms) { terms.Parts = []*keeper.Keeper{part.Keeper} })
	bound := all.Bind(t.Context())
	require.Same(t, part.Keeper, bound.Value(lock))
	part.Lose(lease.ErrForced)
	require.Error(t, bound.Err())
	require.ErrorIs(t, context.Cause(bound), lease.ErrForced)
}

func TestABoundContextIsFreedWhenEitherEnds(t *testing.T) {
	for name, end := range map[string]func(e *engine, gone context.CancelFunc){
		"the hold":          func(e *engine, _ context.CancelFunc) { e.Lose(lease.ErrForced) },
		"the other context": func(_ *engine, gone context.CancelFunc) { gone() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // No goroutine is left at its end, with both still there.
				e := newEngine(t.Context())
				ctx, gone := context.WithCancel(t.Context())
				defer gone()
				payload := new([64]byte)
				bound := e.Bind(context.WithValue(ctx, key{}, payload))
				seen := weak.Make(payload)
				payload = nil
				require.NoError(t, bound.Err())
				end(e, gone)
				synctest.Wait()
				require.Error(t, bound.Err())
				bound = nil
				for range 3 {
					runtime.GC()
				}
				require.Nil(t, seen.Value(), "it is kept")
				runtime.KeepAlive(e)
				runtime.KeepAlive(ctx)
			})
		})
	}
}

func TestToBindAHoldToNoContextPanicsAndChangesNothing(t *testing.T) {
	e := newEngine(t.Context())
	var none context.Context
	require.PanicsWithValue(t, "lease: Bind: nil context", func() { e.Bind(none) })
	require.NoError(t, e.Context().Err())
}

func TestDoTellsWhatItsFunctionReturnedAndWhatBecameOfTheHold(t *testing.T) {
	late := errors.New("the carrier is late")
	for name, c := range map[string]struct {
		lost, returned error
		want           []error
		text           string
	}{
		"nothing":             {},
		"an error":            {nil, late, []error{late}, "the carrier is late"},
		"a loss":              {lease.ErrForced, nil, []error{lease.ErrForced}, "lease lost: released elsewhere by force"},
		"both":                {lease.ErrForced, late, []error{late, lease.ErrForced}, "the carrier is late\nlease lost: released elsewhere by force"},
		"the loss, told once": {lease.ErrForced, lease.ErrForced, []error{lease.ErrForced}, "lease lost: released elsewhere by force"},
	} {
		e := newEngine(t.Context())
		err := lease.Do(t.Context(), func(context.Context) (*lease.Lease, error) { return (*lease.Lease)(e.Keeper), nil }, func(context.Context) error {
			if c.lost != nil {
				e.Lose(c.lost)
			}
			return c.returned
		})
		require.Equal(t, int64(1), e.released.Load(), name)
		for _, want := range c.want {
			require.ErrorIs(t, err, want, name)
		}
		if c.text == "" {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, c.text, name)
		}
	}
}

func TestDoReleasesOnAPanicAndAfterTheEndOfItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := newEngine(ctx)
	require.PanicsWithValue(t, "no", func() {
		_ = lease.Do(ctx, func(context.Context) (*lease.Lease, error) { return (*lease.Lease)(e.Keeper), nil }, func(inner context.Context) error {
			cancel()
			require.Error(t, inner.Err())
			panic("no")
		})
	})
	require.Equal(t, int64(1), e.released.Load())
	require.ErrorIs(t, context.Cause(e.Context()), lease.ErrReleased)
	require.ErrorIs(t, lease.Do(ctx, func(context.Context) (*lease.Lease, error) { return nil, lease.ErrBusy }, nil), lease.ErrBusy)
}
