package link

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/testenv/must"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

// keysOf is the key of a client, for one history.
func keysOf(seed uint64) lua.Keys {
	p := lua.Protocol{Kind: "client"}
	return p.Keys("model", fmt.Sprint(seed))
}

var plays = stage.Play[step]{
	Vectors: []string{"waitqueue/"},
	Scripts: []*lua.Script{lua.Introduce}, Random: func(seed uint64) []byte { return stage.Random(seed, 2, 0) },
	Decode: func(data []byte) stage.History[step] {
		play := func(s stage.Host, seed uint64, h []step, seen map[string]int) error {
			p := newPlayer(s, seed)
			p.Seen = seen
			return errors.Join(stage.Through(h, p.step, &p.Log), p.End())
		}
		return stage.History[step]{Steps: stage.Steps(data, decode), Play: play}
	},
}

func TestTheScriptDoesWhatTheModelDoes(t *testing.T) {
	plays.Embedded(t, 1, 200, []string{"first", "again", "copy", "plain"})
}

func TestTheScriptDoesWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 60) }

func FuzzLink(f *testing.F) { plays.Fuzz(f) }

// What a step may do.
const (
	opMake    = "make"    // a copy makes its next link
	opLate    = "late"    // an earlier one comes, or comes again
	opRestore = "restore" // a copy becomes one of another
	opPlain   = "plain"   // a client without links
	opPass    = "pass"
	opDelete  = "delete"
)

var ops = stage.Weights{{opMake, 50}, {opLate, 15}, {opRestore, 10}, {opPlain, 5}, {opPass, 15}, {opDelete, 5}}

// A step is one thing that happens. Only the fields that its op reads are set.
type step struct {
	op          string
	copy, other int
	choice      int
}

func decode(a, b, c, d byte) step {
	return step{op: ops.Pick(a), copy: int(b) % copies, other: int(c) % copies, choice: int(d) % 4}
}

func (s step) String() string {
	return fmt.Sprintf("%s copy %d other %d choice %d", s.op, s.copy, s.other, s.choice)
}

const copies = 3

var (
	spans = []int64{stage.Millisecond, stage.Second, 59 * stage.Second, 2 * stage.Minute}
	lasts = []int64{60_000, 1000, 120_000, 60_001}
)

// player plays one history on a server and on the model.
type player struct {
	*stage.Duel[*Client]
	host   stage.Host
	number int
	made   [copies][]string
	sent   []Introduction
}

func newPlayer(s stage.Host, seed uint64) *player {
	return &player{Duel: stage.NewDuel(s, keysOf(seed), &Client{}), host: s}
}

func (p *player) step(s step) error {
	lasts := lasts[s.choice]
	if !p.Server.Frozen() {
		lasts = 60_000 // There no key expires while a history is played.
	}
	switch s.op {
	case opPass:
		return p.Pass(spans[s.choice])
	case opDelete:
		p.Model.Forget()
		return p.Remove(0)
	case opRestore:
		p.made[s.copy] = slices.Clone(p.made[s.other])
		return nil
	case opPlain:
		return p.introduce(Introduction{Who: "plain", Lasts: lasts})
	case opLate:
		if len(p.sent) == 0 {
			return nil
		}
		return p.introduce(p.sent[max(len(p.sent)-1-s.choice, 0)])
	}
	p.number++
	link := fmt.Sprint(s.copy, ":", p.number)
	p.made[s.copy] = append(p.made[s.copy], link)
	i := Introduction{Who: fmt.Sprint("copy", s.copy), Lasts: lasts, Link: link, Own: slices.Clone(p.made[s.copy])}
	p.sent = append(p.sent, i)
	return p.introduce(i)
}

// introduce runs the script, and judges what came of it, whatever the model says: what a client has not made stays.
func (p *player) introduce(i Introduction) error {
	p.Now = p.Server.Now()
	p.Model.Expire(p.Now)
	before := p.Model.Link
	told, err := p.host.Call(p.Keys.All(), lua.Introduce, i.Args()).ToString()
	if err != nil {
		return err
	}
	p.Log = append(p.Log, fmt.Sprintf("%q -> %s", i.Args(), told))
	switch {
	case i.Link == "":
		p.Seen["plain"]++
	case before == "":
		p.Seen["first"]++
	case slices.Contains(i.Own, before):
		p.Seen["again"]++
	default:
		p.Seen["copy"]++
		if told != before {
			return fmt.Errorf("a copy is told %q in place of %q", told, before)
		}
	}
	if want := i.Run(p.Model, p.Now); told != want {
		return fmt.Errorf("  answers   %s\n  should be %s", told, want)
	}
	return p.Compare()
}

// A key of another type is an error, and stays as it is.
func TestAKeyOfAnotherTypeIsLeftAlone(t *testing.T) {
	stage.Both(t, plays.Scripts, func(t *testing.T, s stage.Server) {
		host := s.(stage.Host)
		for _, i := range []Introduction{{Who: "who", Lasts: 60_000}, {Who: "who", Lasts: 60_000, Link: "1:1", Own: []string{"1:1"}}} {
			p := newPlayer(host, 0)
			require.NoError(t, host.Do("SET", p.Keys.Lock, "other").Error())
			require.ErrorContains(t, host.Call(p.Keys.All(), lua.Introduce, i.Args()).Error(), "WRONGTYPE")
			require.Equal(t, "other", must.Got(host.Do("GET", p.Keys.Lock).ToString())(t))
			require.NoError(t, p.End())
		}
	})
}
