package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func TestConformance(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			// No hold may be lost because a busy machine lets its first renewal wait.
			conforms(t, n, func(o *headwaiter.Options) { o.GrantLease = kit.Patience })
		})
	}
}

// What users get who set no option.
func TestConformanceAsDelivered(t *testing.T) { conforms(t, 3) }

func conforms(t *testing.T, nodes int, changes ...func(*headwaiter.Options)) {
	t.Helper()
	all := servers(t, nodes)
	missed := conformance.Run(t, conformance.Engine{
		Dial: func(t testing.TB) conformance.Client { return conform(t, all, changes...) },
		Fair: true, Fenced: true, Told: true,
		Errors: conformance.Errors{
			Busy: lease.ErrBusy, Closed: lease.ErrClosed, Deadlock: lease.ErrDeadlock,
			Name: lease.ErrInvalid, TooLarge: lease.ErrTooLarge,
		},
	})
	for _, m := range missed {
		require.Regexp(t, "nothing else is offered|has no Adopt|has no Limited|has no Kept|is not told when it is Wanted|^(reentrant|rwlock|semaphore|latch|barrier): it is not offered", m)
	}
}

// conform is one process with a client of each server.
func conform(t testing.TB, all []*redistest.Server, changes ...func(*headwaiter.Options)) conformance.Client {
	t.Helper()
	w := &enginetest.Wires{}
	clients := dialAll(t, all, append(changes, func(o *headwaiter.Options) {
		o.Redis.DialCtxFn = func(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return w.Connect(ctx, "tcp", address)
		}
	})...)
	return conformance.Client{
		Mutex: func(name string, d time.Duration) conformance.Mutex {
			// A node that is busy with tests answers late, and none may be given up.
			options := []redlock.Option{headwaiter.WithLease(d), redlock.WithTimeout(min(d/2, kit.Patience)), redlock.WithoutSafeRestart()}
			return conformed{redlock.New(clients, name, options...), clients}
		},
		Close: func(ctx context.Context) error {
			errs := make([]error, len(clients))
			var done sync.WaitGroup
			for i, c := range clients {
				done.Go(func() { errs[i] = c.Close(ctx) })
			}
			done.Wait()
			return errors.Join(errs...)
		},
		Cut: w.Cut, Silence: w.Silence,
	}
}

// conformed tells beside what a mutex does who waits at a majority of the nodes, and takes holds away.
type conformed struct {
	*redlock.Mutex
	clients []*headwaiter.Client
}

func (m conformed) queue(c *headwaiter.Client) waitqueue.Queue {
	return c.Queue(lua.Redlock, m.Name(), waitqueue.DefaultTerms())
}

// Waiting is how many wait at so many nodes at the least that they are a majority.
func (m conformed) Waiting(ctx context.Context) (int, error) {
	var counts []int
	for _, c := range m.clients {
		info, err := m.queue(c).Inspect(ctx)
		if err != nil {
			return 0, err
		}
		counts = append(counts, info.Waiting)
	}
	slices.Sort(counts)
	return counts[len(counts)/2], nil
}

// Break takes what is held at each node now: not the votes of the next, who may hold before the last node is asked.
func (m conformed) Break(ctx context.Context) error {
	held := make([]lease.Info, len(m.clients))
	for i, c := range m.clients {
		var err error
		if held[i], err = m.queue(c).Inspect(ctx); err != nil {
			return err
		}
	}
	for i, c := range m.clients {
		if !held[i].Held {
			continue
		}
		if _, err := m.queue(c).ForceRelease(ctx, held[i].Token); err != nil && !errors.Is(err, lease.ErrNotHeld) {
			return err
		}
	}
	return nil
}
