package conn

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/internal/times"
)

// tryEvery is the shortest time from one try to connect to an address that fails to the next; half of it more is left to
// chance.
const tryEvery = 500 * time.Millisecond

// A gate holds back connections to addresses that fail, for all that a client does together: however many names it uses,
// and whether a request, a renewal or a subscription wants the connection. After a failure one connection is tried at
// once. Then there are at most two tries a second; when one fails, all callers that wait for it fail. A try that carries
// the reply to a command lets all others through.
//
// The place is here, and not the pause of each caller before it repeats its request: callers are many and know nothing of
// each other.
type gate struct {
	mu    sync.Mutex // guards the fields below
	on    bool       // it holds back; [Dial] and what looks from outside have pauses of their own
	doors map[string]*door
}

// A door is what a gate knows of one address.
type door struct {
	tried  int       // connections so far: each has its number
	proven int       // the newest that has carried a reply
	at     time.Time // when that came
	shut   *turn     // nil while nothing has failed
	older  int       // connections before that turn: that they break says nothing of a try since
	err    error     // the last failure
	next   time.Time // when the next may be tried while it is shut
}

// A turn is the time until the next try fails, or a connection carries a reply. The fields are set before its end.
type turn struct {
	over chan struct{}
	err  error // nil if it lets the waiting callers through
}

func newGate() *gate { return &gate{doors: make(map[string]*door)} }

// start lets the gate hold back from now on.
func (g *gate) start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.on = true
}

// enter waits until a connection to an address may be tried, and returns its number. It comes back early if ctx ends, or if a
// try of another fails meanwhile.
func (g *gate) enter(ctx context.Context, address string) (int, error) {
	for {
		n, shut, next := g.try(address)
		if shut == nil {
			return n, nil
		}
		if ctx.Value(hastily{}) != nil {
			return 0, g.failure(address)
		}
		if err := shut.wait(ctx, next); err != nil {
			return 0, err
		}
	}
}

// hastily marks a context whose requests do not wait in enter: they have waited in await, and may count as sent by now.
type hastily struct{}

// hasty is the context of requests that have waited in await.
var hasty = context.WithValue(context.Background(), hastily{}, true)

// failure is the last one at an address.
func (g *gate) failure(address string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.doors[address].err
}

// await waits as enter does, and tries nothing. So a call that ends meanwhile knows that nothing was sent for it.
func (g *gate) await(ctx context.Context, address string) error {
	for {
		g.mu.Lock()
		var shut *turn
		var next time.Time
		if d := g.doors[address]; d != nil {
			shut, next = d.shut, d.next
		}
		g.mu.Unlock()
		if shut == nil || !time.Now().Before(next) {
			return nil
		}
		if err := shut.wait(ctx, next); err != nil {
			return err
		}
	}
}

// wait waits for the end of a turn, or until the next try. It returns an error if the turn has failed or ctx has ended.
func (t *turn) wait(ctx context.Context, next time.Time) error {
	if end, ok := ctx.Deadline(); ok { // Of a watched call ctx has no channel to end by.
		if !time.Now().Before(end) {
			return context.DeadlineExceeded
		}
		next = times.Earlier(next, end)
	}
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.over:
	case <-ctx.Done():
	}
	select {
	case <-t.over:
		if t.err != nil {
			return t.err
		}
	default:
	}
	return ctx.Err()
}

// try returns the number of a connection that may be tried now, or what to wait for and when to ask again.
func (g *gate) try(address string) (n int, shut *turn, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.doors[address]
	if d == nil {
		d = &door{}
		g.doors[address] = d
	}
	now := time.Now()
	if d.shut != nil {
		if now.Before(d.next) {
			return 0, d.shut, d.next
		}
		d.next = now.Add(calls.Jitter(tryEvery, tryEvery*3/2))
	}
	d.tried++
	return d.tried, nil, now
}

// failed notes that a connection was not made, or broke. The failure of an older one is ignored just after a newer one
// has carried a reply, and does not reach callers that wait for a newer one. The reason: connections that break together
// are noticed one after the other, and an idle one only when it is used.
func (g *gate) failed(address string, n int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.doors[address]
	switch before := d.shut; {
	case before != nil && n > d.older:
		before.err = err
		close(before.over)
	case before == nil && g.on && (n >= d.proven || time.Since(d.at) >= tryEvery):
	default:
		return
	}
	d.err = err
	d.shut, d.older = &turn{over: make(chan struct{})}, d.tried
}

// carried notes that a connection has carried the reply to a command.
func (g *gate) carried(address string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.doors[address]
	d.proven, d.at, d.next = max(d.proven, n), time.Now(), time.Time{}
	if d.shut != nil {
		close(d.shut.over)
		d.shut = nil
	}
}

// The states of a connection that went through a gate.
const (
	unproven int32 = iota // it has carried no reply to a command
	proven                // it has
	over                  // it was closed, or broke
)

// A tried is a connection that reports to its gate how it does.
type tried struct {
	net.Conn
	gate    *gate
	address string
	number  int
	writes  atomic.Int32
	state   atomic.Int32
	refused atomic.Bool // the login
}

// Read notes the first reply to a command. The first write is for the login, which a server also answers when it has no
// place for the client. An error is no sign either: a server that was demoted answers with one.
func (t *tried) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	if t.state.Load() == unproven && (bytes.HasPrefix(b[:n], []byte("-WRONGPASS")) || bytes.HasPrefix(b[:n], []byte("-NOAUTH"))) {
		t.refused.Store(true)
	}
	if n > 0 && t.state.Load() == unproven && t.writes.Load() > 1 && b[0] != '-' && t.state.CompareAndSwap(unproven, proven) {
		t.gate.carried(t.address, t.number)
	}
	if err != nil {
		t.broke(err)
	}
	return n, err
}

// Write counts the writes before that. After a refused login nothing is a command: before rueidis closes such a
// connection it sends a PING, and a server that lets in unnamed users answers that.
func (t *tried) Write(b []byte) (int, error) {
	if t.state.Load() == unproven && !t.refused.Load() {
		t.writes.Add(1)
	}
	n, err := t.Conn.Write(b)
	if err != nil {
		t.broke(err)
	}
	return n, err
}

// Close closes the connection. This is no failure if it has carried a reply.
func (t *tried) Close() error {
	if !t.state.CompareAndSwap(proven, over) {
		t.broke(errUseless)
	}
	return t.Conn.Close()
}

// broke notes that the connection is good for nothing any more.
func (t *tried) broke(err error) {
	if t.state.Swap(over) != over {
		t.gate.failed(t.address, t.number, err)
	}
}

// errUseless is why there is no connection if the client itself has closed the last one, because it carried no reply.
var errUseless = errors.New("a connection was made, and refused")
