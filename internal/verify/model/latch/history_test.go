package latch

import (
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// What a step may do.
const (
	opAsk     = "ask"
	opCheck   = "check"
	opSet     = "set"
	opDown    = "down"
	opAgain   = "again"  // an earlier set or count down, as its client repeats it
	opRepeat  = "repeat" // any earlier request, word for word
	opRemove  = "remove"
	opInspect = "inspect"
	opHear    = "hear"
	opHush    = "hush"
	opPass    = "pass"
	opClock   = "clock"
	opDelete  = "delete"
	opDeny    = "deny" // the server refuses PUBLISH or NUMSUB to the next request
)

const (
	waiters = 4 // of each client one
)

// A step is one thing that happens. Only the fields that its op reads are set. Each can be taken out of a
// history, and what is left is a history still.
type step struct {
	op       string
	client   int
	mode     string
	count    int64
	lifetime int64 // ms
	micros   int64
	choice   int  // which keys, right, generation, or how far back a repeat goes
	fresh    bool // an ask of one who has seen nothing
	early    bool // an ask that may come before the latch is set
	late     bool // the not-after has passed
	blank    bool // subscribers are not counted
	lost     bool // the client does not get the reply
	twice    bool // sent twice in a row
}

var (
	modes     = []string{lua.Look, lua.Look, lua.Wait, lua.Try}
	looks     = []string{lua.Hears, lua.Proven, lua.Deaf, lua.Hears}
	counted   = []int64{1, 2, 3, 1, 2, 5, 1, 1<<53 - 1}
	lifetimes = []int64{3_600_000, 60_000, 1, 900_000}
	passes    = []int64{
		1, 999, stage.Millisecond, stage.Second, 10 * stage.Second, stage.Minute, 9 * stage.Minute, 11 * stage.Minute,
		1, 3, 2 * stage.Second, 61 * stage.Minute, stage.Minute, stage.Second, 10 * stage.Millisecond, 5,
	}
	clocks = []int64{
		-1, -stage.Second, -stage.Minute, -60 * stage.Minute, stage.Second, 60 * stage.Minute, -11 * stage.Minute, -999,
	}
	ops = stage.Weights{
		{opAsk, 14}, {opCheck, 8}, {opSet, 8}, {opDown, 18}, {opAgain, 8}, {opRepeat, 4}, {opRemove, 2}, {opInspect, 2},
		{opHear, 2}, {opHush, 1}, {opPass, 5}, {opClock, 1}, {opDelete, 2}, {opDeny, 3},
	}
)

// decode makes a history of any bytes, four for each step.
func decode(data []byte) []step {
	return stage.Steps(data, decodeStep)
}

func decodeStep(a, b, c, d byte) step {
	s := step{
		client: int(b) % waiters, choice: int(c) % 8, twice: a >= 160, fresh: b >= 192,
		mode: modes[c%4], count: counted[b>>2%8], lifetime: lifetimes[c>>3%4],
	}
	s.op = ops.Pick(a)
	variant := d >> 5
	s.lost, s.blank, s.late = variant == 4, variant == 5, variant == 7 && d&1 == 0
	switch s.op {
	case opAsk:
		s.early = d&3 == 3
	case opCheck:
		s.mode = looks[c%4]
	case opPass:
		s.micros = passes[c%16]
	case opClock:
		s.micros = clocks[c%8]
	}
	return s
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 2, 0) }

func (s step) String() string {
	var b stage.Words
	b.WriteString(s.op)
	request := s.op == opAsk || s.op == opCheck || s.op == opSet || s.op == opDown || s.op == opAgain
	b.Say(request, "%s", stage.ClientName(s.client))
	b.Say(s.op == opAsk || s.op == opCheck, "%s", s.mode)
	b.Say(s.op == opSet, "count %d lifetime %d ms", s.count, s.lifetime)
	b.Say(s.op == opPass || s.op == opClock, "%d µs", s.micros)
	b.Say(s.op == opAgain || s.op == opRepeat || s.op == opDelete || s.op == opDeny || s.op == opRemove, "choice %d", s.choice)
	b.Say(s.op == opAsk && s.fresh, "fresh")
	b.Say(s.op == opAsk && s.early, "early, for %d ms", s.lifetime)
	b.Say(request && s.late, "late")
	b.Say(request && s.blank, "uncounted")
	b.Say(request && s.lost, "reply lost")
	b.Say(request && s.twice, "twice")
	return b.String()
}
