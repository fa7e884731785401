package redlock

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// A caller is what a client knows of its ticket.
type caller struct {
	ticket  string
	arrival int64
	granted int64 // token of the grant
	token   int64 // to which that has risen
	ended   bool
}

// player plays one history on a server and on the model.
type player struct {
	server  stage.Host
	keys    lua.Keys
	model   *model.Mutex
	now     int64
	callers [callers]caller
	number  int64
	sent    []model.Request
	state   stage.State
	log     []string
	sights  map[string]int
}

func newPlayer(s stage.Host, name string) (*player, error) {
	p := &player{server: s, keys: lua.Redlock.Keys("model", name), model: model.New(), now: s.Now(), sights: map[string]int{}}
	s.Deny(false, false)
	_, err := s.Woken(p.keys)
	p.state = stateOf(p.model, p.now)
	return p, err
}

// stateOf is what the keys of a server should hold.
func stateOf(m *model.Mutex, now int64) stage.State {
	queue := map[string]int64{}
	for _, a := range m.Queue {
		queue[a.Ticket] = a.Arrival
	}
	return stage.State{
		stage.Fields(m.Lock.Fields(), m.LockEnds, now), stage.Scores(queue, m.QueueEnds, now),
		stage.Scores(m.Suspects, m.SuspectsEnds, now),
	}
}

// play plays a history to its end or to the first difference.
func (p *player) play(h []step) error {
	err := stage.Through(h, p.step, &p.log)
	stage.Leave(p.server, p.keys, callers)
	_, _ = p.server.Woken(p.keys)
	return err
}

func (p *player) step(s step) error {
	stage.Tick(p.server, &p.now)
	switch s.op {
	case opHear, opHush:
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
	case opDelete:
		which := [8][3]bool{{true, true, true}, {true}, {true}, {true}, {false, true}, {false, false, true}, {true, true}, {true}}[s.choice]
		p.model.Delete(which[0], which[1], which[2])
		if err := stage.Lose(p.server, p.keys, which[:]); err != nil {
			return err
		}
		return p.compare()
	}
	r := p.build(s)
	if r == nil {
		return nil
	}
	p.sent = append(p.sent, r)
	one, err := p.send(r)
	if err != nil || !s.twice || !p.server.Frozen() {
		return err
	}
	switch r.(type) {
	case Renew, Raise, Ahead:
		first := p.state
		two, err := p.send(r)
		if err != nil {
			return fmt.Errorf("the second time: %w", err)
		}
		if a, b := stage.ReplyText(one), stage.ReplyText(two); a != b {
			return fmt.Errorf("sent twice: answers\n  %s, at first\n  %s", b, a)
		}
		return stage.Same(p.keys, first, p.state, stage.Stall)
	}
	return nil
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) model.Request {
	notAfter := p.now + 60*stage.Minute
	if s.late {
		notAfter = p.now - 1
	}
	c := &p.callers[s.client]
	switch s.op {
	case opAsk:
		if c.ticket == "" || c.ended {
			p.number++
			// Leases that run out while a history is played.
			lease := [4]int64{10_000, 10_000, 2000, 60_000}[s.choice%4]
			*c = caller{ticket: fmt.Sprintf("%s:%d:x:1:%d:2000", stage.ClientName(s.client), p.number, lease)}
			if s.choice > 3 {
				c.arrival = p.now - int64(s.choice) // One for all nodes (V1).
			}
		}
		mode := [4]string{lua.Wait, lua.Wait, lua.Wait, lua.Try}[s.choice%4]
		return model.Ask{Ticket: c.ticket, Mode: mode, NotAfter: notAfter, Arrival: c.arrival, Phase: lua.PhaseHeld}
	case opForce:
		return model.Force{}
	case opAhead:
		return Ahead{Arrival: c.arrival}
	case opRepeat:
		if len(p.sent) == 0 {
			return nil
		}
		return p.sent[max(len(p.sent)-1-s.choice, 0)]
	}
	if c.ticket == "" {
		return nil
	}
	switch s.op {
	case opEnd:
		c.ended = true
		return model.End{Ticket: c.ticket}
	case opCheck:
		r := model.Check{Client: stage.ClientName(s.client), Mode: lua.Hears, NotAfter: notAfter}
		if c.arrival != 0 && !c.ended {
			r.Tickets = []lua.Arrival{{Ticket: c.ticket, Arrival: c.arrival}}
		}
		return r
	case opRenew:
		token := c.granted + [8]int64{7: 1 << 40}[s.choice] // A token that it never had.
		lease := [4]int64{10_000, 2000, 60_000, 10_000}[s.choice%4]
		return Renew{model.Renew{Ticket: c.ticket, Token: token, Lease: lease, Phase: lua.PhaseHeld, NotAfter: notAfter}}
	}
	r := Raise{Client: stage.ClientName(s.client), Token: c.token, Wanted: c.token + 1 + int64(s.choice), NotAfter: notAfter}
	switch s.choice {
	case 5:
		r.Token-- // Before it rose.
	case 6:
		r.Client = stage.ClientName((s.client + 1) % callers)
	}
	return r
}

