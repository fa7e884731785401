package barrier

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// A history is a list of steps about a barrier of so many parties. Each step can be taken out, and what is
// left is a history still.
type history struct {
	parties int64
	steps   []step
}

// What a step may do.
const (
	opAsk     = "ask"
	opDeliver = "deliver" // an attempt that was held up on its way arrives
	opCheck   = "check"
	opEnd     = "end"
	opOpen    = "open"
	opReset   = "reset"
	opAgain   = "again"  // an earlier reset, as its client repeats it
	opRepeat  = "repeat" // an earlier request, word for word, but for asks
	opInspect = "inspect"
	opPass    = "pass"
	opClock   = "clock"
	opDelete  = "delete"
	opDeny    = "deny" // the server refuses PUBLISH to the next request
)

const (
	clients = 4
	slots   = 2 // tickets that a client has at a time
)

// A step is one thing that happens. Only the fields that its op reads are set.
type step struct {
	op       string
	client   int
	slot     int
	mode     string // of a check
	lease    int64  // ms
	lifetime int64  // ms
	micros   int64
	choice   int  // which key, or how far back a repeat goes
	action   bool // it has one
	fails    bool // the action
	other    bool // another number of parties, or another ticket than the one that acts
	late     bool // the not-after has passed
	lost     bool // the client does not get the reply
	held     bool // the attempt is held up on its way
	twice    bool // sent twice in a row
}

var (
	leases    = []int64{10_000, 60_000, 10_000, 1, 10_000, 1000, 3_600_000, 30_000}
	lifetimes = []int64{3_600_000, 60_000, 1, 900_000}
	looks     = []string{lua.Hears, lua.Proven, lua.Deaf, lua.Hears}
	passes    = []int64{
		1, 999, stage.Millisecond, 10 * stage.Millisecond, stage.Second, 2 * stage.Second, 10 * stage.Second, 3,
		stage.Minute, 1, 11 * stage.Minute, 2 * stage.Millisecond, 500, 61 * stage.Minute, 5 * stage.Second, 7,
	}
	clocks = []int64{
		-1, -stage.Second, -stage.Minute, -60 * stage.Minute, stage.Second, 60 * stage.Minute, -11 * stage.Minute, -999,
	}
	ops = stage.Weights{
		{opAsk, 32}, {opDeliver, 5}, {opCheck, 9}, {opEnd, 3}, {opOpen, 5}, {opReset, 5}, {opAgain, 2}, {opRepeat, 3},
		{opInspect, 2}, {opPass, 5}, {opClock, 1}, {opDelete, 1}, {opDeny, 2},
	}
)

// decode makes a history of any bytes: one for the parties, then four for each step.
func decode(data []byte) history {
	if len(data) == 0 {
		return history{parties: 1}
	}
	h := history{parties: [8]int64{2, 3, 2, 3, 4, 2, 1, 3}[data[0]%8]}
	h.steps = stage.Steps(data[1:], decodeStep)
	return h
}

func decodeStep(a, b, c, d byte) step {
	s := step{
		client: int(b) % clients, slot: int(b/clients) % slots, choice: int(c) % 8, twice: a >= 192,
		mode: looks[c%4], lease: leases[c%8], lifetime: lifetimes[c>>3%4], action: c>>5 < 2,
	}
	s.op = ops.Pick(a)
	variant := d % 16
	s.lost, s.held, s.late = variant == 1 || variant == 2, variant == 3 || variant == 4, variant == 5
	s.other, s.fails = variant == 6, variant > 12
	switch s.op {
	case opPass:
		s.micros = passes[c%16]
	case opClock:
		s.micros = clocks[c%8]
	}
	return s
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 3, 1) }

func (s step) String() string {
	var b stage.Words
	b.WriteString(s.op)
	ticket := s.op == opAsk || s.op == opEnd || s.op == opOpen
	request := ticket || s.op == opCheck || s.op == opReset || s.op == opAgain
	b.Say(ticket, "%s/%d", stage.ClientName(s.client), s.slot)
	b.Say(s.op == opCheck, "%s %s", stage.ClientName(s.client), s.mode)
	b.Say(s.op == opAsk, "lease %d ms lifetime %d ms", s.lease, s.lifetime)
	b.Say(s.op == opAsk && s.action, "with an action")
	b.Say(s.op == opAsk && s.held, "held up")
	b.Say((s.op == opAsk || s.op == opOpen) && s.other, "other")
	b.Say(s.op == opOpen && s.fails, "failed")
	b.Say(s.op == opPass || s.op == opClock, "%d µs", s.micros)
	b.Say(!ticket, "choice %d", s.choice)
	b.Say(request && s.late, "late")
	b.Say(request && s.lost, "reply lost")
	b.Say(request && s.twice, "twice")
	return b.String()
}

// start tells what is not among the steps.
func (h history) start() string { return fmt.Sprintf("  %d parties\n", h.parties) }
