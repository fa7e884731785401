package redlock

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// What a step may do in addition to the fair lock's steps.
const (
	opRaise = "raise"
	opAhead = "ahead"
)

const (
	callers = 3                   // of each client one
	nobody  = 1<<line.Clients - 1 // hears at the start
)

type step = line.Step

var (
	passes = []int64{
		1, stage.Millisecond, stage.Second, 2 * stage.Second, 3 * stage.Second, 10 * stage.Second, stage.Minute, 2*stage.Minute + 1,
	}
	clocks = []int64{-1, -stage.Second, -stage.Minute, stage.Second, stage.Minute, -999}
	ops    = stage.Weights{
		{line.OpAsk, 24}, {line.OpEnd, 10}, {line.OpForce, 4}, {line.OpCheck, 6}, {line.OpRenew, 20}, {opRaise, 24}, {opAhead, 8}, {line.OpRepeat, 6},
		{line.OpHear, 6}, {line.OpHush, 2}, {line.OpPass, 10}, {line.OpClock, 2}, {line.OpDelete, 2},
	}
)

// decode makes a history of any bytes, four for each step.
func decode(data []byte) []step {
	return stage.Steps(data, decodeStep)
}

func decodeStep(a, b, c, d byte) step {
	s := step{Client: int(b) % callers, Choice: int(c) % 8, Twice: b >= 192, Late: d >= 240}
	s.Op = ops.Pick(a)
	switch s.Op {
	case line.OpPass:
		s.Micros = passes[s.Choice]
	case line.OpClock:
		s.Micros = clocks[int(c)%len(clocks)]
	}
	return s
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 5, 0) }

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Redlock.Ask, lua.Redlock.End, lua.Redlock.Renew, lua.Redlock.Check, lua.Redlock.Force.Plain(), lua.Raise.Script, lua.Ahead.Script,
}

var plays = stage.Play[step]{
	Vectors: []string{"redlock/"},
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] { return stage.History[step]{Steps: decode(data), Play: play} },
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 1, 800, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 300) }

func FuzzRedlock(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	sights := stage.Statuses(map[*lua.Script][]wire.Status{
		lua.Redlock.Ask:           {wire.Granted, wire.Waiting, wire.Busy, wire.Late},
		lua.Redlock.End:           {wire.Done, wire.Refused},
		lua.Redlock.Renew:         {wire.Granted, wire.Refused, wire.Late},
		lua.Redlock.Check:         {wire.Done, wire.Late},
		lua.Redlock.Force.Plain(): {wire.Done, wire.Refused},
		lua.Raise.Script:          {wire.Granted, wire.Refused, wire.Late},
		lua.Ahead.Script:          {wire.Done},
	})
	for _, state := range []string{wire.StateExpired, wire.StateForced, wire.StateForgotten} {
		sights = append(sights, lua.Redlock.Renew.Name+" "+state)
	}
	return sights
}

// happened is one request that was served, as seen from outside.
type happened struct {
	request       model.Request
	reply         wire.Tuple
	now           int64
	before, after stage.State // before with the time of the request
}

// judge holds what a node does against what a Redlock needs of it, whatever the model says.
func judge(h happened) error {
	return errors.Join(rises(h), ours(h), untouched(h))
}

// rises: a token never falls while the node has its data.
func rises(h happened) error {
	before, after := h.before[0].Number("token"), h.after[0].Number("token")
	if h.before[0].Left != 0 && after < before {
		return fmt.Errorf("the token fell from %d to %d", before, after)
	}
	return nil
}

// ours: only a hold whose lease lasts is renewed, or has its token raised, and by nobody but its client.
func ours(h happened) error {
	if h.reply.Status != wire.Granted {
		return nil
	}
	b, a := h.before[0], h.after[0]
	owner, token := b.Members["owner"], b.Number("token")
	lasts := owner != "" && b.Until() > h.now
	switch r := h.request.(type) {
	case Renew:
		if !lasts || owner != r.Ticket || token < r.Token {
			return fmt.Errorf("renewed for %s with %d: %s held with %d until %d", r.Ticket, r.Token, owner, token, b.Until())
		}
		if a.Until() != h.now+r.Lease*stage.Millisecond || a.Number("token") != token {
			return fmt.Errorf("renewed until %d with token %d", a.Until(), a.Number("token"))
		}
		if a.Left < a.Until()-h.now+stage.Minute-stage.Stall {
			return fmt.Errorf("renewed until %d, and the key lives for %d µs", a.Until(), a.Left)
		}
	case Raise:
		if !lasts || wire.TicketClient(owner) != r.Client || token != r.Token && token != r.Wanted {
			return fmt.Errorf("raised for %s: %s held with %d until %d", r.Client, owner, token, b.Until())
		}
		if a.Number("token") != max(token, r.Wanted) || a.Until() != b.Until() {
			return fmt.Errorf("raised to %d, until %d", a.Number("token"), a.Until())
		}
		if a.Left < a.Until()-h.now+line.LeastKept-stage.Stall {
			return fmt.Errorf("raised for a lease until %d, and the key lives for %d µs", a.Until(), a.Left)
		}
	}
	return nil
}

// untouched: what is late or refused changes nothing, and to look neither.
func untouched(h happened) error {
	_, ahead := h.request.(Ahead)
	_, renew := h.request.(Renew)
	_, raise := h.request.(Raise)
	if !ahead && (!renew && !raise || h.reply.Status == wire.Granted) {
		return nil
	}
	for i := range h.before {
		if fmt.Sprint(h.before[i].Members) != fmt.Sprint(h.after[i].Members) {
			return fmt.Errorf("key %d changed from %v", i, h.before[i].Members)
		}
	}
	return nil
}
