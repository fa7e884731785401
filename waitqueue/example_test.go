package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/outside"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

func ExampleServerTime() {
	clients, end := kit.Clients(1)
	defer end()

	kit.Must(fairlock.New(clients[0], "orders:42").Inspect(context.Background()))
	ahead := time.Until(waitqueue.ServerTime((*waitqueue.Client)(clients[0]), "orders:42"))
	fmt.Println(ahead.Abs() < time.Minute) // The server is on this machine.
	// Output: true
}

// Tokens of one name may have to be above those that another server has given.
func ExampleAbove() {
	clients, end := kit.Clients(1)
	defer end()

	elsewhere := uint64(time.Now().Add(time.Hour).UnixMicro()) // More than a day ahead of the server is not believed.
	waitqueue.Above((*waitqueue.Client)(clients[0]), elsewhere)
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

// Packages that look at servers from outside, as doctor does, have connections of their own.
func ExampleWiringOf() {
	server := kit.Must(miniredis.Run())
	defer server.Close()
	ctx := context.Background()
	options := waitqueue.Options{Redis: rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true}}
	client := kit.Must(waitqueue.Dial(options))
	wiring := kit.Must(waitqueue.WiringOf(client))
	probed, err := wiring.Probed(ctx)
	fmt.Println(wiring.Own, wiring.Skips, probed.Missing, err)
	held := kit.Must(fairlock.New((*headwaiter.Client)(client), "orders:42").Lock(ctx))
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

// Programs call headwaiter.New, and the methods of headwaiter.Client, which are the same.
func ExampleNew() {
	server := kit.Must(miniredis.Run())
	defer server.Close()
	rc := kit.Must(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true}))
	defer rc.Close()
	client := kit.Must(waitqueue.New(rc, waitqueue.Options{}))
	before := client.ID()
	client.Restored()
	fmt.Println(client.ID() == before, client.Stats().AcquireRequests, client.Close())
	// Output: false 0 <nil>
}

// Two calls of a client use one hold, one after the other. Then it is kept until somebody else wants it.
func ExampleQueue_Passing() {
	ctx, clients, end := kit.Ready(2)
	defer end()

	q := (*waitqueue.Client)(clients[0]).Queue(lua.Fairlock, "orders:42", waitqueue.DefaultTerms()).Refusing(nil).Passing(1, time.Minute)
	first := kit.Must(q.Acquire(ctx))
	_, err := q.Try(ctx)
	fmt.Println(q.Keeps(), err)

	calls := make(chan *lease.Lease)
	go func() { calls <- kit.Must(q.Acquire(ctx)) }()
	time.Sleep(10 * time.Millisecond) // The second call comes meanwhile. If it is later, it takes up the hold that is kept.
	fmt.Println(first.Release(ctx))
	second := <-calls
	fmt.Println(second.Token() > first.Token(), second.Release(ctx), kit.Must(q.Inspect(ctx)).Held)

	other := (*waitqueue.Client)(clients[1]).Queue(lua.Fairlock, "orders:42", waitqueue.DefaultTerms())
	fmt.Println(other.Label())
	fmt.Println(kit.Must(other.Acquire(ctx)).Release(ctx))
	// Output:
	// true busy
	// <nil>
	// true <nil> true
	// orders:42
	// <nil>
}

// A call that gets a hold, and then finds that it cannot return it, leaves the name free.
func ExampleUnused() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	terms := waitqueue.DefaultTerms()
	terms.MinHold = time.Minute
	q := (*waitqueue.Client)(clients[0]).Queue(lua.Fairlock, "a", terms)
	held := kit.Must(q.Acquire(ctx))
	waitqueue.Unused(held)
	fmt.Println(held.Release(ctx))
	fmt.Println(kit.Must(q.Inspect(ctx)).Held)
	// Output:
	// <nil>
	// false
}

// What a call waits for after the grant is no time without progress.
func ExampleQueue_Unreturned() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	terms := waitqueue.DefaultTerms()
	terms.MaxStall = time.Second
	held := kit.Must((*waitqueue.Client)(clients[0]).Queue(lua.Fairlock, "a", terms).Unreturned().Acquire(ctx))
	fmt.Println(time.Until(held.Deadline()) > terms.MaxStall)
	waitqueue.Returned(held)
	fmt.Println(time.Until(held.Deadline()) > terms.MaxStall)
	fmt.Println(held.Release(ctx))
	// Output:
	// true
	// false
	// <nil>
}
