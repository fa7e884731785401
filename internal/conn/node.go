package conn

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headwaiter/headwaiter/internal/timers"
)

// A Node is one server that requests go to, with what must not be mixed up with that of another: its clock, and
// how its connection does at the moment. Outside a cluster a client has one, whichever server that is.
type Node struct {
	servers *Servers
	address string // empty where there is one
	Clock   Clock
	ears    *listener
	sound   sync.Map // by slot; of *sound
	own     dedications
	intro   introduction

	said     traffic     // of commands
	renewed  traffic     // of renewals
	slow     atomic.Bool // the last one took long, or was not answered
	watching atomic.Pointer[watched]
	watcher  timers.Timer
}

func newNode(c *Servers, address string) *Node {
	n := &Node{servers: c, address: address}
	n.ears = newListener(n)
	n.watcher.Target = timers.Func(n.watch)
	n.said.timer.Target = timers.Func(func(now time.Time) {
		n.said.listen(now, c.Timers, c.answerTime, func() {
			n.slow.Store(true)
			c.sockets.cutThose(address, func(s *socket) bool { return now.Sub(s.made) >= c.answerTime })
		})
	})
	n.renewed.timer.Target = timers.Func(func(now time.Time) {
		n.renewed.listen(now, c.Timers, c.renewalTime, func() {
			since := now.Add(-c.renewalTime).UnixNano() // Subscriptions stay.
			c.hearing.cutThose(address, func(s *socket) bool { asked := s.asked.Load(); return asked != 0 && asked <= since })
		})
	})
	return n
}

// begin notes that a command is under way, and returns how many are.
func (n *Node) begin() int32 { return n.said.begin(n.servers, n.servers.answerTime) }

// A traffic is what goes over one connection to a node. rueidis has a time limit for a command that is alone on its connection.
// In a pipeline none has one: whether the connection lives is asked each [pingEvery]. A connection is a pipeline from the first
// two commands on that overlap, whoever sent them. So here the time since the last answer is looked at while commands are under
// way.
type traffic struct {
	flying   atomic.Int32  // commands under way
	piped    atomic.Bool   // several of these were at once
	answers  atomic.Uint32 // so far
	observed atomic.Bool   // until no command is under way
	timer    timers.Timer  // the fields below are for its goroutine
	told     uint32        // answers at the last look
	quiet    int           // looks in a row without one
}

// looks is how often a connection is looked at within the time in which it has to answer.
const looks = 4

func (t *traffic) begin(c *Servers, limit time.Duration) int32 {
	flying := t.flying.Add(1)
	if flying > 1 {
		t.piped.Store(true)
	}
	if c.sockets != nil && t.unobserved() {
		c.Timers.Before(&t.timer, time.Now().Add(limit/looks))
	}
	return flying
}

// unobserved reports whether nobody observed it yet.
func (t *traffic) unobserved() bool {
	return !t.observed.Load() && t.observed.CompareAndSwap(false, true)
}

// listen is called by the timer. A connection that has carried no answer for as long as one may take is cut.
func (t *traffic) listen(now time.Time, all *timers.Timers, limit time.Duration, cut func()) {
	flying := t.flying.Load() > 0
	if answers := t.answers.Load(); answers != t.told || !flying {
		t.told, t.quiet = answers, 0
	} else if t.quiet++; t.quiet == looks {
		t.quiet = 0
		cut()
	}
	if !flying {
		t.observed.Store(false)
		if t.flying.Load() == 0 || !t.unobserved() { // One may have begun just before.
			return
		}
	}
	all.Before(&t.timer, now.Add(limit/looks))
}

// Sluggish reports whether an answer may take so long that a call should not wait for it on its own goroutine.
func (n *Node) Sluggish() bool { return n.slow.Load() || n.servers.sockets == nil }

// Attempt is one that may take as long as budget to reach the node.
func (n *Node) Attempt(budget time.Duration) Attempt { return n.AttemptFrom(Sending(), budget) }

// AttemptFrom is the same for one whose time of sending was read before.
func (n *Node) AttemptFrom(a Attempt, budget time.Duration) Attempt {
	a.Expires = a.Sent.Add(budget)
	clock := &n.Clock
	if clock.newest.Load() == nil {
		clock = &n.servers.routes.only.Clock // That of another node is better than none: an ask that is late corrects it.
	}
	a.Latest = clock.AtLeast(a.Expires)
	a.NotAfter = strconv.FormatInt(a.Latest, 10)
	return a
}
