package waitqueue

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/names"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// A Client is one instance of the library: an identity, its connections, and what it holds and waits for.
// It is safe for use by several goroutines; a process usually has one for each Redis.
type Client struct {
	opts Options
	id   string // random, 128 bits: no two clients ever re-enter each other's locks
	who  string
	born time.Time
	own  string // the channel on which it hears of its holds, whatever their names

	commands rueidis.Client // asks, ends and checks, in the order of their sending (R1)
	side     rueidis.Client // renewals, so that they never queue behind asks, and the listener's connection

	sockets *sockets // of the commands; nil if the connections are not the client's own
	hearing *sockets // of renewals and the listeners

	routes  *routes
	sharded bool        // channels are sharded
	plain   bool        // it is a cluster, and they are not
	uncount atomic.Bool // nobody can count subscribers

	numbers  atomic.Uint64 // of tickets
	floor    tokenFloor
	stats    counters
	timers   *timers.Timers
	watch    *watch  // nil: nobody looks
	log      *logger // nil: nobody reads
	renewals renewals
	vouchers vouchers
	ends     ends

	life context.Context // ends when everything in the background is to stop
	kill context.CancelFunc
	// patient is the context of requests that no call's context ends. It never ends where they end with the client's own
	// connections, which costs less; else with its life.
	patient context.Context

	// Locks are taken in this order: the client's, a site's, and one of those that nothing is called under:
	// of the timers, the ends, the renewals, the routes, a listener, and of the work.
	mu      sync.Mutex // guards the fields below
	sites   map[string]*site
	closing bool // no new calls

	gone   chan struct{}  // closed when Close is over
	workMu sync.Mutex     // guards closed
	closed bool           // no new work in the background
	work   sync.WaitGroup // what runs in the background
}

// Dial connects to Redis and returns a client that owns its connections: one for commands, one for
// renewals, and one that subscribes once it is needed. It checks that the server allows what the protocol
// does, and says what is missing and which setting gives it.
func Dial(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	var speaking, hearing sockets
	commands, err := rueidis.NewClient(commandOption(o.Redis, &speaking))
	if err != nil {
		return nil, unconnected(o.Redis, err)
	}
	beside := sideOption(o.Redis, &hearing)
	if commands.Mode() == rueidis.ClientModeStandalone {
		beside.ForceSingleClient = true // It has been asked whether it is a cluster.
	}
	side, err := rueidis.NewClient(beside)
	if err != nil {
		commands.Close()
		return nil, unconnected(o.Redis, err)
	}
	c := newClient(commands, side, o)
	c.sockets, c.hearing = &speaking, &hearing
	speaking.tell(c.routes.unconnected)
	if err := c.probe(); err != nil {
		c.shut()
		return nil, err
	}
	return c, nil
}

// unconnected says why there is no connection, and what to look at where the error itself does not tell.
func unconnected(o rueidis.ClientOption, err error) error {
	hint := ""
	switch {
	case o.Sentinel.MasterSet != "" && strings.Contains(err.Error(), "unknown command"):
		hint = " (these should be sentinels)"
	case strings.Contains(err.Error(), "'cluster|"):
		hint = " (a cluster; the user needs " + clusterRights + ")"
	case o.TLSConfig != nil && errors.Is(err, context.DeadlineExceeded):
		hint = " (does the port speak TLS?)"
	}
	return fmt.Errorf("headwaiter: connect to %v%s: %w", o.InitAddress, hint, advise(err))
}

// New makes a client on the caller's connections, which Close leaves open. The options that rc was made
// with should have DisableCache set; one connection (PipelineMultiplex -1) saves repeating requests that
// may overtake each other. o.Redis is not used.
func New(rc rueidis.Client, o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	c := newClient(rc, rc, o)
	c.patient = c.life
	if err := c.probe(); err != nil {
		c.shut()
		return nil, err
	}
	return c, nil
}

func newClient(commands, side rueidis.Client, o Options) *Client {
	var id [16]byte
	_, _ = rand.Read(id[:]) // It never fails.
	c := &Client{
		opts: o, id: base64.RawURLEncoding.EncodeToString(id[:]), who: names.Who(o.Name),
		born: time.Now(), commands: commands, side: side,
		sites: make(map[string]*site), gone: make(chan struct{}),
	}
	c.own = lua.ClientChannel(o.Prefix, c.id)
	c.life, c.kill = context.WithCancel(context.Background())
	c.patient = context.Background()
	c.renewals.client, c.ends.client, c.vouchers.client = c, c, c
	c.vouchers.pending = make(map[voucherKey][]*vouchee)
	c.ends.ready = make(map[*node][]*departure)
	c.routes = newRoutes(c)
	c.timers = timers.New(c.renewals.flush)
	c.log = newLogger(o.Log)
	c.watch = newWatch(o, c.log, c.who)
	return c
}

