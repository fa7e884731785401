package sqllock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/conformance"
	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// What is here wants a server with several hundred connections.

func TestConformanceOfSessionLocks(t *testing.T) {
	t.Parallel()
	url := schema(t)
	lasts := func(o *sqllock.Options) { o.SessionLease = conformanceLease; o.MaxSessions = 200 }
	e := conforming(url, lasts, func(c *sqllock.Client) conformance.Client {
		return conformance.Client{Mutex: func(name string, _ time.Duration) conformance.Mutex {
			return session{sqllock.NewSession(c, name), url}
		}}
	})
	e.Lease = conformanceLease
	require.ElementsMatch(t, missed, conformance.Run(t, e))
}

// conformanceLease is how long the sessions of a client are certain that shares the machine with many.
const conformanceLease = 5 * time.Second

type session struct {
	*sqllock.Session
	url string
}

// Break ends the sessions that hold the lock, as an operator would.
func (m session) Break(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, m.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND classid::bigint << 32 | objid::bigint = $1::bigint`, sqllock.Key(m.Name()))
	return err
}

func TestManyClientsAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	const clients = 32
	for kind, lock := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := schema(t)
			few := func(o *sqllock.Options) { o.Config.MaxConns = 1 }
			first := lock(dial(t, url, few), "a")
			l := hold(t, first)
			var mu sync.Mutex
			var order []int
			var all sync.WaitGroup
			for i := range clients {
				m := lock(dial(t, url, few), "a")
				all.Go(func() {
					l, err := m.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
				queued(t, first, i+1)
			}
			kit.Release(t, l)
			kit.All(t, &all)
			require.IsIncreasing(t, order)
			require.Len(t, order, clients)
		})
	}
}
