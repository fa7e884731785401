package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

// stall is how long a server answers nobody; the leases are shorter.
const stall = 2500 * time.Millisecond

// stalled asserts what is to happen while a server does not answer, until over is closed: the holder gives
// up by its own clock, and a call comes back when its context ends.
func stalled(t *testing.T, held *lease.Lease, other *fairlock.Mutex, over <-chan struct{}) {
	t.Helper()
	const given = 300 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), given)
	defer cancel()
	begun := time.Now()
	err := begin(ctx, other).failed(t)
	took := time.Since(begun)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.GreaterOrEqual(t, took, given)
	require.Less(t, took, given+time.Second)

	require.ErrorIs(t, lost(t, held), lease.ErrExpired)
	select {
	case <-over:
		t.Fatal("the holder was told after the stall")
	default:
	}
}

func TestAHolderGivesUpByItsOwnClockWhileTheServerSleeps(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	other := dialMutex(t, s)
	l := hold(t, dialMutex(t, s, fairlock.WithLease(time.Second)))
	waiter := begin(t.Context(), dialMutex(t, s))
	queued(t, other, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = s.Try("DEBUG", "SLEEP", "2.5")
	}()
	stalled(t, l, other, over)
	<-over
	require.ErrorIs(t, l.Release(context.Background()), lease.ErrLost)
	next := waiter.granted(t)
	require.Greater(t, next.Token(), l.Token())
	release(t, next)
	free(t, other)
}

func TestAHolderGivesUpByItsOwnClockWhileTheServerIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	other := dialMutex(t, s)
	l := hold(t, dialMutex(t, s, fairlock.WithLease(time.Second)))
	waiter := begin(t.Context(), dialMutex(t, s))
	queued(t, other, 1)
	s.Stop()
	over := make(chan struct{})
	wake := time.AfterFunc(stall, func() {
		s.Cont()
		close(over)
	})
	defer wake.Stop()
	stalled(t, l, other, over)
	<-over
	require.ErrorIs(t, l.Release(context.Background()), lease.ErrLost)
	next := waiter.granted(t)
	require.Greater(t, next.Token(), l.Token())
	release(t, next)
	free(t, other)
}
