package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/headwaiter/headwaiter/contrib/etcdlock"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
)

// connected is a client of a server for the examples.
func connected() (c *etcdlock.Client, stop func()) {
	address, end := endpoint()
	c = kit.Must(etcdlock.Dial(etcdlock.Options{
		Etcd: clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()},
	}))
	return c, func() {
		_ = c.Close()
		end()
	}
}

// A program that has a client of etcd may share it.
func ExampleNewClient() {
	address, stop := endpoint()
	defer stop()
	ctx := context.Background()
	etcd := kit.Must(clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()}))
	defer etcd.Close()

	c := kit.Must(etcdlock.NewClient(etcd, etcdlock.Options{}))
	fmt.Println(etcdlock.New(c, "orders:42").Do(ctx, func(ctx context.Context) error { return ctx.Err() }))
	fmt.Println(c.Shutdown(ctx))
	// Output:
	// <nil>
	// <nil>
}

func ExampleMutex_ForceRelease() {
	c, stop := connected()
	defer stop()
	ctx := context.Background()

	m := etcdlock.New(c, "orders:42", etcdlock.WithMaxHold(time.Hour))
	l := kit.Must(m.Lock(ctx))
	info, err := m.Inspect(ctx)
	fmt.Println(m.Name(), info.Held, info.Token == l.Token(), err)
	_, err = m.ForceRelease(ctx, info.Token)
	fmt.Println(err)
	<-l.Context().Done()
	fmt.Println(context.Cause(l.Context()))
	// Output:
	// orders:42 true true <nil>
	// <nil>
	// lease lost: orders:42: released elsewhere by force
}

// A worker that hangs keeps nobody else out.
func ExampleWithMaxStall() {
	c, stop := connected()
	defer stop()
	ctx := context.Background()

	imports := etcdlock.New(c, "import", etcdlock.WithMaxStall(200*time.Millisecond))
	err := imports.Do(ctx, func(ctx context.Context) error {
		held, _ := lease.FromContext(ctx)
		held.Progress() // After each row; then the worker hangs.
		<-ctx.Done()
		return nil
	})
	fmt.Println(errors.Is(err, lease.ErrStalled))
	// Output: true
}

func ExampleNewSemaphore() {
	c, stop := connected()
	defer stop()
	ctx := context.Background()

	pool := etcdlock.NewSemaphore(c, "pool", 3)
	kit.Must(pool.Acquire(ctx, 2))
	_, err := pool.TryAcquire(ctx, 2)
	fmt.Println(errors.Is(err, lease.ErrBusy))
	free, err := pool.Available(ctx)
	fmt.Println(pool.Name(), free, err)

	info := kit.Must(pool.Inspect(ctx))
	_, err = pool.ForceRelease(ctx, info.Holders[0].Token)
	fmt.Println(info.Used, err)
	fmt.Println(pool.Do(ctx, 1, func(ctx context.Context) error { return ctx.Err() }))
	// Output:
	// true
	// pool 1 <nil>
	// 2 <nil>
	// <nil>
}

func ExampleNewElection() {
	c, stop := connected()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	e := etcdlock.NewElection(c, "scheduler")
	leadership := kit.Must(e.Campaign(ctx, "10.0.0.1:7000"))
	leaders := e.Observe(ctx)
	fmt.Println((<-leaders).Value)
	fmt.Println(e.Proclaim(ctx, leadership, "10.0.0.1:7001"))
	fmt.Println((<-leaders).Value)

	leader := kit.Must(e.Leader(ctx))
	_, err := e.ForceRelease(ctx, leader.Token)
	fmt.Println(e.Name(), leader.Value, err)
	// Output:
	// 10.0.0.1:7000
	// <nil>
	// 10.0.0.1:7001
	// scheduler 10.0.0.1:7001 <nil>
}

// The wait is bounded, and the work of the holder is not.
func ExampleWithMaxWait() {
	c, stop := connected()
	defer stop()
	ctx := context.Background()

	bounded := etcdlock.New(c, "bounded", etcdlock.WithMaxWait(2*time.Second))
	err := bounded.Do(ctx, func(context.Context) error {
		_, err := bounded.Lock(ctx) // Somebody else, who waits for us.
		fmt.Println(errors.Is(err, lease.ErrWaitTimeout), errors.Is(err, context.DeadlineExceeded))
		return nil
	})
	fmt.Println(err)
	_, err = etcdlock.New(c, "bounded", etcdlock.WithMaxWait(-1)).Lock(ctx)
	fmt.Println(err)
	// Output:
	// true true
	// <nil>
	// etcdlock: lock "bounded": invalid argument: WithMaxWait: -1ns must be from 1ms to 365 days, or 0 for no bound
}
