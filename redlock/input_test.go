package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/redlock"
)

func TestWhatCannotBeUsedIsAnErrorOfTheFirstCall(t *testing.T) {
	t.Parallel()
	clients := dial(t, servers(t, 3))
	same := []*headwaiter.Client{clients[0], clients[1], clients[0]}
	for name, c := range map[string]struct {
		mutex *redlock.Mutex
		want  error
		text  string
	}{
		"no nodes":           {redlock.New(nil, "a"), lease.ErrInvalid, "there are no nodes"},
		"a node twice":       {redlock.New(same, "a"), lease.ErrInvalid, "client 3 is nil or there before"},
		"no client":          {redlock.New([]*headwaiter.Client{nil}, "a"), lease.ErrInvalid, "client 1 is nil"},
		"a short lease":      {mutex(t, clients, headwaiter.WithLease(time.Millisecond)), lease.ErrInvalid, "WithLease: a lease of 1ms must be at least 100ms"},
		"an endless lease":   {mutex(t, clients, headwaiter.WithLease(1<<62)), lease.ErrInvalid, "WithLease: a lease of"},
		"a long time-out":    {mutex(t, clients, redlock.WithTimeout(time.Minute)), lease.ErrInvalid, "WithTimeout: a time-out of 1m0s"},
		"a negative stall":   {mutex(t, clients, headwaiter.WithMaxStall(-1)), lease.ErrInvalid, "WithMaxStall: "},
		"a negative hold":    {mutex(t, clients, headwaiter.WithMaxHold(-1)), lease.ErrInvalid, "WithMaxHold: "},
		"too high a place":   {mutex(t, clients, headwaiter.WithPriority(1<<30)), lease.ErrTooLarge, "WithPriority: "},
		"an empty name":      {redlock.New(clients, ""), lease.ErrInvalid, `redlock: lock "": invalid argument: the name is empty`},
		"a name of 64 KiB":   {redlock.New(clients, strings.Repeat("a", 1<<16)), lease.ErrTooLarge, `aaa…"`},
		"a brace that opens": {redlock.New(clients, "}a"), lease.ErrInvalid, "closing brace"},
		"a name of no nodes": {redlock.New(nil, strings.Repeat("ä", 1<<16)), lease.ErrInvalid, `ää…": invalid argument`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.mutex.Lock(soon(t))
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			require.Less(t, len(err.Error()), 300, "the name is to be cut")
			require.NotContains(t, err.Error(), "node 1", "it is no node's fault")
			_, err = c.mutex.TryLock(soon(t))
			require.ErrorIs(t, err, c.want)
			require.ErrorIs(t, c.mutex.Do(soon(t), nil), c.want)
			require.NoError(t, c.mutex.Wait(soon(t)))
		})
	}
}

func TestAnErrorSaysHowFarTheCallCame(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	m := mutex(t, dial(t, all))
	reason := errors.New("no time")
	ctx, cancel := context.WithCancelCause(soon(t))
	cancel(reason)
	_, err := m.Lock(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, reason)

	l, err := m.Lock(soon(t))
	require.NoError(t, err)
	everywhere(t, m, all)
	ctx, cancel = context.WithCancelCause(soon(t))
	wait := kit.Lock(ctx, mutex(t, dial(t, all)).Lock)
	queued(t, all, 1)
	cancel(reason)
	err = wait.Err(t)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, reason)
	require.ErrorContains(t, err, "with 0 of 3 votes: context canceled: no time")
	var how *lease.WaitError
	require.ErrorAs(t, err, &how)
	require.Positive(t, how.Waited)
	kit.Release(t, l)
}

func TestClosedClientsEndACall(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	clients := dial(t, all)
	m, other := mutex(t, clients), mutex(t, dial(t, all))
	l, err := other.Lock(soon(t))
	require.NoError(t, err)
	wait := kit.Lock(soon(t), m.Lock)
	queued(t, all, 1)
	require.NoError(t, clients[1].Close(soon(t)))
	require.False(t, wait.Returned(), "two nodes are a majority yet")
	require.NoError(t, clients[0].Close(soon(t)))
	err = wait.Err(t)
	require.ErrorIs(t, err, lease.ErrClosed)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorContains(t, err, "no quorum: 2 of 3 nodes failed: node 1: ")
	kit.Release(t, l)
}
