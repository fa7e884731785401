package waitqueue

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/outside"
	"github.com/headwaiter/headwaiter/internal/renewals"
	"github.com/headwaiter/headwaiter/internal/terms"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// A Client is one instance of the library: an identity, its connections, and what it holds and waits for.
// It is safe for use by several goroutines; a process usually has one for each Redis.
type Client struct{ *client }

// client is what a client knows. Its parts know it, and not the calls of users.
type client struct {
	opts Options
	id   string // random, 128 bits: no two clients ever re-enter each other's locks
	who  string
	born time.Time

	again timers.Timer // says who again: see introduce

	servers *conn.Servers

	numbers  atomic.Uint64 // of tickets
	floor    tokenFloor
	stats    notify.Counters
	notifier *notify.Notifier // nil: nobody looks
	renewals renewals.Renewals
	ends     outbox.Outbox[end]

	// Locks are taken in this order: that of a layer, the client's, a site's, and one of those that nothing is called under:
	// of the timers, the ends, the renewals, the routes, a listener, and of the work.
	mu      sync.Mutex // guards the fields below
	sites   map[string]*site
	layers  map[any]Layer
	closing bool      // no new calls
	said    time.Time // when who was said last

	gone chan struct{} // closed when Close is over
}

// Dial connects to Redis and returns a client that owns its connections: one for commands, one for
// renewals, and one that subscribes once it is needed. It checks that the server allows what the protocol
// does, and says what is missing and which setting gives it.
func Dial(o Options) (*Client, error) {
	return made(o, conn.Dial)
}

// New makes a client on the caller's connections, which Close leaves open. The options that rc was made
// with should have DisableCache set; one connection (PipelineMultiplex -1) saves repeating requests that
// may overtake each other. o.Redis is not used.
func New(rc rueidis.Client, o Options) (*Client, error) {
	return made(o, func(o conn.Options) (*conn.Servers, error) { return conn.On(rc, o), nil })
}

// made makes a client, with the connections that connect makes, and probes the server.
func made(o Options, connect func(conn.Options) (*conn.Servers, error)) (*Client, error) {
	o, err := terms.Defaults(o)
	if err != nil {
		return nil, err
	}
	c := newClient(o)
	if c.servers, err = connect(c.wants()); err != nil {
		c.notifier.Stop()
		return nil, err
	}
	c.renewals.Servers = c.servers
	c.ends.Spawn = c.servers.Spawn
	c.ends.Send = func(to *conn.Node, batch []*end) { c.send(to, nil, batch) }
	if err := c.servers.Probe(); err != nil {
		c.shut()
		return nil, err
	}
	c.introduce()
	return &Client{c}, nil
}

func newClient(o Options) *client {
	id := uuid.New()
	c := &client{
		opts: o, id: base64.RawURLEncoding.EncodeToString(id[:]), who: names.Who(o.Name),
		born: time.Now(), sites: make(map[string]*site), layers: make(map[any]Layer), gone: make(chan struct{}),
	}
	c.renewals.Sent = &c.stats.Renewals
	c.again.Target = timers.Func(c.sayAgain)
	c.notifier = notify.New(o.Observer, o.Log, o.HeldTooLong, o.WaitedTooLong, c.who)
	return c
}

// wants is what the client wants of its connections.
func (c *client) wants() conn.Options {
	return conn.Options{
		Redis: c.opts.Redis, Prefix: c.opts.Prefix, ID: c.id, Linger: c.opts.Linger,
		WithoutSkip: c.opts.WithoutSkip || c.opts.WithoutSubscribe, WithoutSubscribe: c.opts.WithoutSubscribe,
		Hear: c.told, Flush: c.renewals.Flush, Requests: c.notifier.Requests("redis"),
	}
}

// ServerTime returns what the clock of the server that has a name shows now, as far as the last reply tells: to within
// half a round trip, and a thousandth of the time since. It asks nothing, and is the local time if there was no reply.
func ServerTime(c *Client, name string) time.Time {
	if now, ok := c.servers.Now("{" + name + "}"); ok {
		return now
	}
	return time.Now()
}

// ID returns the identity of the client, which its tickets begin with.
func (c *Client) ID() string { return c.id }

