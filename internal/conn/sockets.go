package conn

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// sockets are the connections that a client has made. Closing one is the only way to end a call to rueidis
// that waits for a server that does not answer.
type sockets struct {
	life context.Context // ends when there are to be no more
	end  context.CancelFunc

	flights *flights                 // the commands on these connections, where they are counted
	resp2   atomic.Bool              // connections begin without HELLO
	refused atomic.Pointer[greeting] // the newest first reply that was an error, or none
	gate    *gate                    // which they go through

	mu      sync.Mutex                      // guards the fields below
	told    func(address string, gone bool) // of each that is made or closes; nil if nobody wants to know
	open    map[*socket]struct{}
	changed map[string]uint64 // the number of the last that was made or has ended, by address; under "" of all
	count   uint64
}

func newSockets() *sockets {
	s := &sockets{flights: newFlights(), gate: newGate(), open: make(map[*socket]struct{}), changed: make(map[string]uint64)}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// tell lets f know of each connection that is made or closes.
func (s *sockets) tell(f func(address string, gone bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = f
}

// change is a number that changes when a connection to an address, or to any if it is empty, was made or has ended.
func (s *sockets) change(address string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed[address]
}

func (s *sockets) changedLocked(address string) {
	s.count++
	s.changed[address], s.changed[""] = s.count, s.count
}

// A socket is a connection that can be found again.
type socket struct {
	net.Conn
	address string
	all     *sockets
	heard   atomic.Bool // the first reply has come
	made    time.Time
	asked   atomic.Int64 // when, in ns, what was sent since the last answer was; 0 if nothing was
	login   bool         // it is to a sentinel, which has a login of its own
	greets  bool         // a HELLO is still to be replaced; as unsent, for who writes
	unsent  []byte       // a part of a command, until then
}

// Write lets ready goroutines go first while many commands are under way. What they send waits meanwhile, and goes
// together in the next write. The reason: rueidis writes as soon as there is a command, so on few processors each would
// have its own write, here and, for its reply, at the server. While few commands are under way this would only delay
// them.
func (s *socket) Write(b []byte) (int, error) {
	if s.all.flights.n.Load() > crowd {
		runtime.Gosched()
	}
	whole := len(b)
	if s.greets {
		if b = s.greet(b); len(b) == 0 {
			return whole, nil
		}
	}
	if s.asked.Load() == 0 {
		s.asked.Store(time.Now().UnixNano())
	}
	n, err := s.Conn.Write(b)
	if err != nil {
		s.unwritten()
		return n, err
	}
	return whole, nil
}

// Close closes the connection.
func (s *socket) Close() error {
	s.all.mu.Lock()
	delete(s.all.open, s)
	s.all.changedLocked(s.address)
	told := s.all.told
	s.all.mu.Unlock()
	if told != nil {
		told(s.address, true)
	}
	return s.Conn.Close()
}

// dialer makes connections as o says, until close, and keeps them.
func (s *sockets) dialer(o rueidis.ClientOption) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, address string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.life, cancel)()
		n, err := s.gate.enter(ctx, address)
		if err != nil {
			return nil, &undialled{err}
		}
		conn, err := connect(ctx, o, address, d, t)
		if err != nil {
			s.gate.failed(address, n, err)
			return nil, &undialled{err}
		}
		conn = &tried{Conn: conn, gate: s.gate, address: address, number: n}
		own := d.Resolver != nil && d.Resolver == o.Sentinel.Dialer.Resolver
		made := &socket{Conn: conn, address: address, all: s, made: time.Now(), login: own, greets: s.resp2.Load()}
		s.mu.Lock()
		if s.life.Err() != nil {
			s.mu.Unlock()
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		s.changedLocked(address)
		s.open[made] = struct{}{}
		told := s.told
		s.mu.Unlock()
		if told != nil {
			told(address, false)
		}
		return made, nil
	}
}

// A sentinelAddress is the address of a sentinel.
type sentinelAddress struct{ net.Addr }

// RemoteAddr is all that a login function is told of a connection.
func (s *socket) RemoteAddr() net.Addr {
	if s.login {
		return sentinelAddress{s.Conn.RemoteAddr()}
	}
	return s.Conn.RemoteAddr()
}

