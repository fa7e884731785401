package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/testenv/daemon"
)

var errDown = errors.New("redistest: the embedded server is down")

// Embedded is a miniredis whose keys expire by the clock, with hooks for faults.
//
// A subscriber that does not read stalls the whole of it; package faults has a connection that reads on
// for its client.
type Embedded struct {
	admin
	addr string // "" in a bubble

	dials sync.RWMutex // held for reading by whoever dials in memory: miniredis does not allow that while it closes

	mu      sync.Mutex // guards the fields below; the server's own lock may be held outside it
	mini    *miniredis.Miniredis
	serving *server.Server // the connections of mini
	age     func()         // ends what lets its keys expire; nil where each command does
	calls   map[string]int64
	failure string
	answers map[string]string
	clients map[*server.Peer]int // the numbers of the connections that have asked for it, from 1 on after each Restart
	drop    int
	dropped int
}

// Mini runs an embedded server on a loopback port until the test ends.
func Mini(t testing.TB) *Embedded {
	t.Helper()
	e := newEmbedded(t)
	e.admin.bind(t, func() (net.Conn, error) { return net.Dial("tcp", e.addr) })
	// Between the look for a free port and the bind another test may take it: then the next.
	for {
		port, err := daemon.Port()
		if err != nil {
			t.Fatal(err)
		}
		e.addr = daemon.Loopback(port)
		err = e.start()
		if err == nil {
			return e
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("redistest: miniredis: %v", err)
		}
	}
}

// Bubble runs an embedded server without any socket until the test ends, for use inside the bubble of
// testing/synctest in which it was made. Its clock is the bubble's.
func Bubble(t testing.TB) *Embedded {
	t.Helper()
	e := newEmbedded(t)
	e.admin.bind(t, e.Dial)
	if err := e.start(); err != nil {
		t.Fatalf("redistest: miniredis: %v", err)
	}
	return e
}

// InBubble runs a case in a bubble, with such a server.
func InBubble(t *testing.T, run func(t *testing.T, s *Embedded)) {
	synctest.Test(t, func(t *testing.T) { run(t, Bubble(t)) })
}

func newEmbedded(t testing.TB) *Embedded {
	e := &Embedded{}
	t.Cleanup(e.Kill)
	return e
}

// Option leads a client to the server.
func (e *Embedded) Option() rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: []string{e.addr}, ForceSingleClient: true, DisableCache: true}
	if e.addr == "" {
		// An address is wanted, but never dialled.
		o.InitAddress = []string{"embedded"}
		o.DialCtxFn = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return e.Dial() }
	}
	return o
}

// Dial returns a new connection to the server through memory.
func (e *Embedded) Dial() (net.Conn, error) {
	// Not under the lock: a script that waits for it in a hook has the server's, which Dial needs.
	e.dials.RLock()
	defer e.dials.RUnlock()
	mini := e.Miniredis()
	if mini == nil {
		return nil, errDown
	}
	conn, err := mini.Dial()
	if err == nil && e.Miniredis() != mini {
		// Killed meanwhile, and perhaps brought back to life by Dial.
		conn.Close()
		mini.Close()
		return nil, errDown
	}
	return conn, err
}

// Kill ends the server and its connections; what it knew is gone.
func (e *Embedded) Kill() {
	e.mu.Lock()
	mini, serving, age := e.mini, e.serving, e.age
	e.mini, e.serving, e.age = nil, nil, nil
	e.mu.Unlock()
	if mini == nil {
		return
	}
	// Not under the lock: these wait for commands that may be in a hook. The connections go first, with
	// what blocks on them: a script that begins when Miniredis has forgotten them, and before they are
	// closed, answers with a nil pointer; the dead answer nothing.
	e.dials.Lock() // Whoever dials has dialled, and nobody does any more.
	mini.CtxCancel()
	e.dials.Unlock()
	serving.Close()
	mini.Close()
	if age != nil {
		age()
	}
}

