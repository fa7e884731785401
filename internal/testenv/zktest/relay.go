package zktest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

// The requests that a relay can tell apart.
const (
	Create      = 1
	Delete      = 2
	GetData     = 4
	Sync        = 9
	GetChildren = 12
	End         = -11
)

// A Relay passes connections of clients on to a server, request by request and answer by answer, and breaks them as it
// is told.
type Relay struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu      sync.Mutex // guards the fields below, and those of the links
	links   map[*link]bool
	over    bool
	refuse  bool
	frozen  chan struct{} // if not nil, nothing is passed on until it is closed
	opcode  int32         // of the requests whose answers are lost
	left    int
	lost    int
	counts  map[int32]int // requests by their kind
	session Session
}

// A Session is what a client proves with that a session is its own.
type Session struct {
	id     uint64
	secret []byte
}

// link is one connection.
type link struct {
	relay          *Relay
	client, server net.Conn
	doomed         map[int32]bool // the requests whose answers end the connection
	greeted        bool           // the first answer has been passed on
}

// NewRelay starts a relay, which ends with the test.
func NewRelay(t testing.TB, s *Server) *Relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("zktest: %v", err)
	}
	r := &Relay{listener: listener, target: s.Address(), links: map[*link]bool{}, counts: map[int32]int{}}
	r.work.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// Address leads a client to the relay.
func (r *Relay) Address() string { return r.listener.Addr().String() }

func (r *Relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.over = true
	if r.frozen != nil {
		close(r.frozen)
		r.frozen = nil
	}
	r.mu.Unlock()
	r.Cut()
	r.work.Wait()
}

// Cut ends all connections. Others may be made.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.cutLocked()
	}
}

// Refuse ends all connections, and others as they are made, until it is told not to.
func (r *Relay) Refuse(is bool) {
	r.mu.Lock()
	r.refuse = is
	r.mu.Unlock()
	if is {
		r.Cut()
	}
}

// Freeze holds back all that is sent, both ways, until it is thawed; connections stay open.
func (r *Relay) Freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen == nil {
		r.frozen = make(chan struct{})
	}
}

// Thaw lets it pass.
func (r *Relay) Thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen != nil {
		close(r.frozen)
		r.frozen = nil
	}
}

// Lose lets the next n requests of a kind have their effect, and ends their connections in place of the answers.
func (r *Relay) Lose(opcode int32, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opcode, r.left, r.lost = opcode, n, 0
}

// Lost is how many answers were lost since that was asked for.
func (r *Relay) Lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// Connections is how many go through the relay.
func (r *Relay) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.links)
}

// Count is how many requests of a kind there were.
func (r *Relay) Count(opcode int32) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[opcode]
}

// Session is the last that a client of the relay was given.
func (r *Relay) Session() Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{relay: r, client: client, server: server, doomed: map[int32]bool{}}
		r.mu.Lock()
		if r.over || r.refuse {
			_, _ = client.Close(), server.Close()
		} else {
			r.links[l] = true
			r.work.Go(func() { l.pass(client, server, l.request) })
			r.work.Go(func() { l.pass(server, client, l.answer) })
		}
		r.mu.Unlock()
	}
}

// cutLocked ends a connection.
func (l *link) cutLocked() {
	_, _ = l.client.Close(), l.server.Close()
	delete(l.relay.links, l)
}

// pass hands on messages, a length and as many bytes each, as long as look agrees.
func (l *link) pass(from, to net.Conn, look func(message []byte) bool) {
	defer func() {
		l.relay.mu.Lock()
		defer l.relay.mu.Unlock()
		l.cutLocked()
	}()
	for {
		message, err := read(from)
		if err != nil {
			return
		}
		l.relay.mu.Lock()
		frozen := l.relay.frozen
		l.relay.mu.Unlock()
		if frozen != nil {
			<-frozen
		}
		l.relay.mu.Lock()
		on := look(message[4:])
		l.relay.mu.Unlock()
		if !on {
			return
		}
		if _, err := to.Write(message); err != nil {
			return
		}
	}
}

// read reads a message with its length.
func read(from io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head)
	if length > 1<<20 {
		return nil, errors.New("zktest: a message of more than 1 MiB")
	}
	message := append(head, make([]byte, length)...)
	_, err := io.ReadFull(from, message[4:])
	return message, err
}

// request looks at what a client asks. The first message has the version 0 in place of the number.
func (l *link) request(m []byte) bool {
	number, opcode := int32(binary.BigEndian.Uint32(m)), int32(binary.BigEndian.Uint32(m[4:]))
	if number > 0 {
		l.relay.counts[opcode]++
	}
	if number > 0 && opcode == l.relay.opcode && l.relay.left > 0 {
		l.relay.left--
		l.doomed[number] = true
	}
	return true
}

// answer looks at what a server answers.
func (l *link) answer(m []byte) bool {
	if !l.greeted {
		l.greeted = true
		if id := binary.BigEndian.Uint64(m[8:]); id != 0 {
			l.relay.session = Session{id, append([]byte(nil), m[20:36]...)}
		}
		return true
	}
	if l.doomed[int32(binary.BigEndian.Uint32(m))] {
		l.relay.lost++
		return false
	}
	return true
}

// Expire ends a session, as the server does when its time is over: from another connection that proves that it is
// its own. The client whose session it is loses its connection by that and makes another, for which the server ends this
// one; so this goes on until the server says that the session is no more.
func (s *Server) Expire(t testing.TB, session Session) {
	t.Helper()
	for end := time.Now().Add(daemon.StartLimit); ; {
		over, err := s.expire(session)
		switch {
		case over:
			return
		case err == nil:
		case time.Now().After(end):
			t.Fatalf("zktest: ending a session: %v", err)
		}
	}
}

// expire tries it once, and reports whether the session was over before.
func (s *Server) expire(session Session) (over bool, err error) {
	conn, err := net.DialTimeout("tcp", s.Address(), answerTime)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTime))
	// Version, the last zxid seen, time-out in ms, session, the length of the secret and the secret.
	m := binary.BigEndian.AppendUint32(nil, 0)
	m = binary.BigEndian.AppendUint64(m, 0)
	m = binary.BigEndian.AppendUint32(m, uint32(answerTime/time.Millisecond))
	m = binary.BigEndian.AppendUint64(m, session.id)
	m = binary.BigEndian.AppendUint32(m, uint32(len(session.secret)))
	m = append(m, session.secret...)
	answer, err := call(conn, m)
	if err != nil {
		return false, err
	}
	if binary.BigEndian.Uint64(answer[12:]) != session.id {
		return true, nil
	}
	// The number of the request, and what it is.
	opcode := int32(End)
	_, err = call(conn, binary.BigEndian.AppendUint32([]byte{0, 0, 0, 1}, uint32(opcode)))
	return false, err
}

// call sends a message and returns the answer, with its length.
func call(conn net.Conn, m []byte) ([]byte, error) {
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(m))), m...)); err != nil {
		return nil, err
	}
	return read(conn)
}
