package latch

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

type happened = stage.Happened[*Latch]

// judge holds what servers do against what a latch promises, whatever the model says. It knows of the
// generations only what it saw of them.
type judge struct {
	life   int            // of the keys: a new one begins when the lock key is lost
	born   map[int64]int  // the life in which a generation was first seen
	opened map[int64]bool // generations whose count came to 0
	// blurred: a generation came again within one µs after the keys were lost.
	blurred bool
}

func newJudge() *judge {
	return &judge{born: map[int64]int{}, opened: map[int64]bool{}}
}

// passed notes whether the keys are gone.
func (j *judge) passed(s stage.State) {
	if s[0].Left == 0 {
		j.life++
	}
}

// step judges one script.
func (j *judge) step(h happened) error {
	for _, rule := range []func(happened) error{
		j.untouched, expires, written, counts, j.generations, j.messages, j.pass,
	} {
		if err := rule(h); err != nil {
			return err
		}
	}
	return nil
}

// untouched: what is late, or refused to set, changes nothing.
func (j *judge) untouched(h happened) error {
	if h.Reply.Status == wire.Late && fmt.Sprint(h.Before) != fmt.Sprint(h.After) && !lapsed(h) {
		return fmt.Errorf("late, but the keys changed from %v", h.Before)
	}
	return nil
}

// lapsed reports whether a key expired between the steps.
func lapsed(h happened) bool {
	for i, key := range h.Before {
		if key.Left != h.After[i].Left {
			return true // Time passes on a real server.
		}
	}
	return false
}

// expires: every key expires, the latch not before its lifetime after the use (I6).
func expires(h happened) error {
	for i, key := range h.After {
		if key.Left == stage.Forever {
			return fmt.Errorf("key %d has no expiry", i)
		}
	}
	if h.Reply.Status == wire.Late || h.Reply.Status == wire.Unset || h.After[0].Left == 0 {
		return nil // Who finds it not set does not use it.
	}
	if life := h.After[0].Number("lifetime") * stage.Millisecond; h.After[0].Left < life-stage.Stall {
		if _, remove := h.Request.(Remove); !remove {
			return fmt.Errorf("the latch lives for %d µs, not %d", h.After[0].Left, life)
		}
	}
	return nil
}

var number = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// written: numbers are stored in full.
func written(h happened) error {
	for field, value := range h.After[0].Members {
		if !number.MatchString(value) {
			return fmt.Errorf("%s is stored as %q", field, value)
		}
	}
	return nil
}

// counts: the count falls by one at a request to count down, and rises only from 0, to what was set.
func counts(h happened) error {
	before, after := h.Before[0].Number("count"), h.After[0].Number("count")
	same := h.Before[0].Number("generation") == h.After[0].Number("generation")
	_, downs := h.Request.(Down)
	set, sets := h.Request.(Set)
	ask, asks := h.Request.(Ask)
	switch {
	case h.After[0].Left == 0: // Gone.
	case asks && ask.Early != 0 && h.Now <= ask.NotAfter && h.Before[0].Left == 0 && after == 0: // Awaited.
	case same && after == before:
	case same && after < before:
		if !downs || before-after != 1 {
			return fmt.Errorf("the count fell from %d to %d", before, after)
		}
	default:
		if !sets || before != 0 || after != set.Count {
			return fmt.Errorf("the count was set from %d to %d", before, after)
		}
	}
	if downs && h.Reply.Status == wire.Done && int64(h.Reply.Place) != after {
		return fmt.Errorf("%d are left in the reply, %d in the latch", h.Reply.Place, after)
	}
	if downs && h.Reply.Status == wire.Unset && h.Before[0].Number("initial") != 0 && h.After[0].Left != 0 {
		return fmt.Errorf("there is a latch, and the reply says there is none")
	}
	if downs && h.Reply.Status == wire.Done && before > 0 && after == before && h.After[0].Left != 0 {
		return fmt.Errorf("it was answered and has not counted")
	}
	return nil
}

// generations: one begins with each count that is set, and rises.
func (j *judge) generations(h happened) error {
	before, after := h.Before[0].Number("generation"), h.After[0].Number("generation")
	if after == 0 {
		return nil
	}
	if h.Before[0].Left == 0 {
		before = 0
	}
	if _, known := j.born[after]; after != before && known {
		j.blurred = true
	}
	if after != before {
		if after < before {
			return fmt.Errorf("generation %d after %d", after, before)
		}
		if before != 0 && !j.opened[before] {
			return fmt.Errorf("generation %d began and %d was never open", after, before)
		}
		j.born[after] = j.life
		delete(j.opened, after)
	}
	if h.After[0].Number("count") == 0 && h.After[0].Number("initial") != 0 {
		j.opened[after] = true
	}
	return nil
}

// messages: whatever opens or deletes the latch tells it, and nothing else.
func (j *judge) messages(h happened) error {
	generation := stage.Decimal(h.Before[0].Number("generation"))
	want := ""
	if _, ok := h.Request.(Remove); ok && h.Reply.Status == wire.Done {
		want = "B " + generation
	} else if h.Before[0].Number("count") == 1 && h.After[0].Left != 0 && h.After[0].Number("count") == 0 {
		want = "O " + generation
	}
	if h.Muted && want != "" {
		if !h.Reply.Has(wire.Unwoken) {
			return fmt.Errorf("the message was refused, and the reply does not tell")
		}
		want = ""
	}
	if got := strings.Join(h.Sent, ", "); got != want {
		return fmt.Errorf("published %q, should be %q", got, want)
	}
	return nil
}

// pass: who passes has a reason to, who waits has none, and nobody passes who saw a latch that was lost.
func (j *judge) pass(h happened) error {
	set, closed := h.After[0].Number("initial") > 0, h.After[0].Number("count") > 0
	present := h.After[0].Number("generation")
	early := false
	verdict := func(seen int64) string {
		life, known := j.born[seen]
		switch {
		case seen == 0 && !set && early:
			return "waits"
		case seen == 0 && !set:
			return "unset"
		case seen == 0 && closed:
			return "waits"
		case seen == 0:
			return "passes"
		case present == 0 || !known || life != j.born[present] || j.life != life:
			return "forgotten"
		case j.opened[seen]:
			return "passes"
		}
		return "waits"
	}
	if j.blurred || h.Reply.Status == wire.Late {
		return nil
	}
	switch r := h.Request.(type) {
	case Ask:
		early = r.Early != 0
		want := map[wire.Status]string{
			wire.Granted: "passes", wire.Waiting: "waits", wire.Busy: "waits", wire.Refused: "forgotten", wire.Unset: "unset",
		}[h.Reply.Status]
		if got := verdict(r.Seen); got != want {
			return fmt.Errorf("who has seen %d %s, the reply is %d", r.Seen, got, h.Reply.Status)
		}
		if h.Reply.Status == wire.Waiting && (h.Reply.Arrival != present || int64(h.Reply.Place) != h.After[0].Number("count")) {
			return fmt.Errorf("waits for %d with a count of %d", h.Reply.Arrival, h.Reply.Place)
		}
	case Check:
		for i, state := range h.Reply.States {
			state, _, _ = strings.Cut(state, " ")
			want := map[string]string{
				wire.StateGranted: "passes", wire.StateQueued: "waits", wire.StateForgotten: "forgotten",
			}[state]
			if got := verdict(r.Tickets[i].Arrival); got != want && got != "unset" {
				return fmt.Errorf("who has seen %d %s, the state is %s", r.Tickets[i].Arrival, got, state)
			}
		}
	}
	return nil
}
