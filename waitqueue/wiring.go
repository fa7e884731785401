package waitqueue

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
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

	client *Client
}

// Wiring returns how the client reaches its servers, or [lease.ErrClosed].
func (c *Client) Wiring() (Wiring, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return Wiring{}, lease.ErrClosed
	}
	return c.wiring(c.sockets != nil), nil
}

func (c *Client) wiring(own bool) Wiring {
	w := Wiring{Redis: c.side, Own: own, Prefix: c.opts.Prefix, Sharded: c.sharded, Plain: c.plain, Skips: c.counted() == "1", client: c}
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
	var made sockets
	rc, err := rueidis.NewClient(sideOption(o.Redis, &made))
	if err != nil {
		return Wiring{}, nil, err
	}
	c := newClient(rc, rc, o)
	_ = c.probe() // It says again what Dial did, and finds out whether channels are sharded.
	return c.wiring(true), func() {
		c.shut()
		made.close() // First: rueidis waits for the answer of a server that does not give one.
		rc.Close()
	}, nil
}

// Dial connects to one server, with what the client's own connections were made with. The caller ends it. It ends by
// itself when ctx does.
func (w Wiring) Dial(ctx context.Context, address string) (rc rueidis.Client, end func(), err error) {
	o := w.Made
	o.InitAddress, o.ForceSingleClient = []string{address}, true
	o.Sentinel, o.Standalone = rueidis.SentinelOption{}, rueidis.StandaloneOption{}
	o.ReplicaOnly, o.SendToReplicas = false, nil
	var made sockets
	stop := context.AfterFunc(ctx, made.close)
	if rc, err = rueidis.NewClient(sideOption(o, &made)); err != nil {
		stop()
		return nil, nil, err
	}
	return rc, func() {
		made.close() // First: rueidis waits for the answer of a server that does not give one.
		rc.Close()
		stop()
	}, nil
}

// Missing asks the server of the locks which rights the user lacks: they may have changed since the client was made.
func (w Wiring) Missing(ctx context.Context) ([]string, error) {
	c := w.client
	keys := lua.Fairlock.Keys(c.opts.Prefix, "probe:"+c.id)
	res := c.runUntil(ctx, c.routes.of(keys.Lock), lua.Probe, keys.All(), []string{keys.Channel(c.id)})
	fields, err := res.ToArray()
	if err != nil || len(fields) != 2 {
		return nil, err
	}
	return fields[1].AsStrSlice()
}
