package redlock

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
)

// What a step may do.
const (
	opAsk    = "ask"
	opEnd    = "end"
	opForce  = "force"
	opCheck  = "check"
	opRenew  = "renew"
	opRaise  = "raise"
	opAhead  = "ahead"
	opRepeat = "repeat" // an earlier request, word for word
	opHear   = "hear"
	opHush   = "hush"
	opPass   = "pass"
	opClock  = "clock"
	opDelete = "delete"
)

const (
	callers = 3 // of each client one
)

// A step is one thing that happens. Each can be taken out of a history, and what is left is a history still.
type step struct {
	op     string
	client int
	choice int
	micros int64
	late   bool // the not-after has passed
	twice  bool // sent twice in a row
}

var (
	passes = []int64{
		1, stage.Millisecond, stage.Second, 2 * stage.Second, 3 * stage.Second, 10 * stage.Second, stage.Minute, 2*stage.Minute + 1,
	}
	clocks = []int64{-1, -stage.Second, -stage.Minute, stage.Second, stage.Minute, -999}
	ops    = stage.Weights{
		{opAsk, 24}, {opEnd, 10}, {opForce, 4}, {opCheck, 6}, {opRenew, 20}, {opRaise, 24}, {opAhead, 8}, {opRepeat, 6},
		{opHear, 6}, {opHush, 2}, {opPass, 10}, {opClock, 2}, {opDelete, 2},
	}
)

// decode makes a history of any bytes, four for each step.
func decode(data []byte) []step {
	return stage.Steps(data, decodeStep)
}

func decodeStep(a, b, c, d byte) step {
	s := step{client: int(b) % callers, choice: int(c) % 8, twice: b >= 192, late: d >= 240}
	s.op = ops.Pick(a)
	switch s.op {
	case opPass:
		s.micros = passes[s.choice]
	case opClock:
		s.micros = clocks[int(c)%len(clocks)]
	}
	return s
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 5, 0) }

func (s step) String() string {
	text := fmt.Sprintf("%s by %s, choice %d", s.op, stage.ClientName(s.client), s.choice)
	if s.micros != 0 {
		text += fmt.Sprintf(", %d µs", s.micros)
	}
	if s.late {
		text += ", late"
	}
	if s.twice {
		text += ", twice"
	}
	return text
}
