package conn

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// sockets are the connections that a client has made. Closing one is the only way to end a call to rueidis
// that waits for a server that does not answer.
type sockets struct {
	life context.Context // ends when there are to be no more
	end  context.CancelFunc

	flights *flights // the commands on these connections, where they are counted

	mu      sync.Mutex           // guards the fields below
	gone    func(address string) // told of each that closes; nil if nobody wants to know
	open    map[*socket]struct{}
	changed map[string]uint64 // the number of the last that was made or has ended, by address; under "" of all
	count   uint64
}

func newSockets() *sockets {
	s := &sockets{flights: newFlights(), open: make(map[*socket]struct{}), changed: make(map[string]uint64)}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// tell lets f know of each connection that closes.
func (s *sockets) tell(f func(address string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = f
}

// change is a number that is another one as soon as a connection to an address, or any if it is empty, was made or has ended.
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
}

// Write lets the goroutines that are ready go first where many commands are under way. What they send waits meanwhile, and
// goes in the next write together: rueidis writes as soon as there is a command, so on few processors each would have a write
// of its own, here and, for its answer, at the server. Where few are under way it would only delay them.
func (s *socket) Write(b []byte) (int, error) {
	if s.all.flights.n.Load() > crowd {
		runtime.Gosched()
	}
	return s.Conn.Write(b)
}

// Close closes the connection.
func (s *socket) Close() error {
	s.all.mu.Lock()
	delete(s.all.open, s)
	s.all.changedLocked(s.address)
	gone := s.all.gone
	s.all.mu.Unlock()
	if gone != nil {
		gone(s.address)
	}
	return s.Conn.Close()
}

// dialer makes connections as o says, until close, and keeps them.
func (s *sockets) dialer(o rueidis.ClientOption) func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	return func(ctx context.Context, address string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.life, cancel)()
		conn, err := connect(ctx, o, address, d, t)
		if err != nil {
			return nil, &undialled{err}
		}
		made := &socket{Conn: conn, address: address, all: s}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.life.Err() != nil {
			_ = conn.Close()
			return nil, net.ErrClosed
		}
		s.changedLocked(address)
		s.open[made] = struct{}{}
		return made, nil
	}
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
func (s *sockets) cut(address string) {
	s.mu.Lock()
	var cut []*socket
	for made := range s.open {
		if address == "" || made.address == address {
			cut = append(cut, made)
			delete(s.open, made)
			s.changedLocked(made.address)
		}
	}
	gone := s.gone
	s.mu.Unlock()
	for _, made := range cut {
		if gone != nil {
			gone(made.address)
		}
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

// watch is called by the node's timer while calls are watched: a context that has ended does
// not wait for a server that has stopped to answer.
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
