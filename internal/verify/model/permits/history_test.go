package permits

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// A history is a list of steps. Each can be taken out, and what is left is a history still: that is how
// failing ones are made short.
type history struct {
	deaf  int   // clients that do not subscribe at the start, a bit each
	locks bool  // a read-write lock, not a semaphore
	limit int64 // of the semaphore at the start
	steps []step
}

// What a step may do.
const (
	opAsk       = "ask"
	opEnd       = "end"
	opRenew     = "renew"
	opCheck     = "check"
	opForce     = "force"
	opResize    = "resize"
	opDowngrade = "downgrade"
	opInspect   = "inspect"
	opRepeat    = "repeat" // an earlier request, word for word
	opHear      = "hear"
	opHush      = "hush" // the client's subscription is gone
	opPass      = "pass" // time passes
	opClock     = "clock"
	opDelete    = "delete"
	opDeny      = "deny" // the server refuses PUBLISH or NUMSUB to the next request
	opCrowd     = "crowd"
)

const (
	clients = 4
	slots   = 4 // tickets that a client has at a time
)

// A step is one thing that happens. Only the fields that its op reads are set.
type step struct {
	op      string
	client  int
	slot    int
	slots   int         // of a check, a bit each
	mode    string      // of an ask or check
	permits int         // which number of permits, or which limit
	lease   int64       // ms
	grant   int64       // ms
	head    int64       // µs
	bound   *line.Bound // of a new ticket
	micros  int64       // of pass and clock
	choice  int         // which token, keys, right, or how far back a repeat goes
	floor   int         // 0: none, 1: the highest token seen, 2: one above it, 3: one that is forged
	size    int         // of a crowd
	fresh   bool        // a new ticket, though the last one has not ended
	final   bool
	wants   bool // a renewal of a holder that wants to be told when somebody waits
	late    bool // the not-after has passed
	blank   bool // subscribers are not counted
	other   bool // another limit is stated
	lost    bool // the client does not get the reply
	twice   bool // sent twice in a row
	ahead   bool // a crowd that came before everybody else
	single  bool // a crowd of one client
}

var (
	limits     = []int64{3, 1, 2, 5, 3, 16, 4, 1<<53 - 1}
	leases     = []int64{1000, 10000, 50, 1, 600000, 2000, 300, 5000}
	bounds     = []*line.Bound{nil, {Limit: 1, Left: -1}, nil, {Limit: 2, Left: -1}, {Left: stage.Second}, nil, {Limit: 3, Left: 300 * 1000}}
	grants     = []int64{500, 2000, 1, 300000}
	askModes   = []string{lua.Wait, lua.Wait, lua.Wait, lua.Wait, lua.Wait, lua.Look, lua.Try, lua.Drain}
	checkModes = []string{lua.Hears, lua.Hears, lua.Hears, lua.Hears, lua.Proven, lua.Proven, lua.Deaf, lua.Deaf}
	passes     = []int64{
		1, 999, stage.Millisecond, 10 * stage.Millisecond, 300 * stage.Millisecond, 500 * stage.Millisecond,
		stage.Second, stage.Second, 2 * stage.Second, 2 * stage.Second, 11 * stage.Second, 44 * stage.Second,
		stage.Minute, 2*stage.Minute + 1, 11 * stage.Minute, 2 * day,
	}
	clocks = []int64{
		-1, -999, -10 * stage.Millisecond, -stage.Second, -5 * stage.Second, -stage.Minute, -60 * stage.Minute,
		-60 * stage.Minute, -11 * stage.Minute, -2 * stage.Second, stage.Second, stage.Minute, 60 * stage.Minute,
		10 * stage.Millisecond, -500 * stage.Millisecond, 11 * stage.Minute,
	}
	crowds = []int{2, 3, 5, 20, 3, 2, 3, 600}
	ops    = stage.Weights{
		{opAsk, 28}, {opEnd, 11}, {opRenew, 6}, {opCheck, 10}, {opForce, 4}, {opResize, 5}, {opDowngrade, 3},
		{opInspect, 1}, {opRepeat, 3}, {opHear, 3}, {opHush, 3}, {opPass, 6}, {opClock, 1}, {opDelete, 1},
		{opDeny, 2}, {opCrowd, 1},
	}
)

