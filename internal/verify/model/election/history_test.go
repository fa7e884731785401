package election

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// What a step may do in addition to the fair lock's steps. A client that hears is a candidate or an observer.
const (
	opProclaim = "proclaim"
	opLeader   = "leader"
	opWatch    = "watch"
	opLook     = "look"
)

const (
	candidates = 3                   // of each client one
	nobody     = 1<<line.Clients - 1 // hears at the start
)

type step = line.Step

var (
	passes = []int64{
		1, 999, stage.Millisecond, stage.Second, 2 * stage.Second, 3 * stage.Second, 10 * stage.Second, stage.Minute, 1, 5 * stage.Minute,
	}
	clocks = []int64{-1, -stage.Second, -stage.Minute, stage.Second, stage.Minute, -999}
	ops    = stage.Weights{
		{line.OpAsk, 20}, {line.OpEnd, 14}, {line.OpRenew, 6}, {line.OpCheck, 5}, {line.OpForce, 6}, {line.OpBury, 5}, {opProclaim, 26}, {opLeader, 6}, {opWatch, 8},
		{opLook, 5}, {line.OpRepeat, 4}, {line.OpHear, 5}, {line.OpHush, 2}, {line.OpPass, 7}, {line.OpClock, 1}, {line.OpDelete, 2}, {line.OpDeny, 6},
	}
)

// decode makes a history of any bytes, four for each step.
func decode(data []byte) []step {
	return stage.Steps(data, decodeStep)
}

func decodeStep(a, b, c, d byte) step {
	s := step{Client: int(b) % candidates, Choice: int(c) % 8, Twice: b >= 192}
	s.Op = ops.Pick(a)
	switch s.Op {
	case line.OpPass:
		s.Micros = passes[int(c)%len(passes)]
	case line.OpClock:
		s.Micros = clocks[int(c)%len(clocks)]
	}
	variant := d >> 5
	s.Lost, s.Blank, s.Late = variant == 4, variant == 5, variant == 7 && d&1 == 0
	return s
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 3, 0) }

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Election.Ask, lua.Election.End, lua.Election.Renew, lua.Election.Check, lua.Election.Force.Plain(), lua.Election.Bury,
	lua.Leadership.Ask, lua.Leadership.Check, lua.ElectionLeader.Script, lua.ElectionProclaim.Script,
}

var plays = stage.Play[step]{
	Vectors: []string{"election/"},
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] { return stage.History[step]{Steps: decode(data), Play: play} },
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 1, 1000, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 300) }

func FuzzElection(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	var sights []string
	sights = append(sights, stage.Statuses(map[*lua.Script][]wire.Status{
		lua.Election.Ask:            {wire.Granted, wire.Waiting, wire.Busy, wire.Late},
		lua.Election.End:            {wire.Done, wire.Refused},
		lua.Election.Renew:          {wire.Granted, wire.Refused, wire.Late},
		lua.Election.Check:          {wire.Done, wire.Late},
		lua.Election.Force:          {wire.Done, wire.Refused},
		lua.Election.Bury:           {wire.Done, wire.Refused},
		lua.Leadership.Ask:          {wire.Granted, wire.Waiting},
		lua.Leadership.Check:        {wire.Done},
		lua.ElectionLeader.Script:   {wire.Done, wire.Unset},
		lua.ElectionProclaim.Script: {wire.Done, wire.Refused, wire.Late},
	})...)
	for _, state := range []string{wire.StateExpired, wire.StateForced, wire.StateForgotten} {
		sights = append(sights, lua.ElectionProclaim.Name+" "+state)
	}
	for _, s := range []*lua.Script{lua.ElectionProclaim.Script, lua.Election.End, lua.Election.Force} {
		sights = append(sights, fmt.Sprintf("%s flag %d", s.Name, wire.Unwoken))
	}
	return append(sights, lua.Leadership.Check.Name+" "+wire.StateGranted, lua.Leadership.Check.Name+" "+wire.StateQueued,
		fmt.Sprintf("%s flag %d", lua.Election.End.Name, wire.Handed), fmt.Sprintf("%s flag %d", lua.Leadership.Ask.Name, wire.Uncounted))
}

// happened is one request that was served, as seen from outside.
type happened struct {
	request       Request
	reply         wire.Tuple
	now           int64
	before, after stage.State // before with the time of the request
	told          []string    // to observers
	muted         bool
}

// judge holds what servers do against what an election promises, whatever the model says.
type judge struct {
	known   map[int64]string // the leader that observers know of each generation
	highest int64            // of all generations so far
	blurred bool             // generations may come again: the clock went back, and the keys were lost
}

func newJudge() *judge { return &judge{known: map[int64]string{}} }

