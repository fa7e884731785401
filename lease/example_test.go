package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/lease"
)

// hold is what an engine does for whoever asks it: a hold of ten seconds, with a fencing token.
func hold(ctx context.Context) *lease.Keeper {
	return lease.New(ctx, lease.Terms{
		Name:   "orders:42",
		Token:  7,
		Until:  lease.Until{Deadline: time.Now().Add(10 * time.Second), Slept: lease.Slept()},
		Waited: 3 * time.Millisecond,
		Engine: "an engine of one's own",
		Release: func(context.Context) error {
			fmt.Println("given back")
			return nil
		},
	})
}

func Example() {
	held := hold(context.Background()).Lease() // as Lock returns it
	fmt.Println(held.Token(), held.Waited(), held.Context().Err())

	fmt.Println(held.Release(context.Background()))
	fmt.Println(context.Cause(held.Context()))
	fmt.Println(held.Release(context.Background()))
	// Output:
	// 7 3ms <nil>
	// given back
	// <nil>
	// lease released by Release
	// lease: release "orders:42": lease released by Release
}

// Work that must not go on without the lock ends with its context.
func ExampleLease_Context() {
	keeper := hold(context.Background())
	held := keeper.Lease()

	go keeper.Lose(lease.ErrForced)
	<-held.Context().Done()
	cause := context.Cause(held.Context())
	fmt.Println(errors.Is(cause, lease.ErrLost), errors.Is(cause, lease.ErrForced))
	fmt.Println(cause)
	// Output:
	// true true
	// lease lost: orders:42: released elsewhere by force
}

// For logs.
func ExampleLease_String() {
	held := hold(context.Background()).Lease()
	held.Unlock()
	fmt.Println(held) // Before, it says for how much longer it is held.
	// Output:
	// given back
	// "orders:42", token 7: lease released by Unlock
}

// An engine gives its leases a clock that their owner sets back.
func ExampleNewStall() {
	stall := lease.NewStall(time.Minute)
	held := lease.New(context.Background(), lease.Terms{Stall: stall, Until: lease.Until{Deadline: time.Now().Add(time.Hour)}}).Lease()
	held.Progress()
	fmt.Println(time.Until(stall.Earlier(held.Deadline())).Round(time.Second))
	// Output: 1m0s
}

func ExampleLease_Deadline() {
	held := hold(context.Background()).Lease()
	fmt.Println(time.Until(held.Deadline()).Round(time.Second))
	// Output: 10s
}

// A resource that refuses all but the highest token it has seen is no use where several hold.
func ExampleLease_Shared() {
	pool := lease.New(context.Background(), lease.Terms{
		Token: 8, Until: lease.Until{Deadline: time.Now().Add(time.Minute)}, Shared: true,
	})
	fmt.Println(pool.Lease().Shared(), hold(context.Background()).Lease().Shared())
	// Output: true false
}

// A function deep in the work finds the token of the hold that it works under.
func ExampleFromContext() {
	held := hold(context.Background()).Lease()
	write := func(ctx context.Context) {
		if l, ok := lease.FromContext(ctx); ok {
			fmt.Println("writing with token", l.Token())
		}
	}
	write(held.Context())
	write(context.Background())
	// Output: writing with token 7
}

// Each write under the lock takes the token along.
func ExampleToken() {
	write := func(ctx context.Context) { fmt.Println("write with token", lease.Token(ctx)) }

	write(hold(context.Background()).Lease().Context())
	write(context.Background())
	// Output:
	// write with token 7
	// write with token 0
}

// A handler works on the context of its request, and under the lock: it stops when either ends.
func ExampleLease_Bind() {
	request, gone := context.WithCancelCause(context.Background())
	held := hold(request).Lease()

	ctx := held.Bind(request)
	inside, _ := lease.FromContext(ctx)
	fmt.Println(inside == held, ctx.Err())
	gone(errors.New("the client has gone"))
	<-ctx.Done()
	fmt.Println(context.Cause(ctx))
	fmt.Println(held.Context().Err()) // It releases nothing.

	fmt.Println(held.Release(context.WithoutCancel(request)))
	// Output:
	// true <nil>
	// the client has gone
	// <nil>
	// given back
	// <nil>
}

// The engine's side: renewals move the end, until the hold is lost or given back.
func ExampleKeeper() {
	keeper := hold(context.Background())
	fmt.Println(keeper.Lease().Engine())
	fmt.Println(keeper.Extend(lease.Until{Deadline: time.Now().Add(20 * time.Second), Slept: lease.Slept()}))
	fmt.Println(time.Until(keeper.Lease().Deadline()) > 15*time.Second, keeper.Overdue())
	fmt.Println(keeper.Lease().Until().Slept <= lease.Slept(), keeper.Lease().Until().Cause)

	keeper.End()
	fmt.Println(keeper.Overdue(), keeper.Extend(lease.Until{Deadline: time.Now().Add(time.Minute)}))
	// Output:
	// an engine of one's own
	// true
	// true false
	// true <nil>
	// true false
}

