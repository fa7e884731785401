package barrier

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// slot is what a client knows of one of its tickets.
type slot struct {
	text    string
	arrival int64 // generation
	since   int64 // of the first unanswered attempt; 0: none
	acting  bool
	done    bool
}

// player plays one history on a server and on the model.
type player struct {
	*stage.Duel[*Barrier]
	parties int64
	slots   [clients][slots]slot
	seen    [clients]int64 // the highest generation in a reply
	number  uint64
	way     []Ask       // attempts that are held up
	old     lua.Arrival // a ticket that is done with
	sent    []Request   // except asks
	judge   *judge
}

func newPlayer(s stage.Server, k lua.Keys, parties int64) *player {
	return &player{Duel: stage.NewDuel(s, k, New()), parties: parties, judge: newJudge()}
}

// play plays a history to its end or to the first difference.
func (p *player) play(steps []step) error {
	return stage.Through(steps, p.step, &p.Log)
}

func (p *player) step(s step) error {
	stage.Tick(p.Server, &p.Now)
	switch s.op {
	case opPass:
		err := p.Pass(s.micros)
		p.judge.passed(p.State)
		return err
	case opClock:
		if s.micros < 0 {
			p.excuse()
		}
		err := p.Clock(s.micros)
		p.judge.passed(p.State)
		return err
	case opDeny:
		p.Deny(true, false)
		return nil
	case opDelete:
		return p.remove(s.choice)
	case opInspect:
		most := s.choice
		return p.View(lua.Barrier.Inspect, most, func(now int64) lua.View { return p.Model.View(now, most) })
	case opDeliver:
		if len(p.way) == 0 {
			return nil
		}
		i := s.choice % len(p.way)
		r := p.way[i]
		p.way = append(p.way[:i:i], p.way[i+1:]...)
		_, err := p.send(r)
		return err
	case opAsk:
		return p.ask(s)
	}
	r := p.build(s)
	if r == nil {
		return nil
	}
	p.sent = append(p.sent, r)
	return p.request(r, s)
}

// excuse lets what was asked so far come twice.
func (p *player) excuse() {
	for _, r := range p.way {
		p.judge.excuse(r.Ticket)
	}
	for c := range p.slots {
		for _, t := range p.slots[c] {
			p.judge.excuse(t.text)
		}
	}
}

// remove lets keys be lost.
func (p *player) remove(choice int) error {
	which := [8][]int{
		{Lock, Leases, Arrivals, Last, Calls}, {Lock}, {Leases}, {Arrivals}, {Last}, {Calls}, {Leases, Arrivals},
		{Lock, Leases, Arrivals, Last, Calls},
	}[choice]
	for _, key := range which {
		p.Model.Lose(key)
		if key == Calls {
			p.excuse()
		}
	}
	err := p.Remove(which...)
	p.judge.passed(p.State)
	return err
}

func (p *player) notAfter(s step) int64 {
	if s.late {
		return p.Now - 1
	}
	return p.Now + stage.Minute
}

// ask lets a client ask for one of its tickets: for a new one where the last is done with.
func (p *player) ask(s step) error {
	t := &p.slots[s.client][s.slot]
	if t.text == "" || t.done {
		p.number++
		*t = slot{text: wire.Ticket{
			Client: stage.ClientName(s.client), Number: p.number, Kind: wire.Party, Permits: 1,
			Lease: time.Duration(s.lease) * time.Millisecond, Grant: 2 * time.Second,
		}.String()}
	}
	r := Ask{
		Ticket: t.text, NotAfter: p.notAfter(s), Arrival: t.arrival, Who: "who of " + stage.ClientName(s.client),
		Parties: p.parties, Action: s.action, Repeated: t.since != 0, Since: t.since, Lifetime: s.lifetime,
		Seen: p.seen[s.client],
	}
	if !p.Server.Frozen() {
		r.Lifetime = lifetimes[0] // There no key expires while a history is played.
	}
	if s.other {
		r.Parties++
	}
	if (s.held || s.lost) && t.since == 0 {
		t.since = p.Now
	}
	if s.held {
		p.way = append(p.way, r)
		return nil
	}
	return p.request(r, s)
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) Request {
	t := &p.slots[s.client][s.slot]
	switch s.op {
	case opCheck:
		r := Check{Client: stage.ClientName(s.client), Mode: s.mode, NotAfter: p.notAfter(s)}
		for _, t := range p.slots[s.client] {
			if t.arrival != 0 && !t.done {
				r.Tickets = append(r.Tickets, lua.Arrival{Ticket: t.text, Arrival: t.arrival})
			}
		}
		if p.old.Ticket != "" && s.choice > 4 {
			r.Tickets = append(r.Tickets, p.old)
		}
		return r
	case opEnd:
		if t.text == "" {
			return nil
		}
		t.done = true
		return End{Ticket: t.text, Generation: [8]int64{0, 0, 0, 0, 0, t.arrival, t.arrival, t.arrival + 1}[s.choice]}
	case opOpen:
		for i := range clients * slots { // Any that acts, as there is but one.
			if o := &p.slots[i/slots][i%slots]; o.acting && !o.done && !s.other {
				t = o
			}
		}
		if t.text == "" {
			return nil
		}
		return Open{Ticket: t.text, Generation: t.arrival, OK: !s.fails, NotAfter: p.notAfter(s)}
	case opBury:
		return Bury{Client: stage.ClientName(s.client)}
	case opReset:
		return Reset{}
	}
	if len(p.sent) == 0 {
		return nil
	}
	return p.sent[max(len(p.sent)-1-s.choice, 0)]
}

