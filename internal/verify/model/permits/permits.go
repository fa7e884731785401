// Package permits is the protocol of locks that many hold at a time, semaphores and read-write locks, told a
// second time as plain Go: what the scripts of lua/semaphore and lua/rwlock must answer, store and publish.
//
// A [Lock] is one of them as Redis keeps it. The tests drive it and the scripts with the same random histories
// and compare replies, keys and messages after each step.
package permits

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// Times are server µs, as everywhere in the protocol.
const (
	spare       = stage.Minute           // how long keys outlive the last need of them (I6)
	leastKept   = spare * 3 / 4          // and from when on they are prolonged
	looks       = 512                    // heads after which a script looks no further (I7)
	lookBatch   = 128                    // at so many a time, after the first
	drops       = 2048                   // tickets removed in one script
	mostGrants  = 256                    // tickets granted in one script
	mostLapses  = 128                    // leases ended in one script
	firstHolds  = 64                     // holds among which an end looks for one that its client may not know of
	mostSpared  = 10 * stage.Second      // for how long nobody is dropped at the most
	mostKept    = spare * 5 / 4          // from when on keys are cut to a minute
	forgedAhead = 24 * 60 * stage.Minute // how far ahead of the clock a token cannot be
	markLasts   = stage.Minute           // for how long after its end a mark still counts as used
	remembers   = 10 * stage.Minute      // how long a suspect is remembered
	callsListed = 2048                   // tickets whose clients are called when a grant lapses
	callsMost   = 256                    // and how many clients at the most
	answerTime  = stage.Second           // how long they have to answer
	longLook    = 2 * stage.Second       // the longest time between two looks of a client, of few
	lookEach    = 5 * stage.Millisecond  // and what each waiting client adds to it
	exactSize   = 400                    // up to this size of the queue a reply tells it exactly
	day         = 24 * 60 * stage.Minute
	resizedFor  = 30 * day      // for how long a limit that was changed outlives the last use, a day more or less
	never       = math.MinInt64 // an arrival before all others
	guard       = "-"           // the member of the holders that is no ticket
)

// Estimated is what Waiting of a reply of the model says where the scripts draw a sample.
const Estimated = -1

// Phases of a hold, as the hash has them.
const (
	byMessage = 'g'
	byReply   = 'r'
	held      = 'h'
	final     = 'f'
)

// A Lock is one name: its four keys, and what the server knows of the clients.
type Lock struct {
	Hash     Hash
	Queue    []lua.Arrival    // by arrival, then by ticket
	Suspects map[string]int64 // clients, by time of the mark
	Holders  map[string]int64 // the end of the lease of each hold, and the guard

	// When the keys expire; 0: never, or there is no such key.
	LockEnds, QueueEnds, SuspectsEnds, HoldersEnds int64

	// Hears holds the clients that subscribe to their wake channel.
	Hears map[string]bool
	// Mute makes the server refuse PUBLISH, Blind PUBSUB NUMSUB.
	Mute, Blind bool
	// Sent collects what is published.
	Sent []stage.Message
}

// A Hash is what the lock key keeps. What is zero is not there.
type Hash struct {
	Limit        int64 // and the number of permits held, as soon as the lock is made
	Stated       int64 // with which it was made, until it is resized
	Holds        map[string]Hold
	Token, Group int64
	High         int64 // the last arrival given
	Mark         int64 // until then nobody is dropped (R6)
	Scan         *Scan // how far a pass came that was cut at its bound
	Kept         int64 // until then at the least all keys live
	Marked       bool  // there may be suspects
	Forced       string
	Lapsed       string
}

// A Hold is the record of one.
type Hold struct {
	Permits, Token, Lease int64
	Phase                 byte
	Since                 int64
	Who                   string
}

func (h Hold) String() string {
	return fmt.Sprintf("%d:%d:%d:%c:%d:%s", h.Permits, h.Token, h.Lease, h.Phase, h.Since, h.Who)
}

// A Scan is how far a pass over silent heads came.
type Scan struct {
	Silent  int    // clients that it found silent
	Arrival int64  // up to which nobody was alive
	One     string // the last of these clients
}

// New returns a lock that nobody ever used.
func New() *Lock {
	return &Lock{Suspects: map[string]int64{}, Holders: map[string]int64{}, Hears: map[string]bool{}}
}

// Used is how many permits are held, those of leases that are over among them.
func (l *Lock) Used() int64 {
	var n int64
	for _, h := range l.Hash.Holds {
		n += h.Permits
	}
	return n
}

// Fields returns the hash as Redis shows it.
func (l *Lock) Fields() map[string]string {
	h, f := &l.Hash, map[string]string{}
	for name, value := range map[string]string{"forced": h.Forced, "lapsed": h.Lapsed} {
		if value != "" {
			f[name] = value
		}
	}
	for name, value := range map[string]int64{
		"limit": h.Limit, "stated": h.Stated, "token": h.Token, "group": h.Group, "high": h.High, "mark": h.Mark, "kept": h.Kept,
	} {
		if value != 0 {
			f[name] = stage.Decimal(value)
		}
	}
	if h.Limit != 0 {
		f["used"] = stage.Decimal(l.Used())
	}
	if h.Marked {
		f["marked"] = "1"
	}
	if h.Scan != nil {
		f["scan"] = fmt.Sprintf("%d:%d:%s", h.Scan.Silent, h.Scan.Arrival, h.Scan.One)
	}
	for ticket, hold := range h.Holds {
		f[ticket] = hold.String()
	}
	return f
}

