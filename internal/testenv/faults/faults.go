// Package faults puts broken networks between a client and its server, a Redis above all: bytes that vanish, come late
// or not at all, connections that are cut, replies that are lost after the command has run.
//
// [Proxy] does it on loopback for any server, [Dialer] in memory, also inside the bubble of
// testing/synctest. Both read whole RESP messages and pass them on one by one, and both go on reading
// for a client that does not, so that it stalls nobody but itself.
package faults

import (
	"sync"
	"testing"
	"time"

	"github.com/headwaiter/headwaiter/internal/testenv/evidence"
)

// Direction is one of the two ways of a connection.
type Direction int

// The directions. Where a method takes several, none means both.
const (
	ToServer Direction = iota
	ToClient
	directions
)

// Faults are the faults of all connections of one [Proxy] or [Dialer]. There are none at first, and Heal
// ends them. A new connection has those that are set. The methods may be called at any time.
//
// A message has its delay from its arrival on. Freeze and drop apply at the moment at which it would be passed on, in
// this order.
type Faults struct {
	t    testing.TB
	work sync.WaitGroup // every goroutine of this package
	stop func()         // ends the acceptance of connections
	wire Wire           // what is spoken; the zero one is of Redis

	mu      sync.Mutex // guards all below, and the mutable fields of links and lanes
	links   map[*link]struct{}
	delay   [directions]time.Duration
	frozen  [directions]bool
	drop    [directions]bool
	refuse  bool
	closed  bool
	replies loss
	pushes  loss
	delayed int // messages since the last Heal
	dropped int
}

// loss is which messages to lose: the next left ones for which match holds.
type loss struct {
	left  int
	match func(words []string) bool
	lost  int
}

// take returns whether a message is to be lost, and counts it off.
func (l *loss) take(words []string) bool {
	if l.left == 0 || l.match != nil && !l.match(words) {
		return false
	}
	l.left--
	return true
}

// newFaults returns the faults of a test, which end with it.
func newFaults(t testing.TB, stop func()) *Faults {
	f := &Faults{t: t, links: map[*link]struct{}{}, stop: stop}
	t.Cleanup(f.Close)
	return f
}

// Drop swallows what is sent in the given directions, without a sign to anybody. What was lost stays so:
// Heal cuts the connections that lost something, as no connection has holes.
func (f *Faults) Drop(ds ...Direction) {
	f.set(ds, func(d Direction) { f.drop[d] = true })
}

// Delay passes on in the given directions what comes from now on by the given time later, also where Heal has ended it
// meanwhile.
func (f *Faults) Delay(by time.Duration, ds ...Direction) {
	f.set(ds, func(d Direction) { f.delay[d] = by })
}

// Freeze holds back what is sent in the given directions, also the end of a connection, until Heal
// delivers it: commands then run long after their sender gave them up. Frozen both ways, connections are
// half-open: they stand, new ones too, and nothing moves.
func (f *Faults) Freeze(ds ...Direction) {
	f.set(ds, func(d Direction) { f.frozen[d] = true })
}

// Stall is Freeze both ways for the connections that there are. New ones work.
func (f *Faults) Stall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.links {
		l.lanes[ToServer].frozen, l.lanes[ToClient].frozen = true, true
	}
}

// Leave is Stall for what clients have sent, and lets them find their connections closed at once. Heal delivers what they
// sent, to which nobody waits for an answer any more.
func (f *Faults) Leave() {
	f.Stall()
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.links {
		l.lanes[ToServer].from.Close()
	}
}

// Holds reports whether something is held back.
func (f *Faults) Holds() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.links {
		for d, lane := range l.lanes {
			if len(lane.queue) > 0 && (f.frozen[d] || lane.frozen) {
				return true
			}
		}
	}
	return false
}

// Refuse ends new connections at once. The old ones stay.
func (f *Faults) Refuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = true
}

// Heal ends Drop, Delay, Freeze, Stall and Refuse. What was held back is delivered, and what is delayed when its time has come.
func (f *Faults) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tell()
	for l := range f.links {
		l.lanes[ToServer].frozen, l.lanes[ToClient].frozen = false, false
		if l.lanes[ToServer].holed || l.lanes[ToClient].holed {
			l.cut()
		}
	}
	clear(f.delay[:])
	clear(f.frozen[:])
	clear(f.drop[:])
	f.refuse = false
	f.poke()
}

// Away is Refuse and Cut: nobody is connected, or can be.
func (f *Faults) Away() {
	f.Refuse()
	f.Cut()
}

// Cut closes all connections at both ends. What was under way is lost; new connections may be made.
func (f *Faults) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	evidence.Fault(f.t, "connection cut", len(f.links))
	for l := range f.links {
		l.cut()
	}
}

// CutListeners closes the connections over which somebody has subscribed, as Cut does; the others stand.
func (f *Faults) CutListeners() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for l := range f.links {
		if l.listens {
			l.cut()
			n++
		}
	}
	evidence.Fault(f.t, "connection cut", n)
	return n
}

// tell notes what was done to messages since the last Heal. The caller has the lock.
func (f *Faults) tell() {
	held := 0
	for l := range f.links {
		for d, lane := range l.lanes {
			if f.frozen[d] || lane.frozen {
				held += len(lane.queue)
			}
		}
	}
	evidence.Fault(f.t, "message held up", held)
	evidence.Fault(f.t, "message delayed", f.delayed)
	evidence.Fault(f.t, "message swallowed", f.dropped)
	f.delayed, f.dropped = 0, 0
}

// LoseReplies lets the next n commands for which match holds run, swallows the reply to each, and then
// closes its connection. What was answered before the lost reply still arrives.
//
// The words given to match are the command and its arguments; a nil match takes any command. It must not
// call methods of Faults. Replies are told apart by counting them, which works for connections that
// speak RESP3, and for RESP2 without subscriptions.
func (f *Faults) LoseReplies(n int, match func(command []string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies.left, f.replies.match = n, match
}

// LosePushes swallows the next n RESP3 pushes for which match holds; the connection goes on. The words
// of a message are "message", the channel and the text; confirmations of subscriptions are pushes too.
func (f *Faults) LosePushes(n int, match func(push []string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushes.left, f.pushes.match = n, match
}

// Lost returns how many replies and how many pushes have been lost by LoseReplies and LosePushes.
func (f *Faults) Lost() (replies, pushes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replies.lost, f.pushes.lost
}

// Connections returns how many connections stand.
func (f *Faults) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.links)
}

// Close cuts all connections, refuses new ones and waits for the end of every goroutine. The test's
// clean-up calls it.
func (f *Faults) Close() {
	f.stop()
	f.mu.Lock()
	f.tell()
	f.closed = true
	for l := range f.links {
		l.cut()
	}
	f.mu.Unlock()
	f.work.Wait()
}

// set changes something for the given directions.
func (f *Faults) set(ds []Direction, change func(Direction)) {
	if len(ds) == 0 {
		ds = []Direction{ToServer, ToClient}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range ds {
		change(d)
	}
	f.poke()
}

// poke lets all connections look at what has changed. The caller has the lock.
func (f *Faults) poke() {
	for l := range f.links {
		l.lanes[ToServer].poke()
		l.lanes[ToClient].poke()
	}
}
