// Package model is the protocol of the fair lock told a second time, as plain Go: what the scripts of
// lua/fairlock and lua/multilock must answer, store and publish, from the design and the headers of the scripts.
//
// A [Mutex] is one lock as Redis keeps it. The tests of this package drive it, or several, and the scripts with the
// same random histories and compare replies, keys and messages after each step.
package model

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/lua"
)

// Times are server µs, as everywhere in the protocol.
const (
	millisecond = 1000
	second      = 1000 * millisecond
	minute      = 60 * second

	spare       = minute           // how long keys outlive the last need of them (I6)
	leastKept   = spare * 3 / 4    // and from when on they are prolonged
	mostKept    = spare * 5 / 4    // and cut to a minute
	looks       = 512              // heads after which a script looks no further (I7)
	lookBatch   = 128              // at so many a time, after the first
	drops       = 2048             // tickets removed in one script
	mostSpared  = 10 * second      // for how long nobody is dropped at the most
	forgedAhead = 24 * 60 * minute // how far ahead of the clock a token cannot be
	markLasts   = minute           // for how long after its end a mark still counts as used
	remembers   = 10 * minute      // how long a suspect is remembered
	callsListed = 2048             // tickets whose clients are called when a grant lapses
	callsMost   = 256              // and how many clients at the most
	answerTime  = second           // how long they have to answer
	longLook    = 2 * second       // the longest time between two looks of a client, of few
	lookEach    = 5 * millisecond  // and what each waiting client adds to it
	exactSize   = 400              // up to this size of the queue a reply tells it exactly
	never       = math.MinInt64    // an arrival before all others
	estimated   = -1               // Waiting of a reply that is an estimate
	granted     = "granted"        // the phase of a grant that was not renewed yet
)

// Estimated is what Waiting of a reply of the model says where the scripts draw a sample.
const Estimated = estimated

// A Mutex is one lock: its three keys, and what the server knows of the clients.
type Mutex struct {
	Lock     Hash
	Queue    []lua.Arrival    // by arrival, then by ticket
	Suspects map[string]int64 // clients, by time of the mark; one ahead is of a client that was called

	// When the keys expire; 0: never, or there is no such key.
	LockEnds, QueueEnds, SuspectsEnds int64

	// Hears holds the clients that subscribe to their wake channel.
	Hears map[string]bool
	// Mute makes the server refuse PUBLISH, Blind PUBSUB NUMSUB.
	Mute, Blind bool
	// Sent collects what is published.
	Sent []Sent
}

// A Hash is what the lock key keeps. What is zero is not there.
type Hash struct {
	Owner string

	// The last grant; all there as soon as Token is.
	Token               int64
	Until, Lease, Since int64
	Phase, Who          string

	High   int64 // the last arrival given
	Mark   int64 // until then nobody is dropped (R6)
	Scan   *Scan // how far a pass came that was cut at its bound
	Kept   int64 // until then at the least all keys live
	Marked bool  // there may be suspects
	Forced string
	Lapsed string

	Entries *Entries // of a reentrant hold
}

// Entries is how often the hold with a token was entered, and how often that has changed.
type Entries struct{ Token, Revision, Count int64 }

// A Scan is how far a pass over silent heads came.
type Scan struct {
	Silent  int    // clients that it found silent
	Arrival int64  // up to which nobody was alive
	One     string // the last of these clients
}

// Sent is a message on the wake channel of a client.
type Sent struct{ Client, Text string }

// New returns a lock that nobody ever used.
func New() *Mutex {
	return &Mutex{Suspects: map[string]int64{}, Hears: map[string]bool{}}
}

// Fields returns the hash as Redis shows it.
func (h *Hash) Fields() map[string]string {
	f := map[string]string{}
	text := func(name, value string) {
		if value != "" {
			f[name] = value
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			f[name] = strconv.FormatInt(value, 10)
		}
	}
	text("owner", h.Owner)
	text("forced", h.Forced)
	text("lapsed", h.Lapsed)
	number("high", h.High)
	number("mark", h.Mark)
	number("kept", h.Kept)
	if h.Marked {
		f["marked"] = "1"
	}
	if h.Scan != nil {
		f["scan"] = fmt.Sprintf("%d:%d:%s", h.Scan.Silent, h.Scan.Arrival, h.Scan.One)
	}
	if e := h.Entries; e != nil {
		f["entries"] = fmt.Sprintf("%d:%d:%d", e.Token, e.Revision, e.Count)
	}
	if h.Token != 0 {
		number("token", h.Token)
		number("until", h.Until)
		number("lease", h.Lease)
		number("since", h.Since)
		f["phase"], f["who"] = h.Phase, h.Who
	}
	return f
}

