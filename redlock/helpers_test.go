package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/testenv/leaks"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/redlock"
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
	clients := make([]*headwaiter.Client, len(all))
	errs := make([]error, len(all))
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
			done.Go(func() { _ = c.Close(ctx) }) // The server may be gone.
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
