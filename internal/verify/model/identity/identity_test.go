package identity

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

func TestMain(m *testing.M) { stage.Main(m) }

var clients = []string{"a", "b", "c", "d"}

// keysOf are the key of an identity and those of the names of its clients, for one history.
func keysOf(seed uint64) lua.Keys {
	p := lua.Protocol{Kind: "identity"}
	for _, c := range clients {
		p.Endings = append(p.Endings, "names:"+c)
	}
	return p.Keys("model", fmt.Sprint(seed))
}

func TestTheKeysAreThoseOfAnIdentity(t *testing.T) {
	t.Parallel()
	k := keysOf(1)
	require.Equal(t, lua.IdentityKey("model", "{1}", 0, false), k.Lock)
	require.Equal(t, lua.IdentityNames(k.Lock, "b"), k.All()[2])
}

var plays = stage.Play[step]{
	Vectors: []string{"waitqueue/"},
	Scripts: []*lua.Script{lua.Incarnate{}.Script(), lua.Confirm, lua.Graves},
	Random:  func(seed uint64) []byte { return stage.Random(seed, 9, 0) },
	Decode: func(data []byte) stage.History[step] {
		play := func(s stage.Host, seed uint64, h []step, seen map[string]int) error {
			p := &player{host: s, keys: keysOf(seed), model: New(clients), seen: seen, last: map[string]int64{}}
			return errors.Join(stage.Through(h, p.step, &p.log), s.Remove(p.keys.All()...))
		}
		return stage.History[step]{Steps: stage.Steps(data, decode), Play: play}
	},
}

func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	plays.Embedded(t, 1, 300, []string{
		"raise 5", "raise 6", "raise again", "witness 5", "witness 6", "confirm 5", "confirm 6", "confirm 2", "graves left", "graves done",
	})
}

func TestScriptsDoWhatTheModelDoesOnRedis(t *testing.T) { plays.Redis(t, 100) }

func FuzzIdentity(f *testing.F) { plays.Fuzz(f) }

// What a step may do.
const (
	opRaise   = "raise"
	opWitness = "witness"
	opConfirm = "confirm"
	opGraves  = "graves"
	opPass    = "pass"
	opClock   = "clock"
	opDelete  = "delete"
)

// A step is one thing that happens.
type step struct {
	op     string
	client int
	choice int // which run, names, span or key
	twice  bool
}

var (
	ops   = stage.Weights{{opRaise, 24}, {opWitness, 10}, {opConfirm, 34}, {opGraves, 20}, {opPass, 5}, {opClock, 2}, {opDelete, 3}}
	spans = []int64{1, stage.Second, stage.Minute, 23 * 60 * stage.Minute, 25 * 60 * stage.Minute}
	runs  = []string{"", "", "one", "two"}
)

func decode(a, b, c, d byte) step {
	return step{op: ops.Pick(a), client: int(b) % len(clients), choice: int(c), twice: d < 32}
}

func (s step) String() string {
	return fmt.Sprintf("%s client %s choice %d twice %t", s.op, clients[s.client], s.choice, s.twice)
}

// player plays one history on a server and on the model.
type player struct {
	host   stage.Host
	keys   lua.Keys
	model  *Identity
	seen   map[string]int
	log    []string
	now    int64
	number int64
	last   map[string]int64 // the incarnation of each client, as it was told
}

func (p *player) step(s step) error {
	stage.Tick(p.host, &p.now)
	if !p.host.Frozen() {
		p.now = p.host.Now()
	}
	p.model.Expire(p.now)
	times := 1
	if s.twice {
		times = 2
	}
	for range times {
		var err error
		switch s.op {
		case opRaise, opWitness:
			err = p.raise(s)
		case opConfirm:
			err = p.confirm(s)
		case opGraves:
			err = p.graves(s)
		case opPass:
			p.host.Pass(spans[s.choice%len(spans)])
		case opClock:
			p.host.Clock([]int64{-stage.Second, stage.Minute}[s.choice%2])
		case opDelete:
			err = p.lose(s.choice % len(p.keys.All()))
		}
		if err != nil {
			return err
		}
	}
	stage.Tick(p.host, &p.now)
	p.model.Expire(p.now)
	return p.compare()
}

