package check

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Command is one that the server ran, inside a script or not.
type Command struct {
	At    int64 // µs of the server
	Words []string
	Conn  any // tells connections apart, where scripts of several may have begun
	Run   any // tells the runs of scripts apart
}

// A Grant is one that the server made.
type Grant struct {
	Ticket  string
	Token   uint64
	Permits int64
	Since   int64 // µs of the server
	Until   int64 // µs of the server at which the lease ends, as far as it was prolonged
	Arrival int64 // of the ticket in the queue; 0 if it never was there
	Queued  int64 // µs of the server at which it came into the queue first; 0 if it never did
	shared  bool
}

// Truth replays what scripts did to one lock: one of [lua.Fairlock], [lua.Reentrant] and [lua.Election], with one owner,
// or one of [lua.Semaphore] and [lua.RWLock], with permits. It reports each fault at once and once: a grant before the
// end of the one before, or above the limit; tokens that do not rise; a grant outside the queue, or ahead of a ticket
// that stays in it. Clients that were dropped ahead of a grant are counted; whether they were dead the test must know.
//
// It needs every command from the first use of the lock on, in their order. It keeps no more than what it
// needs for the holds and tickets that there are, unless told to by Keep.
type Truth struct {
	Limit int64 // permits; 0 for a lock with one owner
	Keep  bool  // remember all grants, in Grants

	Wrong   []string
	Grants  []*Grant
	Granted int
	Dropped map[string]int // tickets that were dropped ahead of a grant, by client
	Lapsed  int            // leases that ran out
	Lapses  map[string]int // the same, by client
	// Strays is how many tickets came into the queue after their own end had begun, so that nobody waits for them
	// any more, and Astray for how long one of them was in the queue or held, at the most.
	Strays int
	Astray time.Duration
	// Turns is how many were granted while a ticket was in the queue that was granted itself, at the most.
	Turns int

	keys    lua.Keys
	scripts map[any][]string // for each connection the last script: one of them runs
	run     any              // which run it is
	passed  []ticket         // what it took out of the queue
	queue   []ticket         // in order
	queued  map[string]coming
	holders map[string]*Grant
	recent  [recentEnds]string // tickets whose end was begun lately, round and round
	ending  map[string]bool    // the same
	endings int
	strays  map[string]int64 // since when
	token   uint64
	now     int64
}

// recentEnds is for how many ends it is remembered that they have begun.
const recentEnds = 4096

type ticket struct {
	arrival float64
	text    string
	meant   bool // the script that took it out is about it
}

// coming is when a ticket came into the queue first.
type coming struct {
	at      int64 // µs of the server
	granted int   // grants before
}

// NewTruth follows the lock with those keys.
func NewTruth(keys lua.Keys, limit int64) *Truth {
	return &Truth{
		Limit: limit, keys: keys, Dropped: map[string]int{}, Lapses: map[string]int{}, queued: map[string]coming{}, holders: map[string]*Grant{},
		scripts: map[any][]string{}, ending: map[string]bool{}, strays: map[string]int64{},
	}
}

func (x *Truth) wrong(format string, args ...any) {
	x.Wrong = append(x.Wrong, fmt.Sprintf("at %d: ", x.now)+fmt.Sprintf(format, args...))
}

// Feed takes in the next command.
func (x *Truth) Feed(c Command) {
	if len(c.Words) < 2 {
		return
	}
	verb, key, rest := strings.ToUpper(c.Words[0]), c.Words[1], c.Words[2:]
	if verb == "EVALSHA" || verb == "EVAL" {
		x.scripts[c.Conn] = c.Words
		x.begun(c.Words)
		return
	}
	x.now = c.At
	if key == x.keys.Lock || key == x.keys.Queue || key == x.keys.Holders {
		if c.Run != x.run {
			x.Settle()
			x.run = c.Run
		}
	}
	switch {
	case verb == "FLUSHALL" || verb == "DEL" && slices.Contains(c.Words[1:], x.keys.Lock):
		clear(x.holders)
	case key == x.keys.Queue:
		x.queueing(verb, rest)
	case key == x.keys.Holders && verb == "ZADD":
		x.prolong(rest)
	case key != x.keys.Lock:
	case verb == "HDEL":
		x.deleted(rest)
	case verb == "HSET":
		x.set(rest)
	}
}

// begun remembers which tickets are to end.
func (x *Truth) begun(words []string) {
	for _, s := range ends {
		keys, _ := strconv.Atoi(words[2]) // Not all of them in the usual case.
		if first := 3 + keys; (words[1] == s.SHA || words[1] == s.Source) && len(words) > first && words[3] == x.keys.Lock {
			i := x.endings % recentEnds
			delete(x.ending, x.recent[i])
			x.recent[i], x.ending[words[first]] = words[first], true
			x.endings++
		}
	}
}

