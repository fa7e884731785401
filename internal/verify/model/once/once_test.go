package once

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model/latch"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

// keysOf are the keys of a latch, and of the notes of the client a, for one history.
func keysOf(seed uint64) lua.Keys {
	p := lua.Protocol{Kind: lua.Countdown.Kind, Endings: []string{"requests:a"}, Broadcast: true}
	return p.Keys("model", fmt.Sprint(seed))
}

func TestTheKeyOfNotesIsThatOfTheClient(t *testing.T) {
	t.Parallel()
	k := keysOf(1)
	require.Equal(t, lua.RequestsKey(k.Lock, "a"), k.All()[1])
}

var plays = stage.Play[step]{
	Vectors: []string{"countdown/set", "countdown/down", "countdown/remove", "waitqueue/overtake"},
	Scripts: append(scripts[:len(scripts):len(scripts)], lua.Overtake), Random: func(seed uint64) []byte { return stage.Random(seed, 2, 0) },
	Decode: func(data []byte) stage.History[step] {
		play := func(s stage.Host, seed uint64, h []step, seen map[string]int) error {
			p := newPlayer(s, seed)
			p.Seen = seen
			return errors.Join(p.play(h), p.End())
		}
		return stage.History[step]{Steps: stage.Steps(data, decode), Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	sights := []string{"message O", "message B", "repeated", "overtaken", fmt.Sprint("flag ", wire.Unwoken)}
	plays.Embedded(t, 1, 400, append(sights, stage.Statuses(map[*lua.Script][]wire.Status{
		lua.LatchSet.Script:    {wire.Done, wire.Refused, wire.Late},
		lua.LatchDown.Script:   {wire.Done, wire.Unset, wire.Late},
		lua.LatchRemove.Script: {wire.Done, wire.Refused, wire.Late},
	})...))
}

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 100) }

func FuzzOnce(f *testing.F) { plays.Fuzz(f) }

// What a step may do.
const (
	opNew      = "new"   // a request, in one of the lanes
	opAgain    = "again" // an earlier one, as its client repeats it or as it comes late
	opOvertake = "overtake"
	opPass     = "pass"
	opClock    = "clock"
	opDelete   = "delete"
	opDeny     = "deny" // the server refuses PUBLISH to the next request
)

// A step is one thing that happens. Only the fields that its op reads are set.
type step struct {
	op     string
	lane   int
	choice int // which request, key or span, or how far back
	late   bool
	skips  int64 // numbers that are left out
}

var ops = stage.Weights{{opNew, 40}, {opAgain, 28}, {opOvertake, 6}, {opPass, 8}, {opClock, 2}, {opDelete, 3}, {opDeny, 4}}

var (
	spans   = []int64{1, stage.Millisecond, stage.Second, stage.Minute, 2 * stage.Minute, 11 * stage.Minute, 999, 61 * stage.Minute}
	repeats = []int64{600_000, 60_000, 1000, 2 * day / stage.Millisecond}
)

// lifetime of a latch, in ms.
const lifetime = 3_600_000

func decode(a, b, c, d byte) step {
	return step{op: ops.Pick(a), lane: int(b) % 3, choice: int(c) % 8, late: d >= 240, skips: int64(d) % 3}
}

func (s step) String() string {
	return fmt.Sprintf("%s lane %d choice %d late %t skips %d", s.op, s.lane, s.choice, s.late, s.skips)
}

// player plays one history on a server and on the model.
type player struct {
	*stage.Duel[*Latch]
	host   stage.Host
	number int64
	sent   []Once
	ran    map[string]bool // requests that had their effect, or were refused it
}

func newPlayer(s stage.Host, seed uint64) *player {
	return &player{Duel: stage.NewDuel(s, keysOf(seed), New()), host: s, ran: map[string]bool{}}
}

func (p *player) play(h []step) error { return stage.Through(h, p.step, &p.Log) }

func (p *player) step(s step) error {
	stage.Tick(p.Server, &p.Now)
	switch s.op {
	case opPass:
		return p.Pass(spans[s.choice])
	case opClock:
		return p.Clock([2]int64{-stage.Second, stage.Minute}[s.choice%2])
	case opDeny:
		p.Deny(true, false)
		return nil
	case opDelete:
		if s.choice%2 == 0 {
			p.Model.Lose()
		} else {
			p.Model.Forget()
			clear(p.ran)
		}
		return p.Remove(s.choice % 2)
	case opOvertake:
		return p.overtake(Overtake{strconv.Itoa(s.lane), max(p.number-int64(s.choice%3), 1)})
	case opAgain:
		if len(p.sent) == 0 {
			return nil
		}
		r := p.sent[max(len(p.sent)-1-s.choice, 0)]
		r.NotAfter = p.notAfter(s)
		return p.request(r)
	}
	p.number += 1 + s.skips
	r := Once{Lane: strconv.Itoa(s.lane), Number: p.number, NotAfter: p.notAfter(s), Repeats: repeats[s.choice%4]}
	if !p.Server.Frozen() {
		r.Repeats = repeats[0] // There no key expires while a history is played.
	}
	switch s.choice {
	case 0, 1:
		r.Of = latch.Set{Count: 1 + s.skips, Lifetime: lifetime}
	case 2:
		r.Of = latch.Remove{}
	default:
		r.Of = latch.Down{}
	}
	p.sent = append(p.sent, r)
	return p.request(r)
}