// withSentinels gives connections to sentinels what rueidis does not: a limit of the time for dialling, and their own user
// and password where a function has those of the servers. Their resolver, which nobody else has, marks such connections.
func withSentinels(o rueidis.ClientOption) rueidis.ClientOption {
	own := &o.Sentinel
	own.Dialer.Timeout = cmp.Or(own.Dialer.Timeout, AnswerTime)
	login, resolver := o.AuthCredentialsFn, new(net.Resolver)
	if login == nil {
		return o
	}
	if r := own.Dialer.Resolver; r != nil {
		resolver.PreferGo, resolver.StrictErrors, resolver.Dial = r.PreferGo, r.StrictErrors, r.Dial
	}
	own.Dialer.Resolver = resolver
	user, password := own.Username, own.Password
	o.AuthCredentialsFn = func(c rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		if _, is := c.Address.(sentinelAddress); is {
			return rueidis.AuthCredentials{Username: user, Password: password}, nil
		}
		return login(c)
	}
	return o
}

// undialled is why there is no connection.
type undialled struct{ error }

func (e *undialled) Unwrap() error { return e.error }

func connect(ctx context.Context, o rueidis.ClientOption, address string, d *net.Dialer, t *tls.Config) (made net.Conn, err error) {
	defer func() {
		if p := recover(); p != nil { // It may be on a goroutine of the client.
			err = fmt.Errorf("the function that dials panicked: %v", p)
		}
	}()
	switch {
	case o.DialCtxFn != nil:
		return o.DialCtxFn(ctx, address, d, t)
	case o.DialFn != nil: //nolint:staticcheck // Deprecated, but still the caller's to use.
		return o.DialFn(address, d, t)
	case t != nil:
		return (&tls.Dialer{NetDialer: d, Config: t}).DialContext(ctx, "tcp", address)
	}
	return d.DialContext(ctx, "tcp", address)
}

// cut closes every connection to an address, or all if it is empty. A call that waits for an answer gets an error,
// and the next call makes a new one.
func (s *sockets) cut(address string) { s.cutThose(address, func(*socket) bool { return true }) }

// cutThose cuts some of them.
func (s *sockets) cutThose(address string, those func(*socket) bool) {
	s.mu.Lock()
	var cut []*socket
	for made := range s.open {
		if (address == "" || made.address == address) && those(made) {
			cut = append(cut, made)
			delete(s.open, made)
			s.changedLocked(made.address)
		}
	}
	told := s.told
	s.mu.Unlock()
	for _, made := range cut {
		if told != nil {
			told(made.address, true)
		}
		made.Conn.(*tried).broke(errUseless) // Also of one that has done its work: what is there is of no use now.
		_ = made.Conn.Close()
	}
}

// close closes every connection, and those that are being made.
func (s *sockets) close() {
	s.end()
	s.cut("")
}

// A watched call waits for its answer on its caller's goroutine, with a context that can end. For rueidis it is a
// context that has the deadline alone, and no channel to end by.
type watched struct {
	ctx      context.Context
	began    time.Time
	deadline time.Time
}

func (w *watched) Deadline() (time.Time, bool) { return w.deadline, true }
func (*watched) Done() <-chan struct{}         { return nil }
func (*watched) Err() error                    { return nil }
func (*watched) Value(any) any                 { return nil }

// watch is called by the node's timer while calls are watched: a context that has ended does not wait for a server that
// has stopped answering.
func (n *Node) watch(now time.Time) {
	c, w := n.servers, n.watching.Load()
	switch {
	case w == nil:
		return
	case now.Sub(w.began) < SlowAnswer:
		c.Timers.Before(&n.watcher, w.began.Add(SlowAnswer))
	case w.ctx.Err() == nil:
		c.Timers.Before(&n.watcher, now.Add(watchEvery))
	default:
		n.slow.Store(true)
		c.sockets.cut(n.address)
	}
}

// watchEvery is how often a call that takes long is looked at.
const watchEvery = 25 * time.Millisecond