// home is the end of a ticket that nobody waited for, if it is one.
func (x *Truth) home(text string) {
	if since, ok := x.strays[text]; ok {
		x.Astray = max(x.Astray, time.Duration(x.now-since)*time.Microsecond)
		delete(x.strays, text)
	}
}

// queueing is a change of the queue.
func (x *Truth) queueing(verb string, rest []string) {
	switch verb {
	case "ZADD":
		var lower, higher, keep bool
		for ; len(rest) > 2; rest = rest[1:] {
			lower, higher, keep = lower || rest[0] == "LT", higher || rest[0] == "GT", keep || rest[0] == "NX"
		}
		arrival, err := strconv.ParseFloat(rest[0], 64)
		if err != nil {
			x.wrong("arrival %q: %v", rest[0], err)
		}
		t := ticket{arrival: arrival, text: rest[1]}
		if i := slices.IndexFunc(x.queue, func(q ticket) bool { return q.text == t.text }); i >= 0 {
			old := x.queue[i].arrival
			if keep || lower && arrival >= old || higher && arrival <= old {
				return
			}
			x.queue = slices.Delete(x.queue, i, i+1)
		}
		i, _ := slices.BinarySearchFunc(x.queue, t, func(a, b ticket) int {
			return cmp.Or(cmp.Compare(a.arrival, b.arrival), strings.Compare(a.text, b.text))
		})
		x.queue = slices.Insert(x.queue, i, t)
		if x.ending[t.text] {
			x.Strays++
			x.strays[t.text] = x.now
		}
		if _, again := x.queued[t.text]; !again {
			x.queued[t.text] = coming{x.now, x.Granted}
		}
	case "ZREM":
		for _, text := range rest {
			if i := slices.IndexFunc(x.queue, func(t ticket) bool { return t.text == text }); i >= 0 {
				x.queue[i].meant = x.runs(text, true)
				x.passed = append(x.passed, x.queue[i])
				x.queue = slices.Delete(x.queue, i, i+1)
			}
		}
	case "ZREMRANGEBYRANK":
		last, err := strconv.Atoi(rest[1])
		if err != nil || rest[0] != "0" {
			x.wrong("ranks %v of the queue are removed", rest)
			return
		}
		n := min(last+1, len(x.queue))
		x.passed = append(x.passed, x.queue[:n]...)
		x.queue = slices.Delete(x.queue, 0, n)
	}
}

// set is HSET of the hash: a grant, or a renewal, of an owner or of one of several.
func (x *Truth) set(rest []string) {
	f := map[string]string{}
	for i := 0; i+1 < len(rest); i += 2 {
		f[rest[i]] = rest[i+1]
	}
	if owner := f["owner"]; owner == wire.Nobody {
		x.deleted([]string{"owner"}) // The next is to be told how the last hold ended.
	} else if owner != "" {
		g := &Grant{Ticket: owner, Token: number(f["token"]), Permits: 1, Since: x.now}
		if g.Until = int64(number(f["until"])); f["until"] == "" {
			g.Until = int64(g.Token) + wire.TicketLease(owner).Microseconds() // It was taken at once.
		}
		x.grant(g)
	} else if f["until"] != "" {
		for _, g := range x.holders {
			g.Until = int64(number(f["until"]))
		}
	}
	if limit := f["limit"]; limit != "" && x.Limit > 0 {
		x.Limit = int64(number(limit))
	}
	for i := 0; i+1 < len(rest); i += 2 {
		// In the order of the script, which is the tokens' order.
		if strings.Contains(rest[i], ":") {
			x.record(rest[i], rest[i+1])
		}
	}
}

// record is the field of a hold on permits: permits:token:lease:phase:since:who.
func (x *Truth) record(text, record string) {
	p := strings.SplitN(record, ":", 6)
	if len(p) < 6 {
		return
	}
	permits, token, lease, since := int64(number(p[0])), number(p[1]), int64(number(p[2])), int64(number(p[4]))
	if g := x.holders[text]; g != nil {
		if g.Permits > permits {
			g.Permits, g.shared = permits, true // A writer that goes on as a reader.
			return
		}
		if g.Token == token {
			return // A renewal; the holders have its end.
		}
	}
	parts := strings.Split(text, ":")
	x.grant(&Grant{
		Ticket: text, Token: token, Permits: permits, Since: since, Until: since + lease, shared: len(parts) > 2 && parts[2] == string(wire.Read),
	})
}