func (p *player) raise(s step) error {
	r := lua.Incarnate{Client: clients[s.client], Who: "who-" + clients[s.client], Invocation: runs[s.choice%len(runs)]}
	if s.op == opWitness {
		r.Client, r.Who = "", ""
	} else if s.choice >= 128 {
		r.Ours = []string{clients[(s.client+1)%len(clients)], clients[(s.client+2)%len(clients)]}
	}
	had := *p.model
	reply, err := p.call(r.Script(), p.keys.All()[:1], r.Args())
	if err != nil {
		return err
	}
	if !p.host.Frozen() && len(reply) > 1 { // The server alone knows when that was.
		var told int64
		if _, err := fmt.Sscan(reply[1], &told); err == nil && told > p.now {
			p.now = told
		}
	}
	want := p.model.Raise(r, p.now)
	if !slices.Equal(reply, want) {
		return fmt.Errorf("answers %q, should be %q", reply, want)
	}
	p.seen[s.op+" "+reply[0]]++
	if p.model.Client == had.Client && had.Known && reply[0] == status(wire.Done) {
		p.seen[s.op+" again"]++
	}
	if reply[0] == status(wire.Done) && r.Client != "" {
		p.last[r.Client] = p.model.Incarnation
	}
	// Whatever the model says: an incarnation never falls, and who had the identity is to be buried.
	if had.Known && (p.model.Incarnation < had.Incarnation || had.Client != "" && had.Client != p.model.Client && !slices.Contains(reply[2:], had.Client)) {
		return fmt.Errorf("after incarnation %d of %s comes %q", had.Incarnation, had.Client, reply)
	}
	return nil
}

func (p *player) confirm(s step) error {
	r := Confirmation{
		Client: clients[s.client], Incarnation: max(p.last[clients[s.client]], 1), Who: "who-" + clients[s.client], Invocation: runs[s.choice%len(runs)],
		Enter: map[string]int64{}, Remove: map[string]int64{},
	}
	for n := range s.choice >> 4 & 3 {
		p.number++
		r.Enter[fmt.Sprint("name", (s.choice+n)%5)] = p.number
	}
	for n := range s.choice >> 6 {
		name := fmt.Sprint("name", (s.choice+n+3)%5)
		if _, enters := r.Enter[name]; !enters {
			r.Remove[name] = max(p.model.Names[r.Client].Of[name]-int64(n%2), 1)
		}
	}
	t, err := lua.Confirm.Tuple(p.host.Call([]string{p.keys.Lock, lua.IdentityNames(p.keys.Lock, r.Client)}, lua.Confirm, r.Args()))
	if err != nil {
		return err
	}
	p.log = append(p.log, fmt.Sprintf("confirm %q -> %d", r.Args(), t.Status))
	p.now = t.Now
	had := p.model.Incarnation
	p.model.Expire(p.now)
	if want := p.model.Confirm(r, p.now); t.Status != want {
		return fmt.Errorf("answers %d, should be %d", t.Status, want)
	}
	if t.Status != wire.Refused && r.Incarnation < had && p.model.Known {
		return fmt.Errorf("incarnation %d goes on after %d", r.Incarnation, had)
	}
	p.seen[fmt.Sprint("confirm ", t.Status)]++
	return nil
}

func (p *player) graves(s step) error {
	dead := clients[s.client]
	var done []string
	for n := range s.choice % 4 {
		done = append(done, fmt.Sprint("name", (s.choice+n)%5))
	}
	reply, err := p.call(lua.Graves, []string{p.keys.Lock, lua.IdentityNames(p.keys.Lock, dead)}, append([]string{dead}, done...))
	if err != nil {
		return err
	}
	if want := p.model.Graves(dead, done, p.now); !slices.Equal(reply, want) {
		return fmt.Errorf("answers %q, should be %q", reply, want)
	}
	p.seen[map[bool]string{true: "graves done", false: "graves left"}[len(reply) == 0]]++
	return nil
}

func (p *player) call(s *lua.Script, keys, args []string) ([]string, error) {
	fields, err := p.host.Call(keys, s, args).ToArray()
	words := make([]string, len(fields))
	for i, f := range fields {
		if words[i], err = f.ToString(); err != nil {
			var n int64
			n, err = f.AsInt64()
			words[i] = stage.Decimal(n)
		}
	}
	p.log = append(p.log, fmt.Sprintf("%d %s %q -> %q", p.now, s.Name, args, words))
	return words, err
}

func (p *player) lose(which int) error {
	if which == 0 {
		*p.model = Identity{Names: p.model.Names}
	} else {
		*p.model.Names[clients[which-1]] = Names{Of: map[string]int64{}}
	}
	return p.host.Remove(p.keys.All()[which])
}

func (p *player) compare() error {
	got, err := p.host.State(p.keys)
	if err != nil {
		return err
	}
	return stage.Same(p.keys, p.model.State(p.now, clients), got, p.host.Slack())
}
