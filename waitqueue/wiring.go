package waitqueue

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/lease"
)

// Wiring is how a client reaches its servers beside the protocol. It is for packages doctor and
// inspect, which look at them.
type Wiring struct {
	Redis   rueidis.Client       // for commands that are no requests of the protocol
	Made    rueidis.ClientOption // what its connections were made with; nothing where they are not its own
	Own     bool                 // the connections are its own
	Prefix  string               // of all keys
	Sharded bool                 // the wake channels are sharded
	Plain   bool                 // they are not, although it is a cluster
	Skips   bool                 // dead waiters are skipped, as subscribers are counted

	client *client
}

// Wiring returns how the client reaches its servers, or [lease.ErrClosed].
func (c *Client) Wiring() (Wiring, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return Wiring{}, lease.ErrClosed
	}
	return wiringOf(c.client, c.servers.Owned()), nil
}

func wiringOf(c *client, own bool) Wiring {
	w := Wiring{Redis: c.servers.Side, Own: own, Prefix: c.opts.Prefix, Sharded: c.servers.Sharded, Plain: c.servers.Plain, Skips: c.servers.Counted() == "1", client: c}
	if own {
		w.Made = c.opts.Redis
	}
	return w
}

// Wire is the wiring of a client that [Dial] would make, also where Dial refuses the server. The caller ends it.
func Wire(o Options) (w Wiring, end func(), err error) {
	if o, err = o.withDefaults(); err != nil {
		return Wiring{}, nil, err
	}
	c := newClient(o)
	var hangUp func()
	if c.servers, hangUp, err = conn.Peek(c.wants()); err != nil {
		c.notifier.Stop()
		return Wiring{}, nil, err
	}
	_ = c.servers.Probe() // It says again what Dial did, and finds out whether channels are sharded.
	return wiringOf(c, true), func() {
		hangUp()
		c.notifier.Stop()
	}, nil
}

// Dial connects to one server, with what the client's own connections were made with. The caller ends it. It ends by
// itself when ctx does.
func (w Wiring) Dial(ctx context.Context, address string) (rc rueidis.Client, end func(), err error) {
	return conn.DialOne(ctx, w.Made, address)
}

// Missing asks the server of the locks which rights the user lacks: they may have changed since the client was made.
func (w Wiring) Missing(ctx context.Context) ([]string, error) { return w.client.servers.Missing(ctx) }
