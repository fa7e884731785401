package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/internal/testenv/enginetest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/redlock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// servers starts n redis-servers that know nothing of each other.
func servers(t testing.TB, n int, opts ...redistest.Option) []*redistest.Server {
	t.Helper()
	all := make([]*redistest.Server, n)
	for i := range all {
		all[i] = redistest.Start(t, opts...)
	}
	return all
}

// dialAll returns a client of each server, as one process has them. They are the caller's to close.
func dialAll(t testing.TB, all []*redistest.Server, changes ...func(*headwaiter.Options)) []*headwaiter.Client {
	t.Helper()
	clients, errs := make([]*headwaiter.Client, len(all)), make([]error, len(all))
	var done sync.WaitGroup
	for i, s := range all {
		done.Go(func() {
			o := headwaiter.Options{Redis: s.Option(), Name: "test"}
			for _, change := range changes {
				change(&o)
			}
			clients[i], errs[i] = headwaiter.Dial(o)
		})
	}
	done.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return clients
}

// dial is dialAll with clients that are closed with the test, as far as their servers answer.
func dial(t testing.TB, all []*redistest.Server, changes ...func(*headwaiter.Options)) []*headwaiter.Client {
	t.Helper()
	clients := dialAll(t, all, changes...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var done sync.WaitGroup
		for _, c := range clients {
			done.Go(func() { _ = c.Shutdown(ctx) }) // The server may be gone.
		}
		done.Wait()
	})
	return clients
}

// mutex is the lock of a test on nodes that are believed from their start.
func mutex(t testing.TB, clients []*headwaiter.Client, opts ...redlock.Option) *redlock.Mutex {
	t.Helper()
	return redlock.New(clients, kit.Name(t), append([]redlock.Option{redlock.WithoutSafeRestart()}, opts...)...)
}

// keys are those of the lock of a test at each node.
func keys(t testing.TB) lua.Keys { return lua.Redlock.Keys("headwaiter", kit.Name(t)) }

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
		"too high a place":   {mutex(t, clients, headwaiter.WithPriority(1<<30)), lease.ErrInvalid, "WithPriority: "},
		"an empty name":      {redlock.New(clients, ""), lease.ErrInvalid, `redlock: lock "": invalid argument: the name is empty`},
		"a name of 64 KiB":   {redlock.New(clients, strings.Repeat("a", 1<<16)), lease.ErrTooLarge, `aaa…"`},
		"a brace that opens": {redlock.New(clients, "}a"), lease.ErrInvalid, "closing brace"},
		"a name of no nodes": {redlock.New(nil, strings.Repeat("ä", 1<<16)), lease.ErrInvalid, `ää…": invalid argument`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.mutex.Lock(soon(t))
			kit.Fails(t, err, c.want, c.text)
			require.Less(t, len(err.Error()), 300, "the name is to be cut")
			require.NotContains(t, err.Error(), "node 1", "it is no node's fault")
			require.ErrorIs(t, kit.Err(c.mutex.TryLock(soon(t))), c.want)
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
	kit.Fails(t, kit.Err(m.Lock(ctx)), context.Canceled, reason)

	l := kit.Got(m.Lock(soon(t)))(t)
	everywhere(t, m, all)
	ctx, cancel = context.WithCancelCause(soon(t))
	wait := kit.Lock(ctx, mutex(t, dial(t, all)).Lock)
	queued(t, all, 1)
	cancel(reason)
	err := wait.Err(t)
	kit.Fails(t, err, context.Canceled, reason, "with 0 of 3 votes: context canceled: no time")
	require.Positive(t, kit.As[*lease.WaitError](t, err).Waited)
	kit.Release(t, l)
}

func TestClosedClientsEndACall(t *testing.T) {
	t.Parallel()
	all := servers(t, 3)
	clients := dial(t, all)
	m, other := mutex(t, clients), mutex(t, dial(t, all))
	l := kit.Got(other.Lock(soon(t)))(t)
	wait := kit.Lock(soon(t), m.Lock)
	queued(t, all, 1)
	require.NoError(t, clients[1].Shutdown(soon(t)))
	require.False(t, wait.Returned(), "two nodes are a majority yet")
	require.NoError(t, clients[0].Shutdown(soon(t)))
	kit.Fails(t, wait.Err(t), lease.ErrClosed, redlock.ErrNoQuorum, "no quorum: 2 of 3 nodes failed: node 1: ")
	kit.Release(t, l)
}

func TestConformance(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			if n > 3 {
				kit.Long(t, "three nodes show the same cases")
			}
			// No hold may be lost because a busy machine lets its first renewal wait.
			conforms(t, n, func(o *headwaiter.Options) { o.GrantLease = kit.Patience })
		})
	}
}

// What users get who set no option.
func TestConformanceAsDelivered(t *testing.T) {
	kit.Long(t, "TestConformance has the same cases, with a patient grant")
	conforms(t, 3)
}

func conforms(t *testing.T, nodes int, changes ...func(*headwaiter.Options)) {
	t.Helper()
	all := servers(t, nodes)
	missed := conformance.Run(t, conformance.Engine{
		Dial: func(t testing.TB) conformance.Client { return conform(t, all, changes...) },
		Fair: true, Fenced: true, Told: true,
		Errors: enginetest.Errors,
	})
	for _, m := range missed {
		require.Regexp(t, "nothing else is offered|has no Adopt|has no Limited|has no Kept|is not told when it is Wanted|not say that it Remembers|^(reentrant|rwlock|semaphore|latch|barrier): it is not offered", m)
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
				done.Go(func() { errs[i] = c.Shutdown(ctx) })
			}
			done.Wait()
			return errors.Join(errs...)
		},
		Cut: w.Cut, Silence: w.Silence,
	}
}

// conformed is a mutex that also tells who waits at a majority of the nodes, and takes holds away.
type conformed struct {
	*redlock.Mutex
	clients []*headwaiter.Client
}

func (m conformed) queue(c *headwaiter.Client) waitqueue.Queue {
	return (*waitqueue.Client)(c).Queue(lua.Redlock, m.Name(), waitqueue.DefaultTerms())
}

// Waiting is how many wait at a majority of the nodes at least.
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
