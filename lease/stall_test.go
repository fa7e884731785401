package lease_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/lease"
)

// stalling makes leases on one hold that ends after d without progress.
func stalling(t *testing.T, d time.Duration, n int) (all []*lease.Lease) {
	s := lease.NewStall(d)
	for range n {
		all = append(all, lease.New(t.Context(), lease.Terms{
			Stall: s, Until: lease.Until{Deadline: time.Now().Add(time.Hour)}, Release: func(context.Context) error { return nil },
		}).Lease())
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
		whole := lease.New(t.Context(), lease.Terms{Parts: parts, Until: lease.Until{Deadline: time.Now().Add(time.Hour)}}).Lease()
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
		until := lease.Until{Deadline: time.Now().Add(time.Second), Slept: lease.Slept(), Cause: lease.ErrMaxHold}
		k := lease.New(t.Context(), lease.Terms{Until: until})
		time.Sleep(2 * time.Second) // Beyond the end.
		k.Lose(lease.ErrExpired)
		require.ErrorIs(t, context.Cause(k.Lease().Context()), lease.ErrMaxHold)
	})
}

func TestALeaseWithoutAStallDoesNotMindProgress(t *testing.T) {
	require.Nil(t, lease.NewStall(0))
	l := stalling(t, 0, 1)[0]
	l.Progress()
	require.NoError(t, l.Context().Err())
}
