package latch

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// player plays one history on a server and on the model.
type player struct {
	*stage.Duel[*Latch]
	seen  [waiters]int64 // the generation that the waiter of each client has seen
	ears  [stage.Ears]bool
	sent  []Request
	judge *judge
}

func newPlayer(s stage.Server, k lua.Keys) *player {
	return &player{Duel: stage.NewDuel(s, k, &Latch{}), judge: newJudge()}
}

// play plays a history to its end or to the first difference.
func (p *player) play(h []step) error {
	return stage.Through(h, p.step, &p.Log)
}

func (p *player) step(s step) error {
	stage.Tick(p.Server, &p.Now)
	defer func() { p.judge.passed(p.State) }()
	switch s.op {
	case opHear, opHush:
		return p.hear(s.client%stage.Ears, s.op == opHear)
	case opPass:
		return p.Pass(s.micros)
	case opClock:
		return p.Clock(s.micros)
	case opDeny:
		p.Deny(s.choice < 6, s.choice > 3)
		return nil
	case opDelete:
		return p.remove()
	case opInspect:
		return p.View(lua.Countdown.Inspect, 10, p.Model.View)
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

// hear lets an ear listen, or not any more.
func (p *player) hear(ear int, on bool) error {
	p.ears[ear] = on
	p.Model.Ears = 0
	for _, listens := range p.ears {
		if listens {
			p.Model.Ears++
		}
	}
	return p.Server.Hear(p.Keys, ear, on)
}

// remove lets the key be lost.
func (p *player) remove() error {
	p.Model.Lose()
	return p.Remove(0)
}

// later is a not-after that does not come soon.
func (p *player) later() int64 { return p.Now + 5*stage.Minute }

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) Request {
	notAfter := p.later()
	if s.late {
		notAfter = p.Now - 1
	}
	ticket := fmt.Sprintf("%s:1:b:1:10000:2000", stage.ClientName(s.client))
	switch s.op {
	case opAsk:
		if s.fresh {
			p.seen[s.client] = 0
		}
		r := Ask{Ticket: ticket, Mode: s.mode, NotAfter: notAfter, Seen: p.seen[s.client], Uncounted: s.blank}
		if s.early {
			r.Early = s.lifetime
			if !p.Server.Frozen() {
				r.Early = lifetimes[0]
			}
		}
		return r
	case opCheck:
		r := Check{Client: stage.ClientName(s.client), Mode: s.mode, NotAfter: notAfter, Uncounted: s.blank}
		for i, seen := range p.seen {
			if seen != 0 && i%2 == s.client%2 {
				r.Tickets = append(r.Tickets, lua.Arrival{Ticket: fmt.Sprintf("%s:%d:b:1:10000:2000", r.Client, i), Arrival: seen})
			}
		}
		return r
	case opRemove:
		return Remove{Generation: [4]int64{0, p.Model.Generation, p.Model.Generation - 1, p.Model.Generation}[s.choice%4]}
	}
	if s.op == opSet {
		lifetime := s.lifetime
		if !p.Server.Frozen() {
			lifetime = lifetimes[0] // There no key expires while a history is played.
		}
		return Set{Count: s.count, Lifetime: lifetime}
	}
	return Down{}
}

// request sends one request to both and compares what comes of it.
func (p *player) request(r Request, s step) error {
	one, err := p.send(r)
	if err != nil {
		return err
	}
	if ask, ok := r.(Ask); ok && !s.lost && one.Status == wire.Waiting {
		p.seen[ask.Ticket[0]-'a'] = one.Arrival
	}
	if !s.twice || !p.Server.Frozen() {
		return nil
	}
	first := p.State
	two, err := p.send(r)
	if err != nil {
		return fmt.Errorf("the second time: %w", err)
	}
	return sameTwice(p.Keys, r, one, two, first, p.State)
}

func (p *player) send(r Request) (wire.Tuple, error) {
	h, err := p.Send(r)
	if err == nil {
		err = p.judge.step(h)
	}
	p.judge.passed(p.State)
	return h.Reply, err
}

// sameTwice: a request that is sent twice has the effect of one, and the same answer.
func sameTwice(k lua.Keys, r Request, one, two wire.Tuple, first, second stage.State) error {
	if r.Script() != lua.Countdown.Ask && r.Script() != lua.Countdown.Check {
		return nil // It is lib/once that lets it have its effect once.
	}
	one.Flags, two.Flags = 0, 0
	one.Waiting, two.Waiting = 0, 0 // Whether clients can be counted may have changed.
	if a, b := stage.ReplyText(one), stage.ReplyText(two); a != b {
		return fmt.Errorf("sent twice: answers\n  %s, at first\n  %s", b, a)
	}
	if err := stage.Same(k, first, second, 0); err != nil {
		return fmt.Errorf("sent twice: %w", err)
	}
	return nil
}