// decode makes a history of any bytes: two for the start, then four for each step.
func decode(data []byte) history {
	var h history
	if len(data) < 2 {
		return h
	}
	if data[0] > 127 {
		h.deaf = int(data[0]) & (1<<clients - 1)
	}
	h.locks, h.limit = data[1]&1 == 1, limits[data[1]>>1%8]
	h.steps = stage.Steps(data[2:], decodeStep)
	return h
}

func decodeStep(a, b, c, d byte) step {
	s := step{client: int(b) % clients, slot: int(b/clients) % slots, twice: a >= 192}
	s.op = ops.Pick(a)
	s.fresh = b >= 224
	s.floor = [...]int{0, 1, 1, 1, 1, 1, 1, 2}[c>>5]
	if c == 255 {
		s.floor = 3
	}
	s.choice = int(c) % 8
	variant := d >> 5
	s.lost, s.blank, s.late = variant == 4, variant == 5, variant == 7
	switch s.op {
	case opAsk:
		s.mode, s.final = askModes[c%8], c>>3%4 == 0
		s.lease, s.grant, s.permits = leases[d%8], grants[d>>3%4], int(b>>4)
		s.other = variant == 3 && d%4 == 0
		if variant == 6 {
			s.head = [...]int64{1, 2, -3}[b%3] * stage.Second
		}
		s.bound = bounds[int(b)/clients/slots%len(bounds)]
	case opRenew:
		s.lease, s.final, s.wants = leases[d%8], c>>3%4 == 0, d>>3%2 == 1
	case opCheck:
		s.mode, s.slots = checkModes[c%8], int(d)%(1<<slots)
	case opResize:
		s.permits, s.other = int(d)%8, variant == 3
	case opPass:
		s.micros = passes[c%16]
	case opClock:
		s.micros = clocks[c%16]
	case opCrowd:
		s.size, s.ahead, s.single, s.grant = crowds[c%8], d%2 == 0, d>>1%4 == 0, 500
	}
	return s
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 4, 2) }

func (s step) String() string {
	var b stage.Words
	b.WriteString(s.op)
	ticket := s.op == opAsk || s.op == opEnd || s.op == opRenew || s.op == opForce || s.op == opDowngrade
	request := ticket || s.op == opCheck || s.op == opResize
	b.Say(ticket, "%s/%d", stage.ClientName(s.client), s.slot)
	b.Say(s.op == opCheck, "%s %s slots %04b", stage.ClientName(s.client), s.mode, s.slots)
	b.Say(s.op == opHear || s.op == opHush, "%s", stage.ClientName(s.client))
	b.Say(s.op == opAsk, "%s permits %d lease %d ms grant %d ms", s.mode, s.permits, s.lease, s.grant)
	b.Say(s.op == opResize, "to %d", s.permits)
	b.Say(s.op == opAsk && s.fresh, "fresh")
	b.Say(s.other, "stating another limit")
	b.Say(s.op == opRenew, "lease %d ms", s.lease)
	b.Say((s.op == opAsk || s.op == opRenew) && s.final, "final")
	b.Say(s.wants, "wants")
	b.Say(s.head != 0, "head start %d µs", s.head)
	b.Say(s.op == opPass || s.op == opClock, "%d µs", s.micros)
	b.Say(s.bound != nil, "bound %v", s.bound)
	b.Say(s.op == opCrowd, "of %d ahead %t single %t", s.size, s.ahead, s.single)
	b.Say(s.op != opAsk && s.op != opCheck && s.op != opHear && s.op != opHush, "choice %d", s.choice)
	b.Say(request && s.floor > 0, "floor %d", s.floor)
	b.Say(request && s.late, "late")
	b.Say(request && s.blank, "uncounted")
	b.Say(request && s.lost, "reply lost")
	b.Say(request && s.twice, "twice")
	return b.String()
}

// start tells what is not among the steps.
func (h history) start() string {
	var b strings.Builder
	if h.locks {
		b.WriteString("  a read-write lock\n")
	} else {
		fmt.Fprintf(&b, "  a semaphore of %d\n", h.limit)
	}
	for i := range clients {
		if h.deaf>>i&1 == 1 {
			fmt.Fprintf(&b, "  %s does not subscribe\n", stage.ClientName(i))
		}
	}
	return b.String()
}