const (
	// answerTime is how long a command may take before its connection counts as broken. Together with
	// keepAlive it bounds how long a call depends on a server that does not answer.
	answerTime = 2 * time.Second
	// keepAlive is how often an idle connection is asked whether it lives.
	keepAlive = time.Second
	// askSentinels is how often the sentinels are asked for the master, in case their news of a failover does not
	// come.
	askSentinels = time.Second
	// buffers of a connection: scripts and messages are short.
	bufferBytes = 32 << 10
)

// commandOption sets what the protocol needs of the connection for commands.
func commandOption(o rueidis.ClientOption, s *sockets) rueidis.ClientOption {
	o.DialCtxFn, o.DialFn = s.dialer(o), nil
	o.PipelineMultiplex = -1 // One connection a node keeps requests in order (R1).
	o.DisableCache = true
	o.DisableRetry = true  // Repeats are this package's own: it knows which request may run twice.
	o.BlockingPipeline = 0 // The default is above every batch here: a batch stays on the connection, too.
	if o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = answerTime
	}
	if o.Dialer.KeepAlive == 0 {
		o.Dialer.KeepAlive = keepAlive
	}
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = answerTime
	}
	if o.Sentinel.MasterSet != "" && o.Sentinel.TopologyRefreshInterval == 0 {
		o.Sentinel.TopologyRefreshInterval = askSentinels
	}
	if o.ReadBufferEachConn == 0 {
		o.ReadBufferEachConn = bufferBytes
	}
	if o.WriteBufferEachConn == 0 {
		o.WriteBufferEachConn = bufferBytes
	}
	return o
}

// sideOption is for renewals and subscriptions, which must notice a half-open connection soon.
func sideOption(o rueidis.ClientOption, s *sockets) rueidis.ClientOption {
	o = commandOption(o, s)
	o.ConnWriteTimeout = min(o.ConnWriteTimeout, time.Second)
	o.Dialer.KeepAlive = min(o.Dialer.KeepAlive, keepAlive)
	return o
}

// ServerTime returns what the clock of the server that has a name shows now, as far as the last reply tells: to within
// half a round trip, and a thousandth of the time since. It asks nothing, and is the local time if there was no reply.
func (c *Client) ServerTime(name string) time.Time {
	n := c.routes.of("{" + name + "}")
	for _, clock := range []*serverClock{&n.clock, &c.routes.only.clock} {
		if now, ok := clock.about(); ok {
			return now
		}
	}
	return time.Now()
}

// ID returns the identity of the client, which its tickets begin with.
func (c *Client) ID() string { return c.id }

// spawn runs f in the background, and reports whether it does: not after the client was closed.
func (c *Client) spawn(f func()) bool {
	c.workMu.Lock()
	defer c.workMu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// raise keeps the highest token seen, for scripts to rise above (I2).
func (c *Client) raise(token uint64) { c.floor.raise(token) }

// Above lets the tokens of what the client asks for, and of what it hands on, be larger than this one from now on. It
// is for primitives on several servers, whose tokens are to agree.
func (c *Client) Above(token uint64) { c.raise(token) }

// enter returns the site of a queue with a new ticket in it, known before anything is sent (R8).
func (c *Client) enter(ctx context.Context, q Queue, t *ticket) (*site, error) {
	s, err := c.register(q, t)
	if err == nil {
		t.asked(ctx)
	}
	return s, err
}

func (c *Client) register(q Queue, t *ticket) (*site, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, lease.ErrClosed
	}
	s := c.site(q)
	s.mu.Lock()
	t.site = s
	s.tickets[t.text] = t
	s.used = time.Now()
	s.mu.Unlock()
	return s, nil
}

// site returns the site of a queue, which it makes if there is none. c.mu is held.
func (c *Client) site(q Queue) *site {
	s := c.sites[q.keys.Site]
	if s == nil {
		s = newSite(c, q)
		c.sites[q.keys.Site] = s
	}
	return s
}

// newTicket makes the ticket of one call.
func (q Queue) newTicket() *ticket {
	t := &ticket{queue: q, place: -1, arrival: q.terms.Arrival}
	t.takes = min(q.client.opts.GrantLease.Truncate(time.Millisecond), t.lease())
	t.number()
	return t
}

// ticketFor makes a ticket of a call, on behalf of the owner that its context names where holds can be entered.
func (q Queue) ticketFor(ctx context.Context) *ticket {
	t := q.newTicket()
	if q.nesting == Reenters {
		t.owner = ownerOf(ctx)
	}
	return t
}
