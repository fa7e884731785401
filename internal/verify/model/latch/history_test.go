package latch

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// What a step may do.
const (
	opAsk     = "ask"
	opCheck   = "check"
	opSet     = "set"
	opDown    = "down"
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
	modes     = []string{wire.Look, wire.Look, wire.Wait, wire.Try}
	looks     = []string{wire.Hears, wire.Proven, wire.Deaf, wire.Hears}
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
		{opAsk, 14}, {opCheck, 8}, {opSet, 8}, {opDown, 26}, {opRepeat, 4}, {opRemove, 2}, {opInspect, 2},
		{opHear, 2}, {opHush, 1}, {opPass, 5}, {opClock, 1}, {opDelete, 2}, {opDeny, 3},
	}
)

// decode makes a history of any bytes, four for each step.
func decode(data []byte) []step { return stage.Steps(data, decodeStep) }

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
	request := s.op == opAsk || s.op == opCheck || s.op == opSet || s.op == opDown
	b.Say(request, "%s", stage.ClientName(s.client))
	b.Say(s.op == opAsk || s.op == opCheck, "%s", s.mode)
	b.Say(s.op == opSet, "count %d lifetime %d ms", s.count, s.lifetime)
	b.Say(s.op == opPass || s.op == opClock, "%d µs", s.micros)
	b.Say(s.op == opRepeat || s.op == opDelete || s.op == opDeny || s.op == opRemove, "choice %d", s.choice)
	b.Say(s.op == opAsk && s.fresh, "fresh")
	b.Say(s.op == opAsk && s.early, "early, for %d ms", s.lifetime)
	b.Say(request && s.late, "late")
	b.Say(request && s.blank, "uncounted")
	b.Say(request && s.lost, "reply lost")
	b.Say(request && s.twice, "twice")
	return b.String()
}

func TestMain(m *testing.M) { stage.Main(m) }

var scripts = []*lua.Script{
	lua.Countdown.Ask, lua.Countdown.Check, lua.Countdown.Inspect, lua.LatchSet.Plain(), lua.LatchDown.Plain(), lua.LatchRemove.Plain(),
}

// keysOf are the keys of a latch for one history.
func keysOf(seed uint64) lua.Keys { return lua.Countdown.Keys("model", fmt.Sprint(seed)) }

var plays = stage.Play[step]{
	Vectors: []string{"countdown/ask", "countdown/check", "countdown/inspect"},
	Scripts: scripts, Random: random,
	Decode: func(data []byte) stage.History[step] {
		play := func(s stage.Host, seed uint64, h []step, seen map[string]int) error {
			p := newPlayer(s, keysOf(seed))
			p.Seen = seen
			return errors.Join(p.play(h), p.End())
		}
		return stage.History[step]{Steps: decode(data), Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) { plays.Embedded(t, 1, 500, everySight()) }

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 150) }

func FuzzLatch(f *testing.F) { plays.Fuzz(f) }

// everySight is all that can come of requests.
func everySight() []string {
	sights := []string{
		"message O", "message B", fmt.Sprint("flag ", wire.Unwoken), fmt.Sprint("flag ", wire.Uncounted),
		"countdown/ask forgotten", "countdown/check granted", "countdown/check queued", "countdown/check forgotten",
		"countdown/inspect unset", "countdown/inspect closed", "countdown/inspect open",
	}
	sights = append(sights, stage.Statuses(map[*lua.Script][]wire.Status{
		lua.Countdown.Ask:      {wire.Granted, wire.Waiting, wire.Busy, wire.Late, wire.Refused, wire.Unset},
		lua.Countdown.Check:    {wire.Done, wire.Late},
		lua.LatchSet.Script:    {wire.Done, wire.Refused},
		lua.LatchDown.Script:   {wire.Done, wire.Unset},
		lua.LatchRemove.Script: {wire.Done, wire.Refused},
	})...)
	return sights
}

// must sends a request, which must do what the model says.
func (p *player) must(t *testing.T, r Request) wire.Tuple {
	t.Helper()
	return must.Got(p.send(r))(t)
}

func (p *player) sets(count int64) Set { return Set{Count: count, Lifetime: lifetimes[0]} }

func (p *player) asks(seen int64) Ask {
	return Ask{Ticket: "a:1:b:1:10000:2000", Mode: wire.Look, NotAfter: p.later(), Seen: seen}
}

// early is an ask that may come before the latch is set.
func (p *player) early() Ask {
	r := p.asks(0)
	r.Early = lifetimes[0]
	return r
}

// everything are requests of every script.
func (p *player) everything() map[string]Request {
	return map[string]Request{
		"ask":       p.asks(0),
		"early ask": p.early(),
		"check":     Check{Client: "a", Mode: wire.Hears, NotAfter: p.later(), Tickets: []lua.Arrival{{Ticket: "a", Arrival: 1}}},
		"set":       p.sets(2),
		"down":      Down{},
		"remove":    Remove{},
	}
}

