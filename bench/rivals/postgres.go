package rivals

import (
	"context"
	"hash/fnv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/lease"
)

// leased is a lock of this project.
type leased func(context.Context) (*lease.Lease, error)

// Lock implements [bench.Mutex].
func (f leased) Lock(ctx context.Context) (bench.Hold, error) {
	l, err := f(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Advisory is pg_advisory_lock on a connection that each worker keeps.
type Advisory struct{ URL string }

// Name implements [bench.Driver].
func (Advisory) Name() string { return "postgres-advisory" }

// NewClient implements [bench.Driver].
func (d Advisory) NewClient(context.Context) (bench.Client, error) {
	return &advisoryClient{url: d.URL}, nil
}

type advisoryClient struct {
	url   string
	conns []*advisoryConn
}

func (c *advisoryClient) Mutex(name string) bench.Mutex {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // It never fails.
	conn := &advisoryConn{url: c.url, key: int64(h.Sum64())}
	c.conns = append(c.conns, conn)
	return lock(conn.lock)
}

func (c *advisoryClient) Shutdown(ctx context.Context) error {
	for _, conn := range c.conns {
		if conn.conn != nil {
			_ = conn.conn.Close(ctx) // Its lock ends with it in any case.
		}
	}
	return nil
}

// advisoryConn is the connection of a worker.
type advisoryConn struct {
	url  string
	key  int64
	conn *pgx.Conn
}

func (c *advisoryConn) lock(ctx context.Context) (func(context.Context) error, error) {
	// pgx closes the connection of a call that was given up.
	if c.conn == nil || c.conn.IsClosed() {
		var err error
		if c.conn, err = pgx.Connect(ctx, c.url); err != nil {
			return nil, err
		}
	}
	if _, err := c.conn.Exec(ctx, "SELECT pg_advisory_lock($1)", c.key); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := c.conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", c.key)
		return err
	}, nil
}

// HeadwaiterSQL is this project's lock on Postgres, of one of its two kinds.
type HeadwaiterSQL struct {
	URL    string
	Leased bool
}

// Name implements [bench.Driver].
func (d HeadwaiterSQL) Name() string {
	if d.Leased {
		return "headwaiter-postgres-leased"
	}
	return "headwaiter-postgres-session"
}

// NewClient implements [bench.Driver].
func (d HeadwaiterSQL) NewClient(ctx context.Context) (bench.Client, error) {
	config, err := pgxpool.ParseConfig(d.URL)
	if err != nil {
		return nil, err
	}
	c, err := sqllock.Dial(ctx, sqllock.Options{Config: config})
	if err != nil {
		return nil, err
	}
	return headwaiterSQLClient{c, d.Leased}, nil
}

type headwaiterSQLClient struct {
	*sqllock.Client
	leased bool
}

func (c headwaiterSQLClient) Mutex(name string) bench.Mutex {
	if c.leased {
		return leased(sqllock.NewLeased(c.Client, name).Lock)
	}
	return leased(sqllock.NewSession(c.Client, name).Lock)
}
