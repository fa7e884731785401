package model

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A requestAll is what a client asks of the server about several locks.
type requestAll interface {
	Script() *lua.Script
	Args() []string
	// One is what it asks of the nth of them.
	One(n int) Request
	Run(all []*Mutex, now int64) []wire.Tuple
}

var (
	_ requestAll = AskAll{}
	_ requestAll = EndAll{}
)

// together plays one history on several locks, each with a player. In addition to the scripts for several locks, the
// scripts for one go on.
type together struct {
	server  host
	players []*player
	sent    []sentAll
	log     []string
	seen    map[string]int
}

type sentAll struct {
	request requestAll
	players []*player
}

func newTogether(s host, seed uint64) *together {
	w := &together{server: s, seen: map[string]int{}}
	for i := range uint64(locks) {
		w.players = append(w.players, newPlayer(s, keysOf(locks*seed+i)))
	}
	return w
}

// play plays a history to its end or to the first difference.
func (w *together) play(h history) (err error) {
	defer func() {
		for _, p := range w.players {
			stage.Leave(w.server, p.Keys, clients)
		}
	}()
	w.server.Deny(false, false)
	if _, err := w.server.WokenAll(w.keys(w.players)...); err != nil {
		return err
	}
	for i := range clients {
		for _, p := range w.players {
			if err := p.Hear(i, h.Deaf>>i&1 == 0); err != nil {
				return err
			}
		}
	}
	return stage.Through(h.Steps, func(s step) error {
		defer func() {
			for _, p := range w.players {
				w.log = append(w.log, p.Log...)
				p.Log = nil
			}
		}()
		return w.step(s)
	}, &w.log)
}

func (w *together) keys(players []*player) []lua.Keys {
	all := make([]lua.Keys, len(players))
	for i, p := range players {
		all[i] = p.Keys
	}
	return all
}

// chosen are the players of the locks that a step is about.
func (w *together) chosen(s step) []*player {
	if s.Names == 0 {
		return w.players[:1]
	}
	var players []*player
	for i, p := range w.players {
		if s.Names>>i&1 == 1 {
			players = append(players, p)
		}
	}
	return players
}

func (w *together) step(s step) error {
	players := w.chosen(s)
	switch s.Op {
	case line.OpPass, line.OpClock:
		if s.Op == line.OpPass {
			w.server.Pass(s.Micros)
		} else {
			w.server.Clock(s.Micros)
		}
		for _, p := range w.players {
			if err := p.expire(); err != nil {
				return err
			}
		}
		return nil
	case line.OpHear, line.OpHush:
		for _, p := range players {
			if err := p.step(s); err != nil {
				return err
			}
		}
		return nil
	case line.OpAsk, line.OpEnd:
		if len(players) > 1 || !s.Alone {
			return w.build(players, s)
		}
	case line.OpRepeat:
		if len(players) > 1 && len(w.sent) > 0 {
			return w.request(w.sent[max(len(w.sent)-1-s.Choice, 0)], s)
		}
	}
	return players[0].step(s)
}

// build makes the request of a step for several locks, and sends it.
func (w *together) build(players []*player, s step) error {
	for _, p := range players {
		stage.Tick(w.server, &p.Now)
	}
	b := sentAll{players: players}
	notAfter, floor := players[0].Terms(s, line.SentBy+stage.Millisecond)
	if s.Op == line.OpAsk {
		r := AskAll{
			Mode: s.Mode, NotAfter: notAfter, Head: s.Head, Floor: floor, Uncounted: s.Blank, Phase: s.Phase(),
		}
		for _, p := range players {
			t := &p.Clients[s.Client][s.Slot]
			p.renumber(t, s)
			r.Tickets, r.Arrivals = append(r.Tickets, t.Text), append(r.Arrivals, t.Arrival)
		}
		b.request = r
	} else {
		r := EndAll{Floor: floor, Uncounted: s.Blank}
		b.players = nil
		client, holds := s.Client, s.Choice > 2 // Mostly it is holds that end.
		if first := players[0].holder(); holds && first != nil {
			client = int(first.Ticket.Client[0] - 'a')
		}
		for _, p := range players {
			t := &p.Clients[client][s.Slot]
			if owner := p.holder(); holds && owner != nil && owner.Ticket.Client == stage.ClientName(client) {
				t = owner
			}
			if t.Text == "" {
				continue
			}
			t.Ended = true
			b.players, r.Tickets = append(b.players, p), append(r.Tickets, t.Text)
		}
		b.request = r
	}
	if len(b.players) == 0 {
		return nil
	}
	w.sent = append(w.sent, b)
	return w.request(b, s)
}

// holder is the slot of the ticket that holds, or nil.
func (p *player) holder() *line.Slot {
	if p.before.owner() == "" {
		return nil
	}
	return p.Find(p.before.owner())
}

// request sends one request to both, perhaps twice.
func (w *together) request(b sentAll, s step) error {
	replies, err := w.send(b)
	if err != nil {
		return err
	}
	first := make([]state, len(b.players))
	for i, p := range b.players {
		if !s.Lost {
			p.learn(b.request.One(i), replies[i])
		}
		first[i] = p.before
	}
	if !s.Twice || !w.server.Frozen() {
		return nil
	}
	again, err := w.send(b)
	if err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	if slices.ContainsFunc(replies, unsettled) {
		return nil // What one lock lets through the second time decides on all of them.
	}
	for i, p := range b.players {
		if err := sameTwice(b.request.One(i), replies[i], again[i], first[i], p.before); err != nil {
			return fmt.Errorf("sent twice, lock %d: %w", i, err)
		}
	}
	return nil
}

