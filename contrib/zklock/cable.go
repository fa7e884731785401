package zklock

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/engine"
	"github.com/headwaiter/headwaiter/internal/keeper"
)

// A moment is a time by the clocks of this machine.
type moment struct {
	at    time.Time
	slept time.Duration
}

func now() moment { return moment{time.Now(), keeper.Slept()} }

// A cable makes the connections of one session, one after the other, for the library that speaks on them. It sees to
// what that leaves open: pauses between attempts, a limit to the wait for the first answer, the session time-out that
// the server has granted, and the end, after which there is no other connection.
type cable struct {
	opts  *Options
	watch *engine.Watch
	ctx   context.Context
	end   context.CancelFunc
	over  chan struct{} // closed when the library asks for a server though there is to be no connection any more

	mu       sync.Mutex // guards the fields below, and those of the wire
	servers  []string
	next     int
	tries    int // since a session was confirmed
	silent   int // connections since then that the server ended without an answer
	last     error
	wire     *wire
	farewell bool // the server has confirmed the end of the session
}

func newCable(o *Options, w *engine.Watch) *cable {
	c := &cable{opts: o, watch: w, over: make(chan struct{})}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// Init, Len, Next and Connected make a cable the library's list of servers. Names are not looked up here, but at
// each connection: servers move.
func (c *cable) Init(servers []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.servers = servers
	return nil
}

func (c *cable) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.servers)
}

// Next asks the library to pause, and to look whether it is to stop, only when all is over: other pauses are dial's.
func (c *cable) Next() (server string, retryStart bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	server = c.servers[c.next%len(c.servers)]
	c.next++
	if c.ctx.Err() == nil {
		return server, false
	}
	select {
	case <-c.over:
	default:
		close(c.over)
	}
	return server, true
}

func (c *cable) Connected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries, c.silent, c.last = 0, 0, nil
}

// dial is the library's way to a server.
func (c *cable) dial(_, address string, _ time.Duration) (net.Conn, error) {
	c.mu.Lock()
	rounds := c.tries / len(c.servers)
	c.tries++
	first := c.tries == 1
	limit := min(max(c.opts.Lease/time.Duration(len(c.servers)+2), time.Second), c.opts.Lease)
	c.mu.Unlock()
	if !first {
		if err := calls.Rest(c.ctx, calls.Backoff(rounds)); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	conn, err := c.opts.dial(ctx, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.unanswered(err)
		c.last = err
		return nil, err
	}
	w := &wire{Conn: conn, in: bufio.NewReaderSize(conn, readAhead), cable: c, begun: now(), limit: time.Now().Add(limit)}
	w.late = time.AfterFunc(time.Hour, w.flush)
	w.late.Stop()
	w.unhook = context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	c.wire = w
	return w, nil
}

// unanswered tells of a connection that could not be made, or ended before its first answer.
func (c *cable) unanswered(err error) {
	c.watch.Request(c.ctx, time.Now(), err, func(error) bool { return true })
}

// trouble is why there is no connection, as far as is known.
func (c *cable) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// shut reports whether servers take connections and end them without an answer.
func (c *cable) shut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silent >= 3
}

// answered reports whether the server has confirmed the end of the session.
func (c *cable) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.farewell
}

// granted is what the last connection that was answered has brought.
func (c *cable) granted() (begun moment, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wire.begun, c.wire.timeout
}

// cut ends the present connection; the next is made at once.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wire != nil {
		_ = c.wire.Conn.Close()
	}
}

const (
	// headLength is as much of the first answer as is read here: its length, the version and the time-out.
	headLength = 12
	// mostAnswer is above what any first answer is long.
	mostAnswer = 256
	// opClose is the code of the request that ends a session, opCreate of the one that makes the node of a ticket.
	opClose, opCreate = -11, 1
	// together is for how long a request that makes a node waits for the list that comes right after it.
	together = time.Millisecond
	// readAhead is as much as is read at once: the list of some hundred who wait.
	readAhead = 16 << 10
)

// A wire is one connection.
type wire struct {
	net.Conn
	in     *bufio.Reader // the library reads each answer in two parts
	cable  *cable
	begun  moment    // the session was touched by the server at this time or later, if it was
	limit  time.Time // for the first answer
	unhook func() bool

	// guarded by the cable's mu
	head    []byte
	rest    int // bytes of the first answer that are still to come
	timeout time.Duration
	closing int32 // the number of the request to end the session; nothing is sent after it

	out  sync.Mutex // guards what goes out
	held []byte
	late *time.Timer // sends what is held
}