// request sends one request to both and compares what comes of it.
func (p *player) request(r Request, s step) error {
	one, err := p.send(r)
	if err != nil {
		return err
	}
	if s.twice && p.Server.Frozen() {
		first := p.State
		two, err := p.send(r)
		if err != nil {
			return fmt.Errorf("the second time: %w", err)
		}
		if err := sameTwice(p.Keys, r, one, two, first, p.State); err != nil {
			return fmt.Errorf("sent twice: %w", err)
		}
	}
	if s.lost {
		return nil
	}
	return p.learn(r, one)
}

func (p *player) send(r Request) (wire.Tuple, error) {
	h, err := p.Send(r)
	if err == nil {
		err = p.judge.step(h)
	}
	p.judge.passed(p.State)
	return h.Reply, err
}

// learn lets a client take in a reply.
func (p *player) learn(r Request, reply wire.Tuple) error {
	switch r := r.(type) {
	case Ask:
		c := r.Ticket[0] - 'a'
		p.seen[c] = max(p.seen[c], int64(reply.Token))
		return p.asked(p.find(r.Ticket), reply)
	case Check:
		for i, state := range reply.States {
			t := p.find(r.Tickets[i].Ticket)
			if t != nil && (state == wire.StateGranted || state == wire.StateBroken || state == wire.StateForgotten) {
				p.finish(t)
			}
		}
	case Open:
		if t := p.find(r.Ticket); t != nil && (reply.Status == wire.Granted || reply.Status == wire.Broken) {
			p.finish(t)
		}
	}
	return nil
}

func (p *player) asked(t *slot, reply wire.Tuple) error {
	if t == nil {
		return nil
	}
	switch reply.Status {
	case wire.Waiting, wire.Acting:
		t.arrival, t.acting = reply.Arrival, reply.Status == wire.Acting
	case wire.Granted:
		t.arrival = reply.Arrival
		p.finish(t)
	case wire.Broken, wire.Refused, wire.Mismatch:
		p.finish(t)
		if t.since != 0 { // An attempt may still be under way.
			_, err := p.send(End{Ticket: t.text})
			return err
		}
	}
	return nil
}

func (p *player) finish(t *slot) {
	t.done = true
	if t.arrival != 0 {
		p.old = lua.Arrival{Ticket: t.text, Arrival: t.arrival}
	}
}

func (p *player) find(ticket string) *slot {
	for c := range p.slots {
		for i := range p.slots[c] {
			if t := &p.slots[c][i]; t.text == ticket && !t.done {
				return t
			}
		}
	}
	return nil
}

// sameTwice: a request that is sent twice has the effect of one, and the same answer.
func sameTwice(k lua.Keys, r Request, one, two wire.Tuple, first, second stage.State) error {
	one.Flags, two.Flags, one.Expired, two.Expired = 0, 0, 0, 0
	switch r.(type) {
	case Reset:
		one.Place = two.Place // For how many it was broken is told once.
	case Bury:
		one.Status, one.States = wire.Refused, nil // It was broken the first time.
	case End:
		if one.Status == wire.Done {
			one.Status, one.States = wire.Refused, []string{wire.StateBroken}
		}
	}
	if a, b := stage.ReplyText(one), stage.ReplyText(two); a != b {
		return fmt.Errorf("answers\n  %s, at first\n  %s", b, a)
	}
	return stage.Same(k, first, second, 0)
}
