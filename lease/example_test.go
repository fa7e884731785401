package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/lease"
)

// engine gives a hold of ten seconds, with a fencing token, and says when it is given back.
func engine(ctx context.Context) *keeper.Keeper {
	return keeper.New(ctx, keeper.Terms{
		Name:   "orders:42",
		Token:  7,
		Until:  keeper.Until{Deadline: time.Now().Add(10 * time.Second), Slept: keeper.Slept()},
		Waited: 3 * time.Millisecond,
		Stall:  keeper.NewStall(time.Minute),
		Engine: counter{},
		Release: func(context.Context) error {
			fmt.Println("given back")
			return nil
		},
	})
}

// counter is an engine that knows how many wait.
type counter struct{}

func (counter) Want(*keeper.Keeper) { fmt.Println("waiting: 0") }

// lock is what the Lock of a primitive does.
func lock(ctx context.Context) *lease.Lease { return (*lease.Lease)(engine(ctx)) }

func Example() {
	held := lock(context.Background()) // as Lock returns it
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
	engine := engine(context.Background())
	held := (*lease.Lease)(engine)

	go engine.Lose(lease.ErrForced)
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
	held := lock(context.Background())
	held.Unlock()
	fmt.Println(held) // Before, it says for how much longer it is held.
	// Output:
	// given back
	// "orders:42", token 7: lease released by Unlock
}

// With headwaiter.WithMaxStall a hold ends when its work hangs. A job that moves on says so at each step.
func ExampleLease_Progress() {
	held := lock(context.Background())
	for range 3 {
		held.Progress()
	}
	fmt.Println(held.Context().Err())
	// Output: <nil>
}

func ExampleLease_Deadline() {
	held := lock(context.Background())
	left := time.Until(held.Deadline())
	fmt.Println(left > 0, left <= 10*time.Second)
	// Output: true true
}

// A job looks whether the one before it was left half done, as programs do at EOWNERDEAD.
func ExampleLease_Previous() {
	held := (*lease.Lease)(keeper.New(context.Background(), keeper.Terms{
		Token: 8, Until: keeper.Until{Deadline: time.Now().Add(time.Minute)},
		Previous: reason.Ending{How: reason.Expired, Token: 7},
	}))
	if before := held.Previous(); !before.Orderly() {
		fmt.Println("mends what was left:", before)
	}
	fmt.Println("goes on")
	// Output:
	// mends what was left: expired, token 7
	// goes on
}

func ExampleEnding_Orderly() {
	for _, kind := range []lease.EndingKind{lease.EndingReleased, lease.EndingHandedOver, lease.EndingDied, lease.EndingUnknown} {
		fmt.Println(kind, lease.Ending{Kind: kind}.Orderly())
	}
	// Output:
	// released true
	// handed over true
	// died false
	// unknown false
}

func ExampleEnding_String() {
	fmt.Println(lease.Ending{Kind: lease.EndingForced, Token: 7})
	fmt.Println(lease.Ending{})
	// Output:
	// forced, token 7
	// unknown
}

func ExampleEndingKind_String() {
	fmt.Println(lease.EndingStalled)
	// Output: stalled
}

// A resource that refuses all but the highest token it has seen is no use where several hold.
func ExampleLease_Shared() {
	pool := (*lease.Lease)(keeper.New(context.Background(), keeper.Terms{
		Token: 8, Until: keeper.Until{Deadline: time.Now().Add(time.Minute)}, Shared: true,
	}))
	fmt.Println(pool.Shared(), lock(context.Background()).Shared())
	// Output: true false
}

// A function deep in the work finds the token of the hold that it works under.
func ExampleFromContext() {
	held := lock(context.Background())
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

	write(lock(context.Background()).Context())
	write(context.Background())
	// Output:
	// write with token 7
	// write with token 0
}

// A handler works on the context of its request, and under the lock: it stops when either ends.
func ExampleLease_Bind() {
	request, gone := context.WithCancelCause(context.Background())
	held := lock(request)

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

// Do is what the Do of every primitive does: the first function is its Lock.
func ExampleDo() {
	ctx := context.Background()
	held := lock(ctx)
	lock := func(context.Context) (*lease.Lease, error) { return held, nil }
	late := errors.New("the carrier is late")
	fmt.Println(lease.Do(ctx, lock, func(context.Context) error { return late }))
	fmt.Println(context.Cause(held.Context()))
	// Output:
	// given back
	// the carrier is late
	// lease released at the end of Do
}

// A long job looks between two steps whether it should let others in.
func ExampleLease_Wanted() {
	engine := engine(context.Background())
	held, steps := (*lease.Lease)(engine), 0
	for wanted := held.Wanted(); ; steps++ {
		select {
		case <-wanted:
			fmt.Println("lets others in after", steps, "steps")
			held.Unlock()
			return
		default:
		}
		if steps == 2 {
			engine.Awaited() // What the engine does when somebody has come.
		}
	}
	// Output:
	// waiting: 0
	// lets others in after 3 steps
	// given back
}

// Nobody waits for the server's word. The client's Close does, so it is deferred above.
func ExampleLease_Unlock() {
	held := lock(context.Background())
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
	held := lock(context.Background())
	text, err := held.HandOver(context.Background())
	fmt.Println(text == "", errors.Is(err, errors.ErrUnsupported), held.Context().Err())
	fmt.Println(held.Release(context.Background()))
	// Output:
	// true true <nil>
	// given back
	// <nil>
}
