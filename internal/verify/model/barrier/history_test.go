package barrier

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A history is a list of steps about a barrier of a number of parties. Each step can be taken out, and what is
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
	opBury    = "bury"
	opRepeat  = "repeat" // an earlier request, word for word, not for asks
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
	looks     = []string{wire.Hears, wire.Proven, wire.Deaf, wire.Hears}
	passes    = []int64{
		1, 999, stage.Millisecond, 10 * stage.Millisecond, stage.Second, 2 * stage.Second, 10 * stage.Second, 3,
		stage.Minute, 1, 11 * stage.Minute, 2 * stage.Millisecond, 500, 61 * stage.Minute, 5 * stage.Second, 7,
	}
	clocks = []int64{
		-1, -stage.Second, -stage.Minute, -60 * stage.Minute, stage.Second, 60 * stage.Minute, -11 * stage.Minute, -999,
	}
	ops = stage.Weights{
		{opAsk, 32}, {opDeliver, 5}, {opCheck, 9}, {opEnd, 3}, {opOpen, 5}, {opReset, 5}, {opRepeat, 3},
		{opInspect, 2}, {opPass, 5}, {opClock, 1}, {opDelete, 1}, {opDeny, 2}, {opBury, 2},
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
	request := ticket || s.op == opCheck || s.op == opReset
	b.Say(ticket, "%s/%d", stage.ClientName(s.client), s.slot)
	b.Say(s.op == opCheck, "%s %s", stage.ClientName(s.client), s.mode)
	b.Say(s.op == opBury, "%s", stage.ClientName(s.client))
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

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Barrier.Ask, lua.Barrier.Check, lua.Barrier.End, lua.Barrier.Inspect, lua.BarrierOpen, lua.BarrierReset.Plain(), lua.Barrier.Bury,
}

// keysOf are the keys of a barrier for one history.
func keysOf(seed uint64) lua.Keys { return lua.Barrier.Keys("model", fmt.Sprint(seed)) }

var plays = stage.Play[step]{
	Vectors: []string{"barrier/"},
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] {
		h := decode(data)
		play := func(s stage.Host, seed uint64, steps []step, seen map[string]int) error {
			p := newPlayer(s, keysOf(seed), h.parties)
			p.Seen = seen
			return errors.Join(p.play(steps), p.End())
		}
		return stage.History[step]{Start: h.start(), Steps: h.steps, Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 1, 500, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 150) }

func FuzzBarrier(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	sights := []string{
		"message O", "message B", fmt.Sprint("flag ", wire.Unwoken), fmt.Sprint("flag ", wire.Stepped),
		"barrier/ask forgotten", "barrier/check granted", "barrier/check queued", "barrier/check broken",
		"barrier/check forgotten", "barrier/end granted", "barrier/end broken", "barrier/end forgotten",
		"barrier/open forgotten", "barrier/inspect unset", "barrier/inspect open", "barrier/inspect broken",
	}
	sights = append(sights, stage.Statuses(map[*lua.Script][]wire.Status{
		lua.Barrier.Ask: {
			wire.Granted, wire.Waiting, wire.Busy, wire.Late, wire.Refused, wire.Mismatch, wire.Broken, wire.Acting,
		},
		lua.Barrier.Check:       {wire.Done, wire.Late},
		lua.Barrier.End:         {wire.Done, wire.Refused},
		lua.Barrier.Bury:        {wire.Done, wire.Refused},
		lua.BarrierOpen:         {wire.Granted, wire.Broken, wire.Refused, wire.Late},
		lua.BarrierReset.Script: {wire.Done},
	})...)
	return sights
}

