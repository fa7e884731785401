package rivals

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/headwaiter/headwaiter/bench"
	"github.com/headwaiter/headwaiter/contrib/etcdlock"
)

// EtcdMutex is go.etcd.io/etcd/client/v3/concurrency.Mutex, with a session for each worker: two workers that share
// one would both hold.
type EtcdMutex struct{ Endpoint string }

// Name implements [bench.Driver].
func (EtcdMutex) Name() string { return "etcd-mutex" }

func etcdConfig(endpoint string) clientv3.Config {
	return clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), DialTimeout: 5 * time.Second}
}

// NewClient implements [bench.Driver].
func (d EtcdMutex) NewClient(context.Context) (bench.Client, error) {
	client, err := clientv3.New(etcdConfig(d.Endpoint))
	if err != nil {
		return nil, err
	}
	return &etcdClient{client: client}, nil
}

type etcdClient struct {
	client   *clientv3.Client
	sessions []*concurrency.Session
}

func (c *etcdClient) Mutex(name string) bench.Mutex {
	s, err := concurrency.NewSession(c.client, concurrency.WithTTL(int(session/time.Second)))
	if err != nil {
		return lock(func(context.Context) (func(context.Context) error, error) { return nil, err })
	}
	c.sessions = append(c.sessions, s)
	m := concurrency.NewMutex(s, name)
	return lock(func(ctx context.Context) (func(context.Context) error, error) {
		if err := m.Lock(ctx); err != nil {
			return nil, err
		}
		return m.Unlock, nil
	})
}

func (c *etcdClient) Shutdown(context.Context) error {
	var errs []error
	for _, s := range c.sessions {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.client.Close())...)
}

// HeadwaiterEtcd is this project's lock on etcd.
type HeadwaiterEtcd struct{ Endpoint string }

// Name implements [bench.Driver].
func (HeadwaiterEtcd) Name() string { return "headwaiter-etcd" }

// NewClient implements [bench.Driver].
func (d HeadwaiterEtcd) NewClient(context.Context) (bench.Client, error) {
	c, err := etcdlock.Dial(etcdlock.Options{Etcd: etcdConfig(d.Endpoint)})
	if err != nil {
		return nil, err
	}
	return headwaiterEtcdClient{c}, nil
}

type headwaiterEtcdClient struct{ *etcdlock.Client }

func (c headwaiterEtcdClient) Mutex(name string) bench.Mutex {
	return leased(etcdlock.New(c.Client, name).Lock)
}
