package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

func TestAHoldReleasedByForceAtAllNodesIsTheNextCalls(t *testing.T) {
	t.Parallel()
	all := servers(t, 5)
	m := mutex(t, dial(t, all), headwaiter.WithLease(time.Minute))
	l, err := m.Lock(soon(t))
	require.NoError(t, err)
	everywhere(t, m, all)
	other := mutex(t, dial(t, all), headwaiter.WithLease(time.Minute))
	waits := kit.Lock(t.Context(), other.Lock)

	_, err = other.ForceRelease(soon(t), l.Token()+1)
	require.ErrorIs(t, err, lease.ErrOtherToken)
	require.NoError(t, l.Context().Err(), "what is held with another token stays")

	all[4].Stop() // One that does not answer keeps nobody.
	freed, err := other.ForceRelease(soon(t), l.Token())
	require.NoError(t, err)
	require.Equal(t, l.Token(), freed.Token)
	all[4].Cont()
	require.ErrorIs(t, kit.Lost(t, l), lease.ErrForced)
	next := waits.Value(t)
	require.Greater(t, next.Token(), l.Token())
	kit.Release(t, next)

	kit.Eventually(t, "all votes to be given back", func() bool {
		_, err = other.ForceRelease(soon(t), 0)
		return err != nil
	})
	require.ErrorIs(t, err, lease.ErrNotHeld)
	require.Regexp(t, `^redlock: force release ".*": not held$`, err.Error())
}

func TestAForceThatAMajorityDoesNotAnswerSaysSo(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all), headwaiter.WithLease(time.Minute))
	l, err := m.Lock(soon(t))
	require.NoError(t, err)
	everywhere(t, m, all)
	other := mutex(t, dial(t, all))
	all[0].Stop()
	all[1].Stop()
	_, err = other.ForceRelease(soon(t), l.Token())
	require.ErrorContains(t, err, "2 of 3 nodes did not answer, and may still hold it")
	all[0].Cont()
	all[1].Cont()
}

func TestAForceOfANameThatCannotBeSaysSo(t *testing.T) {
	t.Parallel()
	all := dial(t, servers(t, 3))
	_, err := redlock.New(all, "").ForceRelease(soon(t), 0)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.NotContains(t, err.Error(), "did not answer")
}
