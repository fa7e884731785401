package election

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
)

// What a step may do.
const (
	opAsk      = "ask"
	opEnd      = "end"
	opRenew    = "renew"
	opCheck    = "check"
	opForce    = "force"
	opProclaim = "proclaim"
	opLeader   = "leader"
	opWatch    = "watch"
	opLook     = "look"
	opRepeat   = "repeat" // an earlier request, word for word
	opHear     = "hear"   // a candidate, or who observes
	opHush     = "hush"
	opPass     = "pass"
	opClock    = "clock"
	opDelete   = "delete"
	opDeny     = "deny" // the server refuses PUBLISH or NUMSUB to the next request
)

const (
	candidates = 3 // of each client one
	longest    = 60
)

// A step is one thing that happens. Each can be taken out of a history, and what is left is a history still.
type step struct {
	op     string
	client int
	choice int
	micros int64
	late   bool // the not-after has passed
	blank  bool // subscribers are not counted
	lost   bool // the client does not get the reply
	twice  bool // sent twice in a row
}

var (
	passes = []int64{
		1, 999, stage.Millisecond, stage.Second, 2 * stage.Second, 3 * stage.Second, 10 * stage.Second, stage.Minute, 1, 5 * stage.Minute,
	}
	clocks = []int64{-1, -stage.Second, -stage.Minute, stage.Second, stage.Minute, -999}
	ops    = stage.Weights{
		{opAsk, 20}, {opEnd, 14}, {opRenew, 6}, {opCheck, 5}, {opForce, 6}, {opProclaim, 26}, {opLeader, 6}, {opWatch, 8},
		{opLook, 5}, {opRepeat, 4}, {opHear, 5}, {opHush, 2}, {opPass, 7}, {opClock, 1}, {opDelete, 2}, {opDeny, 6},
	}
)

// decode makes a history of any bytes, four for each step.
func decode(data []byte) []step {
	return stage.Steps(data, decodeStep)
}

func decodeStep(a, b, c, d byte) step {
	s := step{client: int(b) % candidates, choice: int(c) % 8, twice: b >= 192}
	s.op = ops.Pick(a)
	switch s.op {
	case opPass:
		s.micros = passes[int(c)%len(passes)]
	case opClock:
		s.micros = clocks[int(c)%len(clocks)]
	}
	variant := d >> 5
	s.lost, s.blank, s.late = variant == 4, variant == 5, variant == 7 && d&1 == 0
	return s
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 3, 0) }

func (s step) String() string {
	text := fmt.Sprintf("%s by %s, choice %d", s.op, stage.ClientName(s.client), s.choice)
	if s.micros != 0 {
		text += fmt.Sprintf(", %d µs", s.micros)
	}
	for what, on := range map[string]bool{"late": s.late, "uncounted": s.blank, "reply lost": s.lost, "twice": s.twice} {
		if on {
			text += ", " + what
		}
	}
	return text
}
