package deploy

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/rwlock"
	"github.com/headwaiter/headwaiter/semaphore"
)

const (
	// short is how long to wait for replicas of which one is not there, and ample how long for those that are.
	short = 200 * time.Millisecond
	ample = 3 * time.Second
)

func TestAHoldIsKnownToTheReplicasBeforeLockReturns(t *testing.T) {
	t.Parallel()
	set := redistest.Replicated(t, 2)
	name := kit.Name(t)
	m := fairlock.New(kit.Dial(t, set.Master()), name, headwaiter.WithReplicas(2, ample))
	for range 20 {
		l, err := m.Lock(t.Context())
		require.NoError(t, err)
		for _, replica := range set.Replicas() {
			owner := replica.Text("HGET", "headwaiter:lock:{"+name+"}", "owner")
			require.NotEmpty(t, owner, "the replica does not know of the hold")
		}
		kit.Release(t, l)
	}
}

// A grant by message was written by the connection of another client.
func TestAHoldByMessageIsKnownToTheReplicasToo(t *testing.T) {
	t.Parallel()
	set := redistest.Replicated(t, 1)
	s, replica := set.Master(), set.Replicas()[0]
	name := kit.Name(t)
	a := fairlock.New(kit.Dial(t, s), name)
	b := fairlock.New(kit.Dial(t, s), name, headwaiter.WithReplicas(1, ample))
	for range 20 {
		first, err := a.Lock(t.Context())
		require.NoError(t, err)
		second := kit.Lock(t.Context(), b.Lock)
		kit.Waiting(t, 1, a.Inspect)
		kit.Release(t, first)
		l := second.Value(t)
		fields := replica.List("HMGET", "headwaiter:lock:{"+name+"}", "owner", "phase")
		require.Contains(t, fields[0], "x:1:10000", "the replica knows of another hold")
		require.Equal(t, "held", fields[1], "the replica knows of the grant, but not of its confirmation")
		kit.Release(t, l)
	}
}

func TestAHoldThatReplicasDoNotKnowOfIsGivenBack(t *testing.T) {
	t.Parallel()
	set := redistest.Replicated(t, 2)
	one, two := set.Replicas()[0], set.Replicas()[1]
	set.Cut(two)
	c := kit.Dial(t, set.Master())
	name := kit.Name(t)
	l, err := fairlock.New(c, name, headwaiter.WithReplicas(1, ample)).Lock(t.Context())
	require.NoError(t, err, "the other is there")
	kit.Release(t, l)
	locks := map[string]func(context.Context) error{
		"Lock": func(ctx context.Context) error {
			_, err := fairlock.New(c, name, headwaiter.WithReplicas(2, short)).Lock(ctx)
			return err
		},
		"TryLock": func(ctx context.Context) error {
			_, err := fairlock.New(c, name, headwaiter.WithReplicas(2, short)).TryLock(ctx)
			return err
		},
		"RLock": func(ctx context.Context) error {
			_, err := rwlock.New(c, name, headwaiter.WithReplicas(2, short)).RLock(ctx)
			return err
		},
		"Acquire": func(ctx context.Context) error {
			_, err := semaphore.New(c, name, 3, headwaiter.WithReplicas(2, short)).Acquire(ctx, 2)
			return err
		},
	}
	for call, lock := range locks {
		err := lock(t.Context())
		require.ErrorIs(t, err, lease.ErrReplicas, call)
		require.Regexp(t, `[01] of 2 within 200ms`, err, call) // It may be too busy to say that it has it.
	}
	_, err = fairlock.New(c, name, headwaiter.WithReplicas(2, ample)).Lock(t.Context())
	require.ErrorIs(t, err, lease.ErrReplicas)
	require.ErrorContains(t, err, "1 of 2 within 3s")
	// All is free again, without a lease running out.
	ctx, cancel := context.WithTimeout(t.Context(), lease.DefaultLease/2)
	defer cancel()
	l, err = fairlock.New(c, name, headwaiter.WithReplicas(1, ample)).Lock(ctx)
	require.NoError(t, err)
	kit.Release(t, l)
	l, err = rwlock.New(c, name).Lock(ctx)
	require.NoError(t, err)
	kit.Release(t, l)
	l, err = semaphore.New(c, name, 3).Acquire(ctx, 3)
	require.NoError(t, err)
	kit.Release(t, l)

	set.Rejoin(two)
	set.Cut(one)
	set.Rejoin(one)
	l, err = fairlock.New(c, name, headwaiter.WithReplicas(2, ample)).Lock(t.Context())
	require.NoError(t, err, "the replicas are back")
	kit.Release(t, l)
}