// prolong is ZADD of the holders.
func (x *Truth) prolong(rest []string) {
	for i := 0; i+1 < len(rest); i += 2 {
		if g := x.holders[rest[i+1]]; g != nil {
			g.Until = int64(number(rest[i]))
		}
	}
}

// number is an integer of a script. What is none is 0, and no token.
func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// deleted is HDEL of the hash: the end of holds.
func (x *Truth) deleted(fields []string) {
	for _, f := range fields {
		if f == "owner" {
			for text := range x.holders {
				x.end(text)
			}
		}
		if x.holders[f] != nil {
			x.end(f)
		}
	}
}

// end is the end of a hold: because the script is one that ends it, or because its lease is over.
func (x *Truth) end(text string) {
	g := x.holders[text]
	delete(x.holders, text)
	x.home(text)
	if x.ends(text) {
		return
	}
	x.Lapsed++
	client, _, _ := strings.Cut(text, ":")
	x.Lapses[client]++
	// The script read the clock before this command of it ran.
	if g.Until > x.now {
		x.wrong("hold %s was ended with %d µs left", text, g.Until-x.now)
	}
}

// The scripts that end one ticket or hold.
var (
	ends   = []*lua.Script{lua.Fairlock.End, lua.Election.End, lua.Semaphore.End}
	forces = []*lua.Script{lua.Fairlock.Force, lua.Election.Force, lua.Semaphore.Force}
)

// ends says whether a script that may run ends that hold: it is the end of its ticket, or by force.
func (x *Truth) ends(text string) bool {
	return x.runs(text, true, ends...) || x.runs(text, true, lua.MultiEnd) || x.runs("", false, forces...)
}

// runs says whether a script that may run is one of those, or any if there are none, and, if it must, names
// the ticket.
func (x *Truth) runs(text string, must bool, which ...*lua.Script) bool {
	for _, words := range x.scripts {
		is := func(s *lua.Script) bool { return words[1] == s.SHA || words[1] == s.Source }
		if (len(which) == 0 || slices.ContainsFunc(which, is)) && (!must || slices.ContainsFunc(words, func(w string) bool { return named(w) == text })) {
			return true
		}
	}
	return false
}

// named is the ticket of an argument, which may say behind it how the hold ended.
func named(word string) string {
	ticket, _, _ := strings.Cut(word, " ")
	return ticket
}

// grant is a new hold.
func (x *Truth) grant(g *Grant) {
	x.Granted++
	if x.Limit == 0 {
		for text := range x.holders {
			x.end(text) // It is replaced, which must be its end.
		}
	}
	used := g.Permits
	for _, other := range x.holders {
		used += other.Permits
	}
	if used > max(x.Limit, 1) {
		x.wrong("grant of %s: %d permits of %d are held", g.Ticket, used, max(x.Limit, 1))
	}
	shares := false
	for _, other := range x.holders {
		shares = shares || g.shared && other.shared && other.Token == g.Token
	}
	if g.Token <= x.token && !shares && !(g.shared && g.Token == x.token) {
		x.wrong("grant of %s: token %d after %d", g.Ticket, g.Token, x.token)
	}
	x.token = max(x.token, g.Token)
	x.order(g)
	x.holders[g.Ticket] = g
	if x.Keep {
		x.Grants = append(x.Grants, g)
	}
}

// order looks at the place of a ticket that was granted.
func (x *Truth) order(g *Grant) {
	i := slices.IndexFunc(x.passed, func(t ticket) bool { return t.text == g.Ticket })
	if i < 0 {
		if len(x.queue) > 0 {
			x.wrong("grant of %s outside a queue of %d", g.Ticket, len(x.queue))
		}
		delete(x.queued, g.Ticket)
		return
	}
	came := x.queued[g.Ticket]
	g.Arrival, g.Queued = int64(x.passed[i].arrival), came.at
	x.Turns = max(x.Turns, x.Granted-1-came.granted)
	if len(x.queue) > 0 && x.queue[0].arrival < x.passed[i].arrival {
		x.wrong("grant of %s (arrival %d) ahead of %s (arrival %.0f)", g.Ticket, g.Arrival, x.queue[0].text, x.queue[0].arrival)
	}
	delete(x.queued, g.Ticket)
}

// Settle ends the replay of a script: what it took out of the queue and did not grant was dropped, unless the
// script is about that ticket. The next script does the same; a test calls it once after the last.
func (x *Truth) Settle() {
	for _, t := range x.passed {
		if x.holders[t.text] == nil && !t.meant {
			client, _, _ := strings.Cut(t.text, ":")
			x.Dropped[client]++
		}
		if x.holders[t.text] == nil {
			x.home(t.text)
		}
		delete(x.queued, t.text)
	}
	x.passed = nil
}