// State is what the keys of a server should hold.
func (l *Lock) State(now int64) stage.State {
	queue := map[string]int64{}
	for _, a := range l.Queue {
		queue[a.Ticket] = a.Arrival
	}
	return stage.State{
		stage.Fields(l.Fields(), l.LockEnds, now), stage.Scores(queue, l.QueueEnds, now),
		stage.Scores(l.Suspects, l.SuspectsEnds, now), stage.Scores(l.Holders, l.HoldersEnds, now),
	}
}

// Expire removes the keys whose time has come.
func (l *Lock) Expire(now int64) {
	over := func(end int64) bool { return end != 0 && end <= now }
	l.Delete(over(l.LockEnds), over(l.QueueEnds), over(l.SuspectsEnds), over(l.HoldersEnds))
}

// Delete removes keys.
func (l *Lock) Delete(lock, queue, suspects, holders bool) {
	if lock {
		l.Hash = Hash{}
	}
	if queue {
		l.Queue = nil
	}
	if suspects {
		clear(l.Suspects)
	}
	if holders {
		clear(l.Holders)
	}
	l.tidy()
}

// tidy forgets the expiry of keys that are empty, which Redis removes.
func (l *Lock) tidy() {
	if len(l.Fields()) == 0 {
		l.LockEnds = 0
	}
	if len(l.Queue) == 0 {
		l.QueueEnds = 0
	}
	if len(l.Suspects) == 0 {
		l.SuspectsEnds = 0
	}
	if len(l.Holders) == 0 {
		l.HoldersEnds = 0
	}
}

// ends are the holds by the ends of their leases.
func (l *Lock) ends() []lua.Arrival {
	var all []lua.Arrival
	for ticket, end := range l.Holders {
		if ticket != guard {
			all = append(all, lua.Arrival{Ticket: ticket, Arrival: end})
		}
	}
	slices.SortFunc(all, order)
	return all
}

// Enqueue puts a ticket into the queue by its arrival, and reports false if it is there already: then the earlier
// of its arrivals counts.
func (l *Lock) Enqueue(ticket string, arrival int64) bool {
	rank := l.rank(ticket)
	if rank >= 0 && l.Queue[rank].Arrival <= arrival {
		return false
	}
	if rank >= 0 {
		l.Queue = slices.Delete(l.Queue, rank, rank+1)
	}
	a := lua.Arrival{Ticket: ticket, Arrival: arrival}
	i, _ := slices.BinarySearchFunc(l.Queue, a, order)
	l.Queue = slices.Insert(l.Queue, i, a)
	return rank < 0
}

func order(a, b lua.Arrival) int {
	return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), strings.Compare(a.Ticket, b.Ticket))
}

// dequeue takes a ticket out of the queue, and reports whether it was there.
func (l *Lock) dequeue(ticket string) bool {
	i := l.rank(ticket)
	if i < 0 {
		return false
	}
	l.Queue = slices.Delete(l.Queue, i, i+1)
	l.tidy()
	return true
}

func (l *Lock) rank(ticket string) int {
	return slices.IndexFunc(l.Queue, func(a lua.Arrival) bool { return a.Ticket == ticket })
}

// publish sends a message, unless the server refuses it, and reports whether it went.
func (l *Lock) publish(client, text string) bool {
	if l.Mute {
		return false
	}
	l.Sent = append(l.Sent, stage.Message{Client: client, Text: text})
	return true
}

// Clone returns a copy that shares nothing.
func (l *Lock) Clone() *Lock {
	c := *l
	if s := l.Hash.Scan; s != nil {
		scan := *s
		c.Hash.Scan = &scan
	}
	c.Hash.Holds = maps.Clone(l.Hash.Holds)
	c.Queue, c.Sent = slices.Clone(l.Queue), slices.Clone(l.Sent)
	c.Suspects, c.Holders, c.Hears = maps.Clone(l.Suspects), maps.Clone(l.Holders), maps.Clone(l.Hears)
	return &c
}

// terms are what the text of a ticket says.
type terms struct {
	client       string
	kind         byte
	permits      int64
	lease, grant int64
}

// read reads the text of a ticket, and reports false where it is none.
func read(ticket string) (terms, bool) {
	f := strings.Split(ticket, ":")
	if len(f) != 6 || len(f[2]) != 1 {
		return terms{client: f[0]}, false
	}
	var n [3]int64
	for i := range n {
		n[i], _ = strconv.ParseInt(f[3+i], 10, 64)
	}
	return terms{f[0], f[2][0], n[0], n[1] * stage.Millisecond, n[2] * stage.Millisecond}, true
}
