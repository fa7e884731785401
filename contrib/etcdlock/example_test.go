package etcdlock_test

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/etcdtest"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
)

// endpoint is the address of a server for the examples.
func endpoint() (address string, stop func()) {
	s := kit.Must(etcdtest.Start())
	return s.Endpoint(), s.Stop
}

func Example() {
	address, stop := endpoint()
	defer stop()
	ctx := context.Background()

	c := kit.Must(etcdlock.Dial(etcdlock.Options{
		Etcd: clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()},
	}))
	defer c.Shutdown(ctx)

	m := etcdlock.New(c, "orders:42")
	l := kit.Must(m.Lock(ctx))
	_, err := m.TryLock(ctx)
	fmt.Println(err)
	fmt.Println(l.Release(ctx), context.Cause(l.Context()))
	fmt.Println(m.Do(ctx, func(ctx context.Context) error { return ctx.Err() }))
	// Output:
	// etcdlock: try lock "orders:42": busy
	// <nil> lease released by Release
	// <nil>
}
