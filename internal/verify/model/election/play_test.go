package election

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// A candidate is what a client knows of its ticket.
type candidate struct {
	ticket  string
	arrival int64
	token   int64
	ended   bool
}

// player plays one history on a server and on the model.
type player struct {
	server     stage.Host
	keys, heed lua.Keys // of those who campaign, and of those who observe
	model      *Election
	now        int64
	candidates [candidates]candidate
	ears       [stage.Ears]bool
	number     int64
	seen       int64 // the generation that was last answered to who observes
	sent       []Request
	muted      bool // for the next request
	blinded    bool
	state      stage.State
	judge      *judge
	log        []string
	sights     map[string]int
}

func newPlayer(s stage.Host, name string) (*player, error) {
	p := &player{
		server: s, keys: lua.Election.Keys("model", name), heed: lua.Leadership.Keys("model", name),
		model: New(), now: s.Now(), judge: newJudge(), sights: map[string]int{},
	}
	p.state = p.model.State(p.now)
	s.Deny(false, false)
	_, err := s.Woken(p.heed)
	return p, err
}

// play plays a history to its end or to the first difference.
func (p *player) play(h []step) error {
	err := stage.Through(h, p.step, &p.log)
	for i := range p.ears {
		_ = p.server.Hear(p.heed, i, false)
	}
	stage.Leave(p.server, p.keys, candidates)
	_, _ = p.server.Woken(p.heed)
	return err
}

func (p *player) step(s step) error {
	stage.Tick(p.server, &p.now)
	switch s.op {
	case opHear, opHush:
		if s.choice < stage.Ears {
			return p.hear(s.choice, s.op == opHear)
		}
		p.model.Hears[stage.ClientName(s.client)] = s.op == opHear
		return p.server.Wake(p.keys, stage.ClientName(s.client), s.op == opHear)
	case opPass, opClock:
		if s.op == opPass {
			p.server.Pass(s.micros)
		} else {
			p.server.Clock(s.micros)
		}
		stage.Tick(p.server, &p.now)
		p.model.Expire(p.now)
		return p.compare()
	case opDeny:
		p.muted, p.blinded = s.choice < 6, s.choice > 3
		return nil
	case opDelete:
		which := [8][3]bool{{true, true, true}, {true}, {true}, {true}, {false, true}, {false, false, true}, {true, true}, {true}}[s.choice]
		p.model.Delete(which[0], which[1], which[2])
		if err := stage.Lose(p.server, p.keys, which[:]); err != nil {
			return err
		}
		return p.compare()
	case opRepeat:
		if len(p.sent) == 0 {
			return nil
		}
		return p.request(p.sent[max(len(p.sent)-1-s.choice, 0)], s)
	}
	r := p.build(s)
	if r == nil {
		return nil
	}
	p.sent = append(p.sent, r)
	return p.request(r, s)
}

// hear lets one who observes listen, or not any more.
func (p *player) hear(ear int, on bool) error {
	if p.ears[ear] != on {
		p.model.Ears += map[bool]int{true: 1, false: -1}[on]
	}
	p.ears[ear] = on
	return p.server.Hear(p.heed, ear, on)
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) Request {
	notAfter := p.now + 60*stage.Minute
	if s.late {
		notAfter = p.now - 1
	}
	c := &p.candidates[s.client]
	who := "who of " + stage.ClientName(s.client)
	switch s.op {
	case opAsk:
		if c.ticket == "" || c.ended {
			p.number++
			// Leases that run out while a history is played.
			lease := [4]int64{10_000, 10_000, 2000, 60_000}[s.choice%4]
			*c = candidate{ticket: fmt.Sprintf("%s:%d:x:1:%d:2000", stage.ClientName(s.client), p.number, lease)}
		}
		mode := [4]string{lua.Wait, lua.Wait, lua.Look, lua.Try}[s.choice%4]
		return Plain{model.Ask{Ticket: c.ticket, Mode: mode, NotAfter: notAfter, Arrival: c.arrival, Uncounted: s.blank, Phase: lua.PhaseHeld}}
	case opForce:
		return Force{model.Force{Token: [4]int64{0, p.model.Lock.Token, 1, 0}[s.choice%4], Uncounted: s.blank}}
	case opLeader:
		return Leader{}
	case opWatch:
		return Watch{Seen: p.seen, Uncounted: s.blank}
	case opLook:
		return Look{Seen: []int64{p.seen, p.seen - 1, p.model.Revision}[:s.choice%4%3+1], Uncounted: s.blank}
	}
	if c.ticket == "" {
		return nil
	}
	switch s.op {
	case opEnd:
		c.ended = true
		return End{model.End{Ticket: c.ticket, Token: [4]int64{0, 0, 0, c.token}[s.choice%4], Uncounted: s.blank}}
	case opRenew:
		return Plain{model.Renew{Ticket: c.ticket, Token: c.token, Lease: 10_000, Phase: lua.PhaseHeld, NotAfter: notAfter}}
	case opCheck:
		r := model.Check{Client: stage.ClientName(s.client), Mode: lua.Hears, NotAfter: notAfter, Uncounted: s.blank}
		if c.arrival != 0 && !c.ended {
			r.Tickets = []lua.Arrival{{Ticket: c.ticket, Arrival: c.arrival}}
		}
		return Plain{r}
	}
	p.number++
	r := Proclaim{Ticket: c.ticket, Token: c.token, Number: p.number, Who: who, NotAfter: notAfter, Value: fmt.Sprint("value ", p.number)}
	switch s.choice {
	case 6:
		r.Token--
	case 7:
		r.Number = 1 // Of a request that was sent before others.
	}
	return r
}

