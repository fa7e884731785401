package lease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
)

// teller is an engine that can tell that somebody waits.
type teller struct {
	asked  int
	keeper *lease.Keeper
	at     int // the call that is told at once; 0: none
}

func (e *teller) Want() {
	e.asked++
	if e.asked == e.at {
		e.keeper.Awaited()
	}
}

func newTeller(t *testing.T, at int, parts ...*lease.Lease) *teller {
	e := &teller{at: at}
	e.keeper = lease.New(t.Context(), lease.Terms{Engine: e, Parts: parts, Until: lease.Until{Deadline: time.Now().Add(time.Hour)}})
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
	l := e.keeper.Lease()
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

	require.True(t, closed(newTeller(t, 1).keeper.Lease().Wanted()), "told at once")
}

func TestAHoldThatHasEndedAsksNobodyWhetherSomebodyWaits(t *testing.T) {
	t.Parallel()
	e := newTeller(t, 0)
	e.keeper.Lose(lease.ErrForced)
	require.NotNil(t, e.keeper.Lease().Wanted())
	require.Zero(t, e.asked)
}

func TestAnEngineThatCannotTellWhetherSomebodyWaitsHasNoChannel(t *testing.T) {
	t.Parallel()
	plain := newEngine(t.Context())
	require.Nil(t, plain.Wanted())
	whole := lease.New(t.Context(), lease.Terms{Parts: []*lease.Lease{plain.Lease}, Until: lease.Until{Deadline: time.Now().Add(time.Hour)}})
	require.Nil(t, whole.Lease().Wanted())
}

func TestAHoldOfSeveralNamesIsToldWhenSomebodyWaitsForOneOfThem(t *testing.T) {
	t.Parallel()
	for which := range 2 {
		parts := []*teller{newTeller(t, 0), newTeller(t, 0)}
		whole := lease.New(t.Context(), lease.Terms{
			Parts: []*lease.Lease{parts[0].keeper.Lease(), parts[1].keeper.Lease()}, Until: lease.Until{Deadline: time.Now().Add(time.Hour)},
		}).Lease()
		ch := whole.Wanted()
		require.False(t, closed(ch))
		parts[which].keeper.Awaited()
		require.True(t, closed(ch))
		parts[1-which].keeper.Awaited()
		require.Equal(t, []int{1, 1}, []int{parts[0].asked, parts[1].asked})
	}
	e := newTeller(t, 1)
	whole := lease.New(t.Context(), lease.Terms{Parts: []*lease.Lease{e.keeper.Lease()}, Until: lease.Until{Deadline: time.Now().Add(time.Hour)}})
	require.True(t, closed(whole.Lease().Wanted()), "told at once")
}
