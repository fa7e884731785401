package election

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// player plays one history on a server and on the model.
type player struct {
	*line.Player[*Election]
	heed  lua.Keys // of the observers
	ears  [stage.Ears]bool
	seen  int64 // the generation that was last answered to who observes
	judge *judge
}

func newPlayer(s stage.Host, name string) *player {
	p := line.NewPlayer(s, lua.Election.Keys("model", name), New(), 1)
	return &player{Player: p, heed: lua.Leadership.Keys("model", name), judge: newJudge()}
}

// play plays a history to its end or to the first difference.
func play(s stage.Host, seed uint64, steps []step, sights map[string]int) error {
	p := newPlayer(s, fmt.Sprint(seed))
	p.Seen = sights
	err := p.Play(line.History{Deaf: nobody, Steps: steps}, p.step)
	for i := range p.ears {
		_ = s.Hear(p.heed, i, false)
	}
	_, _ = s.Woken(p.heed)
	return err
}

func (p *player) step(s step) error {
	if (s.Op == line.OpHear || s.Op == line.OpHush) && s.Choice < stage.Ears {
		return p.hear(s.Choice, s.Op == line.OpHear)
	}
	if done, err := p.Around(s, p.Expire); done {
		return err
	}
	if s.Op == line.OpDelete {
		which := [8][3]bool{{true, true, true}, {true}, {true}, {true}, {false, true}, {false, false, true}, {true, true}, {true}}[s.Choice]
		p.Model.Delete(which[0], which[1], which[2])
		if err := stage.Lose(p.Host, p.Keys, which[:]); err != nil {
			return err
		}
		return p.Compare()
	}
	return p.Send(s, p.build, p.request)
}

