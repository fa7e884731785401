package waitqueue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/kit"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/waitqueue"
)

// calls counts the calls of a layer.
type calls struct{ begun int }

func (*calls) Close() {}

// How a layer over the queue lets two calls use one hold, one after the other, and a third one ask with its end.
func ExampleQueue_Claim() {
	clients, end := kit.Clients(1)
	defer end()
	ctx := context.Background()

	// Three tokens: two for calls that are passed the hold.
	q := clients[0].Queue(lua.Fairlock, "orders:42", waitqueue.DefaultTerms()).For(lua.Exclusive, 3).Refusing(nil)
	layer, err := q.Layer("example", func() waitqueue.Layer { return &calls{} })
	if err != nil {
		panic(err)
	}
	claim := func() *waitqueue.Claim {
		layer.(*calls).begun++
		c, err := q.Claim(ctx, false)
		if err != nil {
			panic(err)
		}
		return c
	}
	first, second, third, fourth := claim(), claim(), claim(), claim()
	q.Subscribe() // The third will have to be in the queue at once.
	fmt.Println(layer.(*calls).begun, fourth.Busy(), fourth.GiveUp(lease.ErrBusy) != nil)

	hold, err := first.Wait(false)
	if err != nil {
		panic(err)
	}
	release := func(context.Context) error { return nil } // What a layer decides here, this example does below.
	use := hold.Lease(release, nil).Lease()
	hold.Want(func() {}) // What a layer does when others wait for the hold in the queue.
	_ = use.Release(ctx)
	for !hold.Pass(second, false) {
		time.Sleep(time.Millisecond) // The server's clock has to come to the token.
	}
	fmt.Println("rests:", hold.Rest(time.Minute))
	caller, err := q.Caller(ctx)
	if err != nil {
		panic(err)
	}
	for !hold.Pass(&caller, false) {
		time.Sleep(time.Millisecond) // As above.
	}
	next := hold.Lease(release, nil).Lease()
	fmt.Println(next.Token()-use.Token(), hold.Context().Err(), next.Context().Err())

	ready := make(chan struct{})
	fmt.Println(hold.Release(ctx, third, func() { close(ready) }), hold.Context().Err(), next.Context().Err())
	<-ready
	hold, err = third.Wait(true)
	fmt.Println(err, hold.Lease(release, nil).Lease().Token() > next.Token(), hold.Release(ctx, nil, nil))
	// Output:
	// 4 <nil> true
	// rests: true
	// 2 <nil> <nil>
	// <nil> context canceled context canceled
	// <nil> true <nil>
}
