package headwaitertest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/internal/testenv/faults"
	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// closeTime is how long a client at the end of its test waits for a server that may be out of reach.
const closeTime = time.Second

// A Server is an embedded Redis with switches. Its methods may be called from any goroutine; those that can fail do so
// by t.Fatalf, so call them from the test's own.
type Server struct {
	t     testing.TB
	redis *redistest.Embedded

	mu    sync.Mutex                            // guards the fields below; the server's own lock may be held outside it
	links map[*headwaiter.Client]*faults.Dialer // the connections of each client
	drop  int                                   // messages to lose
}

// Start runs a server until the end of t. Called in a bubble of testing/synctest, it belongs to that bubble. It opens
// no port.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, redis: redistest.Bubble(t), links: make(map[*headwaiter.Client]*faults.Dialer)}
	s.hook()
	return s
}

// Client returns a client with connections of its own, as another process would have. It is closed at the end of t, or
// by the test. The changes are made to its options before it connects; what they do to Redis and Prefix does not count.
func (s *Server) Client(t testing.TB, changes ...func(*headwaiter.Options)) *headwaiter.Client {
	t.Helper()
	link := faults.NewDialer(t, s.redis.Dial)
	o := headwaiter.Options{Name: "test"}
	for _, change := range changes {
		change(&o)
	}
	o.Prefix, o.Redis = "", s.redis.Option()
	o.Redis.DialCtxFn = link.DialCtx
	client, err := headwaiter.Dial(o)
	if err != nil {
		t.Fatalf("headwaitertest: %v", err)
	}
	s.mu.Lock()
	s.links[client] = link
	s.mu.Unlock()
	t.Cleanup(func() {
		link.Heal() // One that is paused could give nothing back.
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		_ = client.Shutdown(ctx) // What it held has ended with the server at the latest.
		s.mu.Lock()
		delete(s.links, client)
		s.mu.Unlock()
	})
	return client
}

// Redis returns what leads a client of rueidis to the server: for what else your program keeps in Redis,
// such as the marks of package fence, and for clients that it dials itself, by headwaiter.Options. Pause knows nothing of
// their connections. There is no server-assisted cache, so DisableCache is set and must stay so.
func (s *Server) Redis() rueidis.ClientOption {
	o := s.redis.Option()
	// The server reads no command before its last reply has been taken; rueidis takes none before it has written a whole
	// batch. What stands in between here reads both, as the buffers of a network do.
	o.DialCtxFn = faults.NewDialer(s.t, s.redis.Dial).DialCtx
	return o
}

// hook has the server ask before each command whether it is a message to be lost.
func (s *Server) hook() { s.redis.Miniredis().Server().SetPreHook(s.before) }

// before is called ahead of each command, those inside scripts too, and returns whether it is done with. The server may
// be locked around it: nothing of it may be called here but the peer.
func (s *Server) before(peer *server.Peer, command string, args ...string) bool {
	if command != "PUBLISH" || len(args) != 2 || !matters(args[1]) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop == 0 {
		return false
	}
	s.drop--
	peer.WriteInt(1) // As if it had been lost on its way to one subscriber.
	return true
}

// matters reports whether a message is one of those that DropMessages loses. The others are about whether a client lives
// and hears, or end a call for more permits than there are.
func matters(message string) bool {
	kind, _, _ := strings.Cut(message, " ")
	switch kind {
	case string(wire.MessageGrant), string(wire.MessageForced), string(wire.MessageOpen), string(wire.MessageBroken):
		return true
	}
	return false
}