func (p *player) notAfter(s step) int64 {
	if s.late {
		return p.Now - 1
	}
	return p.Now + 5*stage.Minute
}

// request sends one request to both, and judges what came of it, whatever the model says: no request changes the latch
// twice, nor after a later one in its lane.
func (p *player) request(r Once) error {
	known := p.Model.Notes[r.Lane]
	h, err := p.Send(r)
	if err != nil {
		return err
	}
	p.forget(h.Before)
	if known.Number == r.Number && h.Reply.Status != wire.Late {
		p.Seen["repeated"]++
	}
	key := fmt.Sprint(r.Lane, " ", r.Number)
	if changed := len(h.Sent) > 0 || fmt.Sprint(h.Before[0].Members) != fmt.Sprint(h.After[0].Members); p.ran[key] && changed && h.After[0].Left != 0 {
		return fmt.Errorf("request %s has changed the latch again, from %v to %v", key, h.Before[0].Members, h.After[0].Members)
	}
	if h.Reply.Status != wire.Late {
		for _, earlier := range p.sent {
			if earlier.Lane == r.Lane && earlier.Number <= r.Number {
				p.ran[fmt.Sprint(earlier.Lane, " ", earlier.Number)] = true
			}
		}
	}
	return nil
}

// forget follows the server, whose notes may be gone before a request is served.
func (p *player) forget(before stage.State) {
	if before[1].Left == 0 {
		clear(p.ran)
	}
}

// overtake runs the script that ends requests.
func (p *player) overtake(r Overtake) error {
	p.forget(p.State)
	reply, err := lua.Overtake.Tuple(p.host.Call(p.Keys.All()[1:], lua.Overtake, []string{r.Lane, stage.Decimal(r.Number)}))
	if err != nil {
		return err
	}
	p.Now = reply.Now
	p.Model.Expire(p.Now)
	r.Run(p.Model, p.Now)
	p.Seen["overtaken"]++
	for _, earlier := range p.sent {
		if earlier.Lane == r.Lane && earlier.Number <= r.Number {
			p.ran[fmt.Sprint(earlier.Lane, " ", earlier.Number)] = true
		}
	}
	return p.Compare()
}

// Whoever ends requests after all notes are gone begins new ones: what was done before them is forgotten as well.
func TestNotesThatAreGoneAreNotBackWithTheNextOnes(t *testing.T) {
	t.Parallel()
	p := newPlayer(stage.Embed(t, plays.Scripts...), 0)
	require.NoError(t, p.play([]step{
		{op: opNew, lane: 2, choice: 1, skips: 2}, {op: opPass, choice: 7}, {op: opOvertake, lane: 1}, {op: opAgain, lane: 2},
	}))
	require.NoError(t, p.End())
}

// A key of another type is an error before anything is written or published.
func TestAKeyOfAnotherTypeIsFoundBeforeTheFirstWrite(t *testing.T) {
	stage.Both(t, plays.Scripts, func(t *testing.T, s stage.Server) {
		for _, of := range []latch.Request{latch.Set{Count: 1, Lifetime: lifetime}, latch.Down{}, latch.Remove{}} {
			for which := range 2 {
				p := newPlayer(s.(stage.Host), 0)
				r := Once{Of: latch.Set{Count: 2, Lifetime: lifetime}, Lane: "0", Number: 1, NotAfter: p.Now + stage.Minute, Repeats: 600_000}
				require.NoError(t, p.request(r))
				r.Of, r.Number = of, 2
				refused, changed, err := stage.Spoil(s, p.Keys, which, r.Script(), r.Args())
				require.NoError(t, err)
				require.Error(t, refused)
				require.False(t, changed, "left half done by %v", refused)
				require.NoError(t, p.End())
			}
		}
	})
}

// With full memory whoever counts down counts, and is answered again; only to set a latch is an error that leaves nothing.
func TestFullMemoryStopsOnlyWhoWouldSet(t *testing.T) {
	t.Parallel()
	s := stage.Serve(t, plays.Scripts...)
	p := newPlayer(s, 0)
	number := int64(0)
	ask := func(of latch.Request) error {
		number++
		r := Once{Of: of, Lane: "0", Number: number, NotAfter: p.Now + stage.Minute, Repeats: 600_000}
		return errors.Join(p.request(r), p.request(r))
	}
	full := func(of latch.Request) error {
		s.Fill(true)
		defer s.Fill(false)
		return ask(of)
	}
	require.NoError(t, full(latch.Down{}), "there is none")
	require.ErrorContains(t, full(latch.Set{Count: 2, Lifetime: lifetime}), "OOM")
	require.NoError(t, p.Compare())
	require.NoError(t, ask(latch.Set{Count: 2, Lifetime: lifetime}))
	require.NoError(t, full(latch.Set{Count: 2, Lifetime: lifetime}), "it is closed")
	require.NoError(t, full(latch.Down{}))
	require.NoError(t, full(latch.Remove{}))
	require.NoError(t, p.overtake(Overtake{"1", number}))
	require.NoError(t, p.End())
}
