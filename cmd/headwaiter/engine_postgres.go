package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/waitqueue"
)

const (
	postgresVariable = "HEADWAITER_POSTGRES"
	defaultPostgres  = "postgres://127.0.0.1:5432/postgres"
	postgresForm     = "postgres://user:password@host:5432/database"
)

// onPostgres is a lock of a session: Postgres' own.
var onPostgres = &engine{
	name: "postgres", noun: "Postgres", variable: postgresVariable, fallback: defaultPostgres, form: postgresForm,
	fixed: true, prepare: makeSchema,
	connect: func(e *engine, url, _ string, _ time.Duration) (server, error) {
		return dialPostgres(e, url, func(c *sqllock.Client, name string, _ time.Duration) sqlLock {
			return sqllock.NewSession(c, name)
		})
	},
}

// onPostgresTable is a lock with a lease, in a table.
var onPostgresTable = &engine{
	name: "postgres-lease", noun: "Postgres", variable: postgresVariable, fallback: defaultPostgres, form: postgresForm,
	shortest: time.Second, prepare: makeSchema,
	connect: func(e *engine, url, _ string, _ time.Duration) (server, error) {
		return dialPostgres(e, url, func(c *sqllock.Client, name string, lasts time.Duration) sqlLock {
			return sqllock.NewLeased(c, name, sqllock.WithLease(lasts))
		})
	},
}

// makeSchema makes what the locks need, unless it is there.
func makeSchema(ctx context.Context, e *engine, url string) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return e.misread(url, "no URL of that kind")
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return e.unreachable(url, err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, sqllock.Schema); err != nil {
		return e.unreachable(url, err)
	}
	return nil
}

// sqlLock is either kind of lock.
type sqlLock interface {
	mutex
	Waiting(ctx context.Context) (int, error)
}

type postgresServer struct {
	client *sqllock.Client
	make   func(c *sqllock.Client, name string, lasts time.Duration) sqlLock
}

func dialPostgres(e *engine, url string, make func(*sqllock.Client, string, time.Duration) sqlLock) (server, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error's own text repeats the address, password and all.
		return nil, e.misread(url, "no URL of that kind")
	}
	ctx, cancel := context.WithTimeout(context.Background(), greeting)
	defer cancel()
	c, err := sqllock.Dial(ctx, sqllock.Options{Config: config})
	if errors.Is(err, sqllock.ErrSchema) {
		return nil, fail(exitUnavailable, "the database at %s lacks what locks need: headwaiter schema | psql URL makes it", withoutPassword(url))
	}
	if err != nil {
		return nil, e.unreachable(url, err)
	}
	return postgresServer{c, make}, nil
}

func (s postgresServer) lock(name string, lasts time.Duration) mutex {
	return s.make(s.client, name, lasts)
}

func (s postgresServer) situation(name string) string {
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	n, err := s.make(s.client, name, waitqueue.DefaultLease).Waiting(ctx)
	if err != nil {
		return " …"
	}
	return fmt.Sprintf(", %d waiting", n)
}

func (s postgresServer) hangUp() { hangUp(s.client) }
