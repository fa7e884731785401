package fairlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
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
	err := begin(ctx, other).Err(t)
	took := time.Since(begun)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.GreaterOrEqual(t, took, given)
	require.Less(t, took, given+time.Second)

	require.ErrorIs(t, kit.Lost(t, held), lease.ErrExpired)
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
	l := hold(t, dialMutex(t, s, headwaiter.WithLease(time.Second)))
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
	next := waiter.Value(t)
	require.Greater(t, next.Token(), l.Token())
	kit.Release(t, next)
	freeInTheEnd(t, other)
}

func TestAHolderGivesUpByItsOwnClockWhileTheServerIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	other := dialMutex(t, s)
	l := hold(t, dialMutex(t, s, headwaiter.WithLease(time.Second)))
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
	next := waiter.Value(t)
	require.Greater(t, next.Token(), l.Token())
	kit.Release(t, next)
	freeInTheEnd(t, other)
}

// busyScript keeps the server busy for two seconds. Nothing of it is written, so it could be killed.
const busyScript = `local t = redis.call('TIME')[1] + 2
while tonumber(redis.call('TIME')[1]) < t do end`

// rueidis panics where a busy server refuses an UNSUBSCRIBE and the PING that it sends behind it.
func TestASubscriptionIsGivenUpWhileTheServerIsBusy(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Do("CONFIG", "SET", "busy-reply-threshold", "50")
	m := dialMutex(t, s)
	waiter := fairlock.New(kit.Dial(t, s, linger(100*time.Millisecond)), kit.Name(t))
	for range 2 {
		l := hold(t, m)
		next := begin(t.Context(), waiter)
		queued(t, m, 1)
		kit.Release(t, l)
		kit.Release(t, next.Value(t))
		// The subscription has had its time before the server answers again.
		_, err := s.Try("EVAL", busyScript, "0")
		require.NoError(t, err)
		kit.Eventually(t, "the channel to be free", func() bool { return len(s.List("PUBSUB", "CHANNELS", "*{*")) == 0 })
	}
}
