package election

import (
	"fmt"
	"math/rand/v2"
	"strings"

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
	record     = 4 // bytes of a step
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
	ops    = []struct {
		op     string
		weight int
	}{
		{opAsk, 20}, {opEnd, 14}, {opRenew, 6}, {opCheck, 5}, {opForce, 6}, {opProclaim, 26}, {opLeader, 6}, {opWatch, 8},
		{opLook, 5}, {opRepeat, 4}, {opHear, 5}, {opHush, 2}, {opPass, 7}, {opClock, 1}, {opDelete, 2}, {opDeny, 6},
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
	s := step{client: int(b) % candidates, choice: int(c) % 8, twice: b >= 192}
	pick := int(a) % total
	for _, o := range ops {
		if pick < o.weight {
			s.op = o.op
			break
		}
		pick -= o.weight
	}
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
func random(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	data := make([]byte, record*(5+r.IntN(longest-4)))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func (s step) String() string {
	text := fmt.Sprintf("%s by %s, choice %d", s.op, clientName(s.client), s.choice)
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

func text(h []step) string {
	var b strings.Builder
	for i, s := range h {
		fmt.Fprintf(&b, "  %2d %s\n", i+1, s)
	}
	return b.String()
}

func clientName(i int) string { return string(rune('a' + i)) }
