//go:build unix

package crowd

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

// limit is far above what the processes of these tests take.
const limit = 30 * time.Second

func TestMain(m *testing.M) {
	Main()
	leaks.Main(m)
}

func TestACrowdTakesItsTurns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := Start(t, Plan{Addr: s.Addr(), Names: []string{"a", "b"}, Clients: 2, Waiters: 3, Lease: 10 * time.Second})
	held := c.Await(Held, 12, limit)
	tokens, clients := map[uint64]bool{}, map[string]bool{}
	for _, e := range held {
		clients[e.Client] = true
		if e.Name == "a" {
			tokens[e.Token] = true
		}
	}
	require.Len(t, tokens, 6)
	require.Len(t, clients, 2)
	for _, e := range c.Await(Released, 12, limit) {
		require.Empty(t, e.Error)
	}
}

func TestACrowdKeepsItsHoldsUntilItIsToldToReleaseThem(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := Start(t, Plan{Addr: s.Addr(), Names: []string{"a", "b"}, Clients: 1, Waiters: 1, Lease: 10 * time.Second, Keep: true})
	c.Await(Held, 2, limit)
	c.Release()
	for _, e := range c.Await(Released, 2, limit) {
		require.Empty(t, e.Error)
	}
}

func TestACrowdOfAnyKindHoldsAndReleases(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, p := range []Plan{
		{Kind: Lock}, {Kind: Reentrant}, {Kind: Semaphore, Permits: 5, N: 3}, {Kind: Semaphore, Permits: 1}, {Kind: Read}, {Kind: Write},
		{Kind: Election},
	} {
		p.Addr, p.Names, p.Clients, p.Waiters, p.Lease = s.Addr(), []string{t.Name() + p.Kind + fmt.Sprint(p.N)}, 2, 2, 10*time.Second
		c := Start(t, p)
		c.Await(Held, 4, limit)
		for _, e := range c.Await(Released, 4, limit) {
			require.Empty(t, e.Error, "%+v", p)
		}
		c.Kill()
	}
	c := Start(t, Plan{Addr: s.Addr(), Kind: Semaphore, Names: []string{"none"}, Clients: 1, Waiters: 1, Lease: time.Second})
	require.Contains(t, c.Await(Failed, 1, limit)[0].Error, "a semaphore of 0 permits")
}

func TestAStoppedCrowdLooksAtItsHoldsWhenItGoesOn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := Start(t, Plan{Addr: s.Addr(), Names: []string{"a"}, Clients: 1, Waiters: 1, Lease: 300 * time.Millisecond, Keep: true})
	c.Await(Held, 1, limit)
	c.Watch()
	c.Stop()
	client := must.Got(headwaiter.Dial(headwaiter.Options{Redis: s.Option()}))(t)
	next, err := fairlock.New(client, "a").Lock(t.Context()) // Which takes until the lease is over.
	require.NoError(t, err)
	c.Cont()
	require.True(t, c.Await(Looked, 1, limit)[0].Lost)
	c.Release()
	require.True(t, c.Await(Released, 1, limit)[0].Lost)
	require.NoError(t, next.Release(t.Context()))
	require.NoError(t, client.Shutdown(t.Context()))
}

func TestAKilledCrowdIsGoneAndMayBeKilledAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := Start(t, Plan{Addr: s.Addr(), Names: []string{"a"}, Clients: 1, Waiters: 1, Lease: 10 * time.Second, Keep: true})
	c.Await(Held, 1, limit)
	c.Stop()
	c.Kill()
	require.ErrorIs(t, c.child.Cmd.Process.Signal(syscall.SIGTERM), os.ErrProcessDone)
	c.Kill()
}
