package waitqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// How a lock is made: a protocol, a name and terms.
func ExampleClient_Queue() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	q := (*waitqueue.Client)(clients[0]).Queue(lua.Fairlock, "orders:42", waitqueue.DefaultTerms())
	fmt.Println(q.Name(), q.Label(), q.Terms().Lease)
	patient := q.On(waitqueue.With([]fairlock.Option{headwaiter.WithLease(time.Minute)}))
	held := kit.Must(patient.Acquire(ctx))
	_, err := q.Try(ctx)
	fmt.Println(errors.Is(err, lease.ErrBusy))

	info, err := q.Inspect(ctx)
	fmt.Println(info.Held, info.Token == held.Token(), err)
	freed, err := q.ForceRelease(ctx, info.Token)
	fmt.Println(freed.Ticket == info.Holder.Ticket, err)
	fmt.Println(q.Unwoken()) // Where the server refuses to wake waiters.
	// Output:
	// orders:42 orders:42 10s
	// true
	// true true <nil>
	// true <nil>
	// done, but the waiters were not woken: the user needs PUBLISH and the wake channels (+publish &headwaiter:*)
}

// What a call means that has the context of a hold on the same name.
func ExampleQueue_Nested() {
	clients, end := kit.Clients(1)
	defer end()

	ctx := waitqueue.WithOwner(context.Background(), "request 7")
	once := (*waitqueue.Client)(clients[0]).Queue(lua.Reentrant, "orders:42", waitqueue.DefaultTerms())
	again := once.Nested(waitqueue.Reenters)
	held := kit.Must(again.Acquire(ctx))
	_, err := again.Acquire(ctx) // of the same owner
	fmt.Println(err, again.HoldCount(held.Context(), 0))
	_, err = once.Acquire(held.Context())
	fmt.Println(errors.Is(err, lease.ErrDeadlock))
	// Output:
	// <nil> 2
	// true
}

// How a semaphore is made: its asks name the limit, and how many permits they want.
func ExampleQueue_For() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	pool := (*waitqueue.Client)(clients[0]).Queue(lua.Semaphore, "pool", waitqueue.DefaultTerms()).
		Nested(waitqueue.Independent).Says(nil, "3").For(wire.Permit, 1)
	kit.Must(pool.Acquire(ctx))
	_, n, err := pool.Drain(ctx)
	fmt.Println(n, err)

	info := kit.Must(pool.Inspect(ctx, "3"))
	_, err = pool.ForceReleaseHolder(ctx, info.Holders[0])
	fmt.Println(len(info.Holders), err)
	// Output:
	// 2 <nil>
	// 2 <nil>
}

// A script that waits for nothing is run until it is answered; what its answer means is the primitive's to say.
func ExampleCall() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	unset := errors.New("the latch is not set")
	latch := (*waitqueue.Client)(clients[0]).Queue(lua.Countdown, "ready", waitqueue.DefaultTerms()).For(wire.Party, 1).
		Says(waitqueue.Verdicts{wire.Unset: unset})
	down := func() error {
		// However often it is sent, it counts once.
		reply, err := waitqueue.Call(ctx, latch, lua.LatchDown, time.Minute, func(waitqueue.Attempt) []string { return nil })
		if err == nil && reply.Status != wire.Done {
			err = latch.Verdict(&reply.Head)
		}
		return err
	}
	fmt.Println(down())

	_, err := waitqueue.Call(ctx, latch, lua.LatchSet, time.Minute, func(waitqueue.Attempt) []string {
		return []string{"1", strconv.FormatInt(time.Hour.Milliseconds(), 10)}
	})
	fmt.Println(err, down())
	_, err = latch.Await(ctx, waitqueue.Event{})
	fmt.Println("open:", err)
	// Output:
	// the latch is not set
	// <nil> <nil>
	// open: <nil>
}

// How an election is made: a script that only the holder may run, and others that look in the background.
func ExampleQueue_Spawn() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	campaign := (*waitqueue.Client)(clients[0]).Queue(lua.Election, "scheduler", waitqueue.DefaultTerms())
	held := kit.Must(campaign.Acquire(ctx))
	_, err := campaign.CallHeld(ctx, held, lua.ElectionProclaim, time.Minute,
		func(h waitqueue.Holding, a waitqueue.Attempt) []string {
			return []string{h.Ticket, h.Token, h.Number, h.Who, a.NotAfter, "10.0.0.1:7000"}
		})
	fmt.Println(err)

	watch := (*waitqueue.Client)(clients[0]).Queue(lua.Leadership, "scheduler", waitqueue.DefaultTerms()).For(wire.Party, 1)
	leader := make(chan string, 1)
	err = watch.Spawn(func() {
		reply, err := waitqueue.Call(ctx, watch, lua.ElectionLeader, 0, func(waitqueue.Attempt) []string { return nil })
		leader <- fmt.Sprint(reply.Value, " ", err)
	})
	fmt.Println(<-leader, err)
	// Output:
	// <nil>
	// 10.0.0.1:7000 <nil> <nil>
}

