package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

// A Core is what the clients of etcd and ZooKeeper have in common: one session, and a ticket for each call. For a ticket
// the servers have a key or a node, which goes with the session. A session on etcd is an etcd lease. S and T are pointers
// to what the engine makes of sessions and tickets.
//
// Its lock guards sessions, tickets, and the fields below the lock. No request is sent while it is held.
type Core[S session, T ticket[S]] struct {
	Life  context.Context // ends with Close, for the cause lease.ErrClosed
	Watch *Watch

	end   context.CancelCauseFunc
	open  func() (S, error)
	erase func([]T) bool
	work  sync.WaitGroup // all goroutines
	idle  chan func()    // to those that have nothing to do
	rest  atomic.Int32   // how many these are
	once  sync.Once      // Close

	sync.Mutex
	Session  S            // the present one; nil before the first, and between two
	Tickets  map[string]T // by ID: all whose key or node may be at the servers
	ends     map[string]T // of these, the ones whose key or node is to go
	opening  *opening[S]
	closed   bool
	sweeping bool
}

// session is what an engine makes of one.
type session interface {
	comparable
	base() *Session
	// Live does what it needs until its end.
	Live()
	// End ends it at the servers, and with it all that is held.
	End(context.Context) error
}

// ticket is what an engine makes of one.
type ticket[S session] interface {
	comparable
	base() *Ticket[S]
}

// NewCore makes the core of a client. Open asks for a session. Erase has the servers delete what tickets have there,
// once, drops the tickets that have nothing there any more, and returns false if some are to be tried again.
func NewCore[S session, T ticket[S]](life context.Context, w *Watch, open func() (S, error), erase func([]T) bool) *Core[S, T] {
	c := &Core[S, T]{
		Watch: w, open: open, erase: erase, idle: make(chan func()), Tickets: make(map[string]T), ends: make(map[string]T),
	}
	c.Life, c.end = context.WithCancelCause(life)
	return c
}

// Close ends waits with [lease.ErrClosed], ends holds as lost ([lease.ErrClientClosed]) and gives them back, as it ends the
// session. A second call waits for the first and returns nil. What is left to do is done by last, which gets the error.
func (c *Core[S, T]) Close(ctx context.Context, last func(error) error) (err error) {
	calls.Given(ctx)
	c.once.Do(func() {
		c.Lock()
		c.closed = true
		for _, t := range c.Tickets {
			t.base().Grip.Lose(lease.ErrClientClosed)
		}
		s, none := c.Session, *new(S)
		c.Unlock()
		c.end(lease.ErrClosed)
		if s != none {
			err = s.End(ctx)
		}
		c.work.Wait()
		c.Watch.Stop()
		err = last(err)
	})
	return err
}

// mostIdle is how many goroutines of a client wait for something to do. A new one begins with a small stack, which a
// request of a driver outgrows twice; to copy it each time took a tenth of what a lock on ZooKeeper costs its client.
const mostIdle = 8

// Spawn runs f on a goroutine that Close waits for, so f has to end with the client's life or with the session.
func (c *Core[S, T]) Spawn(f func()) error {
	c.Lock()
	defer c.Unlock()
	return c.SpawnLocked(f)
}

// SpawnLocked is Spawn.
func (c *Core[S, T]) SpawnLocked(f func()) error {
	if c.closed {
		return lease.ErrClosed
	}
	select {
	case c.idle <- f:
	default:
		c.work.Go(func() { c.serve(f) })
	}
	return nil
}

// serve does f, and then what else there is to do.
func (c *Core[S, T]) serve(f func()) {
	for {
		f()
		if c.rest.Add(1) > mostIdle {
			c.rest.Add(-1)
			return
		}
		select {
		case f = <-c.idle:
			c.rest.Add(-1)
		case <-c.Life.Done():
			return
		}
	}
}

// opening is a session that is asked for.
type opening[S any] struct {
	done    chan struct{} // closed when the fields below are set
	session S
	err     error
}

// Current returns the session of the client; there is one from the first call on that needs it. All calls that need one
// wait for the same.
func (c *Core[S, T]) Current(ctx context.Context) (s S, err error) {
	c.Lock()
	if c.Session != s {
		defer c.Unlock()
		return c.Session, nil
	}
	o := c.opening
	if o == nil {
		o = &opening[S]{done: make(chan struct{})}
		if err := c.SpawnLocked(func() { c.begin(o) }); err != nil {
			c.Unlock()
			return s, err
		}
		c.opening = o
	}
	c.Unlock()
	select {
	case <-o.done:
		return o.session, o.err
	case <-ctx.Done():
		return s, calls.WhyEnded(ctx)
	}
}

// begin opens a session, and keeps it to its end.
func (c *Core[S, T]) begin(o *opening[S]) {
	s, err := c.open()
	made := err == nil
	c.Lock()
	c.opening = nil
	switch {
	case c.closed:
		err = lease.ErrClosed
	case err != nil:
	case s.base().Ctx.Err() != nil: // It has been short.
		err = context.Cause(s.base().Ctx)
	default:
		o.session, c.Session = s, s
	}
	c.Unlock()
	o.err = err
	close(o.done)
	switch {
	case err == nil:
		s.Live()
	case made:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Life), time.Second)
		defer cancel()
		_ = s.End(ctx)
	}
}
