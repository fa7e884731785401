package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/contrib/sqllock"
	"github.com/headwaiter/headwaiter/contrib/zklock"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
)

// greeting is how long the first answer of a server may take.
const greeting = 5 * time.Second

// An engine is a kind of server that the demo can run on.
type engine struct {
	name, title string
	shortest    time.Duration // lease
	frees       bool          // the death of a holder ends its hold at once
	dial        func(url, client string, lasts time.Duration) (connection, error)
}

// A connection leads from one process to the server.
type connection struct {
	lock func(name string) mutex
	// stands is asked before a call. What it returns tells, by the server's order and clock, whether this process has a place
	// in the queue of a lock or holds it, and, if it holds and the server says so, since when at the least, by the clock here.
	stands func(ctx context.Context, name string) look
	close  func(context.Context) error
}

type look func(ctx context.Context) (placed bool, granted time.Time)

type mutex interface {
	Lock(ctx context.Context) (*lease.Lease, error)
	TryLock(ctx context.Context) (*lease.Lease, error)
}

func (c connection) hangUp() {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = c.close(ctx)
}

var (
	onRedis = &engine{name: "redis", title: "a Redis of yours", dial: dialRedis}
	engines = []*engine{
		onRedis,
		{name: "etcd", title: "etcd", shortest: etcdlock.MinLease, dial: dialEtcd},
		{name: "zk", title: "ZooKeeper", shortest: zklock.MinLease, dial: dialZooKeeper},
		{name: "postgres", title: "Postgres, by session locks", frees: true, dial: dialSession},
		{name: "postgres-lease", title: "Postgres, by leased locks", shortest: time.Second, dial: dialLeased},
	}
)

func engineNames() string {
	var names []string
	for _, e := range engines {
		names = append(names, e.name)
	}
	return strings.Join(names, ", ")
}

func engineOf(name string) (*engine, error) {
	i := slices.IndexFunc(engines, func(e *engine) bool { return e.name == name })
	if i < 0 {
		return nil, fmt.Errorf("--engine %q: there is %s", name, engineNames())
	}
	return engines[i], nil
}

// lasts is the lease of a hold.
func (e *engine) lasts() time.Duration { return max(demoLease, e.shortest) }

// probe takes a lock of its own, so that there is one error and not one from each process.
func (e *engine) probe(ctx context.Context, url, lock string) error {
	on, err := e.dial(url, "headwaiter demo", e.lasts())
	if err != nil {
		return err
	}
	defer on.hangUp()
	ctx, cancel := context.WithTimeout(ctx, greeting)
	defer cancel()
	held, err := on.lock(lock).TryLock(ctx)
	if err != nil {
		return err
	}
	return held.Release(ctx)
}

func dialRedis(url, client string, lasts time.Duration) (on connection, err error) {
	c, err := headwaiter.DialURL(url, func(o *headwaiter.Options) { o.Name = client })
	if err != nil {
		return on, err
	}
	named := func(name string) *fairlock.Mutex { return fairlock.New(c, name, headwaiter.WithLease(lasts)) }
	stands := func(_ context.Context, name string) look {
		return func(ctx context.Context) (placed bool, granted time.Time) {
			begun := time.Now()
			info, err := named(name).Inspect(ctx)
			if err != nil {
				return false, granted
			}
			if info.Held && info.Holder.Client == c.ID() {
				return true, info.Holder.Since.Add(-time.Since(begun)) // At the latest.
			}
			return slices.ContainsFunc(info.Queue, func(w lease.Waiter) bool { return w.Client == c.ID() }), granted
		}
	}
	return connection{func(name string) mutex { return named(name) }, stands, c.Shutdown}, nil
}

func dialEtcd(url, client string, lasts time.Duration) (on connection, err error) {
	config := clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop(), DialTimeout: greeting}
	c, err := etcdlock.Dial(etcdlock.Options{Etcd: config, Lease: lasts, Name: client})
	if err != nil {
		return on, err
	}
	return connection{func(name string) mutex { return etcdlock.New(c, name) }, rising(func(ctx context.Context, name string) (int, error) {
		info, err := etcdlock.New(c, name).Inspect(ctx)
		return info.Waiting, err
	}), c.Shutdown}, nil
}

func dialZooKeeper(url, client string, lasts time.Duration) (on connection, err error) {
	server, ok := strings.CutPrefix(url, "zk://")
	if !ok {
		return on, errors.New("--url: write it like zk://127.0.0.1:2181")
	}
	c, err := zklock.Dial(zklock.Options{Servers: []string{server}, Lease: lasts, Name: client})
	if err != nil {
		return on, err
	}
	return connection{func(name string) mutex { return zklock.New(c, name) }, rising(func(ctx context.Context, name string) (int, error) {
		info, err := zklock.New(c, name).Inspect(ctx)
		return info.Waiting, err
	}), c.Shutdown}, nil
}

func dialSession(url, _ string, _ time.Duration) (connection, error) {
	return dialPostgres(url, func(c *sqllock.Client, name string) countable { return sqllock.NewSession(c, name) })
}

func dialLeased(url, _ string, lasts time.Duration) (connection, error) {
	return dialPostgres(url, func(c *sqllock.Client, name string) countable {
		return sqllock.NewLeased(c, name, sqllock.WithLease(lasts))
	})
}

// countable is a mutex that tells how many wait for it.
type countable interface {
	mutex
	Waiting(ctx context.Context) (int, error)
}

// rising tells of a place where the server only counts who waits. The demo has one call at a time on its way, so it is this
// call alone by which the number can rise. A call whose rise is missed, as another leaves at the same moment, has no place
// before it holds.
func rising(count func(ctx context.Context, name string) (int, error)) func(context.Context, string) look {
	return func(ctx context.Context, name string) look {
		least, err := count(ctx, name)
		if err != nil {
			least = math.MaxInt
		}
		return func(ctx context.Context) (placed bool, granted time.Time) {
			n, err := count(ctx, name)
			if err != nil {
				return false, granted
			}
			placed, least = n > least, min(n, least)
			return placed, granted
		}
	}
}

func dialPostgres(url string, named func(c *sqllock.Client, name string) countable) (on connection, err error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return on, errors.New("--url: write it like postgres://127.0.0.1:5432/postgres") // Its own error repeats the address.
	}
	ctx, cancel := context.WithTimeout(context.Background(), greeting)
	defer cancel()
	c, err := sqllock.Dial(ctx, sqllock.Options{Config: config})
	if err != nil {
		return on, err
	}
	return connection{func(name string) mutex { return named(c, name) }, rising(func(ctx context.Context, name string) (int, error) {
		return named(c, name).Waiting(ctx)
	}), c.Shutdown}, nil
}
