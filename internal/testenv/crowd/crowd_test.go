//go:build unix

package crowd

import (
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