// register returns the site of a queue with a new ticket in it.
func (c *client) register(q *binding, t *ticket) (*site, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, lease.ErrClosed
	}
	s := c.siteLocked(q)
	s.mu.Lock()
	t.site = s
	s.tickets[t.text] = t
	s.used = time.Now()
	s.mu.Unlock()
	if q.terms.History > 0 {
		s.history.Store(int32(q.terms.History))
	}
	return s, nil
}

// known returns the site that is found by a key, if there is one.
func (c *client) known(key string) *site {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sites[key]
}

// siteLocked returns the site of a queue, which it makes if there is none.
func (c *client) siteLocked(q *binding) *site {
	s := c.sites[q.keys.Site]
	if s == nil {
		s = newSite(c, q)
		c.sites[q.keys.Site] = s
		c.servers.Timers.Before(&c.again, c.said.Add(whoEvery))
	}
	return s
}

// newTicket makes the ticket of one call, on behalf of the owner that its context names where holds can be entered.
func (q *binding) newTicket(ctx context.Context) *ticket {
	t := &ticket{
		queue: q, place: -1, arrival: q.terms.Arrival, bound: q.terms.Bound(ctx), teller: q.client.notifier.Teller(q.proto.Kind, q.name),
	}
	if q.nesting == Reenters {
		t.owner = ownerOf(ctx)
	}
	t.takes = min(q.client.opts.GrantLease.Truncate(time.Millisecond), t.lease())
	t.number()
	return t
}

// Options is what a client needs to know. Only Redis.InitAddress must be set.
type Options = terms.Options

// minLifetime: less would not outlive a server that is away for a while.
const minLifetime = time.Minute

// CheckLifetime is why something cannot be kept for d after its last use, if it cannot.
func CheckLifetime(d time.Duration) error {
	if d < minLifetime || d > lease.MaxLease {
		return fmt.Errorf("%w: a lifetime of %v must be from %v to %v", lease.ErrInvalid, d, minLifetime, lease.MaxLease)
	}
	return nil
}

// Stats counts what a client has done since it was made.
type Stats = observe.Stats

// Stats returns the counters as they are now.
func (c *Client) Stats() Stats {
	s := c.stats.Now()
	s.Subscribes = c.servers.Subscribes.Load()
	return s
}

// raise keeps the highest token seen, for scripts to rise above (I2).
func (c *client) raise(token uint64) { c.floor.raise(token) }

// Above lets the tokens of what the client asks for, and of what it hands on, be larger than this one from now on. It
// is for primitives on several servers, whose tokens are to agree.
func Above(c *Client, token uint64) { c.raise(token) }

// highest is the highest token seen, for scripts.
func (c *client) highest() string { return strconv.FormatUint(c.floor.Load(), 10) }

// A tokenFloor is the highest token seen.
type tokenFloor struct{ atomic.Uint64 }

func (f *tokenFloor) raise(token uint64) {
	for {
		seen := f.Load()
		if token <= seen || f.CompareAndSwap(seen, token) {
			return
		}
	}
}

// Wiring is how a client reaches its servers beside the protocol. It is for packages doctor and
// inspect, which look at them.
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
	if o, err = terms.Defaults(o); err != nil {
		return Wiring{}, nil, err
	}
	c := newClient(o)
	var hangUp func()
	if c.servers, hangUp, err = conn.Peek(c.wants()); err != nil {
		c.notifier.Stop()
		return Wiring{}, nil, err
	}
	_ = c.servers.Probe() // It says again what Dial did, and finds out whether channels are sharded.
	return outside.Of(c.servers, true), func() {
		hangUp()
		c.notifier.Stop()
	}, nil
}

// What operators are told of a client is in a key of the client, and not in all that it holds and waits for. Nothing
// else depends on it: where the key is missing, they are told the client's id.

const (
	// whoEvery is how often a client says who it is while it uses a name.
	whoEvery = 20 * time.Second
	// whoLasts is how long that is known.
	whoLasts = time.Minute
)

// introduce says who the client is. An answer makes no difference.
func (c *client) introduce() {
	c.mu.Lock()
	c.said = time.Now()
	c.mu.Unlock()
	key := lua.ClientKey(c.opts.Prefix, c.id)
	_ = c.servers.Run(lua.Introduce, []string{key}, c.who, strconv.FormatInt(whoLasts.Milliseconds(), 10)).Error()
}

// sayAgain says it again while the client uses a name.
func (c *client) sayAgain(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sites) > 0 {
		c.servers.Spawn(c.introduce)
		c.servers.Timers.Before(&c.again, now.Add(whoEvery))
	}
}