// request sends one request to both and compares what comes of it.
func (p *player) request(r Request, s step) error {
	one, err := p.send(r)
	if err != nil {
		return err
	}
	if !s.lost {
		p.learn(r, one)
	}
	proclaim, ok := r.(Proclaim)
	if !ok || !s.twice {
		return nil
	}
	first := p.state
	two, err := p.send(proclaim)
	if err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	one.Flags, one.Now, two.Now = 0, 0, 0
	if a, b := stage.ReplyText(one), stage.ReplyText(two); a != b && p.server.Frozen() {
		return fmt.Errorf("sent twice: answers\n  %s, at first\n  %s", b, a)
	}
	return stage.Same(p.keys, first, p.state, stage.Stall)
}

// send runs a request on both and holds the results against each other and the promises.
func (p *player) send(r Request) (lua.Tuple, error) {
	p.model.Mute, p.model.Blind = p.muted, p.blinded
	p.server.Deny(p.muted, p.blinded)
	keys := p.keys.All()
	switch plain, _ := r.(Plain); r.(type) {
	case Proclaim, Leader, Watch, Look:
		keys = p.heed.All()
	default:
		if _, renew := plain.Request.(model.Renew); renew {
			keys = p.keys.Renewed()
		}
	}
	reply, err := r.Script().Tuple(p.server.Call(keys, r.Script(), r.Args()))
	if plain, ok := r.(Plain); ok {
		if a, ok := plain.Request.(model.Ask); ok {
			reply.Complete(lua.TicketTerms(a.Ticket))
		}
	}
	p.server.Deny(false, false)
	if err != nil {
		return reply, fmt.Errorf("the script: %w", err)
	}
	if reply.Now != 0 {
		p.now = reply.Now
	}
	p.log = append(p.log, fmt.Sprintf("%d %s %q\n      -> %s", p.now, r.Script().Name, r.Args(), stage.ReplyText(reply)))
	p.model.Expire(p.now)
	h := happened{request: r, reply: reply, now: p.now, before: p.model.State(p.now), muted: p.muted}
	want := r.Run(p.model, p.now)
	p.muted, p.blinded = false, false
	if w, g := stage.ReplyText(want), stage.ReplyText(reply); w != g {
		return reply, fmt.Errorf("  answers   %s\n  should be %s", g, w)
	}
	if h.told, err = p.messages(); err != nil {
		return reply, err
	}
	err = p.compare()
	h.after = p.state
	p.sights[fmt.Sprintf("%s %d", r.Script().Name, reply.Status)]++
	for _, state := range reply.States {
		p.sights[r.Script().Name+" "+state]++
	}
	for flag := int64(1); flag <= lua.Uncounted; flag *= 2 {
		if reply.Has(flag) {
			p.sights[fmt.Sprintf("%s flag %d", r.Script().Name, flag)]++
		}
	}
	if err == nil {
		err = p.judge.step(h)
	}
	return reply, err
}

// messages compares what was published, and returns what was told to those who observe.
func (p *player) messages() (told []string, err error) {
	woken, err := p.server.Woken(p.heed)
	if err != nil {
		return nil, err
	}
	var got []stage.Message
	for _, m := range woken {
		got = append(got, stage.Message{Client: strings.TrimPrefix(m.Client, ":"), Text: m.Text})
		if m.Client == "" {
			told = append(told, m.Text)
		}
	}
	return told, stage.Published(got, &p.model.Sent)
}

// compare holds the keys of the server against those of the model.
func (p *player) compare() error {
	got, err := p.server.State(p.keys)
	if err != nil {
		return err
	}
	p.state = got
	return stage.Same(p.keys, p.model.State(p.now), got, p.server.Slack())
}

// learn lets a client take in a reply as waitqueue does.
func (p *player) learn(r Request, reply lua.Tuple) {
	for _, g := range reply.Grants {
		for i := range p.candidates {
			if p.candidates[i].ticket == g.Ticket {
				p.candidates[i].token = int64(g.Token)
			}
		}
	}
	switch r := r.(type) {
	case Leader, Watch, Look:
		p.seen = reply.Arrival
	case Plain:
		ask, ok := r.Request.(model.Ask)
		if !ok {
			return
		}
		c := &p.candidates[ask.Ticket[0]-'a']
		switch {
		case c.ticket != ask.Ticket:
		case reply.Status == lua.Granted:
			c.token = int64(reply.Token)
		case reply.Status == lua.Waiting:
			c.arrival = reply.Arrival
		}
	}
	// Who was granted by message knows its token.
	for i := range p.candidates {
		if c := &p.candidates[i]; c.ticket != "" && c.ticket == p.model.Lock.Owner {
			c.token = p.model.Lock.Token
		}
	}
}
