package keeper_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

func called(name string) func(*keeper.Terms) { return func(terms *keeper.Terms) { terms.Name = name } }

func TestALossNamesTheHold(t *testing.T) {
	t.Parallel()
	for _, loss := range losses {
		e := newEngine(t.Context(), called("orders:42"))
		e.Lose(loss)
		err := e.Release(t.Context())
		require.Same(t, context.Cause(e.Context()), err)
		must.Fails(t, err, loss, lease.ErrLost)
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
	e.answer = lease.ErrForced // The reply of the server, after the end of the context.
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
		must.Fails(t, cause, refused, lease.ErrExpired, lease.ErrLost)
		require.NotErrorIs(t, cause, lease.ErrForced)

		e = newEngine(t.Context())
		e.Failing(time.Now(), refused)
		e.Lose(lease.ErrExpired) // The server was faster.
		require.ErrorIs(t, context.Cause(e.Context()), refused)

		e = newEngine(t.Context(), called("orders:42"))
		e.Failing(time.Now(), refused)
		require.True(t, e.Extend(keeper.Until{Deadline: time.Now().Add(time.Second), Slept: keeper.Slept()}))
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

// stalling makes leases on one hold that ends after d without progress.
func stalling(t *testing.T, d time.Duration, n int) (all []*keeper.Keeper) {
	s := keeper.NewStall(d)
	for range n {
		all = append(all, keeper.New(t.Context(), keeper.Terms{
			Stall: s, Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}, Release: func(context.Context) error { return nil },
		}))
	}
	return all
}

func TestProgressOnOneLeaseCountsForAllOfItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := stalling(t, time.Minute, 2)
		for range 5 {
			time.Sleep(59 * time.Second) // A step of the work.
			all[1].Progress()
			require.NoError(t, all[0].Context().Err())
			require.Equal(t, time.Now().Add(time.Minute), all[0].Deadline())
		}
		time.Sleep(time.Minute) // Until the end.
		all[1].Progress()       // Nobody has looked yet, but it is over.
		for _, l := range all {
			require.ErrorIs(t, l.Release(t.Context()), lease.ErrStalled)
			require.ErrorIs(t, context.Cause(l.Context()), lease.ErrLost)
			require.EqualError(t, context.Cause(l.Context()), "lease lost: no progress for 1m0s")
		}
	})
}

func TestProgressReachesThePartsOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parts := stalling(t, time.Minute, 1)
		whole := keeper.New(t.Context(), keeper.Terms{Parts: parts, Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}})
		time.Sleep(40 * time.Second) // A step of the work.
		whole.Progress()
		time.Sleep(40 * time.Second) // A step of the work.
		require.NoError(t, whole.Context().Err())
		time.Sleep(40 * time.Second) // A step of the work.
		require.Error(t, whole.Context().Err())
	})
}

// The server's word that a lease is over may come ahead of everybody who watches its end here.
func TestALossBehindTheDeadlineSaysWhatTheDeadlineWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := keeper.Until{Deadline: time.Now().Add(time.Second), Slept: keeper.Slept(), Cause: lease.ErrMaxHold}
		k := keeper.New(t.Context(), keeper.Terms{Until: until})
		time.Sleep(2 * time.Second) // Beyond the end.
		k.Lose(lease.ErrExpired)
		require.ErrorIs(t, context.Cause(k.Context()), lease.ErrMaxHold)
	})
}

// A lease that was released is another's business where its hold was entered again.
func TestProgressOfALeaseThatWasReleasedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := stalling(t, time.Minute, 2)
		require.NoError(t, all[1].Release(t.Context()))
		ends := all[0].Deadline()
		time.Sleep(time.Second) // A step of the work.
		all[1].Progress()
		require.Equal(t, ends, all[0].Deadline())
	})
}

func TestAPausedClockBeginsWithItsWholeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, far := keeper.NewStall(time.Minute), time.Now().Add(time.Hour)
		l := keeper.New(t.Context(), keeper.Terms{Stall: s, Until: keeper.Until{Deadline: far}})
		s.Pause()
		time.Sleep(2 * time.Minute) // The call goes on.
		l.Progress()
		require.NoError(t, l.Context().Err())
		require.Equal(t, far, l.Deadline())
		s.Resume()
		s.Resume()
		require.Equal(t, time.Now().Add(time.Minute), l.Deadline())
		time.Sleep(time.Minute) // Until the end.
		require.ErrorIs(t, context.Cause(l.Context()), lease.ErrStalled)
		s.Resume()
		require.Error(t, l.Context().Err())
	})
}

func TestALeaseWithoutAStallDoesNotMindProgress(t *testing.T) {
	require.Nil(t, keeper.NewStall(0))
	l := stalling(t, 0, 1)[0]
	l.Progress()
	require.NoError(t, l.Context().Err())
}

// teller is an engine that can tell that somebody waits.
type teller struct {
	asked  int
	keeper *keeper.Keeper
	at     int // the call that is told at once; 0: none
}

func (e *teller) Want(*keeper.Keeper) {
	e.asked++
	if e.asked == e.at {
		e.keeper.Awaited()
	}
}

func newTeller(t *testing.T, at int, parts ...*keeper.Keeper) *teller {
	e := &teller{at: at}
	e.keeper = keeper.New(t.Context(), keeper.Terms{Engine: e, Parts: parts, Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}})
	return e
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestTheEngineIsAskedOnceWhetherSomebodyWaitsAndTellsOnce(t *testing.T) {
	t.Parallel()
	e := newTeller(t, 0)
	l := e.keeper
	e.keeper.Awaited() // Nobody has asked.
	ch := l.Wanted()
	require.False(t, closed(ch))
	require.Equal(t, ch, l.Wanted())
	require.Equal(t, 1, e.asked)
	e.keeper.Awaited()
	require.True(t, closed(ch))
	e.keeper.Awaited()
	require.True(t, closed(l.Wanted()))
	require.Equal(t, 1, e.asked)
	require.NoError(t, l.Context().Err(), "it obliges to nothing")

	require.True(t, closed(newTeller(t, 1).keeper.Wanted()), "told at once")
}

func TestAHoldThatHasEndedAsksNobodyWhetherSomebodyWaits(t *testing.T) {
	t.Parallel()
	e := newTeller(t, 0)
	e.keeper.Lose(lease.ErrForced)
	require.NotNil(t, e.keeper.Wanted())
	require.Zero(t, e.asked)
}

func TestAnEngineThatCannotTellWhetherSomebodyWaitsHasNoChannel(t *testing.T) {
	t.Parallel()
	plain := newEngine(t.Context())
	require.Nil(t, plain.Wanted())
	whole := keeper.New(t.Context(), keeper.Terms{Parts: []*keeper.Keeper{plain.Keeper}, Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}})
	require.Nil(t, whole.Wanted())
}

func TestAHoldOfSeveralNamesIsToldWhenSomebodyWaitsForOneOfThem(t *testing.T) {
	t.Parallel()
	for which := range 2 {
		parts := []*teller{newTeller(t, 0), newTeller(t, 0)}
		whole := keeper.New(t.Context(), keeper.Terms{
			Parts: []*keeper.Keeper{parts[0].keeper, parts[1].keeper}, Until: keeper.Until{Deadline: time.Now().Add(time.Hour)},
		})
		ch := whole.Wanted()
		require.False(t, closed(ch))
		parts[which].keeper.Awaited()
		require.True(t, closed(ch))
		parts[1-which].keeper.Awaited()
		require.Equal(t, []int{1, 1}, []int{parts[0].asked, parts[1].asked})
	}
	e := newTeller(t, 1)
	whole := keeper.New(t.Context(), keeper.Terms{Parts: []*keeper.Keeper{e.keeper}, Until: keeper.Until{Deadline: time.Now().Add(time.Hour)}})
	require.True(t, closed(whole.Wanted()), "told at once")
}
