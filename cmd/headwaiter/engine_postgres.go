package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/lease"
)

const (
	postgresVariable = "HEADWAITER_POSTGRES"
	defaultPostgres  = "postgres://127.0.0.1:5432/postgres"
	postgresForm     = "postgres://user:password@host:5432/database"
)

// onPostgres is a lock of a session: Postgres' own.
var onPostgres = &engine{
	name: "postgres", noun: "Postgres", variable: postgresVariable, fallback: defaultPostgres, form: postgresForm,
	fixed: true,
	shows: postgresAddress,
	connect: func(on where, _ string, _ time.Duration) (server, error) {
		return dialPostgres(on.engine, on.url, func(c *sqllock.Client, name string, _ time.Duration) sqlLock {
			return sqllock.NewSession(c, name)
		})
	},
}

// onPostgresTable is a lock with a lease, in a table.
var onPostgresTable = &engine{
	name: "postgres-lease", noun: "Postgres", variable: postgresVariable, fallback: defaultPostgres, form: postgresForm,
	shortest: time.Second,
	shows:    postgresAddress,
	connect: func(on where, _ string, _ time.Duration) (server, error) {
		return dialPostgres(on.engine, on.url, func(c *sqllock.Client, name string, lasts time.Duration) sqlLock {
			return sqllock.NewLeased(c, name, sqllock.WithLease(lasts))
		})
	},
}

// postgresConfig reads an address. Its errors do not repeat it, as those of the driver do.
func postgresConfig(address string) (*pgxpool.Config, error) {
	if err := strayAt(address); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, errors.New("no URL of that kind")
	}
	return config, nil
}

// postgresAddress is where an address leads: host, port and database. All else may hold a password, in more forms than
// one, and so may the whole of what makes no sense.
func postgresAddress(address string) string {
	config, err := postgresConfig(address)
	if err != nil {
		return "…"
	}
	c := config.ConnConfig
	if strings.HasPrefix(c.Host, "/") {
		return fmt.Sprintf("postgres:///%s?host=%s&port=%d", c.Database, c.Host, c.Port)
	}
	var hosts []string
	add := func(host string, port uint16) {
		both := net.JoinHostPort(host, strconv.Itoa(int(port)))
		if !slices.Contains(hosts, both) { // Each may be there with TLS and without.
			hosts = append(hosts, both)
		}
	}
	add(c.Host, c.Port)
	for _, f := range c.Fallbacks {
		add(f.Host, f.Port)
	}
	return "postgres://" + strings.Join(hosts, ",") + "/" + c.Database
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
	config, err := postgresConfig(url)
	if err != nil {
		return nil, e.misread(url, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), greeting)
	defer cancel()
	c, err := sqllock.Dial(ctx, sqllock.Options{Config: config})
	if errors.Is(err, sqllock.ErrSchema) {
		return nil, fail(exitUnavailable, "the database at %s lacks what locks need: headwaiter schema | psql URL makes it", e.address(url))
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
	n, err := s.make(s.client, name, lease.DefaultLease).Waiting(ctx)
	if err != nil {
		return " …"
	}
	if n == 0 {
		return " …" // It has been served meanwhile, or is about to ask again.
	}
	return together(n)
}

func (s postgresServer) hangUp() { hangUp(s.client) }