// The hold of one process goes on in another, which got the text.
func ExampleQueue_Adopt() {
	ctx, clients, end := kit.Ready(2)
	defer end()

	held := kit.Must(fairlock.New(clients[0], "orders:42").Lock(ctx))
	text := kit.Must(held.HandOver(ctx))
	transit, _ := lua.ReadTransit(text)
	name, _ := transit.Name(lua.Fairlock)
	next := kit.Must((*waitqueue.Client)(clients[1]).Queue(lua.Fairlock, name, waitqueue.DefaultTerms()).Adopt(ctx, transit))
	defer next.Unlock()
	fmt.Println(name, next.Token() > held.Token())
	// Output: orders:42 true
}

// A writer that has written goes on as a reader.
func ExampleQueue_Downgrade() {
	ctx, clients, end := kit.Ready(2)
	defer end()

	terms := waitqueue.DefaultTerms()
	terms.Shared = true
	queue := func(c *headwaiter.Client, kind byte, permits int64) waitqueue.Queue {
		return (*waitqueue.Client)(c).Queue(lua.RWLock, "config", terms).Nested(waitqueue.Reenters).
			Says(nil, strconv.Itoa(wire.AllReaders)).For(kind, permits)
	}
	write := queue(clients[0], wire.Write, wire.AllReaders)
	held := kit.Must(write.Acquire(ctx))
	fmt.Println(write.Downgrade(ctx, held))
	_, err := queue(clients[1], wire.Read, 1).Acquire(ctx)
	fmt.Println("another reads:", err)
	// Output:
	// <nil>
	// another reads: <nil>
}

// Several names, all or none.
func ExampleAcquireAll() {
	ctx, clients, end := kit.Ready(2)
	defer end()

	queue := func(c *headwaiter.Client, name string) waitqueue.Queue {
		return (*waitqueue.Client)(c).Queue(lua.Fairlock, name, waitqueue.DefaultTerms())
	}
	both, err := waitqueue.AcquireAll(ctx, []waitqueue.Queue{queue(clients[0], "a"), queue(clients[0], "b")}, time.Second)
	fmt.Println(both.Context().Err(), err)
	others := []waitqueue.Queue{queue(clients[1], "b"), queue(clients[1], "c")}
	_, err = waitqueue.TryAll(ctx, others)
	fmt.Println(waitqueue.Labels(others), errors.Is(err, lease.ErrBusy))
	fmt.Println(both.Release(ctx))
	// Output:
	// <nil> <nil>
	// ["b" "c"] true
	// <nil>
}

// Several names, each for itself.
func ExampleAcquireEach() {
	ctx, clients, end := kit.Ready(2)
	defer end()

	queue := func(c *headwaiter.Client, name string) waitqueue.Queue {
		return (*waitqueue.Client)(c).Queue(lua.Fairlock, name, waitqueue.DefaultTerms())
	}
	for _, o := range waitqueue.AcquireEach(ctx, queue(clients[0], "a"), queue(clients[0], "b")) {
		fmt.Println(o.Lease != nil, errors.Is(o.Err, lease.ErrBusy))
	}
	for _, o := range waitqueue.TryEach(ctx, queue(clients[1], "b"), queue(clients[1], "c")) {
		fmt.Println(o.Lease != nil, errors.Is(o.Err, lease.ErrBusy))
	}
	// Output:
	// true false
	// true false
	// false true
	// true false
}

// Whether it is the server that lets calls wait.
func ExampleQueue_Silent() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	q := (*waitqueue.Client)(clients[0]).Queue(lua.Fairlock, "orders:42", waitqueue.DefaultTerms())
	held, err := q.Acquire(ctx)
	fmt.Println(held != nil, err, q.Silent())
	// Output:
	// true <nil> false
}

// Names, prefixes and what else people have to tell apart.
func ExamplePrintable() {
	for _, name := range []string{"orders:42", "\u0645\u06cc\u200c\u0631\u0648\u0645", "or\u200bders", "a\u202eb"} {
		fmt.Printf("%+q %v\n", name, names.Printable(name))
	}
	// Output:
	// "orders:42" true
	// "\u0645\u06cc\u200c\u0631\u0648\u0645" true
	// "or\u200bders" false
	// "a\u202eb" false
}

// What a witness of a death does: see headwaiter's Client.Bury.
func ExampleClient_Bury() {
	ctx, clients, end := kit.Ready(1)
	defer end()

	ended, found, err := (*waitqueue.Client)(clients[0]).Bury(ctx, "worker@host7", "")
	fmt.Println(len(ended), found, err)
	// Output: 0 false <nil>
}