// The replica is cut off while the lock is held: then it knows of no later end than that of the last renewal that it has
// acknowledged, and so the hold ends by then, though its master renews. Where it comes back in time nothing is lost.
func TestAHoldEndsWhereReplicasDoNotKnowOfItsRenewals(t *testing.T) {
	t.Parallel()
	const lasts = 6 * time.Second
	set := redistest.Replicated(t, 1)
	s, replica := set.Master(), set.Replicas()[0]
	c := kit.Dial(t, s)
	name := kit.Name(t)
	ends := func() time.Time {
		return time.UnixMicro(int64(kit.Until(replica, "headwaiter:lock:{"+name+"}")))
	}
	l, err := fairlock.New(c, name, headwaiter.WithLease(lasts), headwaiter.WithReplicas(1, short)).Lock(t.Context())
	require.NoError(t, err)
	first := l.Deadline()
	kit.Eventually(t, "a renewal", func() bool { return l.Deadline().After(first) })

	set.Cut(replica)
	renewals := c.Stats().Renewals
	kit.Eventually(t, "a renewal that is not acknowledged", func() bool { return c.Stats().Renewals > renewals })
	set.Rejoin(replica)
	last := l.Deadline()
	kit.Eventually(t, "one that is", func() bool { return l.Deadline().After(last) })
	require.NoError(t, l.Context().Err())

	set.Cut(replica)
	cause := kit.Lost(t, l)
	require.ErrorIs(t, cause, lease.ErrExpired)
	require.ErrorIs(t, cause, lease.ErrReplicas)
	require.ErrorContains(t, cause, "0 of 1 within 200ms")
	require.False(t, l.Deadline().After(ends()), "longer than the replica knows")
}

// Sixty-four calls that wait for replicas use one connection more.
func TestCallsWaitForReplicasTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Replicated(t, 1).Master()
	c := kit.Dial(t, s)
	before := s.Text("INFO", "stats")
	var calls []*kit.Call[struct{}]
	for i := range 64 {
		calls = append(calls, kit.Run(func() error {
			m := fairlock.New(c, kit.Name(t)+strconv.Itoa(i), headwaiter.WithReplicas(1, ample))
			for range 10 {
				if err := m.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	for _, call := range calls {
		require.NoError(t, call.Err(t))
	}
	require.LessOrEqual(t, connections(t, s.Text("INFO", "stats"))-connections(t, before), 3, "connections made for it")
	require.Less(t, s.CommandStats()["wait"], int64(640), "every call waited by itself")
}

// A master that was killed reads its file when it starts again, of which the last second may be missing by default.
func TestAHoldIsOnDiskBeforeLockReturns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--dir", t.TempDir()))
	c := kit.Dial(t, s)
	name := kit.Name(t)
	m := fairlock.New(c, name, headwaiter.WithFsync(0, ample))
	if _, err := s.Try("WAITAOF", "0", "0", "0"); err != nil {
		_, err = m.Lock(t.Context())
		require.ErrorContains(t, err, "WithFsync needs Redis 7.2 or newer")
		return
	}
	for range 3 {
		l, err := m.Lock(t.Context())
		require.NoError(t, err)
		s.Restart()
		require.NotEmpty(t, s.Text("HGET", "headwaiter:lock:{"+name+"}", "owner"), "the server has forgotten the hold")
		kit.Release(t, l)
	}
	_, err := fairlock.New(c, name, headwaiter.WithFsync(1, short)).Lock(t.Context())
	require.ErrorIs(t, err, lease.ErrReplicas)
	require.ErrorContains(t, err, "of 0 of 1 replicas within 200ms")

	_, err = fairlock.New(kit.Dial(t, redistest.Start(t)), name, headwaiter.WithFsync(0, short)).Lock(t.Context())
	require.ErrorContains(t, err, "set appendonly yes")
}

func TestReplicasWithoutSenseAreRefused(t *testing.T) {
	t.Parallel()
	c := kit.Dial(t, redistest.Mini(t))
	for _, o := range []fairlock.Option{
		headwaiter.WithReplicas(-1, time.Second), headwaiter.WithReplicas(1, 0), headwaiter.WithReplicas(1, -time.Second),
		headwaiter.WithReplicas(1, lease.DefaultLease), headwaiter.WithFsync(0, 0), headwaiter.WithFsync(-1, time.Second),
	} {
		_, err := fairlock.New(c, "x", o).Lock(t.Context())
		require.Error(t, err)
	}
}
