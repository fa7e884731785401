// Package conn is all that knows rueidis: the servers that a client talks to, its connections to them, and the scripts
// that it sends. It knows nothing of queues. A [Subscriber] listens on a channel.
//
// Callbacks on the reader of a connection never block. What runs in the background is waited for by [Servers.Close].
package conn

import (
	"cmp"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
)

// Options are what a client wants of its connections.
type Options struct {
	Redis            rueidis.ClientOption
	Prefix           string               // of all keys and channels
	ID               string               // of the client
	Who              string               // the client, for operators
	Linger           time.Duration        // how long the client's own channel stays subscribed to after its last use
	WithoutSkip      bool                 // nobody can count subscribers
	WithoutSubscribe bool                 // the client has no subscriptions
	WithoutHello     bool                 // connections begin with no HELLO, and with nothing else that proxies may not know
	Hear             func(message string) // told of what comes on the client's own channel, on the reader of a connection
	Flush            func()               // called after all timers that were due at one moment
	// Copied is told that another client has this identity, because its process was copied. Nothing is sent until the
	// client has another one.
	Copied func(id string)
	// TwoMasters is told that two connections of the client see two masters with different data, at most once for each
	// new connection; nil if nobody wants to know.
	TwoMasters func(error)
	// Requests, if not nil, is told how each round trip to a server went, with nil as the error if it was answered.
	Requests func(server string, took time.Duration, err error)
}

// Servers are the servers that a client talks to, and its connections to them: one for commands, one for renewals, and
// one for each node that it listens to. What it runs in the background ends with it.
type Servers struct {
	opts Options
	name string                 // of the server where there is one; of Sentinel the master set
	id   atomic.Pointer[string] // the identity of the client

	commands rueidis.Client // asks, ends and checks, in the order of their sending (R1)
	Side     rueidis.Client // renewals, so that they never wait for asks, and the listener's connection

	sockets *sockets // of the commands; nil if the connections are not the client's own
	hearing *sockets // of renewals and the listeners

	onces            onces
	routes           *routes
	acknowledgements acknowledgements
	masters          masters
	links            links
	guard            guard // nil: the client has no identity
	Timers           *timers.Timers
	Sharded          bool        // channels are sharded
	Plain            bool        // it is a cluster, and they are not
	uncount          atomic.Bool // nobody can count subscribers

	Subscribes atomic.Uint64 // channels subscribed to, again ones included

	life context.Context // ends when everything in the background is to stop
	kill context.CancelFunc
	// Patient is the context of requests that no call's context ends. With the client's own connections it never ends,
	// which costs less: they end with these. Else it ends with the client's life.
	Patient context.Context

	flights *flights
	places  int32 // commands under way on one connection that have a place at once, whatever else is
	// How long a command, and a renewal, may take before its connection counts as broken; [AnswerTime] and a second by default.
	answerTime, renewalTime time.Duration

	again timers.Timer // of what the client says of itself

	workMu sync.Mutex     // guards the fields below
	said   time.Time      // when the client last said who it is
	used   bool           // it uses a name
	closed bool           // no new work in the background
	work   sync.WaitGroup // what runs in the background
}

// Dial connects to the servers.
func Dial(o Options) (*Servers, error) {
	if o.WithoutHello {
		o.Redis = bare(o.Redis)
	}
	speaking, hearing := newSockets(), newSockets()
	hearing.gate = speaking.gate
	saying := commandOption(o.Redis, speaking)
	commands, err := speaking.connected(context.Background(), &saying)
	if err != nil {
		return nil, unconnected(o.Redis, speaking.refused.Load(), err)
	}
	o.Redis = alike(o.Redis, saying)
	sideOptions := sideOption(o.Redis, hearing)
	if commands.Mode() == rueidis.ClientModeStandalone {
		sideOptions.ForceSingleClient = true // It has been asked whether it is a cluster.
	}
	side, err := hearing.connected(context.Background(), &sideOptions)
	if err != nil {
		commands.Close()
		return nil, unconnected(o.Redis, hearing.refused.Load(), err)
	}
	c := newServers(commands, side, o)
	c.sockets, c.hearing, c.flights = speaking, hearing, speaking.flights
	c.places = places(saying.RingScaleEachConn)
	c.answerTime, c.renewalTime = saying.ConnWriteTimeout, sideOptions.ConnWriteTimeout
	speaking.tell(func(address string, gone bool) { c.routes.changed(address, gone) })
	hearing.tell(func(address string, _ bool) { c.routes.changed(address, false) })
	speaking.gate.start()
	return c, nil
}