// Expire removes the keys whose time has come.
func (m *Mutex) Expire(now int64) {
	over := func(end int64) bool { return end != 0 && end <= now }
	m.Delete(over(m.LockEnds), over(m.QueueEnds), over(m.SuspectsEnds))
}

// Delete removes keys.
func (m *Mutex) Delete(lock, queue, suspects bool) {
	if lock {
		m.Lock = Hash{}
	}
	if queue {
		m.Queue = nil
	}
	if suspects {
		clear(m.Suspects)
	}
	m.tidy()
}

// tidy forgets the expiry of keys that are empty, which Redis removes.
func (m *Mutex) tidy() {
	if m.Lock == (Hash{}) {
		m.LockEnds = 0
	}
	if len(m.Queue) == 0 {
		m.QueueEnds = 0
	}
	if len(m.Suspects) == 0 {
		m.SuspectsEnds = 0
	}
}

// Enqueue puts a ticket into the queue by its arrival, and reports false if it is there already: then the earlier
// of its arrivals counts.
func (m *Mutex) Enqueue(ticket string, arrival int64) bool {
	rank := m.rank(ticket)
	if rank >= 0 && m.Queue[rank].Arrival <= arrival {
		return false
	}
	if rank >= 0 {
		m.Queue = slices.Delete(m.Queue, rank, rank+1)
	}
	a := lua.Arrival{Ticket: ticket, Arrival: arrival}
	i, _ := slices.BinarySearchFunc(m.Queue, a, order)
	m.Queue = slices.Insert(m.Queue, i, a)
	return rank < 0
}

func order(a, b lua.Arrival) int {
	return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), strings.Compare(a.Ticket, b.Ticket))
}

// dequeue takes a ticket out of the queue, and reports whether it was there.
func (m *Mutex) dequeue(ticket string) bool {
	i := m.rank(ticket)
	if i < 0 {
		return false
	}
	m.Queue = slices.Delete(m.Queue, i, i+1)
	m.tidy()
	return true
}

func (m *Mutex) rank(ticket string) int {
	return slices.IndexFunc(m.Queue, func(a lua.Arrival) bool { return a.Ticket == ticket })
}

// publish sends a message, unless the server refuses it, and reports whether it went.
func (m *Mutex) publish(client, text string) bool {
	if m.Mute {
		return false
	}
	m.Sent = append(m.Sent, Sent{client, text})
	return true
}

// Clone returns a copy that shares nothing.
func (m *Mutex) Clone() *Mutex {
	c := *m
	if s := m.Lock.Scan; s != nil {
		scan := *s
		c.Lock.Scan = &scan
	}
	if e := m.Lock.Entries; e != nil {
		entries := *e
		c.Lock.Entries = &entries
	}
	c.Queue, c.Sent = slices.Clone(m.Queue), slices.Clone(m.Sent)
	c.Suspects, c.Hears = maps.Clone(m.Suspects), maps.Clone(m.Hears)
	return &c
}

// passesOf is how often the client of a ticket may pass its hold on, each time with a token higher by one.
func passesOf(ticket string) int64 {
	f := strings.Split(ticket, ":")
	if len(f) != 6 {
		return 0
	}
	n, _ := strconv.ParseInt(f[3], 10, 64)
	return n - 1
}

// terms are what the text of a ticket says of its leases.
func terms(ticket string) (lease, grant int64) {
	f := strings.Split(ticket, ":")
	if len(f) != 6 {
		return 0, 0
	}
	lease, _ = strconv.ParseInt(f[4], 10, 64)
	grant, _ = strconv.ParseInt(f[5], 10, 64)
	return lease * millisecond, grant * millisecond
}
