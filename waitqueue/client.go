package waitqueue

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/identity"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/outside"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// A Client is a *headwaiter.Client as a primitive sees it: one converts to the other.
type Client struct{ *client }

// client is what a client knows. Its parts know it, and not the calls of users.
type client struct {
	opts Options
	name atomic.Pointer[string] // [Client.ID], as its tickets begin
	who  string
	born time.Time
	made string // server µs when it was made, or a round trip before that at the most

	servers  *conn.Servers
	identity *identity.Identity // nil: it has none

	numbers  atomic.Uint64 // of tickets
	minToken conn.Peak     // the highest token seen
	stats    notify.Counters
	notifier *notify.Notifier // nil: nobody looks
	renewals renewals
	looks    looks
	ends     outbox[sender]
	kept     kept // holds that no call uses

	// Locks are taken in this order: the client's, an entry's mu, its act, and one of those that nothing is called under: of the
	// timers, the ends, the kept holds, the renewals and looks that are due, the routes, a listener, and of the work.
	mu      sync.Mutex // guards the fields below
	entries map[string]use
	closing bool // no new calls

	gone chan struct{} // closed when Close is over
}

// Dial is headwaiter.Dial.
func Dial(o Options) (*Client, error) {
	return made(o, conn.Dial)
}

// New is headwaiter.New.
func New(rc rueidis.Client, o Options) (*Client, error) {
	return made(o, func(o conn.Options) (*conn.Servers, error) { return conn.On(rc, o), nil })
}

// made makes a client, with the connections that connect makes, and probes the server.
func made(o Options, connect func(conn.Options) (*conn.Servers, error)) (*Client, error) {
	o, err := defaults(o)
	if err != nil {
		return nil, err
	}
	w := wires(o)
	c := &client{
		opts: o, who: names.Who(o.Name), born: time.Now(), entries: make(map[string]use), gone: make(chan struct{}),
	}
	c.notifier = notify.New(o.Observer, o.Log, o.HeldTooLong, o.WaitedTooLong, c.who)
	w.Who = lua.Introduction(c.who, o.Identity, o.Invocation)
	w.Hear, w.Flush, w.Requests = c.onMessage, c.flush, c.notifier.Requests("redis")
	w.Copied = c.copied
	w.TwoMasters = func(err error) {
		c.stats.TwoMasters.Add(1)
		c.notifier.TwoMasters(err)
	}
	if c.servers, err = connect(w); err != nil {
		c.notifier.Stop()
		return nil, conn.Undialled(err)
	}
	id := c.servers.ID()
	c.name.Store(&id)
	if o.Identity != "" {
		c.identity = identity.New(c.servers, identity.Options{
			Name: o.Identity, Invocation: o.Invocation, Who: c.who, Prefix: o.Prefix, Replaced: c.replaced, Died: c.died,
		})
	}
	c.looks.client = c
	c.renewals.servers, c.renewals.sent = c.servers, &c.stats.Renewals
	c.ends.spawn = c.servers.Spawn
	c.ends.sendAll = func(to *conn.Node, batch []*sender) {
		all := make([]request, len(batch))
		for i, d := range batch {
			all[i] = d
		}
		c.send(to, all)
	}
	if err := c.servers.Probe(calls.TryTime); err != nil {
		c.shut()
		return nil, conn.Undialled(err)
	}
	c.made = c.servers.NodeOf("").Attempt(0).NotAfter
	c.servers.Introduce()
	if err := c.identity.Take(); err != nil {
		c.shut()
		return nil, err
	}
	return &Client{c}, nil
}

// ServerTime estimates the clock of the server that has a name, by the last reply: to within half a round trip, and a
// thousandth of the time since. It sends nothing, and is the local time if there was no reply.
func ServerTime(c *Client, name string) time.Time {
	if now, ok := c.servers.Now("{" + name + "}"); ok {
		return now
	}
	return time.Now()
}

// ID returns the identity of the client, which its tickets begin with. [Client.Restored] draws another one.
func (c *Client) ID() string { return c.id() }

func (c *client) id() string { return *c.name.Load() }

// entry returns the entry of a key's name, nil if nothing uses it.
func (c *client) entryOf(key string) use {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[key]
}

// useLocked notes that the client uses a name.
func (c *client) useLocked(u use) {
	c.entries[u.at().keys.Entry] = u
	c.servers.Used(true)
}

// Stats returns what the client has done since it was made.
func (c *Client) Stats() observe.Stats {
	s := c.stats.Now()
	s.Subscribes = c.servers.Subscribes.Load()
	return s
}

// Above makes all later tokens of the client's acquire requests, and of its hand-offs, larger than this one. It is for
// primitives on several servers, whose tokens have to agree.
func Above(c *Client, token uint64) { c.minToken.Raise(token) }

// nonce is what a ping carries: a text that nothing else has.
func (c *client) nonce() string { return strconv.FormatUint(c.numbers.Add(1), 10) }

// onMessage takes in a message on the client's own channel. It runs on the reader of the connection.
func (c *client) onMessage(text string) {
	c.stats.Messages.Add(1)
	m, err := wire.ParseMessage(text)
	if err != nil || m.Kind != wire.MessageForced {
		c.stats.Forged.Add(1)
		return
	}
	if s := c.entryOf(m.Lock); s != nil {
		s.forced(m.Ticket)
	}
}

// highest is the highest token seen, for scripts to rise above (I2).
func (c *client) highest() string { return strconv.FormatUint(c.minToken.Load(), 10) }

// Wiring is how a client reaches its servers outside the protocol. It is for packages doctor and inspect, which look at
// them.
type Wiring = outside.Wiring

// WiringOf returns how a client reaches its servers, or [lease.ErrClosed].
func WiringOf(c *Client) (Wiring, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return Wiring{}, lease.ErrClosed
	}
	return outside.Of(c.servers, c.servers.Owned()), nil
}

// Wire is the wiring of a client that [Dial] would make, also where Dial refuses the server. The caller ends it.
func Wire(o Options) (w Wiring, end func(), err error) {
	if o, err = defaults(o); err != nil {
		return Wiring{}, nil, err
	}
	return outside.Peek(wires(o))
}

// wires are the options of connections for a client that reports nothing.
func wires(o Options) conn.Options {
	return conn.Options{
		Redis: o.Redis, Prefix: o.Prefix, ID: newIdentity(), Linger: o.Linger,
		WithoutSkip: o.WithoutSkip || o.WithoutSubscribe, WithoutSubscribe: o.WithoutSubscribe, WithoutHello: o.WithoutHello,
		Flush: func() {},
	}
}
