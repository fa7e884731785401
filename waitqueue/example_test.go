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
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func ExampleClient_Stats() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	if err := fairlock.New(clients[0], "orders:42").Do(ctx, func(context.Context) error { return nil }); err != nil {
		panic(err)
	}
	stats := clients[0].Stats()
	fmt.Println(stats.Asks, stats.Granted, stats.Lost)
	// Output: 1 1 0
}

// A process that was restored from a snapshot may have a twin: it holds nothing any more.
func ExampleClient_Restored() {
	clients, end := kit.Clients(1)
	defer end()

	held := kit.Must(fairlock.New(clients[0], "orders:42").Lock(context.Background()))
	before := clients[0].ID()
	clients[0].Restored() // The first thing after the restore.
	fmt.Println(context.Cause(held.Context()), clients[0].ID() == before)
	// Output: lease lost: orders:42: the process is a copy of the holder false
}

func ExampleServerTime() {
	clients, end := kit.Clients(1)
	defer end()

	kit.Must(fairlock.New(clients[0], "orders:42").Inspect(context.Background()))
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
	held := kit.Must(fairlock.New(clients[0], "orders:42").Lock(context.Background()))
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
	ctx, clients, end := kit.Ready(1)
	defer end()

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
	server := kit.Must(miniredis.Run())
	defer server.Close()
	ctx := context.Background()
	options := waitqueue.Options{Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true}}
	client := kit.Must(waitqueue.Dial(options))
	wiring := kit.Must(waitqueue.WiringOf(client))
	probed, err := wiring.Probed(ctx)
	fmt.Println(wiring.Own, wiring.Skips, probed.Missing, err)
	held := kit.Must(fairlock.New(client, "orders:42").Lock(ctx))
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
	fmt.Println(client.Shutdown(ctx))
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
	server := kit.Must(miniredis.Run())
	defer server.Close()
	rc := kit.Must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true}))
	defer rc.Close()
	client := kit.Must(waitqueue.New(rc, waitqueue.Options{}))
	fmt.Println(client.Close())
	// Output: <nil>
}

// calls counts the calls of a layer.
type calls struct{ begun int }

func (*calls) Close() {}

// How a layer over the queue lets two calls use one hold, one after the other, and a third one ask with its end.
func ExampleQueue_Claim() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	// Three tokens: two for calls that are passed the hold.
	q := clients[0].Queue(lua.Fairlock, "orders:42", waitqueue.DefaultTerms()).For(wire.Exclusive, 3).Refusing(nil)
	layer := kit.Must(q.Layer("example", func() waitqueue.Layer { return &calls{} }))
	claim := func() *waitqueue.Claim {
		layer.(*calls).begun++
		c := kit.Must(q.Claim(ctx, false))
		return c
	}
	first, second, third, fourth := claim(), claim(), claim(), claim()
	q.Subscribe() // The third will have to be in the queue at once.
	fmt.Println(layer.(*calls).begun, q.Refuses(ctx), fourth.GiveUp(lease.ErrBusy) != nil)

	hold := kit.Must(first.Wait(false))
	release := func(context.Context) error { return nil } // What a layer decides here, this example does below.
	use := hold.Lease(release, nil).Lease()
	hold.Want(func() {}) // What a layer does when others wait for the hold in the queue.
	_ = use.Release(ctx)
	for !hold.Pass(second, false) {
		time.Sleep(time.Millisecond) // The server's clock has to come to the token.
	}
	fmt.Println("rests:", hold.Rest(time.Minute))
	caller := kit.Must(q.Caller(ctx))
	for !hold.Pass(&caller, false) {
		time.Sleep(time.Millisecond) // As above.
	}
	next := hold.Lease(release, nil).Lease()
	fmt.Println(next.Token()-use.Token(), hold.Context().Err(), next.Context().Err())

	ready := make(chan struct{})
	fmt.Println(hold.Release(ctx, third, func() { close(ready) }), hold.Context().Err(), next.Context().Err())
	<-ready
	hold, err := third.Wait(true)
	fmt.Println(err, hold.Lease(release, nil).Lease().Token() > next.Token(), hold.Release(ctx, nil, nil))
	// Output:
	// 4 <nil> true
	// rests: true
	// 2 <nil> <nil>
	// <nil> context canceled context canceled
	// <nil> true <nil>
}

// Nobody can call Progress before the call for several names returns.
func ExampleReturned() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	terms := waitqueue.DefaultTerms()
	terms.MaxStall = time.Second
	claim := kit.Must(clients[0].Queue(lua.Fairlock, "a", terms).Claim(ctx, false))
	fmt.Println(claim.Enter(time.Now()))
	held := kit.Must(claim.Await(ctx))
	fmt.Println(time.Until(held.Deadline()) > terms.MaxStall)
	waitqueue.Returned(held)
	fmt.Println(time.Until(held.Deadline()) > terms.MaxStall)
	fmt.Println(held.Release(ctx))
	// Output:
	// <nil>
	// true
	// false
	// <nil>
}

// A call that gets a hold, and then finds that it cannot return it, leaves the name free.
func ExampleUnused() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	terms := waitqueue.DefaultTerms()
	terms.MinHold = time.Minute
	q := clients[0].Queue(lua.Fairlock, "a", terms)
	held := kit.Must(q.Acquire(ctx))
	waitqueue.Unused(held)
	fmt.Println(held.Release(ctx))
	fmt.Println(kit.Must(q.Inspect(ctx)).Held)
	// Output:
	// <nil>
	// false
}

// What a call does behind the grant is no time without progress.
func ExampleQueue_Unreturned() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	terms := waitqueue.DefaultTerms()
	terms.MaxStall = time.Second
	held := kit.Must(clients[0].Queue(lua.Fairlock, "a", terms).Unreturned().Acquire(ctx))
	fmt.Println(time.Until(held.Deadline()) > terms.MaxStall)
	waitqueue.Returned(held)
	fmt.Println(time.Until(held.Deadline()) > terms.MaxStall)
	fmt.Println(held.Release(ctx))
	// Output:
	// true
	// false
	// <nil>
}
