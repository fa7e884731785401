package waitqueue

import (
	"context"
	"encoding/base64"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/notify"
	"github.com/headwaiter/headwaiter/lease"
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

	servers *conn.Servers

	numbers  atomic.Uint64 // of tickets
	floor    tokenFloor
	stats    counters
	notifier *notify.Notifier // nil: nobody looks
	renewals renewals
	ends     ends

	// Locks are taken in this order: that of a layer, the client's, a site's, and one of those that nothing is called under:
	// of the timers, the ends, the renewals, the routes, a listener, and of the work.
	mu      sync.Mutex // guards the fields below
	sites   map[string]*site
	layers  map[any]Layer
	closing bool // no new calls

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
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := newClient(o)
	if c.servers, err = connect(c.wants()); err != nil {
		c.notifier.Stop()
		return nil, err
	}
	if err := c.servers.Probe(); err != nil {
		c.shut()
		return nil, err
	}
	return &Client{c}, nil
}

func newClient(o Options) *client {
	id := uuid.New()
	c := &client{
		opts: o, id: base64.RawURLEncoding.EncodeToString(id[:]), who: names.Who(o.Name),
		born: time.Now(), sites: make(map[string]*site), layers: make(map[any]Layer), gone: make(chan struct{}),
	}
	c.renewals.client, c.ends.client = c, c
	c.ends.ready = make(map[*conn.Node]*outbox)
	c.notifier = notify.New(o.Observer, o.Log, o.HeldTooLong, c.who)
	return c
}

// wants is what the client wants of its connections.
func (c *client) wants() conn.Options {
	return conn.Options{
		Redis: c.opts.Redis, Prefix: c.opts.Prefix, ID: c.id, Linger: c.opts.Linger, WithoutSkip: c.opts.WithoutSkip,
		Hear: c.told, Flush: c.renewals.flush,
	}
}

// ServerTime returns what the clock of the server that has a name shows now, as far as the last reply tells: to within
// half a round trip, and a thousandth of the time since. It asks nothing, and is the local time if there was no reply.
func (c *Client) ServerTime(name string) time.Time {
	if now, ok := c.servers.Now("{" + name + "}"); ok {
		return now
	}
	return time.Now()
}

// ID returns the identity of the client, which its tickets begin with.
func (c *Client) ID() string { return c.id }

// enter returns the site of a queue with a new ticket in it, known before anything is sent (R8).
func (c *client) enter(ctx context.Context, q *binding, t *ticket) (*site, error) {
	s, err := c.register(q, t)
	if err == nil {
		t.asked(ctx)
	}
	return s, err
}

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
	return s, nil
}

// siteLocked returns the site of a queue, which it makes if there is none.
func (c *client) siteLocked(q *binding) *site {
	s := c.sites[q.keys.Site]
	if s == nil {
		s = newSite(c, q)
		c.sites[q.keys.Site] = s
	}
	return s
}

// newTicket makes the ticket of one call.
func (q *binding) newTicket() *ticket {
	t := &ticket{queue: q, place: -1, arrival: q.terms.Arrival}
	t.takes = min(q.client.opts.GrantLease.Truncate(time.Millisecond), t.lease())
	t.number()
	return t
}

// ticketFor makes a ticket of a call, on behalf of the owner that its context names where holds can be entered.
func (q *binding) ticketFor(ctx context.Context) *ticket {
	t := q.newTicket()
	if q.nesting == Reenters {
		t.owner = ownerOf(ctx)
	}
	return t
}
