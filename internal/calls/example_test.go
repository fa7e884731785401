package calls_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

// How a try that a layer makes calls a client that only keeps what is wanted.
func ExampleCalling() {
	kept := func(context.Context) (*lease.Lease, error) { return nil, &lease.BusyError{Client: "A", Kept: true} }
	wait := func(ctx context.Context) (*lease.Lease, error) {
		_, bounded := ctx.Deadline()
		fmt.Println("waits, for a short time:", bounded)
		<-ctx.Done() // It is not only kept.
		return nil, ctx.Err()
	}
	_, err := calls.Calling(context.Background(), kept, wait)
	fmt.Println(errors.Is(err, lease.ErrBusy), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// waits, for a short time: true
	// true false
}
