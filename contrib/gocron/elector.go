package gocron

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/election"
	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

// ErrNotLeader: another process leads, or none, or this one has not heard yet that it does.
var ErrNotLeader = errors.New("not the leader")

// restTime is how long an Elector waits after an error that no retry mends, before it campaigns again.
const restTime = time.Second

// An Elector is a gocron.Elector: for the schedulers of one process, on one client.
type Elector struct {
	election *election.Election
	name     string
	stop     context.CancelFunc
	done     chan struct{} // closed when it campaigns no more

	mu   sync.Mutex // guards the fields below
	held *lease.Lease
	err  error // why the last campaign failed
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector that campaigns in the election of that name until it is closed. What it proclaims is the
// identity of the client.
func NewElector(c *headwaiter.Client, name string, opts ...election.Option) *Elector {
	ctx, stop := context.WithCancel(context.Background())
	e := &Elector{election: election.New(c, name, opts...), name: name, stop: stop, done: make(chan struct{})}
	go e.campaign(ctx, c.ID())
	return e
}

// IsLeader returns nil if this process leads, and otherwise an error that wraps [ErrNotLeader] and, if it cannot
// campaign, why. It asks nobody and never waits.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.held != nil && e.held.Context().Err() == nil:
		return nil
	case e.err != nil:
		return fmt.Errorf("gocron: elector %q: %w: %w", e.name, ErrNotLeader, e.err)
	}
	return fmt.Errorf("gocron: elector %q: %w", e.name, ErrNotLeader)
}

// Lease is the leadership, or nil while this process does not lead. Its context ends when it is lost, its token belongs
// into what jobs write.
func (e *Elector) Lease() *lease.Lease {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held == nil || e.held.Context().Err() != nil {
		return nil
	}
	return e.held
}

// Close is [Elector.Shutdown] for at most 5 s, so that it can be deferred.
func (e *Elector) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), calls.CloseTime)
	defer cancel()
	return e.Shutdown(ctx)
}

// Shutdown ends the campaign and resigns: the next in the queue leads. Until ctx ends it waits for the server to confirm; a
// leadership that is not confirmed to be over ends with its lease.
func (e *Elector) Shutdown(ctx context.Context) error {
	if ctx == nil {
		panic("gocron: nil context") // As package context does, when nothing is changed yet.
	}
	e.stop()
	<-e.done
	e.mu.Lock()
	held := e.held
	e.held = nil
	e.mu.Unlock()
	if held == nil {
		return nil
	}
	if err := held.Release(ctx); err != nil && !errors.Is(err, lease.ErrLost) { // Lost: it is over.
		return fmt.Errorf("gocron: elector %q: resign: %w", e.name, err)
	}
	return nil
}

// campaign leads whenever it can, until ctx ends.
func (e *Elector) campaign(ctx context.Context, value string) {
	defer close(e.done)
	for ctx.Err() == nil {
		held, err := e.election.Campaign(ctx, value)
		e.mu.Lock()
		e.held, e.err = held, err
		if ctx.Err() != nil {
			e.err = nil // Close has ended the call, which is no news.
		}
		e.mu.Unlock()
		switch {
		case err == nil:
			select {
			case <-held.Context().Done():
				_ = held.Release(context.WithoutCancel(ctx)) // It is lost: this frees what the client has of it.
			case <-ctx.Done():
			}
		case errors.Is(err, lease.ErrClosed):
			return
		default:
			select {
			case <-time.After(restTime):
			case <-ctx.Done():
			}
		}
	}
}
