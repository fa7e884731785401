package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

func called(name string) func(*lease.Terms) {
	return func(terms *lease.Terms) { terms.Name = name }
}

func TestALossNamesTheHold(t *testing.T) {
	t.Parallel()
	for _, loss := range losses {
		e := newEngine(t.Context(), called("orders:42"))
		e.Lose(loss)
		err := e.Release(t.Context())
		require.Same(t, context.Cause(e.Context()), err)
		require.ErrorIs(t, err, loss)
		require.ErrorIs(t, err, lease.ErrLost)
		require.Equal(t, "lease lost: orders:42: "+loss.Error()[len("lease lost: "):], err.Error())

		whole := newEngine(t.Context(), called("several"))
		whole.Lose(err)
		require.Same(t, err, context.Cause(whole.Context()), "it is named once")
	}
	e := newEngine(t.Context(), called("orders:42"), passed)
	require.ErrorContains(t, e.Release(t.Context()), "lease lost: orders:42: expired: its deadline passed ")
}

func TestTheErrorsOfAReleaseNameTheHold(t *testing.T) {
	t.Parallel()
	e := newEngine(t.Context(), called("orders:42"))
	e.answer = lease.ErrUnconfirmed
	err := e.Release(t.Context())
	require.ErrorIs(t, err, lease.ErrUnconfirmed)
	require.EqualError(t, err, `lease: release "orders:42": release not confirmed`)
	err = e.Release(t.Context())
	require.ErrorIs(t, err, lease.ErrReleased)
	require.EqualError(t, err, `lease: release "orders:42": lease released by Release`)
	require.ErrorIs(t, context.Cause(e.Context()), lease.ErrReleased)

	e = newEngine(t.Context(), called("orders:42"))
	e.answer = lease.ErrForced // The word of the server, behind the end of the context.
	require.EqualError(t, e.Release(t.Context()), "lease lost: orders:42: released elsewhere by force")
	require.NoError(t, newEngine(t.Context(), called("orders:42")).Release(t.Context()))
}

func TestALeaseThatRanOutSaysWhyItWasNotRenewed(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t.Context(), called("orders:42"))
		begun := time.Now()
		for range 3 {
			synctime.Pass(10 * time.Second)
			e.Failing(begun, refused)
		}
		synctime.Pass(time.Minute)
		cause := context.Cause(e.Context())
		require.EqualError(t, cause, "lease lost: orders:42: no renewal was answered for 1m30s: connection refused")
		require.ErrorIs(t, cause, refused)
		require.ErrorIs(t, cause, lease.ErrExpired)
		require.ErrorIs(t, cause, lease.ErrLost)
		require.NotErrorIs(t, cause, lease.ErrForced)

		e = newEngine(t.Context())
		e.Failing(time.Now(), refused)
		e.Lose(lease.ErrExpired) // The server was faster.
		require.ErrorIs(t, context.Cause(e.Context()), refused)

		e = newEngine(t.Context(), called("orders:42"))
		e.Failing(time.Now(), refused)
		require.True(t, e.Extend(lease.Until{Deadline: time.Now().Add(time.Second), Slept: lease.Slept()}))
		synctime.Pass(time.Second)
		require.NotErrorIs(t, context.Cause(e.Context()), refused, "a renewal has gone well since")

		e = newEngine(t.Context(), called("orders:42"))
		e.Failing(time.Now(), refused)
		e.Lose(lease.ErrForced)
		require.NotErrorIs(t, context.Cause(e.Context()), refused, "that has nothing to do with it")
	})
}

func TestAReleaseWithoutAContextPanicsAndChangesNothing(t *testing.T) {
	t.Parallel()
	e := newEngine(t.Context())
	var none context.Context
	require.PanicsWithValue(t, "lease: Release: nil context", func() { _ = e.Release(none) })
	require.Panics(t, func() { _ = e.Release(noContext{}) })
	require.NoError(t, e.Context().Err())
	require.Zero(t, e.released.Load())
	require.NoError(t, e.Release(t.Context()))
}

// noContext is a context whose methods panic.
type noContext struct{ context.Context }