// Restart kills the server if it runs and starts an empty one at the same address. Faults that were set
// go on, statistics start from zero.
func (e *Embedded) Restart() {
	e.t.Helper()
	e.Kill()
	// The port is reserved, so nobody keeps it: a process that is being started has a copy of the listener that was
	// closed until it runs a program of its own.
	var err error
	_ = until(startLimit, func() error {
		if err = e.start(); errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		return nil
	})
	if err != nil {
		e.t.Fatalf("redistest: miniredis: %v", err)
	}
}

func (e *Embedded) start() error {
	e.ResetStats()
	mini := miniredis.NewMiniRedis()
	var age func()
	if e.addr != "" {
		if err := mini.StartAddr(e.addr); err != nil {
			return err
		}
		age = aging(mini)
	} else {
		mini.ClockTTL(true)
		// The first Dial starts it.
		conn, err := mini.Dial()
		if err != nil {
			return err
		}
		conn.Close()
	}
	serving := mini.Server()
	serving.SetPreHook(e.hook)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mini, e.serving, e.age = mini, serving, age
	e.clients = map[*server.Peer]int{}
	return nil
}

// agingStep is by how much keys may outlive their time on a server with a port. Miniredis can look at the clock by itself,
// but then each command of each script sorts all keys: with a thousand of them a busy machine is too slow for leases of
// seconds.
const agingStep = 50 * time.Millisecond

// aging lets the keys of a server expire, until the function that it returns is called, which waits for its end.
func aging(mini *miniredis.Miniredis) (end func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(agingStep)
		defer ticks.Stop()
		for last := time.Now(); ; {
			select {
			case now := <-ticks.C:
				mini.FastForward(now.Sub(last))
				last = now
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-done }
}

// Miniredis returns the server itself, a new one after each Restart and nil while it is down. Its SetError and SetPreHook would
// replace the hooks of Embedded; use [Embedded.Fail] instead.
func (e *Embedded) Miniredis() *miniredis.Miniredis {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mini
}

// Fail makes every command answer the given error, such as "LOADING Redis is loading the dataset in
// memory", until Fail("").
func (e *Embedded) Fail(text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failure = text
}

// Answer makes the commands of a name, in capitals, answer a text, also in scripts: an error if it begins with a minus, a number if with a
// colon; until Answer(command, ""). So a server of another kind is stood for.
func (e *Embedded) Answer(command, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers == nil {
		e.answers = map[string]string{}
	}
	e.answers[command] = text
	if text == "" {
		delete(e.answers, command)
	}
}

// DropPublish loses the next n messages, also those published in scripts: PUBLISH answers 1, as if the
// message had been lost on its way to one subscriber.
func (e *Embedded) DropPublish(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop = n
}

// Dropped returns how many messages DropPublish has lost so far.
func (e *Embedded) Dropped() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dropped
}

// CommandStats returns what ran; see [Backend].
func (e *Embedded) CommandStats() map[string]int64 {
	e.mu.Lock()
	all := maps.Clone(e.calls)
	e.mu.Unlock()
	return e.others(all)
}

// ResetStats starts CommandStats again from zero.
func (e *Embedded) ResetStats() {
	e.forget()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = map[string]int64{}
}

// hook sees each command before it runs, those inside scripts too, and returns whether it is done with.
// The server may be locked around it: nothing of miniredis may be called here but the peer.
func (e *Embedded) hook(peer *server.Peer, command string, args ...string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failure != "" {
		peer.WriteError(e.failure)
		return true
	}
	e.calls[statName(command, args)]++
	if text, ok := e.answers[command]; ok {
		if text, failed := strings.CutPrefix(text, "-"); failed {
			peer.WriteError(text)
		} else if n, err := strconv.Atoi(strings.TrimPrefix(text, ":")); err == nil && text[0] == ':' {
			peer.WriteInt(n)
		} else {
			peer.WriteBulk(text)
		}
		return true
	}
	if command == "CLIENT" && len(args) == 1 && strings.EqualFold(args[0], "ID") { // Miniredis has none.
		if e.clients[peer] == 0 {
			e.clients[peer] = len(e.clients) + 1
		}
		peer.WriteInt(e.clients[peer])
		return true
	}
	if command == "PUBLISH" && e.drop > 0 {
		e.drop--
		e.dropped++
		peer.WriteInt(1)
		return true
	}
	return false
}
