package kit

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/fairlock"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

const (
	stallName = "stall:"
	// stallAfter is how long a hold lasts before the client tells of it.
	stallAfter = 500 * time.Millisecond
)

// A Stall holds up the timers of a client, as a machine without time for it does: nothing is renewed, and nobody
// notices the end of a lease. It is an observer that does not return.
type Stall struct {
	observe.Observer // which is told the rest; nil: nobody

	mu    sync.Mutex // guards the fields below
	begun chan struct{}
	over  chan struct{}
	held  *lease.Lease
}

// Option makes a client one that can be held up.
func (s *Stall) Option(o *headwaiter.Options) { o.Observer, o.HeldTooLong = s, stallAfter }

// Begin holds up the timers of c. It returns when they are.
func (s *Stall) Begin(t testing.TB, c *headwaiter.Client) {
	t.Helper()
	s.mu.Lock()
	s.begun, s.over = make(chan struct{}), make(chan struct{})
	s.mu.Unlock()
	var err error
	s.held, err = fairlock.New(c, stallName+c.ID(), headwaiter.WithLease(time.Hour)).Lock(context.Background())
	require.NoError(t, err)
	over := s.over
	t.Cleanup(func() { // Of a test that has failed: else its client could not be closed.
		select {
		case <-over:
		default:
			close(over)
		}
	})
	Await(t, s.begun, "the timers to be held up")
}

// End lets them go on.
func (s *Stall) End(t testing.TB) {
	t.Helper()
	close(s.over)
	Release(t, s.held)
}

// Observe does not return while the timers are held up.
func (s *Stall) Observe(ctx context.Context, o observe.Observation) {
	if s.Observer != nil {
		s.Observer.Observe(ctx, o)
	}
	if o.Event != observe.HeldLong || o.Count > 1 || !strings.HasPrefix(o.Name, stallName) {
		return // Told again, it is of a stall that has ended.
	}
	s.mu.Lock()
	begun, over := s.begun, s.over
	s.mu.Unlock()
	close(begun)
	<-over
}
