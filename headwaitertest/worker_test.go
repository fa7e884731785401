package headwaitertest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/headwaitertest"
	"github.com/headwaiter/headwaiter/internal/testenv/synctime"
	"github.com/headwaiter/headwaiter/lease"
)

// A worker does steps of a second under a lock. One of them has the bug that this package is there to find.
type worker struct {
	lock    *fairlock.Mutex
	careful bool
	steps   atomic.Int64
}

func (w *worker) run(ctx context.Context) error {
	held, err := w.lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer held.Release(context.WithoutCancel(ctx))
	work := ctx // The bug: this is the context of the call, which does not end with the hold.
	if w.careful {
		work = held.Context()
	}
	for range 600 {
		select {
		case <-time.After(time.Second):
			w.steps.Add(1)
		case <-work.Done():
			return context.Cause(work)
		}
	}
	return nil
}

func TestAWorkerThatIgnoresTheEndOfItsHoldIsFound(t *testing.T) {
	for _, careful := range []bool{true, false} {
		for how, lose := range map[string]func(*headwaitertest.Server){
			"forced":    func(s *headwaitertest.Server) { s.Force("import") },
			"expired":   func(s *headwaitertest.Server) { s.Expire("import") },
			"forgotten": (*headwaitertest.Server).Restart,
			"paused":    func(s *headwaitertest.Server) { s.Pause() },
		} {
			t.Run(map[bool]string{true: "careful ", false: "careless "}[careful]+how, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *headwaitertest.Server) {
					w := &worker{lock: fairlock.New(s.Client(t), "import"), careful: careful}
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- w.run(ctx) }()
					synctime.Pass(5*time.Second + time.Second/2)
					lose(s)
					synctime.Pass(fairlockLease)
					synctest.Wait()
					before := w.steps.Load()
					synctime.Pass(time.Minute)
					require.Equal(t, careful, w.steps.Load() == before, "steps after the loss: %d", w.steps.Load()-before)
					cancel()
					err := <-ended
					if careful {
						require.ErrorIs(t, err, lease.ErrLost)
					} else {
						require.ErrorIs(t, err, context.Canceled)
					}
				})
			})
		}
	}
}

// fairlockLease is how long a lease is at the most before its loss is known.
const fairlockLease = 10 * time.Second
