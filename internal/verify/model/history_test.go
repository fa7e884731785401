package model

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// A history is a list of steps. Each can be taken out, and what is left is a history still: that is how
// failing ones are made short.
type history struct {
	deaf  int // clients that do not subscribe at the start, a bit each
	steps []step
}

// What a step may do.
const (
	opAsk    = "ask"
	opEnd    = "end"
	opRenew  = "renew"
	opCheck  = "check"
	opForce  = "force"
	opMove   = "move"   // into transit, or out of it
	opRepeat = "repeat" // an earlier request, word for word
	opHear   = "hear"
	opHush   = "hush" // the client's subscription is gone
	opPass   = "pass" // time passes
	opClock  = "clock"
	opDelete = "delete"
	opDeny   = "deny" // the server refuses PUBLISH or NUMSUB to the next request
	opCrowd  = "crowd"
)

const (
	clients = 4
	slots   = 3 // tickets that a client has at a time
	locks   = 3 // of a history of several
)

// A step is one thing that happens. Only the fields that its op reads are set.
type step struct {
	op     string
	client int
	slot   int
	slots  int         // of a check, a bit each
	mode   string      // of an ask or check
	lease  int64       // ms
	grant  int64       // ms
	head   int64       // µs
	bound  *line.Bound // of a new ticket
	micros int64       // of pass and clock
	choice int         // which token, keys, right, or how far back a repeat goes
	floor  int         // 0: none, 1: the highest token seen, 2: one above it, 3: one that is forged
	size   int         // of a crowd
	fresh  bool        // a new ticket, though the last one has not ended
	final  bool
	least  int64 // ms, of a renewal, after which a name rests
	rests  bool  // of an end
	wants  bool  // a renewal of a holder that wants to be told when somebody waits
	late   bool  // the not-after has passed
	blank  bool  // subscribers are not counted
	lost   bool  // the client does not get the reply
	twice  bool  // sent twice in a row
	ahead  bool  // a crowd that came before everybody else
	single bool  // a crowd of one client

	// Of a history of several locks.
	names int  // which of them, a bit each; none: the first
	alone bool // one of them by the scripts for one
}

var (
	leases     = []int64{1000, 10000, 50, 1, 600000, 2000, 300, 5000}
	leasts     = []int64{30000, 2000, 200000, 5000, 600000, 1000, 50, 1}
	bounds     = []*line.Bound{nil, {Limit: 1}, nil, {Limit: 2}, nil, {Limit: 3}}
	grants     = []int64{500, 2000, 1, 300000}
	askModes   = []string{lua.Wait, lua.Wait, lua.Wait, lua.Wait, lua.Wait, lua.Look, lua.Look, lua.Try}
	checkModes = []string{lua.Hears, lua.Hears, lua.Hears, lua.Hears, lua.Proven, lua.Proven, lua.Deaf, lua.Deaf}
	passes     = []int64{
		1, 999, millisecond, 10 * millisecond, 300 * millisecond, 500 * millisecond, second, second,
		2 * second, 2 * second, 11 * second, 44 * second, minute, 2*minute + 1, 11 * minute, 3,
	}
	clocks = []int64{
		-1, -999, -10 * millisecond, -second, -5 * second, -minute, -60 * minute, -60 * minute,
		-11 * minute, -2 * second, second, minute, 60 * minute, 10 * millisecond, -500 * millisecond, 11 * minute,
	}
	crowds = []int{2, 3, 5, 20, 3, 2, 3, 600}
	ops    = stage.Weights{
		{opAsk, 18}, {opEnd, 9}, {opRenew, 5}, {opCheck, 10}, {opForce, 2}, {opRepeat, 3}, {opHear, 3},
		{opHush, 3}, {opPass, 6}, {opClock, 1}, {opDelete, 1}, {opDeny, 2}, {opCrowd, 1}, {opMove, 8},
	}
)

// decode makes a history of any bytes: one for the start, then four for each step.
func decode(data []byte) history {
	var h history
	if len(data) == 0 {
		return h
	}
	if data[0] > 127 {
		h.deaf = int(data[0]) & (1<<clients - 1)
	}
	h.steps = stage.Steps(data[1:], decodeStep)
	return h
}

