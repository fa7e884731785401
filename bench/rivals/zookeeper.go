package rivals

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/contrib/zklock"
)

// ZooKeeperLock is github.com/go-zookeeper/zk.Lock, with a connection a client. Its calls cannot be given up.
type ZooKeeperLock struct{ Addr string }

// Name implements [bench.Driver].
func (ZooKeeperLock) Name() string { return "zookeeper-lock" }

// quiet is no log.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// NewClient implements [bench.Driver].
func (d ZooKeeperLock) NewClient(ctx context.Context) (bench.Client, error) {
	conn, events, err := zk.Connect([]string{d.Addr}, session, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	c := &zooKeeperClient{conn: conn, drained: make(chan struct{})}
	connected := make(chan struct{})
	go c.drain(events, connected)
	limit := time.NewTimer(session)
	defer limit.Stop()
	select {
	case <-connected:
		return c, nil
	case <-limit.C:
		err = errors.New("ZooKeeper does not answer")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return nil, errors.Join(err, c.Shutdown(ctx))
}

type zooKeeperClient struct {
	conn    *zk.Conn
	drained chan struct{}
}

// drain reads the events of the connection, as it must be done, and says when there is a session.
func (c *zooKeeperClient) drain(events <-chan zk.Event, connected chan<- struct{}) {
	defer close(c.drained)
	for e := range events {
		if e.State == zk.StateHasSession && connected != nil {
			close(connected)
			connected = nil
		}
	}
}

func (c *zooKeeperClient) Mutex(name string) bench.Mutex {
	path := "/" + url.PathEscape(name)
	return lock(func(context.Context) (func(context.Context) error, error) {
		l := zk.NewLock(c.conn, path, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return nil, err
		}
		return func(context.Context) error { return l.Unlock() }, nil
	})
}

func (c *zooKeeperClient) Shutdown(context.Context) error {
	c.conn.Close()
	<-c.drained
	return nil
}

// HeadwaiterZooKeeper is this project's lock on ZooKeeper.
type HeadwaiterZooKeeper struct{ Addr string }

// Name implements [bench.Driver].
func (HeadwaiterZooKeeper) Name() string { return "headwaiter-zookeeper" }

// NewClient implements [bench.Driver].
func (d HeadwaiterZooKeeper) NewClient(context.Context) (bench.Client, error) {
	c, err := zklock.Dial(zklock.Options{Servers: []string{d.Addr}})
	if err != nil {
		return nil, err
	}
	return headwaiterZooKeeperClient{c}, nil
}

type headwaiterZooKeeperClient struct{ *zklock.Client }

func (c headwaiterZooKeeperClient) Mutex(name string) bench.Mutex {
	return leased(zklock.New(c.Client, name).Lock)
}
