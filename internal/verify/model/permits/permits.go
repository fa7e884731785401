// Package permits is the protocol of locks that many hold at a time, semaphores and read-write locks, told a
// second time as plain Go: what the scripts of lua/semaphore and lua/rwlock must answer, store and publish.
//
// A [Lock] is one of them as Redis keeps it. The tests drive it and the scripts with the same random histories
// and compare replies, keys and messages after each step.
package permits

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// Times are server µs, as everywhere in the protocol.
const (
	mostGrants = 256  // tickets granted in one script
	mostTold   = 100  // grants in one message
	mostLapses = 128  // leases ended in one script
	firstHolds = 64   // holds among which an end looks for one that its client may not know of
	mostWants  = 4096 // characters of clients that are told by message when somebody waits
	day        = 24 * 60 * stage.Minute
	resizedFor = 30 * day // for how long a limit that is not the number stated outlives the last use, a day more or less
)

// guard is the member of the holders that is no ticket.
var guard = strings.Repeat("-", 65)

// Estimated is what Waiting of a reply of the model says where the scripts draw a sample.
const Estimated = line.Estimated

// Phases of a hold, as the hash has them.
const (
	byMessage = 'g'
	byReply   = 'r'
	held      = 'h'
	final     = 'f'
	ranOut    = 'x' // of what rests after a lease that was not released
)

// A Lock is one name: its four keys, and what the server knows of the clients.
type Lock struct {
	Hash Hash
	line.Line
	Holders map[string]int64 // the end of the lease of each hold, and the guard

	// When these keys expire; 0: never, or there is no such key.
	LockEnds, HoldersEnds int64
}

// A Hash is what the lock key keeps. What is zero is not there.
type Hash struct {
	line.Notes
	Limit  int64 // and the number of permits held, as soon as the lock is made
	Stated int64 // by the newest client; 0: nobody has since it was made by a resize
	Born   int64 // when that client was made; 0: the limit cannot change
	Holds  map[string]Hold
	Group  int64 // the token that readers share
	Rests  int64 // until when permits may stay taken whose hold is over
	// How the last write hold ended, as "how:token", if it was not released; and the token of the one to which that was told, 0: none.
	Previous string
	Told     int64
	Wants    string // the clients that are to be told when somebody waits, each followed by a space
}

// A Hold is the record of one.
type Hold struct {
	Permits, Token, Lease int64
	Phase                 byte
	Since                 int64
	Who                   string
	Least                 int64 // for how many ms from the grant the permits are to stay taken; 0: while they are held
}

func (h Hold) String() string {
	if h.Least > 0 {
		h.Who = fmt.Sprintf("~%d~%s", h.Least, h.Who)
	}
	return fmt.Sprintf("%d:%d:%d:%c:%d:%s", h.Permits, h.Token, h.Lease, h.Phase, h.Since, h.Who)
}

// New returns a lock that nobody ever used.
func New() *Lock {
	return &Lock{Line: line.New(), Holders: map[string]int64{}}
}

// pending reports whether the next write hold is to be told how the last one ended.
func (h *Hash) pending() bool { return h.Previous != "" && h.Told == 0 }

// before is what a hold with a token was told.
func (h *Hash) before(token int64) string {
	if h.pending() || token != h.Told {
		return ""
	}
	return h.Previous
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
	h, f := &l.Hash, l.Hash.Notes.Fields()
	line.Numbers(f, map[string]int64{"limit": h.Limit, "stated": h.Stated, "born": h.Born, "group": h.Group, "rests": h.Rests})
	line.Texts(f, map[string]string{"wants": h.Wants})
	if h.Previous != "" {
		f["previous"] = stage.Decimal(h.Told) + ":" + h.Previous
	}
	if h.Limit != 0 {
		f["used"] = stage.Decimal(l.Used())
	}
	for ticket, hold := range h.Holds {
		f[ticket] = hold.String()
	}
	return f
}

// State is what the keys of a server should hold.
func (l *Lock) State(now int64) stage.State {
	all := append(stage.State{stage.Fields(l.Fields(), l.LockEnds, now)}, l.Keys(now)...)
	return append(all, stage.Scores(l.Holders, l.HoldersEnds, now))
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
	l.Tidy()
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
	slices.SortFunc(all, line.Order)
	return all
}

// Clone returns a copy that shares nothing.
func (l *Lock) Clone() *Lock {
	c := *l
	c.Line, c.Hash.Notes = l.Line.Clone(), l.Hash.Notes.Clone()
	c.Hash.Holds, c.Holders = maps.Clone(l.Hash.Holds), maps.Clone(l.Holders)
	return &c
}