// decodeSeveral makes a history of several locks, whose steps have a byte more.
func decodeSeveral(data []byte) history {
	var one, names []byte
	for i, b := range data {
		if i > 0 && i%(stage.Record+1) == 0 {
			names = append(names, b)
		} else {
			one = append(one, b)
		}
	}
	h := decode(one)
	h.steps = h.steps[:min(len(h.steps), len(names))]
	for i := range h.steps {
		h.steps[i].names, h.steps[i].alone = int(names[i])%(1<<locks), names[i]>>locks%2 == 0
	}
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
		s.lease, s.grant = leases[d%8], grants[d>>3%4]
		if variant == 6 {
			s.head = [...]int64{1, 2, -3}[b%3] * second
		}
		s.bound = bounds[int(b)/clients/slots%len(bounds)]
	case opRenew:
		s.lease, s.final, s.wants = leases[d%8], c>>3%4 == 0, d>>3%2 == 1
		if d>>4%2 == 1 && !s.wants {
			s.least = leasts[c>>3%8]
		}
	case opEnd:
		s.rests = d>>1%2 == 1
	case opMove:
		s.lease, s.grant, s.final = leases[d%8], grants[d>>3%4], c>>3%4 == 0
	case opCheck:
		s.mode, s.slots = checkModes[c%8], int(d)%(1<<slots)
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
func random(seed uint64) []byte { return stage.Random(seed, 1, 1) }

// randomSeveral makes the bytes of a history of several locks from a seed.
func randomSeveral(seed uint64) []byte {
	data := random(seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for i := stage.Record + 1; i <= len(data); i += stage.Record + 1 {
		data = slices.Insert(data, i, byte(r.Uint32()))
	}
	return data
}

func (s step) String() string {
	var b stage.Words
	b.WriteString(s.op)
	ticket := s.op == opAsk || s.op == opEnd || s.op == opRenew || s.op == opMove
	request := ticket || s.op == opCheck || s.op == opForce
	b.Say(ticket, "%s/%d", stage.ClientName(s.client), s.slot)
	b.Say(s.op == opCheck, "%s %s slots %03b", stage.ClientName(s.client), s.mode, s.slots)
	b.Say(s.op == opHear || s.op == opHush, "%s", stage.ClientName(s.client))
	b.Say(s.op == opAsk, "%s lease %d ms grant %d ms", s.mode, s.lease, s.grant)
	b.Say(s.op == opMove, "lease %d ms, %d ms in transit", s.lease, s.grant)
	b.Say(s.op == opAsk && s.fresh, "fresh")
	b.Say(s.op == opRenew, "lease %d ms", s.lease)
	b.Say((s.op == opAsk || s.op == opRenew) && s.final, "final")
	b.Say(s.wants, "wants")
	b.Say(s.least > 0, "rests %d ms", s.least)
	b.Say(s.rests, "rests")
	b.Say(s.head != 0, "head start %d µs", s.head)
	b.Say(s.op == opPass || s.op == opClock, "%d µs", s.micros)
	b.Say(s.bound != nil, "bound %v", s.bound)
	b.Say(s.op == opCrowd, "of %d ahead %t single %t", s.size, s.ahead, s.single)
	b.Say(!ticket && s.op != opCheck && s.op != opHear && s.op != opHush || s.op == opRenew || s.op == opMove, "choice %d", s.choice)
	b.Say(request && s.floor > 0, "floor %d", s.floor)
	b.Say(request && s.late, "late")
	b.Say(request && s.blank, "uncounted")
	b.Say(request && s.lost, "reply lost")
	b.Say(request && s.twice, "twice")
	b.Say(s.names != 0, "of the locks %03b", s.names)
	b.Say(s.alone && s.names != 0, "alone")
	return b.String()
}

// start tells what is not among the steps.
func (h history) start() string {
	var b strings.Builder
	for i := range clients {
		if h.deaf>>i&1 == 1 {
			fmt.Fprintf(&b, "  %s does not subscribe\n", stage.ClientName(i))
		}
	}
	return b.String()
}