// places is how many commands may be under way on a connection with a ring of that size before one might have to wait for
// its place. A quarter of the ring is for pings, and for commands that are no scripts.
func places(scale int) int32 {
	const least, most = 1, 20 // Less is rueidis' own default, and more than that is no bound.
	if scale < least || scale > most {
		scale = rueidis.DefaultRingScale
	}
	return max(1, int32(1)<<scale*3/4)
}

// On talks to the servers over the caller's connections, which stay open.
func On(rc rueidis.Client, o Options) *Servers {
	c := newServers(rc, rc, o)
	c.Patient = c.life
	return c
}

// Peek makes one connection, for looking at the servers from outside. The caller ends it.
func Peek(o Options) (c *Servers, end func(), err error) {
	made := newSockets()
	if o.WithoutHello {
		o.Redis = bare(o.Redis)
	}
	option := sideOption(o.Redis, made)
	rc, err := made.connected(context.Background(), &option)
	if err != nil {
		return nil, nil, err
	}
	o.Redis = alike(o.Redis, option)
	c = newServers(rc, rc, o)
	return c, func() {
		c.Close()
		made.close() // First: rueidis waits for the answer of a server that does not give one.
		rc.Close()
	}, nil
}

func newServers(commands, side rueidis.Client, o Options) *Servers {
	c := &Servers{opts: o, commands: commands, Side: side}
	c.id.Store(&o.ID)
	c.life, c.kill = context.WithCancel(context.Background())
	c.Patient = context.Background()
	c.flights = newFlights()
	c.acknowledgements.servers, c.masters.servers = c, c
	c.links.forget()
	c.acknowledgements.pending = make(map[ackKey][]*unacknowledged)
	c.name = serverName(commands, o.Redis)
	c.routes = newRoutes(c)
	c.Timers = timers.New(o.Flush)
	c.again.Target = timers.Func(func(time.Time) { c.Spawn(c.Introduce) })
	return c
}

// Options are what the client wants of its connections.
func (c *Servers) Options() Options { return c.opts }

// serverName is what to call the server if there is one, or if it is not known which.
func serverName(rc rueidis.Client, o rueidis.ClientOption) string {
	if set := o.Sentinel.MasterSet; set != "" {
		return set
	}
	if len(o.InitAddress) > 0 {
		return o.InitAddress[0]
	}
	for address := range rc.Nodes() {
		return address
	}
	return ""
}

// Close stops what runs in the background and waits for it, and closes the connections if they are the client's own.
func (c *Servers) Close() {
	c.workMu.Lock()
	c.closed = true
	c.workMu.Unlock()
	c.kill()
	c.Timers.Stop()
	if c.sockets != nil {
		// The sockets first: rueidis waits for the answer of a server that does not give one.
		c.sockets.close()
		c.hearing.close()
	}
	for _, n := range c.routes.all() {
		n.listener.hangUp()
	}
	if c.sockets != nil {
		c.flights.close()
		c.commands.Close()
		c.Side.Close()
	}
	c.work.Wait()
}

const (
	// AnswerTime is how long a command may take before its connection counts as broken.
	AnswerTime = 2 * time.Second
	// probeEvery is how often the kernels ask each other whether an idle connection lives, which costs Redis nothing.
	// It counts as broken when probeCount of them in a row were not answered.
	probeEvery = time.Second
	probeCount = 2
	// pingEvery is how often Redis is asked whether an idle connection lives: behind a proxy that is alive the server may be
	// gone. A ping is work for Redis, once for each connection there is. What a client misses meanwhile its looks find.
	pingEvery = 10 * time.Second
	// askSentinels is how often the sentinels are asked for the master, in case their news of a failover does not
	// come.
	askSentinels = time.Second
	// buffers of a connection: scripts and messages are short.
	bufferBytes = 32 << 10
	// ringScale and sideRing are how many requests may wait for their replies on one connection, as a power of two: a
	// further caller waits until one is answered. rueidis allocates 400 bytes for each in advance; by default that is 400
	// KiB a connection. A batch counts as one.
	ringScale = 8
	sideRing  = 6
	// mostMoves is how often a request is sent on from node to node before it fails with the last node's error.
	mostMoves = 8
)

