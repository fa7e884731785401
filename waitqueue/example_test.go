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
	"github.com/headwaiter/headwaiter/internal/outside"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

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

func ExampleServerTime() {
	clients, end := kit.Clients(1)
	defer end()

	if _, err := fairlock.New(clients[0], "orders:42").Inspect(context.Background()); err != nil {
		panic(err)
	}
	ahead := time.Until(waitqueue.ServerTime(clients[0], "orders:42"))
	fmt.Println(ahead.Abs() < time.Minute) // The server is on this machine.
	// Output: true
}

// Tokens of one name may have to be above those that another server has given.
func ExampleAbove() {
	clients, end := kit.Clients(1)
	defer end()

	elsewhere := uint64(time.Now().Add(time.Hour).UnixMicro()) // More than a day ahead of the server is not believed.
	waitqueue.Above(clients[0], elsewhere)
	held, err := fairlock.New(clients[0], "orders:42").Lock(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(held.Token() > elsewhere)
	// Output: true
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

// What looks at servers from outside, as package doctor does, has connections beside those of the protocol.
func ExampleWiringOf() {
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
	wiring, err := waitqueue.WiringOf(client)
	if err != nil {
		panic(err)
	}
	probed, err := wiring.Probed(ctx)
	fmt.Println(wiring.Own, wiring.Skips, probed.Missing, err)
	held, err := fairlock.New(client, "orders:42").Lock(ctx)
	if err != nil {
		panic(err)
	}
	for keys, err := range wiring.Scan(ctx, "headwaiter:lock:*") { // The keys of locks, a page at a time.
		fmt.Println(keys, err)
	}
	terms := waitqueue.Terms{Lease: lease.DefaultLease}
	first, second := client.Queue(lua.Fairlock, "orders:42", terms), client.Queue(lua.Fairlock, "orders:43", terms)
	infos, errs := wiring.InspectAll(ctx, []outside.Name{first.Seen(), second.Seen()}, 10) // In one round trip.
	fmt.Println(infos[0].Holder.Client == client.ID(), infos[1].Held, errs)
	before := lease.Info{Holders: []lease.Holder{{Client: client.ID()}}} // From elsewhere.
	wiring.Name(ctx, before)
	fmt.Println(before.Holders[0].Who == infos[0].Holder.Who)
	_ = held.Release(ctx)
	fmt.Println(client.Close(ctx))
	_, err = waitqueue.WiringOf(client)
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
	// true
	// <nil>
	// client closed
	// PONG <nil>
}

// Programs call headwaiter.New, which is the same.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rc, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true})
	if err != nil {
		panic(err)
	}
	defer rc.Close()
	client, err := waitqueue.New(rc, waitqueue.Options{})
	if err != nil {
		panic(err)
	}
	fmt.Println(client.Close(context.Background()))
	// Output: <nil>
}