// send runs a request on both and holds the results against each other and the promises.
func (p *player) send(r model.Request) (lua.Tuple, error) {
	keys := p.keys.All()
	if _, renew := r.(Renew); renew {
		keys = p.keys.Renewed()
	}
	reply, err := r.Script().Tuple(p.server.Call(keys, r.Script(), r.Args()))
	if a, ok := r.(model.Ask); ok {
		reply.Complete(lua.TicketTerms(a.Ticket))
	}
	if err != nil {
		return reply, fmt.Errorf("the script: %w", err)
	}
	if reply.Now != 0 {
		p.now = reply.Now
	}
	p.log = append(p.log, fmt.Sprintf("%d %s %q\n      -> %s", p.now, r.Script().Name, r.Args(), stage.ReplyText(reply)))
	p.model.Expire(p.now)
	h := happened{request: r, reply: reply, now: p.now, before: stateOf(p.model, p.now)}
	want := r.Run(p.model, p.now)
	if w, g := stage.ReplyText(want), stage.ReplyText(reply); w != g {
		return reply, fmt.Errorf("  answers   %s\n  should be %s", g, w)
	}
	if err := p.messages(); err != nil {
		return reply, err
	}
	if err := p.compare(); err != nil {
		return reply, err
	}
	h.after = p.state
	p.sights[fmt.Sprintf("%s %d", r.Script().Name, reply.Status)]++
	if len(reply.States) > 0 {
		p.sights[r.Script().Name+" "+reply.States[0]]++
	}
	p.learn(r, reply)
	return reply, judge(h)
}

// messages compares what was published.
func (p *player) messages() error {
	woken, err := p.server.Woken(p.keys)
	if err != nil {
		return err
	}
	var got []stage.Message
	for _, m := range woken {
		got = append(got, stage.Message{Client: strings.TrimPrefix(m.Client, ":"), Text: m.Text})
	}
	return stage.Published(got, &p.model.Sent)
}

// compare holds the keys of the server against those of the model.
func (p *player) compare() error {
	got, err := p.server.State(p.keys)
	if err != nil {
		return err
	}
	p.state = got
	return stage.Same(p.keys, stateOf(p.model, p.now), got, p.server.Slack())
}

// learn lets a client take in a reply as waitqueue and package redlock do.
func (p *player) learn(r model.Request, reply lua.Tuple) {
	switch r := r.(type) {
	case model.Ask:
		if c := &p.callers[r.Ticket[0]-'a']; c.ticket == r.Ticket && reply.Status == lua.Waiting {
			c.arrival = reply.Arrival
		}
	case Raise:
		if c := &p.callers[r.Client[0]-'a']; reply.Status == lua.Granted {
			c.token = r.Wanted
		}
	}
	// Who was granted knows its token.
	for i := range p.callers {
		if c := &p.callers[i]; c.granted == 0 && c.ticket != "" && c.ticket == p.model.Lock.Owner {
			c.granted, c.token = p.model.Lock.Token, p.model.Lock.Token
		}
	}
}