// hear lets one who observes listen, or not any more.
func (p *player) hear(ear int, on bool) error {
	if p.ears[ear] != on {
		p.Model.Ears += map[bool]int{true: 1, false: -1}[on]
	}
	p.ears[ear] = on
	return p.Host.Hear(p.heed, ear, on)
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) Request {
	notAfter := p.Now + 60*stage.Minute
	if s.Late {
		notAfter = p.Now - 1
	}
	c := &p.Clients[s.Client][0]
	who := "who of " + stage.ClientName(s.Client)
	switch s.Op {
	case line.OpAsk:
		if c.Text == "" || c.Ended {
			p.Number++
			// Leases that run out while a history is played.
			lease := [4]int64{10_000, 10_000, 2000, 60_000}[s.Choice%4]
			*c = line.Slot{Text: fmt.Sprintf("%s:%d:x:1:%d:2000", stage.ClientName(s.Client), p.Number, lease)}
		}
		mode := [4]string{wire.Wait, wire.Wait, wire.Look, wire.Try}[s.Choice%4]
		return Plain{model.Ask{Ticket: c.Text, Mode: mode, NotAfter: notAfter, Arrival: c.Arrival, Uncounted: s.Blank, Phase: wire.PhaseHeld}}
	case line.OpForce:
		return Force{model.Force{Token: [4]int64{0, p.Model.Lock.Token, 1, 0}[s.Choice%4], Uncounted: s.Blank}}
	case line.OpBury:
		return Bury{model.Bury{Client: stage.ClientName(s.Client), Uncounted: s.Blank}}
	case opLeader:
		return Leader{}
	case opWatch:
		return Watch{Seen: p.seen, Uncounted: s.Blank}
	case opLook:
		return Look{Seen: []int64{p.seen, p.seen - 1, p.Model.Revision}[:s.Choice%4%3+1], Uncounted: s.Blank}
	}
	if c.Text == "" {
		return nil
	}
	switch s.Op {
	case line.OpEnd:
		c.Ended = true
		return End{model.End{Ticket: c.Text, Token: [4]int64{0, 0, 0, c.Token}[s.Choice%4], Uncounted: s.Blank}}
	case line.OpRenew:
		return Plain{model.Renew{Ticket: c.Text, Token: c.Token, Lease: 10_000, Phase: wire.PhaseHeld, NotAfter: notAfter}}
	case line.OpCheck:
		r := model.Check{Client: stage.ClientName(s.Client), Mode: wire.Hears, NotAfter: notAfter, Uncounted: s.Blank}
		if c.Arrival != 0 && !c.Ended {
			r.Tickets = []lua.Arrival{{Ticket: c.Text, Arrival: c.Arrival}}
		}
		return Plain{r}
	}
	p.Number++
	r := Proclaim{Ticket: c.Text, Token: c.Token, Number: int64(p.Number), Who: who, NotAfter: notAfter, Value: fmt.Sprint("value ", p.Number)}
	switch s.Choice {
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
	if !s.Lost {
		p.learn(r, one)
	}
	proclaim, ok := r.(Proclaim)
	if !ok || !s.Twice {
		return nil
	}
	first := p.State
	two, err := p.send(proclaim)
	if err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	one.Flags, one.Now, two.Now = 0, 0, 0
	if a, b := stage.ReplyText(one), stage.ReplyText(two); a != b && p.Host.Frozen() {
		return fmt.Errorf("sent twice: answers\n  %s, at first\n  %s", b, a)
	}
	return stage.Same(p.Keys, first, p.State, stage.Stall)
}

// send runs a request on both and holds the results against each other and the promises.
func (p *player) send(r Request) (wire.Tuple, error) {
	h := happened{request: r, muted: p.Muted}
	keys := stage.KeysOf(p.Keys, r.Script(), r.Args())
	switch plain, _ := r.(Plain); r.(type) {
	case Proclaim, Leader, Watch, Look:
		keys = p.heed.All()
	default:
		if _, renew := plain.Request.(model.Renew); renew {
			keys = p.Keys.Renewed()
		}
	}
	reply, err := p.Run(r.Script(), r.Args(), func() (wire.Tuple, error) {
		reply, err := r.Script().Tuple(p.Host.Call(keys, r.Script(), r.Args()))
		if plain, ok := r.(Plain); ok {
			if a, ok := plain.Request.(model.Ask); ok {
				reply.Complete(wire.TicketTerms(a.Ticket))
			}
		}
		return reply, err
	})
	p.Muted, p.Blinded = false, false
	if err != nil {
		return reply, err
	}
	p.Model.Expire(p.Now)
	h.reply, h.now, h.before = reply, p.Now, p.Model.State(p.Now)
	want := r.Run(p.Model, p.Now)
	if h.told, err = p.messages(want, reply); err != nil {
		return reply, err
	}
	err = p.Compare()
	h.after = p.State
	p.Note(r.Script(), reply, nil)
	for flag := int64(1); flag <= wire.Uncounted; flag *= 2 {
		if reply.Has(flag) {
			p.Seen[fmt.Sprintf("%s flag %d", r.Script().Name, flag)]++
		}
	}
	if err == nil {
		err = p.judge.step(h)
	}
	return reply, err
}

// messages compares the reply and what was published, and returns what was told to observers.
func (p *player) messages(want, reply wire.Tuple) (told []string, err error) {
	woken, err := p.Host.Woken(p.heed)
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
	return told, p.Answered(want, reply, got)
}

// learn lets a client take in a reply as waitqueue does.
func (p *player) learn(r Request, reply wire.Tuple) {
	for _, g := range reply.Grants {
		p.Granted(g.Ticket, g.Token)
	}
	switch r := r.(type) {
	case Leader, Watch, Look:
		p.seen = reply.Arrival
	case Plain:
		ask, ok := r.Request.(model.Ask)
		if !ok {
			return
		}
		c := &p.Clients[ask.Ticket[0]-'a'][0]
		switch {
		case c.Text != ask.Ticket:
		case reply.Status == wire.Granted:
			c.Token = int64(reply.Token)
		case reply.Status == wire.Waiting:
			c.Arrival = reply.Arrival
		}
	}
	// Who was granted by message knows its token.
	if c := p.Find(p.Model.Lock.Owner); c != nil && c.Text != "" {
		c.Token = p.Model.Lock.Token
	}
}
