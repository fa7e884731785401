package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func ExampleDialURL() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()

	client, err := waitqueue.DialURL("redis://" + server.Addr())
	if err != nil {
		panic(err)
	}
	fmt.Println("closed:", client.Close(context.Background()))
	_, err = fairlock.New(client, "orders:42").Lock(context.Background())
	fmt.Println(errors.Is(err, lease.ErrClosed))
	// Output:
	// closed: <nil>
	// true
}

// A program that has a rueidis client may share its connections.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	ctx := context.Background()
	rc, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, DisableCache: true, PipelineMultiplex: -1, ForceSingleClient: true,
	})
	if err != nil {
		panic(err)
	}
	defer rc.Close()

	client, err := waitqueue.New(rc, waitqueue.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(client.Close(ctx))
	fmt.Println(rc.Do(ctx, rc.B().Ping().Build()).ToString()) // still the caller's
	// Output:
	// <nil>
	// PONG <nil>
}

func ExampleClient_Stats() {
	clients, end := kit.Clients(1)
	defer end()
	ctx := context.Background()

	if err := fairlock.New(clients[0], "orders:42").Do(ctx, func(context.Context) error { return nil }); err != nil {
		panic(err)
	}
	stats := clients[0].Stats()
	fmt.Println(stats.Asks, stats.Granted, stats.Lost)
	// Output: 1 1 0
}

func ExampleClient_ServerTime() {
	clients, end := kit.Clients(1)
	defer end()

	if _, err := fairlock.New(clients[0], "orders:42").Inspect(context.Background()); err != nil {
		panic(err)
	}
	ahead := time.Until(clients[0].ServerTime("orders:42"))
	fmt.Println(ahead.Abs() < time.Minute) // The server is on this machine.
	// Output: true
}

// Tokens of one name may have to be above those that another server has given.
func ExampleClient_Above() {
	clients, end := kit.Clients(1)
	defer end()

	elsewhere := uint64(time.Now().Add(time.Hour).UnixMicro()) // More than a day ahead of the server is not believed.
	clients[0].Above(elsewhere)
	held, err := fairlock.New(clients[0], "orders:42").Lock(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(held.Token() > elsewhere)
	// Output: true
}

// Options are the same for all primitives that have them.
func ExampleWith() {
	terms := waitqueue.With([]waitqueue.Option{
		waitqueue.WithLease(30 * time.Second),
		waitqueue.WithMaxHold(time.Hour),
		waitqueue.WithPriority(2),
		waitqueue.WithCohort(16),
		waitqueue.WithReplicas(1, time.Second),
		waitqueue.WithSafeRestart(),
	})
	fmt.Println(terms.Lease, terms.MaxHold, terms.Priority, terms.Cohort)
	fmt.Println(terms.Replicas, terms.ReplicasTimeout, terms.SafeRestart)
	// Output:
	// 30s 1h0m0s 2 16
	// 1 1s true
}

func ExampleCheckLifetime() {
	fmt.Println(waitqueue.CheckLifetime(time.Hour))
	fmt.Println(errors.Is(waitqueue.CheckLifetime(time.Second), lease.ErrInvalid))
	// Output:
	// <nil>
	// true
}

func ExampleReleaseEach() {
	clients, end := kit.Clients(1)
	defer end()
	ctx := context.Background()

	var held []*lease.Lease
	for _, o := range fairlock.LockEach(ctx, fairlock.New(clients[0], "orders:42"), fairlock.New(clients[0], "orders:43")) {
		if o.Err != nil {
			panic(o.Err)
		}
		held = append(held, o.Lease)
	}
	slices.Reverse(held)
	fmt.Println(waitqueue.ReleaseEach(ctx, held...))
	// Output: [<nil> <nil>]
}

// What a program has in its configuration.
func ExampleParseURL() {
	o, err := waitqueue.ParseURL("rediss://user:password@redis.example:6380/2?client_name=orders")
	fmt.Println(o.InitAddress, o.SelectDB, o.Username, o.ClientName, err)
	_, err = waitqueue.ParseURL("redis://redis.example?dial_timout=1s")
	fmt.Println(err)
	// Output:
	// [redis.example:6380] 2 user orders <nil>
	// waitqueue: url: unknown parameter "dial_timout": there are addr, client_cache, client_name, db, dial_timeout, master_set, max_retries, protocol, skip_verify, write_timeout
}

// What looks at servers from outside, as package doctor does, has connections beside those of the protocol.
func ExampleClient_Wiring() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	ctx := context.Background()
	options := waitqueue.Options{Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true}}
	client, err := waitqueue.Dial(options)
	if err != nil {
		panic(err)
	}
	wiring, err := client.Wiring()
	if err != nil {
		panic(err)
	}
	missing, err := wiring.Missing(ctx)
	fmt.Println(wiring.Own, wiring.Skips, missing, err)
	held, err := fairlock.New(client, "orders:42").Lock(ctx)
	if err != nil {
		panic(err)
	}
	for keys, err := range wiring.Scan(ctx, "headwaiter:lock:*") { // The keys of locks, a page at a time.
		fmt.Println(keys, err)
	}
	terms := waitqueue.Terms{Lease: lease.DefaultLease}
	queues := []waitqueue.Queue{client.Queue(lua.Fairlock, "orders:42", terms), client.Queue(lua.Fairlock, "orders:43", terms)}
	infos, errs := wiring.InspectAll(ctx, queues, 10) // In one round trip.
	fmt.Println(infos[0].Holder.Client == client.ID(), infos[1].Held, errs)
	_ = held.Release(ctx)
	fmt.Println(client.Close(ctx))
	_, err = client.Wiring()
	fmt.Println(err)

	refused, end, err := waitqueue.Wire(options) // Dial may refuse the server: this does not.
	if err != nil {
		panic(err)
	}
	defer end()
	one, hangUp, err := refused.Dial(ctx, server.Addr())
	if err != nil {
		panic(err)
	}
	defer hangUp()
	fmt.Println(one.Do(ctx, one.B().Ping().Build()).ToString())
	// Output:
	// true true [] <nil>
	// [headwaiter:lock:{orders:42}] <nil>
	// true false [<nil> <nil>]
	// <nil>
	// client closed
	// PONG <nil>
}