// What the engine knows of its renewals stands in the loss.
func ExampleKeeper_Failing() {
	keeper := lease.New(context.Background(), lease.Terms{
		Name:  "orders:42",
		Until: lease.Until{Deadline: time.Now().Add(-time.Millisecond), Slept: lease.Slept()},
	})
	keeper.Failing(time.Now().Add(-10*time.Second), errors.New("connection refused"))
	fmt.Println(context.Cause(keeper.Lease().Context()))
	// Output: lease lost: orders:42: no renewal was answered for 10s: connection refused
}

// Do is what the Do of every primitive does: the first function is its Lock.
func ExampleDo() {
	ctx := context.Background()
	held := hold(ctx).Lease()
	lock := func(context.Context) (*lease.Lease, error) { return held, nil }
	late := errors.New("the carrier is late")
	fmt.Println(lease.Do(ctx, lock, func(context.Context) error { return late }))
	fmt.Println(context.Cause(held.Context()))
	// Output:
	// given back
	// the carrier is late
	// lease released at the end of Do
}

// Nobody waits for the server's word. The client's Close does, so it is deferred above.
// counter is an engine that knows how many wait.
type counter struct{ waiting int }

func (e *counter) Want(*lease.Lease) { fmt.Println("waiting:", e.waiting) }

func ExampleKeeper_Awaited() {
	keeper := lease.New(context.Background(), lease.Terms{Engine: &counter{}, Until: lease.Until{Deadline: time.Now().Add(time.Hour)}})
	wanted := keeper.Lease().Wanted() // Asks the engine.
	keeper.Awaited()
	<-wanted
	fmt.Println("somebody waits")
	// Output:
	// waiting: 0
	// somebody waits
}

// A long job looks between two steps whether it should let others in.
func ExampleLease_Wanted() {
	keeper := lease.New(context.Background(), lease.Terms{Engine: &counter{}, Until: lease.Until{Deadline: time.Now().Add(time.Hour)}})
	held, steps := keeper.Lease(), 0
	for wanted := held.Wanted(); ; steps++ {
		select {
		case <-wanted:
			fmt.Println("lets others in after", steps, "steps")
			held.Unlock()
			return
		default:
		}
		if steps == 2 {
			keeper.Awaited() // What the engine does when somebody has come.
		}
	}
	// Output:
	// waiting: 0
	// lets others in after 3 steps
}

func ExampleLease_Unlock() {
	held := hold(context.Background()).Lease()
	func() {
		defer held.Unlock()
		fmt.Println("at work, until", held.Context().Err())
	}()
	fmt.Println(context.Cause(held.Context()))
	fmt.Println(held.Release(context.Background()))
	// Output:
	// at work, until <nil>
	// given back
	// lease released by Unlock
	// lease: release "orders:42": lease released by Unlock
}

// An engine that cannot let a hold go to another process says so, and the hold stays as it is.
func ExampleLease_HandOver() {
	held := hold(context.Background()).Lease()
	text, err := held.HandOver(context.Background())
	fmt.Println(text == "", errors.Is(err, errors.ErrUnsupported), held.Context().Err())
	fmt.Println(held.Release(context.Background()))
	// Output:
	// true true <nil>
	// given back
	// <nil>
}

// The time without progress begins when the call returns, not when the engine makes the hold.
func ExampleStall_Pause() {
	stall := lease.NewStall(time.Minute)
	stall.Pause()
	far := time.Now().Add(time.Hour)
	fmt.Println(stall.Earlier(far).Equal(far))
	stall.Resume()
	fmt.Println(stall.Earlier(far).Before(far))
	// Output:
	// true
	// true
}

// A release with a context that comes from the hold lasts until the lease is over, as that context ends first.
func ExampleOutlasting() {
	held := hold(context.Background()).Lease()
	ctx, cancel := lease.Outlasting(held.Context(), held)
	defer cancel()
	held.Unlock()
	fmt.Println(held.Context().Err(), ctx.Err())
	// Output:
	// given back
	// context canceled <nil>
}

// The error of a release names the hold.
func ExampleKeeper_Named() {
	keeper := hold(context.Background())
	fmt.Println(keeper.Named(lease.ErrUnconfirmed))
	// Output: lease: release "orders:42": release not confirmed
}