// send runs a request on both and holds the results against each other and the invariants.
func (w *together) send(b sentAll) ([]wire.Tuple, error) {
	muted, blinded := b.players[0].Muted, b.players[0].Blinded
	var keys []string
	models := make([]*Mutex, len(b.players))
	for i, p := range b.players {
		keys = append(keys, p.Keys.All()...)
		models[i] = p.Model
		p.Model.Mute, p.Model.Blind = muted, blinded
		p.Muted, p.Blinded = false, false
	}
	script, args := b.request.Script(), b.request.Args()
	w.server.Deny(muted, blinded)
	decoded, err := script.DecodeAll(w.server.Call(keys, script, args), len(models))
	w.server.Deny(false, false)
	if err != nil {
		return nil, fmt.Errorf("the script: %w", err)
	}
	if len(decoded) < len(models) {
		decoded = slices.Repeat(decoded, len(models))
	}
	replies := make([]wire.Tuple, len(models))
	for i, r := range decoded {
		replies[i] = wire.Tuple(r)
		if a, ok := b.request.One(i).(Ask); ok {
			replies[i].Complete(wire.TicketTerms(a.Ticket))
		}
	}
	scans := make([]*line.Scan, len(models))
	for i, p := range b.players {
		if now := replies[0].Now; now != 0 {
			p.Now = now
		}
		p.elapse()
		scans[i] = p.Model.Clone().Lock.Scan
	}
	now := b.players[0].Now
	w.log = append(w.log, fmt.Sprintf("%d %s %v of %d", now, script.Name, args, len(models)))
	wants := b.request.Run(models, now)
	woken, err := w.server.WokenAll(w.keys(b.players)...)
	if err != nil {
		return nil, err
	}
	before := make([]state, len(models))
	for i, p := range b.players {
		before[i] = p.before
		w.log = append(w.log, "      -> "+stage.ReplyText(replies[i]))
		if err := p.took(happened{request: b.request.One(i), before: p.before, Happened: line.Happened{
			Says: says(b.request.One(i)), Reply: replies[i], Now: now, Before: p.before.State, Hears: p.Model.Hears,
			Muted: muted, Blinded: blinded, Scan: scans[i], Sent: woken[i],
		}}, wants[i]); err != nil {
			return nil, fmt.Errorf("lock %d of the request: %w", i, err)
		}
	}
	w.note(b, replies)
	return replies, raised(b, before)
}

// raised: what is granted has a token above those of all the locks, and what was held leaves its lock with the highest
// of those that were held.
func raised(b sentAll, before []state) error {
	var highest, held int64
	_, ends := b.request.(EndAll)
	for i := range before {
		token := before[i].number("token")
		highest = max(highest, token)
		if ends && before[i].owner() == b.request.One(i).(End).Ticket {
			held = max(held, token)
		}
	}
	for i, p := range b.players {
		token, owner := p.before.number("token"), p.before.owner()
		if !ends && owner != "" && !wire.Rests(owner) && token != before[i].number("token") && token <= highest {
			return fmt.Errorf("lock %d was granted with token %d, and another had %d", i, token, highest)
		}
		if ends && before[i].owner() == b.request.One(i).(End).Ticket && token < held {
			return fmt.Errorf("lock %d is left with token %d, and another was held with %d", i, token, held)
		}
	}
	return nil
}

// note counts what came of a request.
func (w *together) note(b sentAll, replies []wire.Tuple) {
	name := b.request.Script().Name
	statuses := map[wire.Status]bool{}
	for _, r := range replies {
		statuses[r.Status] = true
		w.seen[fmt.Sprintf("%s %d", name, r.Status)]++
		if r.Has(wire.Handed) {
			w.seen[name+" hands on"]++
		}
	}
	if len(statuses) > 1 {
		w.seen[name+" finds this and that"]++
	}
}

var severalPlays = stage.Play[step]{
	Vectors: []string{"multilock/"},
	Scripts: scripts, Random: randomSeveral, Ready: ready,
	Decode: func(data []byte) stage.History[step] {
		h := decodeSeveral(data)
		play := func(s stage.Host, seed uint64, steps []step, seen map[string]int) error {
			w := newTogether(s.(host), seed)
			h.Steps, w.seen = steps, seen
			return w.play(h)
		}
		return stage.History[step]{Start: h.Start(), Steps: h.Steps, Play: play}
	},
}

func TestScriptsForSeveralLocksDoWhatTheModelDoes(t *testing.T) {
	sights := stage.Statuses(map[*lua.Script][]wire.Status{
		lua.MultiAsk: {wire.Granted, wire.Waiting, wire.Busy, wire.Late},
		lua.MultiEnd: {wire.Done, wire.Refused},
	})
	for _, script := range []*lua.Script{lua.MultiAsk, lua.MultiEnd} {
		sights = append(sights, script.Name+" finds this and that", script.Name+" hands on")
	}
	severalPlays.Embedded(t, 2, 600, sights)
}

func TestScriptsForSeveralLocksDoWhatTheModelDoesOnRedis(t *testing.T) { severalPlays.Redis(t, 200) }

func FuzzSeveral(f *testing.F) { severalPlays.Fuzz(f) }
