package waitqueue

import (
	"context"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/identity"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// enter sees that the servers know that the client may have something of the name, before the first request about it. Only a
// client with an identity does that.
func (s *entry) enter(ctx context.Context) error {
	if s.client.identity == nil || s.proto.Bury == nil {
		return nil
	}
	return s.client.identity.Enter(ctx, s.keys, int(s.history.Load()))
}

// leave notes that the client has nothing of the name any more.
func (s *entry) leave() {
	if s.proto.Bury != nil {
		s.client.identity.Leave(s.keys)
	}
}

// replaced ends all that the client holds and waits for, because another client has its identity.
func (c *client) replaced(id string) {
	c.mu.Lock()
	if c.closing || c.id() != id {
		c.mu.Unlock()
		return
	}
	entries := c.entries
	c.entries = make(map[string]use)
	c.servers.Used(false)
	c.mu.Unlock()
	for _, s := range entries {
		s.at().abandon(lease.ErrReplaced)
	}
	c.stats.Replaced.Add(1)
	c.notifier.Replaced()
}

// died takes in what the burial of an earlier client has ended.
func (c *client) died(b identity.Buried) {
	c.stats.Died.Add(uint64(len(b.Tickets)))
	if w := c.notifier; w != nil {
		w.Tell(context.Background(), observe.Observation{Event: observe.Died, Kind: b.Kind, Name: b.Name, Count: len(b.Tickets)})
	}
}

// A Burial is what [Client.Bury] has ended at one name.
type Burial struct {
	Kind  string // of the primitive, as in its keys
	Name  string
	Holds int // or parties at a barrier
}

// Bury is headwaiter's Client.Bury.
func (c *Client) Bury(ctx context.Context, name, invocation string) (ended []Burial, found bool, err error) {
	calls.Given(ctx)
	if err := identifies(name); err != nil {
		return nil, false, err
	}
	found, err = identity.Bury(ctx, c.servers, c.opts.Prefix, name, invocation, func(b identity.Buried) {
		c.died(b)
		ended = append(ended, Burial{b.Kind, b.Name, len(b.Tickets)})
	})
	return ended, found, err
}
