package barrier

import (
	"fmt"
	"math/rand/v2"
	"strings"

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
	record  = 4 // bytes of a step
	longest = 60
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
	ops = []struct {
		op     string
		weight int
	}{
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
	for data = data[1:]; len(data) >= record && len(h.steps) < longest; data = data[record:] {
		h.steps = append(h.steps, decodeStep(data[0], data[1], data[2], data[3]))
	}
	return h
}

func decodeStep(a, b, c, d byte) step {
	total := 0
	for _, o := range ops {
		total += o.weight
	}
	s := step{
		client: int(b) % clients, slot: int(b/clients) % slots, choice: int(c) % 8, twice: a >= 192,
		mode: looks[c%4], lease: leases[c%8], lifetime: lifetimes[c>>3%4], action: c>>5 < 2,
	}
	pick := int(a) % total
	for _, o := range ops {
		if pick < o.weight {
			s.op = o.op
			break
		}
		pick -= o.weight
	}
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
func random(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	data := make([]byte, 1+record*(5+r.IntN(longest-4)))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func (s step) String() string {
	var b strings.Builder
	b.WriteString(s.op)
	say := func(on bool, format string, args ...any) {
		if on {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	ticket := s.op == opAsk || s.op == opEnd || s.op == opOpen
	request := ticket || s.op == opCheck || s.op == opReset || s.op == opAgain
	say(ticket, "%s/%d", clientName(s.client), s.slot)
	say(s.op == opCheck, "%s %s", clientName(s.client), s.mode)
	say(s.op == opAsk, "lease %d ms lifetime %d ms", s.lease, s.lifetime)
	say(s.op == opAsk && s.action, "with an action")
	say(s.op == opAsk && s.held, "held up")
	say((s.op == opAsk || s.op == opOpen) && s.other, "other")
	say(s.op == opOpen && s.fails, "failed")
	say(s.op == opPass || s.op == opClock, "%d µs", s.micros)
	say(!ticket, "choice %d", s.choice)
	say(request && s.late, "late")
	say(request && s.lost, "reply lost")
	say(request && s.twice, "twice")
	return b.String()
}

func (h history) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %d parties\n", h.parties)
	for i, s := range h.steps {
		fmt.Fprintf(&b, "  %2d %s\n", i+1, s)
	}
	return b.String()
}

func clientName(i int) string { return string(rune('a' + i)) }
