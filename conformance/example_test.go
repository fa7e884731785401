package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/conformance"
)

// An engine that this package knows nothing of.
var (
	errBusy   = errors.New("mine: busy")
	errClosed = errors.New("mine: closed")
	dial      func(testing.TB) interface {
		Mutex(name string, lease time.Duration) conformance.Mutex
		Close(ctx context.Context) error
	}
)

// This is the whole of a test file.
func ExampleRun() {
	TestConformance := func(t *testing.T) {
		missed := conformance.Run(t, conformance.Engine{
			Dial: func(t testing.TB) conformance.Client {
				c := dial(t)
				return conformance.Client{Mutex: c.Mutex, Close: c.Close}
			},
			Fenced: true,
			Lease:  2 * time.Second,
			Errors: conformance.Errors{Busy: errBusy, Closed: errClosed},
		})
		for _, m := range missed {
			t.Log(m) // Let nobody think that this was tested.
		}
	}
	_ = TestConformance
}
