package sim

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"

	"github.com/headwaiter/headwaiter/internal/testenv/redistest"
)

var errDown = errors.New("sim: the server is down")

// server is the embedded server, with a clock and a mind of its own.
type server struct {
	*redistest.Embedded
	mini  *miniredis.Miniredis
	world *world
	drift time.Duration

	mu      sync.Mutex // guards the fields below
	down    bool
	failure string // what every script is answered
	pings   bool   // and every PING; a server that loads its data lets the rest pass
	ahead   time.Duration
	skewed  bool // the clock is not the world's
	lose    int  // messages
	late    int
	double  int
	by      time.Duration // late and doubled ones
	sent    []message     // the last messages, for forgers
	runs    int           // starts without its data
	since   time.Time     // the last of them, by its clock
}

// A message is one that was published.
type message struct{ channel, text string }

// remembered is how many messages a forger knows.
const remembered = 32

// uptime is how long ago servers have started when a world begins.
const uptime = time.Hour

func newServer(t testing.TB, w *world, i int) *server {
	e := redistest.Bubble(t)
	s := &server{Embedded: e, mini: e.Miniredis(), world: w, drift: w.plan.Drift, since: time.Now().Add(-uptime)}
	s.ahead = time.Duration(i) * w.plan.Apart
	s.skewed = s.drift != 0 || s.ahead != 0
	if i%2 == 1 {
		s.drift = -s.drift
	}
	s.mini.Server().SetPreHook(s.hook)
	return s
}

// dial makes a connection, unless the server is down.
func (s *server) dial() (net.Conn, error) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		return nil, errDown
	}
	return s.Dial()
}

// time is what the server's clock shows.
func (s *server) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeLocked()
}

func (s *server) timeLocked() time.Time {
	gained := time.Duration(s.world.now().Seconds() * float64(s.drift))
	return time.Now().Add(s.ahead + gained)
}

// step moves the clock.
func (s *server) step(by time.Duration) {
	s.mu.Lock()
	s.ahead += by
	s.skewed = true
	s.mu.Unlock()
	s.set()
}

// set sets the clock of the embedded server, which stands still until it is set again.
func (s *server) set() {
	s.mu.Lock()
	skewed, now := s.skewed, s.timeLocked()
	s.mu.Unlock()
	if skewed {
		s.mini.SetTime(now)
	}
}

// fail answers scripts with an error, and pings if these are set.
func (s *server) fail(text string, pings bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.pings = text, pings
}

// crash ends the server. What it knew stays, as if it had been written to disk.
func (s *server) crash() {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	s.mini.Close()
}

// revive starts it again.
func (s *server) revive(empty bool) {
	if empty {
		s.mini.FlushAll()
	}
	conn, err := s.mini.Dial()
	if err == nil {
		_ = conn.Close()
		s.mini.Server().SetPreHook(s.hook)
	}
	s.flushScripts()
	s.mu.Lock()
	s.down = false
	s.runs++
	s.since = s.timeLocked()
	s.mu.Unlock()
}

func (s *server) flushScripts() { _, _ = s.Try("SCRIPT", "FLUSH") }

// tamper sets what becomes of the next messages.
func (s *server) tamper(lose, late, double int, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose, s.late, s.double, s.by = lose, late, double, by
}

// hook sees each command before it runs, those inside scripts too. For the latter the server is locked.
func (s *server) hook(peer *miniserver.Peer, command string, args ...string) bool {
	switch command {
	case "EVAL", "EVALSHA":
		s.set() // Once a script, as its time is read once.
	case "HSET":
		s.mark(args)
		return false
	case "PUBLISH":
		if len(args) < 2 {
			return false // It is tried whether there is such a command.
		}
		return s.publish(peer, args[0], args[1])
	case "INFO":
		s.mu.Lock()
		defer s.mu.Unlock()
		up := int(s.timeLocked().Sub(s.since).Seconds())
		peer.WriteBulk(fmt.Sprintf("run_id:%x\r\nuptime_in_seconds:%d\r\naof_enabled:0\r\n", s.runs, up))
		return true
	case "PING":
	default:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == "" || command == "PING" && !s.pings {
		return false
	}
	peer.WriteError(s.failure)
	return true
}

// mark notes the token that a script writes.
func (s *server) mark(args []string) {
	for i := 1; i+1 < len(args); i += 2 {
		if args[i] != "token" {
			continue
		}
		if token, err := strconv.ParseUint(args[i+1], 10, 64); err == nil {
			s.world.mark(args[0], token)
		}
	}
}

// publish decides what becomes of a message. It is answered as if it had been heard.
func (s *server) publish(peer *miniserver.Peer, channel, text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, message{channel, text})
	if len(s.sent) > remembered {
		s.sent = s.sent[1:]
	}
	t := Touch{Client: s.world.clientOf(channel), Object: s.world.objectOf(channel), Note: text}
	switch {
	case s.lose > 0:
		s.lose--
		t.Kind = LoseMessages
		s.world.touch(t, false)
		peer.WriteInt(1)
		return true
	case s.late > 0:
		s.late--
		t.Kind = LateMessages
		s.again(s.world.touch(t, true), channel, text, s.by)
		peer.WriteInt(1)
		return true
	case s.double > 0:
		s.double--
		t.Kind = DoubleMessages
		s.again(s.world.touch(t, true), channel, text, s.by)
	}
	return false
}

// again publishes a message some time later.
func (s *server) again(t *Touch, channel, text string, by time.Duration) {
	s.world.background(func() {
		time.Sleep(by)
		s.mini.Publish(channel, text)
		s.world.untouch(t)
	})
}

// overheard returns the last messages.
func (s *server) overheard() []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// lock is what the keys of a lock of the i-th object begin with.
func (o Object) lock(i, part int) string {
	kind := map[Kind]string{
		Mutex: "lock", Election: "election", Striped: "lock", Several: "lock", Redlock: "redlock", Latch: "latch", Barrier: "barrier",
	}
	return "headwaiter:" + kind[o.Kind] + ":{" + o.name(i, part) + "}"
}

func name(i int) string { return "o" + strconv.Itoa(i) }

// name is the name of a lock of the i-th object.
func (o Object) name(i, part int) string {
	switch o.Kind {
	case Striped:
		return fmt.Sprintf("%s:%d/%d", name(i), part, o.Size)
	case Several:
		return fmt.Sprintf("%s.%d", name(i), part)
	}
	return name(i)
}

// left returns the keys of names that are there, except those whose names end with but.
func (s *server) left(but string) []string {
	s.set()
	var found []string
	for _, key := range s.mini.Keys() {
		if !strings.Contains(key, "{") {
			continue // The mark of a run lives for a week, and who a client is for some minutes.
		}
		if but == "" || !strings.Contains(key, but) {
			found = append(found, key)
		}
	}
	return found
}