var situations = map[string]func(p *player, t *testing.T){
	"unset":   func(*player, *testing.T) {},
	"awaited": func(p *player, t *testing.T) { p.must(t, p.early()) },
	"closed": func(p *player, t *testing.T) {
		p.must(t, p.sets(3))
		p.must(t, Down{})
	},
	"at one": func(p *player, t *testing.T) {
		p.must(t, p.sets(2))
		p.must(t, Down{})
	},
	"open": func(p *player, t *testing.T) {
		p.must(t, p.sets(1))
		p.must(t, Down{})
	},
}

// A key of another type is an error before anything is written or published, or does not matter.
func TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		for situation, set := range situations {
			for which := range keysOf(0).All() {
				p := newPlayer(s, keysOf(0))
				for name, r := range p.everything() {
					p := newPlayer(s, keysOf(0))
					set(p, t)
					what := fmt.Sprintf("%s, %s, key %d", situation, name, which)
					refused, changed, err := stage.Spoil(s, p.Keys, which, r.Script(), r.Args())
					require.NoError(t, err, what)
					require.False(t, refused != nil && changed, "%s: left half done by %v", what, refused)
					require.False(t, refused == nil && which == 0, "%s: no error", what)
					require.NoError(t, p.End())
				}
			}
		}
	})
}

// With full memory whoever waits is answered and whoever counts down counts; only to set a latch is an error
// that leaves nothing.
func TestFullMemoryStopsOnlyWhoWouldSet(t *testing.T) {
	t.Parallel()
	s := stage.Serve(t, scripts...)
	refused := 0
	for situation, set := range situations {
		for name := range newPlayer(s, keysOf(0)).everything() {
			p := newPlayer(s, keysOf(0))
			set(p, t)
			r := p.everything()[name]
			s.Fill(true)
			_, err := p.send(r)
			s.Fill(false)
			if err != nil {
				refused++
				require.ErrorContains(t, err, "OOM", situation+", "+name)
				require.Contains(t, []string{"set", "early ask"}, name, situation)
				require.NoError(t, p.Compare(), situation+", "+name)
			}
			require.NoError(t, p.End())
		}
	}
	require.NotZero(t, refused, "memory was not full")
}

func TestTheLargestCountIsKeptInFull(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		const largest = 1<<53 - 1
		p := newPlayer(s, keysOf(0))
		require.EqualValues(t, largest, p.must(t, p.sets(largest)).Place)
		require.EqualValues(t, largest-1, p.must(t, Down{}).Place)
		require.EqualValues(t, largest-2, p.must(t, Down{}).Place)
		require.NoError(t, p.View(lua.Countdown.Inspect, 10, p.Model.View))
	})
}

// Waiters of a latch that was lost get an error, also when another one is set and opened.
func TestWhoSawALatchThatIsGoneDoesNotPassAnother(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0))
		seen := p.must(t, p.sets(1)).Arrival
		p.must(t, Remove{Generation: seen})
		s.Pass(stage.Millisecond)
		p.Now = s.Now()
		require.Equal(t, wire.Refused, p.must(t, p.asks(seen)).Status)
		p.must(t, p.sets(1))
		p.must(t, Down{})
		reply := p.must(t, p.asks(seen))
		require.Equal(t, wire.Refused, reply.Status)
		require.Equal(t, []string{wire.StateForgotten}, reply.States)
		require.Equal(t, wire.Granted, p.must(t, p.asks(0)).Status)
	})
}

func TestWhoSawALatchThatWasOpenedPassesThoughItIsClosedAgain(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0))
		seen := p.must(t, p.sets(1)).Arrival
		p.must(t, Down{})
		p.must(t, p.sets(7))
		require.Equal(t, wire.Granted, p.must(t, p.asks(seen)).Status)
		require.Equal(t, wire.Waiting, p.must(t, p.asks(0)).Status)
	})
}

// A waiter that came before the latch was set waits for that setting, and for none after it.
func TestWhoCameBeforeALatchWasSetPassesWithItsOpening(t *testing.T) {
	stage.Both(t, scripts, func(t *testing.T, s stage.Server) {
		p := newPlayer(s, keysOf(0))
		first := p.must(t, p.early())
		require.Equal(t, wire.Waiting, first.Status)
		s.Pass(stage.Millisecond)
		p.Now = s.Now()
		require.Equal(t, first.Arrival, p.must(t, p.early()).Arrival)
		require.Equal(t, wire.Unset, p.must(t, p.asks(0)).Status, "for others it is not set")
		require.Equal(t, wire.Unset, p.must(t, Down{}).Status)
		require.NoError(t, p.View(lua.Countdown.Inspect, 10, p.Model.View))
		require.Equal(t, first.Arrival, p.must(t, p.sets(1)).Arrival)
		require.Equal(t, wire.Waiting, p.must(t, p.asks(first.Arrival)).Status)
		p.must(t, Down{})
		require.Greater(t, p.must(t, p.sets(1)).Arrival, first.Arrival)
		require.Equal(t, wire.Granted, p.must(t, p.asks(first.Arrival)).Status)
	})
}
