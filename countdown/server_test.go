package countdown_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
)

func TestCountingDownWorksWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v, other := dial(t, s), dial(t, s)
	v.set(t, 3)
	v.down(t, 2)
	c := other.waits(t, t.Context())
	s.Do("CONFIG", "SET", "maxmemory", "1")
	v.down(t, 1)
	v.down(t, 0)
	require.NoError(t, c.Err(t))
	done, err := v.TrySetCount(t.Context(), 1)
	require.False(t, done)
	require.ErrorContains(t, err, "raise maxmemory")
	require.Zero(t, v.left(t), "and it is as it was")
	s.Do("CONFIG", "SET", "maxmemory", "0")
	v.set(t, 1)
}

func TestAnOpeningThatMayNotBePublishedIsAnErrorAndOpensAllTheSame(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v, other := dial(t, s), dial(t, s)
	v.set(t, 2)
	v.down(t, 1)
	c := other.waits(t, t.Context())
	s.Do("ACL", "SETUSER", "default", "-publish")
	begun := time.Now()
	left, err := v.CountDown(t.Context())
	require.ErrorIs(t, err, lease.ErrUnwoken)
	require.Zero(t, left)
	require.NoError(t, c.Err(t))
	require.Less(t, time.Since(begun), 2*hears)
	require.Zero(t, v.left(t))
	removed, err := v.Remove(t.Context())
	require.ErrorIs(t, err, lease.ErrUnwoken)
	require.True(t, removed)
}

func TestWaitersOutliveTheirConnections(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	v, other := dial(t, s), dial(t, s)
	v.set(t, 1)
	var g gate
	calls := make([]*kit.Call[struct{}], 10)
	for i := range calls {
		calls[i] = kit.Run(g.wait(other))
	}
	killed := int64(0)
	for range 5 {
		kit.Eventually(t, "a subscription", func() bool {
			return s.Do("PUBSUB", "NUMSUB", v.channel()).([]any)[1].(int64) == 1
		})
		killed += s.Int("CLIENT", "KILL", "TYPE", "normal") + s.Int("CLIENT", "KILL", "TYPE", "pubsub")
	}
	require.GreaterOrEqual(t, killed, int64(5))
	g.open(t, v)
	for _, c := range calls {
		require.NoError(t, c.Err(t))
	}
	require.Zero(t, g.early.Load())
}
