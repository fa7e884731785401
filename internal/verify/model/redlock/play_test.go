package redlock

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// player plays one history on a server and on the model. It knows the token to which each ticket's has risen.
type player struct {
	*line.Player[*model.Mutex]
	granted [callers]int64 // tokens of the grants
	sent    []model.Request
}

// play plays a history to its end or to the first difference.
func play(s stage.Host, seed uint64, steps []step, sights map[string]int) error {
	p := &player{Player: line.NewPlayer(s, lua.Redlock.Keys("model", fmt.Sprint(seed)), model.New(), 1)}
	p.Seen = sights
	return p.Play(line.History{Deaf: nobody, Steps: steps}, p.step)
}

func (p *player) step(s step) error {
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
	r := p.build(s)
	if r == nil {
		return nil
	}
	p.sent = append(p.sent, r)
	one, err := p.send(r)
	if err != nil || !s.Twice || !p.Host.Frozen() {
		return err
	}
	switch r.(type) {
	case Renew, Raise, Ahead:
		first := p.State
		two, err := p.send(r)
		if err != nil {
			return fmt.Errorf("the second time: %w", err)
		}
		if a, b := stage.ReplyText(one), stage.ReplyText(two); a != b {
			return fmt.Errorf("sent twice: answers\n  %s, at first\n  %s", b, a)
		}
		return stage.Same(p.Keys, first, p.State, stage.Stall)
	}
	return nil
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) model.Request {
	notAfter := p.Now + 60*stage.Minute
	if s.Late {
		notAfter = p.Now - 1
	}
	c := &p.Clients[s.Client][0]
	switch s.Op {
	case line.OpAsk:
		if c.Text == "" || c.Ended {
			p.Number++
			// Leases that run out while a history is played.
			lease := [4]int64{10_000, 10_000, 2000, 60_000}[s.Choice%4]
			p.granted[s.Client] = 0
			*c = line.Slot{Text: fmt.Sprintf("%s:%d:x:1:%d:2000", stage.ClientName(s.Client), p.Number, lease)}
			if s.Choice > 3 {
				c.Arrival = p.Now - int64(s.Choice) // One for all nodes (V1).
			}
		}
		mode := [4]string{wire.Wait, wire.Wait, wire.Wait, wire.Try}[s.Choice%4]
		return model.Ask{Ticket: c.Text, Mode: mode, NotAfter: notAfter, Arrival: c.Arrival, Phase: wire.PhaseHeld}
	case line.OpForce:
		return model.Force{}
	case opAhead:
		return Ahead{Arrival: c.Arrival}
	case line.OpRepeat:
		if len(p.sent) == 0 {
			return nil
		}
		return p.sent[max(len(p.sent)-1-s.Choice, 0)]
	}
	if c.Text == "" {
		return nil
	}
	switch s.Op {
	case line.OpEnd:
		c.Ended = true
		return model.End{Ticket: c.Text}
	case line.OpCheck:
		r := model.Check{Client: stage.ClientName(s.Client), Mode: wire.Hears, NotAfter: notAfter}
		if c.Arrival != 0 && !c.Ended {
			r.Tickets = []lua.Arrival{{Ticket: c.Text, Arrival: c.Arrival}}
		}
		return r
	case line.OpRenew:
		token := p.granted[s.Client] + [8]int64{7: 1 << 40}[s.Choice] // A token that it never had.
		lease := [4]int64{10_000, 2000, 60_000, 10_000}[s.Choice%4]
		return Renew{model.Renew{Ticket: c.Text, Token: token, Lease: lease, Phase: wire.PhaseHeld, NotAfter: notAfter}}
	}
	r := Raise{Client: stage.ClientName(s.Client), Token: c.Token, Wanted: c.Token + 1 + int64(s.Choice), NotAfter: notAfter}
	switch s.Choice {
	case 5:
		r.Token-- // Before it rose.
	case 6:
		r.Client = stage.ClientName((s.Client + 1) % callers)
	}
	return r
}

// send runs a request on both and holds the results against each other and the promises.
func (p *player) send(r model.Request) (wire.Tuple, error) {
	keys := p.Keys.All()
	if _, renew := r.(Renew); renew {
		keys = p.Keys.Renewed()
	}
	reply, err := p.Run(r.Script(), r.Args(), func() (wire.Tuple, error) {
		reply, err := r.Script().Tuple(p.Host.Call(keys, r.Script(), r.Args()))
		if a, ok := r.(model.Ask); ok {
			reply.Complete(wire.TicketTerms(a.Ticket))
		}
		return reply, err
	})
	if err != nil {
		return reply, err
	}
	p.Model.Expire(p.Now)
	h := happened{request: r, reply: reply, now: p.Now, before: p.Model.State(p.Now)}
	want := r.Run(p.Model, p.Now)
	sent, err := p.Host.Woken(p.Keys)
	if err != nil {
		return reply, err
	}
	for i := range sent {
		sent[i].Client = strings.TrimPrefix(sent[i].Client, ":")
	}
	if err := p.Answered(want, reply, sent); err != nil {
		return reply, err
	}
	if err := p.Compare(); err != nil {
		return reply, err
	}
	h.after = p.State
	p.Note(r.Script(), reply, nil)
	p.learn(r, reply)
	return reply, judge(h)
}

// learn lets a client take in a reply as waitqueue and package redlock do.
func (p *player) learn(r model.Request, reply wire.Tuple) {
	switch r := r.(type) {
	case model.Ask:
		if c := &p.Clients[r.Ticket[0]-'a'][0]; c.Text == r.Ticket && reply.Status == wire.Waiting {
			c.Arrival = reply.Arrival
		}
	case Raise:
		if c := &p.Clients[r.Client[0]-'a'][0]; reply.Status == wire.Granted {
			c.Token = r.Wanted
		}
	}
	// Who was granted knows its token.
	if c := p.Find(p.Model.Lock.Owner); c != nil && c.Text != "" {
		if granted := &p.granted[c.Text[0]-'a']; *granted == 0 {
			*granted, c.Token = p.Model.Lock.Token, p.Model.Lock.Token
		}
	}
}
