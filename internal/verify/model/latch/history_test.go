package latch

import (
	"fmt"
	"math/rand/v2"
	"strings"

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
	record  = 4 // bytes of a step
	longest = 60
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
	ops = []struct {
		op     string
		weight int
	}{
		{opAsk, 14}, {opCheck, 8}, {opSet, 8}, {opDown, 18}, {opAgain, 8}, {opRepeat, 4}, {opRemove, 2}, {opInspect, 2},
		{opHear, 2}, {opHush, 1}, {opPass, 5}, {opClock, 1}, {opDelete, 2}, {opDeny, 3},
	}
)

// decode makes a history of any bytes, four for each step.
func decode(data []byte) []step {
	var h []step
	for ; len(data) >= record && len(h) < longest; data = data[record:] {
		h = append(h, decodeStep(data[0], data[1], data[2], data[3]))
	}
	return h
}

func decodeStep(a, b, c, d byte) step {
	total := 0
	for _, o := range ops {
		total += o.weight
	}
	s := step{
		client: int(b) % waiters, choice: int(c) % 8, twice: a >= 160, fresh: b >= 192,
		mode: modes[c%4], count: counted[b>>2%8], lifetime: lifetimes[c>>3%4],
	}
	pick := int(a) % total
	for _, o := range ops {
		if pick < o.weight {
			s.op = o.op
			break
		}
		pick -= o.weight
	}
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
func random(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 2))
	data := make([]byte, record*(5+r.IntN(longest-4)))
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
	request := s.op == opAsk || s.op == opCheck || s.op == opSet || s.op == opDown || s.op == opAgain
	say(request, "%s", clientName(s.client))
	say(s.op == opAsk || s.op == opCheck, "%s", s.mode)
	say(s.op == opSet, "count %d lifetime %d ms", s.count, s.lifetime)
	say(s.op == opPass || s.op == opClock, "%d µs", s.micros)
	say(s.op == opAgain || s.op == opRepeat || s.op == opDelete || s.op == opDeny || s.op == opRemove, "choice %d", s.choice)
	say(s.op == opAsk && s.fresh, "fresh")
	say(s.op == opAsk && s.early, "early, for %d ms", s.lifetime)
	say(request && s.late, "late")
	say(request && s.blank, "uncounted")
	say(request && s.lost, "reply lost")
	say(request && s.twice, "twice")
	return b.String()
}

func text(h []step) string {
	var b strings.Builder
	for i, s := range h {
		fmt.Fprintf(&b, "  %2d %s\n", i+1, s)
	}
	return b.String()
}

func clientName(i int) string { return string(rune('a' + i)) }