func (j *judge) step(h happened) error {
	for _, rule := range []func(happened) error{j.generations, kept, told, answered} {
		if err := rule(h); err != nil {
			return err
		}
	}
	return nil
}

// view is what an observer sees of a state: its generation, and who leads.
func view(s stage.State, now int64) (generation int64, leader string) {
	h := s[0].Members
	if h["owner"] != "" && s[0].Until() > now && h["proclaimed"] != "" && h["proclaimed"] == h["token"] {
		return s[0].Number("revision"), h["proclaimed"] + " " + h["value"]
	}
	return s[0].Number("revision") + 1, ""
}

// generations: one is always the same leader with the same value, so who knows it misses nothing.
func (j *judge) generations(h happened) error {
	before, _ := view(h.before, h.now)
	generation, leader := view(h.after, h.now)
	if generation != before && generation <= j.highest && generation > 1 {
		j.blurred = true // Lost with the keys, and the clock does not say that it is another.
	}
	j.highest = max(j.highest, generation)
	if j.blurred || generation == 1 {
		return nil
	}
	if was, ok := j.known[generation]; ok && was != leader {
		return fmt.Errorf("generation %d was %q and is %q", generation, was, leader)
	}
	j.known[generation] = leader
	return nil
}

// kept: what is proclaimed changes only by a proclamation of the owner while its lease lasts, and never from a newer
// token's value to an older one's. It outlives the lease, and expires with the lock.
func kept(h happened) error {
	b, a := h.before[0], h.after[0]
	if a.Left == stage.Forever {
		return fmt.Errorf("the lock has no expiry")
	}
	same := b.Members["value"] == a.Members["value"] && b.Members["proclaimed"] == a.Members["proclaimed"] &&
		b.Members["revision"] == a.Members["revision"]
	if same {
		return nil
	}
	r, ok := h.request.(Proclaim)
	switch {
	case !ok || h.reply.Status != wire.Done:
		return fmt.Errorf("what is proclaimed has changed")
	case b.Members["owner"] != r.Ticket || b.Number("token") != r.Token || b.Until() <= h.now || h.now > r.NotAfter:
		return fmt.Errorf("who does not lead has proclaimed")
	case b.Number("proclaimed") > a.Number("proclaimed"):
		return fmt.Errorf("the value of token %s is overwritten by the value of %s", b.Members["proclaimed"], a.Members["proclaimed"])
	case a.Members["value"] != r.Value || a.Number("proclaimed") != r.Token:
		return fmt.Errorf("another value than the request's")
	case b.Number("revision") >= a.Number("revision"):
		return fmt.Errorf("revision %d after %d", a.Number("revision"), b.Number("revision"))
	}
	return nil
}

// told: who knows an earlier generation goes on, who knows the present one does not.
func told(h happened) error {
	before, was := view(h.before, h.now)
	after, is := view(h.after, h.now)
	_, ends := h.request.(End)
	_, forces := h.request.(Force)
	if _, buries := h.request.(Bury); buries {
		forces = true
	}
	_, proclaims := h.request.(Proclaim)
	wanted := proclaims && before != after || (ends || forces) && was != "" && is == "" && h.after[0].Members["owner"] == ""
	switch {
	case len(h.told) == 0 && (h.muted || !wanted):
		if h.muted && wanted && !h.reply.Has(wire.Unwoken) {
			return fmt.Errorf("the message was refused, and the reply does not tell")
		}
		return nil
	case len(h.told) == 0:
		return fmt.Errorf("the observers are not told")
	case len(h.told) > 1:
		return fmt.Errorf("told %q", h.told)
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(h.told[0], "O "), 10, 64)
	if err != nil {
		return err
	}
	if n >= after || wanted && before != after && n < before {
		return fmt.Errorf("told %d, from generation %d to %d", n, before, after)
	}
	return nil
}

// answered: a leader is named only while its lease lasts, with what it has proclaimed.
func answered(h happened) error {
	generation, leader := view(h.after, h.now)
	switch r := h.request.(type) {
	case Leader:
		got := ""
		if h.reply.Status == wire.Done {
			got = fmt.Sprintf("%d %s", h.reply.Token, h.reply.States[0])
		}
		if got != leader || h.reply.Arrival != generation {
			return fmt.Errorf("leads %q, the answer is %q", leader, got)
		}
	case Watch:
		if (h.reply.Status == wire.Waiting) != (r.Seen == generation) {
			return fmt.Errorf("who knows %d of %d gets %d", r.Seen, generation, h.reply.Status)
		}
	case Look:
		for i, state := range h.reply.States {
			if (state == wire.StateQueued) != (r.Seen[i] == generation) {
				return fmt.Errorf("who knows %d of %d is %s", r.Seen[i], generation, state)
			}
		}
	}
	return nil
}
