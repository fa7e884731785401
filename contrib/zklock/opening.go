package zklock

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/headwaiter/headwaiter/internal/engine"
)

// open asks for a session.
func (c *Client) open() (*session, error) { return c.connect(c.core.Life, true) }

// connect returns a session when the servers have given one, or an error when they refuse or ctx ends.
func (c *Client) connect(ctx context.Context, told bool) (*session, error) {
	s := &session{
		Session: engine.NewSession(c.core.Life), client: c, cable: newCable(&c.opts, c.core.Watch),
		first: make(chan struct{}), ended: make(chan struct{}), watches: make(map[string]*watch),
	}
	conn, events, err := zk.Connect(c.opts.Servers, c.opts.Lease, zk.WithDialer(s.cable.dial), zk.WithHostProvider(s.cable),
		zk.WithEventCallback(s.event), zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	s.conn = conn
	go func() { // Whoever stops the session waits for it.
		defer close(s.ended)
		for range events { // They are told to s.event. The channel is closed when all has ended.
		}
	}()
	if told {
		c.core.Lock()
		c.cable = s.cable
		c.core.Unlock()
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
		case s.Ctx.Err() != nil:
			return context.Cause(s.Ctx)
		case err != nil:
			return advise(err, "the identity of scheme "+a.Scheme)
		}
	}
	return nil
}