// Read looks into the first answer. A server of another kind is found out before its first four bytes are taken for
// a length, and as much memory for granted.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	w.cable.mu.Lock()
	defer w.cable.mu.Unlock()
	if w.timeout == 0 || w.rest > 0 {
		if strange := w.first(p[:n]); strange != nil {
			w.cable.last = strange
			return 0, strange
		}
	}
	if w.closing > 0 && n >= headLength && int32(binary.BigEndian.Uint32(p)) == w.closing {
		w.cable.farewell = true
	}
	if err != nil {
		if w.timeout == 0 {
			w.cable.silent++
			w.cable.unanswered(err)
			w.cable.last = fmt.Errorf("%s ended the connection before it answered: %w", w.RemoteAddr(), err)
		} else if w.cable.last == nil {
			w.cable.last = err
		}
	}
	return n, err
}

// first takes in bytes of the first answer.
func (w *wire) first(p []byte) error {
	if w.timeout > 0 {
		w.rest -= len(p)
		return nil
	}
	w.head = append(w.head, p...)
	if len(w.head) < 4 {
		return nil
	}
	length := int(binary.BigEndian.Uint32(w.head))
	if length > mostAnswer || length < headLength {
		return fmt.Errorf("%s does not answer as ZooKeeper does", w.RemoteAddr())
	}
	if len(w.head) >= headLength {
		// 0 is the answer to one whose session is over.
		w.timeout = max(time.Duration(int32(binary.BigEndian.Uint32(w.head[8:])))*time.Millisecond, 1)
		w.rest = 4 + length - len(w.head)
	}
	return nil
}

// Write never fails: the library may wait for itself forever where the request fails that proves who it is. The reader
// notices. Nothing is sent after the end of the session: a server that has ended the connection would answer that with
// a reset, which may overtake its word that the session has ended.
//
// What makes a node goes in one packet with what comes after it, which as a rule is the list that a ticket asks for.
func (w *wire) Write(p []byte) (int, error) {
	w.cable.mu.Lock()
	over, code := w.closing > 0, int32(0)
	// A request is its length, its number and its code; the first is another.
	if len(p) >= headLength && w.timeout > 0 {
		code = int32(binary.BigEndian.Uint32(p[8:]))
	}
	if code == opClose {
		w.closing = int32(binary.BigEndian.Uint32(p[4:]))
	}
	w.cable.mu.Unlock()
	if over {
		return len(p), nil
	}
	w.out.Lock()
	defer w.out.Unlock()
	switch {
	case code == opCreate && len(w.held) == 0:
		w.held = append(w.held, p...)
		w.late.Reset(together)
	case len(w.held) == 0:
		w.send(p)
	default:
		w.held = append(w.held, p...)
		w.sendHeld()
	}
	return len(p), nil
}

// flush sends what has waited long enough.
func (w *wire) flush() {
	w.out.Lock()
	defer w.out.Unlock()
	w.sendHeld()
}

// sendHeld sends what is held, if anything. The lock of what goes out is held, as it is for send.
func (w *wire) sendHeld() {
	if len(w.held) > 0 {
		w.late.Stop()
		w.send(w.held)
		w.held = w.held[:0]
	}
}

func (w *wire) send(p []byte) {
	if _, err := w.Conn.Write(p); err != nil {
		_ = w.Conn.Close()
	}
}

// SetWriteDeadline leaves a deadline as it is when the library is done with it: what is held has one too, and each
// request sets its own.
func (w *wire) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	return w.Conn.SetWriteDeadline(t)
}

// SetReadDeadline lets no wait for the first answer be longer than the limit; the library's own is several time-outs.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.cable.mu.Lock()
	waiting := w.timeout == 0 || w.rest > 0
	w.cable.mu.Unlock()
	if waiting && (t.IsZero() || t.After(w.limit)) {
		t = w.limit
	}
	return w.Conn.SetReadDeadline(t)
}

// Close is the library's end of the connection.
func (w *wire) Close() error {
	w.unhook()
	w.late.Stop()
	return w.Conn.Close()
}
