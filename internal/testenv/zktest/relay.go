package zktest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
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

// A Relay is a network between clients and a server that misbehaves. It knows requests and answers.
type Relay struct {
	*faults.Proxy

	mu      sync.Mutex // guards the fields below
	opcode  int32      // of the requests whose answers are lost
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

// NewRelay starts a relay, which ends with the test.
func NewRelay(t testing.TB, s *Server) *Relay {
	t.Helper()
	r := &Relay{counts: map[int32]int{}}
	r.Proxy = faults.NewProxyOf(t, s.Address(), faults.Wire{
		Read: func(b *bufio.Reader) ([]byte, error) {
			message, err := read(b)
			if err != nil {
				return nil, err // Nobody wants a part.
			}
			return message, nil
		},
		Look: r.look,
	})
	return r
}

// Away ends all connections, and others as they are made, until the relay is healed.
func (r *Relay) Away() {
	r.Refuse()
	r.Cut()
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

// look makes what sees the messages of a connection: a request has a number, which its answer has too. The first
// message of a client has the version 0 in its place, and the server's first tells the session.
func (r *Relay) look() func(faults.Direction, []byte) bool {
	doomed, greeted := map[int32]bool{}, false
	return func(d faults.Direction, message []byte) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		m := message[4:]
		number := int32(binary.BigEndian.Uint32(m))
		switch {
		case d == faults.ToServer && number > 0:
			opcode := int32(binary.BigEndian.Uint32(m[4:]))
			r.counts[opcode]++
			if opcode == r.opcode && r.left > 0 {
				r.left--
				doomed[number] = true
			}
		case d == faults.ToClient && !greeted:
			greeted = true
			if id := binary.BigEndian.Uint64(m[8:]); id != 0 {
				r.session = Session{id, append([]byte(nil), m[20:36]...)}
			}
		case d == faults.ToClient && doomed[number]:
			r.lost++
			return false
		}
		return true
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