// commandOption sets what the protocol needs of the connection for commands.
func commandOption(o rueidis.ClientOption, s *sockets) rueidis.ClientOption {
	if o.Sentinel.MasterSet != "" {
		o = withSentinels(o)
	}
	o.DialCtxFn, o.DialFn = s.dialer(o), nil
	o.PipelineMultiplex = -1 // One connection a node keeps requests in order (R1).
	o.DisableCache = true
	o.DisableRetry = true // Repeats are this package's own: it knows which request may run twice.
	// A request that servers send on for ever, as without the right to ASKING, is given up.
	o.ClusterOption.MaxMovedRedirections = cmp.Or(o.ClusterOption.MaxMovedRedirections, mostMoves)
	o.BlockingPipeline = 0 // The default is above every batch here: a batch stays on the connection, too.
	o.ConnWriteTimeout = cmp.Or(o.ConnWriteTimeout, AnswerTime)
	if o.Dialer.KeepAlive == 0 {
		o.Dialer.KeepAlive = pingEvery
		if !o.Dialer.KeepAliveConfig.Enable {
			o.Dialer.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: probeEvery, Interval: probeEvery, Count: probeCount}
		}
	}
	o.Dialer.Timeout = cmp.Or(o.Dialer.Timeout, AnswerTime)
	if o.Sentinel.MasterSet != "" && o.Sentinel.TopologyRefreshInterval == 0 {
		o.Sentinel.TopologyRefreshInterval = askSentinels
	}
	o.RingScaleEachConn = cmp.Or(o.RingScaleEachConn, ringScale)
	o.ReadBufferEachConn = cmp.Or(o.ReadBufferEachConn, bufferBytes)
	o.WriteBufferEachConn = cmp.Or(o.WriteBufferEachConn, bufferBytes)
	return o
}

// sideOption is for renewals and subscriptions: a missing reply is noticed sooner there, and an idle connection is asked
// at least as often as by default.
func sideOption(o rueidis.ClientOption, s *sockets) rueidis.ClientOption {
	o.RingScaleEachConn = cmp.Or(o.RingScaleEachConn, sideRing)
	o.BlockingPoolSize = 0 // It has the subscriptions and the waits for replicas; used up, it would stop them.
	o = commandOption(o, s)
	o.ConnWriteTimeout = min(o.ConnWriteTimeout, time.Second)
	o.Dialer.KeepAlive = min(o.Dialer.KeepAlive, pingEvery)
	return o
}

// Spawn runs f in the background, and reports whether it does: it does not after the client was closed.
func (c *Servers) Spawn(f func()) bool {
	c.workMu.Lock()
	defer c.workMu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// Rest waits, but not beyond ctx or the life of the client.
func (c *Servers) Rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return calls.WhyEnded(ctx)
	case <-c.life.Done():
		return lease.ErrClosed
	}
}

// InBackground runs f and returns what f returns. If ctx ends first, it returns the context's error, and f goes on in the
// background. If ctx cannot end, f runs on the caller's goroutine.
func InBackground[T any](ctx context.Context, c *Servers, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	var none T
	if !c.Spawn(func() {
		v, err := f()
		done <- answer{v, err}
	}) {
		return none, lease.ErrClosed
	}
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// Over reports whether the client was closed.
func (c *Servers) Over() bool { return c.life.Err() != nil }

// Ended is closed when the client is.
func (c *Servers) Ended() <-chan struct{} { return c.life.Done() }

// Publish sends a message on a wake channel.
func (c *Servers) Publish(channel, message string) {
	b := c.commands.B()
	if c.Sharded {
		_ = c.commands.Do(c.Patient, b.Spublish().Channel(channel).Message(message).Build()).Error()
		return
	}
	_ = c.commands.Do(c.Patient, b.Publish().Channel(channel).Message(message).Build()).Error()
}

// Owned reports whether the connections are the client's own.
func (c *Servers) Owned() bool { return c.sockets != nil }

// DialOne connects to one server, with the other settings of o. The caller ends the client by
// end; it also ends when ctx ends.
func DialOne(ctx context.Context, o rueidis.ClientOption, address string) (rc rueidis.Client, end func(), err error) {
	o.InitAddress, o.ForceSingleClient = []string{address}, true
	o.Sentinel, o.Standalone = rueidis.SentinelOption{}, rueidis.StandaloneOption{}
	o.ReplicaOnly, o.SendToReplicas = false, nil
	made := newSockets()
	stop := context.AfterFunc(ctx, made.close)
	option := sideOption(o, made)
	if rc, err = made.connected(ctx, &option); err != nil {
		stop()
		return nil, nil, err
	}
	return rc, func() {
		made.close() // First: rueidis waits for the answer of a server that does not give one.
		rc.Close()
		stop()
	}, nil
}