// messages: what breaks or trips a generation tells it, and nothing else.
func (j *judge) messages(h happened) error {
	b, a := h.Before[Lock], h.After[Lock]
	generation, was := b.Number("generation"), b.Members["broken"] != ""
	if b.Left == 0 {
		generation, was = j.first(h), false
	}
	want := ""
	if ended := turned(h) || b.Left == 0 && a.Members["past"] != ""; a.Left == 0 || was {
	} else if ended && a.Members["past"][0] == tripped {
		want = fmt.Sprint("O ", generation)
	} else if ended || a.Members["broken"] != "" {
		want = fmt.Sprint("B ", generation)
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

// fate is what is to be said of a generation: of one that is older than the outcomes reach, nothing.
func (j *judge) fate(h happened, generation int64) string {
	present := h.After[Lock].Number("generation")
	fate := j.fates[generation]
	switch {
	case h.After[Lock].Left == 0 || generation > present || present-generation > outcomes:
		return wire.StateForgotten
	case fate == tripped:
		return wire.StateGranted
	case fate == broken:
		return wire.StateBroken
	case generation == present:
		return wire.StateQueued
	}
	return wire.StateForgotten
}

// answers: what a reply says is so.
func (j *judge) answers(h happened) error {
	if h.Reply.Status == wire.Late {
		return nil
	}
	until := int64(0)
	for ticket := range h.After[Leases].Members {
		if ends := h.After[Leases].Number(ticket); until == 0 || ends < until {
			until = ends
		}
	}
	if h.Reply.Status != wire.Mismatch && h.After[Lock].Left != 0 && h.Reply.Until != until {
		return fmt.Errorf("the first lease ends at %d, in the reply at %d", until, h.Reply.Until)
	}
	if j.blurred {
		return nil
	}
	switch r := h.Request.(type) {
	case Ask:
		return j.asked(h, r)
	case Check:
		for i, said := range h.Reply.States {
			ticket, generation := r.Tickets[i].Ticket, r.Tickets[i].Arrival
			want := j.fate(h, generation)
			if here, ok := h.After[Arrivals].Members[ticket]; want == wire.StateQueued {
				want = wire.StateForgotten
				if ok {
					want = fmt.Sprint(wire.StateQueued, " ", indexOf(here))
					if ends := h.After[Leases].Number(ticket); ends != h.Now+stage.Lease(ticket) {
						return fmt.Errorf("%s was looked after, and its lease ends at %d", ticket, ends)
					}
				}
			}
			if said != want {
				return fmt.Errorf("%s in %d is %s, not %s", ticket, generation, want, said)
			}
		}
	case End:
		if fate := j.fate(h, h.Reply.Arrival); h.Reply.Status == wire.Done && fate != wire.StateBroken {
			return fmt.Errorf("%s has left, and %d is %s", r.Ticket, h.Reply.Arrival, fate)
		}
		if state := append(h.Reply.States, "")[0]; state == wire.StateGranted || state == wire.StateBroken {
			if fate := j.fate(h, j.came[r.Ticket]); fate != state {
				return fmt.Errorf("%s came in %d, which is %s, not %s", r.Ticket, j.came[r.Ticket], fate, state)
			}
		}
	case Open:
		want := map[wire.Status]string{wire.Granted: wire.StateGranted, wire.Broken: wire.StateBroken}[h.Reply.Status]
		if fate := j.fate(h, r.Generation); want != "" && want != fate || want == "" && fate == wire.StateGranted {
			return fmt.Errorf("%d is %s, the reply %d", r.Generation, fate, h.Reply.Status)
		}
	}
	return nil
}

// asked judges the answer of an ask.
func (j *judge) asked(h happened, r Ask) error {
	generation, came := j.came[r.Ticket]
	here, present := h.After[Arrivals].Members[r.Ticket]
	fate := j.fate(h, h.Reply.Arrival)
	acting := h.After[Lock].Members["acting"]
	full := h.After[Lock].Number("arrived") == h.After[Lock].Number("parties")
	ok := true
	switch h.Reply.Status {
	case wire.Granted:
		ok = came && h.Reply.Arrival == generation && fate == wire.StateGranted
		ok = ok && (h.Reply.Place == int64(j.index[r.Ticket]) || h.Reply.Place == -1 && r.Arrival != 0)
	case wire.Waiting, wire.Acting:
		ok = present && h.Reply.Place == int64(indexOf(here)) && fate == wire.StateQueued && h.Reply.Arrival == generation
		ok = ok && h.After[Leases].Number(r.Ticket) == h.Now+stage.Lease(r.Ticket)
		ok = ok && (h.Reply.Status == wire.Acting) == (acting == r.Ticket)
		ok = ok && (h.Reply.Status == wire.Waiting || full)
	case wire.Broken:
		ok = h.Reply.Arrival == 0 && h.After[Lock].Members["broken"] != "" || fate == wire.StateBroken
		ok = ok && (h.Reply.Arrival == 0 || h.Reply.Arrival == generation)
	case wire.Busy:
		ok = full && acting != "" && acting != r.Ticket && !present
	case wire.Mismatch:
		ok = h.After[Lock].Number("parties") != r.Parties
	case wire.Refused:
		_, ended := h.Before[Calls].Members[gone(r.Ticket)]
		_, again := h.Before[Calls].Members[r.Ticket]
		ok = r.Repeated || r.Arrival != 0 || ended || again || came
		ok = ok && !present || h.After[Lock].Left == 0
	}
	if !ok {
		return fmt.Errorf("%s came in %d: the answer is wrong", r.Ticket, generation)
	}
	return nil
}
