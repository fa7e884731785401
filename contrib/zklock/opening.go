package zklock

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/lease"
)

// current returns the session of the client; there is one from the first call on that needs it.
func (c *Client) current(ctx context.Context) (*session, error) {
	c.mu.Lock()
	if s := c.session; s != nil {
		c.mu.Unlock()
		return s, nil
	}
	o := c.opening
	if o == nil {
		o = engine.NewOpening[*session]() // All calls that need one wait for the same.
		if err := c.spawnLocked(func() { c.open(o) }); err != nil {
			c.mu.Unlock()
			return nil, err
		}
		c.opening = o
	}
	c.mu.Unlock()
	return o.Wait(ctx)
}

// open asks for a session, and keeps it to its end.
func (c *Client) open(o *engine.Opening[*session]) {
	s, err := c.connect(c.life, true)
	var opened *session
	c.mu.Lock()
	c.opening = nil
	switch {
	case c.closed:
		err = lease.ErrClosed
	case err != nil:
	case s.ctx.Err() != nil: // It has been short.
		err = context.Cause(s.ctx)
	default:
		opened, c.session = s, s
	}
	c.mu.Unlock()
	o.Settle(opened, err)
	switch {
	case opened != nil:
		s.live()
	case s != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.life), time.Second)
		defer cancel()
		_ = s.close(ctx)
	}
}

// connect returns a session when the servers have given one, or an error when they refuse or ctx ends.
func (c *Client) connect(ctx context.Context, told bool) (*session, error) {
	s := &session{
		client: c, cable: newCable(&c.opts, c.watch), first: make(chan struct{}), ended: make(chan struct{}),
		changed: make(chan struct{}), watches: make(map[string]*watch),
	}
	s.ctx, s.die = context.WithCancelCause(c.life)
	conn, events, err := zk.Connect(c.opts.Servers, c.opts.Lease, zk.WithDialer(s.cable.dial), zk.WithHostProvider(s.cable),
		zk.WithEventCallback(s.event), zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	s.conn = conn
	c.work.Go(func() {
		defer close(s.ended)
		for range events { // They are told to s.event. The channel is closed when all has ended.
		}
	})
	if told {
		c.mu.Lock()
		c.cable = s.cable
		c.mu.Unlock()
	}
	select {
	case <-s.first:
		err = s.authenticate(ctx)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// quiet logs nothing: what matters is in the errors.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// authenticate proves who the client is. On later connections the library does it again by itself.
func (s *session) authenticate(ctx context.Context) error {
	for _, a := range s.client.opts.Auth {
		stop := context.AfterFunc(ctx, s.cable.end) // Nothing else ends a request.
		_, err := repeat(s.cable.ctx, s.cable.ctx, func() error { return s.conn.AddAuth(a.Scheme, a.Secret) })
		stop()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case err != nil:
			return advise(err, "the identity of scheme "+a.Scheme)
		}
	}
	return nil
}
