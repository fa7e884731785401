package permits

import (
	"slices"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// kind is what a ticket of a step asks for.
func (p *player) kind(s step) (byte, int64) {
	switch {
	case p.locks && s.permits%3 == 0:
		return lua.Write, p.limit
	case p.locks:
		return lua.Read, 1
	case s.mode == lua.Drain:
		return lua.Permit, 0
	}
	n := [...]int64{1, 1, 1, 2, 1, 3, p.limit, p.limit - 1}[s.permits%8]
	if s.permits == 8 {
		n = p.limit + 1
	}
	return lua.Permit, min(max(n, 1), 1<<53-1)
}

// crowd puts silent tickets into the queue, as of clients that died while they waited.
func (p *player) crowd(s step) error {
	if len(p.model.Queue) > 1000 || p.model.Hash.Scan != nil {
		return nil // More would only be slower; and nobody comes in behind a cursor without moving it.
	}
	kind, n := p.kind(s)
	first := p.now - int64(s.size)
	if len(p.model.Queue) > 0 && s.ahead {
		first = p.model.Queue[0].Arrival - int64(s.size)
	}
	var tickets []lua.Arrival
	for i := range s.size {
		p.number++
		t := lua.Ticket{Client: "dead" + strconv.FormatUint(p.number, 10), Number: p.number, Kind: kind, Permits: n}
		if s.single {
			t.Client = "dead"
		}
		t.Lease, t.Grant = 10*time.Second, time.Duration(s.grant)*time.Millisecond
		tickets = append(tickets, lua.Arrival{Ticket: t.String(), Arrival: first + int64(i)})
	}
	return p.put(tickets)
}

// put queues tickets by hand.
func (p *player) put(tickets []lua.Arrival) error {
	lives := (max(p.model.Hash.Kept-p.now, 0) + 2*stage.Minute) / stage.Millisecond
	args := []string{"ZADD", p.keys.Queue}
	for _, a := range tickets {
		p.model.Enqueue(a.Ticket, a.Arrival)
		args = append(args, stage.Decimal(a.Arrival), a.Ticket)
	}
	p.model.QueueEnds = p.now + lives*stage.Millisecond
	if err := p.host.Do(args...).Error(); err != nil {
		return err
	}
	if err := p.host.Do("PEXPIRE", p.keys.Queue, stage.Decimal(lives)).Error(); err != nil {
		return err
	}
	return p.compare()
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) Request {
	notAfter := p.now
	if !p.host.Frozen() {
		notAfter += 60 * stage.Minute
	}
	if s.late {
		notAfter = p.now - 1
	}
	floor := [...]int64{0, p.highest, p.highest + 1000, 1<<53 - 2}[s.floor]
	limit := p.limit
	if s.other {
		limit = max(1, limit-1)
	}
	t := &p.clients[s.client][s.slot]
	if t.text == "" && (s.op == opEnd || s.op == opRenew || s.op == opForce || s.op == opDowngrade) {
		return nil
	}
	switch s.op {
	case opAsk:
		if p.locks && s.mode == lua.Drain {
			s.mode = lua.Try
		}
		if p.renumber(t, s); t.arrival == 0 {
			t.head = s.head
		}
		r := Ask{
			Ticket: t.text, Mode: s.mode, NotAfter: notAfter, Arrival: t.arrival, Head: t.head, Floor: floor,
			Uncounted: s.blank, Phase: phase(s.final), Who: "who of: " + stage.ClientName(s.client), Limit: limit,
		}
		if s.mode == lua.Wait || s.mode == lua.Look {
			r.Bound = t.bound
		}
		return r
	case opEnd:
		t.ended = true
		token := [...]int64{0, 0, 0, 0, 0, t.token, t.token, t.token - 1}[s.choice]
		note := ""
		if s.choice%2 == 1 {
			note = "00-a-b~c-01"
		}
		return End{Ticket: t.text, Token: max(token, 0), Floor: floor, Uncounted: s.blank, Note: note}
	case opRenew:
		token := t.token
		if s.choice == 7 {
			token--
		}
		return Renew{
			Ticket: t.text, Token: token, Lease: s.lease, Phase: phase(s.final), Who: "again", NotAfter: notAfter,
			Wants: s.wants,
		}
	case opForce:
		return Force{Ticket: t.text, Floor: floor, Uncounted: s.blank}
	case opResize:
		if p.locks {
			return nil
		}
		return Resize{Permits: limits[s.permits], Stated: limit, Floor: floor, Uncounted: s.blank, NotAfter: notAfter}
	case opDowngrade:
		if !p.locks {
			return nil
		}
		token := t.token
		if s.choice == 7 {
			token--
		}
		return Downgrade{Ticket: t.text, Token: token, Floor: floor, Uncounted: s.blank, NotAfter: notAfter}
	}
	r := Check{
		Client: stage.ClientName(s.client), Mode: s.mode, NotAfter: notAfter, Floor: floor, Uncounted: s.blank, Limit: p.limit,
		Bounds: map[string]line.Bound{}, Heads: map[string]int64{},
	}
	for i, t := range p.clients[s.client] {
		if s.slots>>i&1 == 1 && t.arrival != 0 && !t.ended {
			r.Tickets = append(r.Tickets, lua.Arrival{Ticket: t.text, Arrival: t.arrival})
			r.Heads[t.text] = t.head
			if t.bound != nil {
				r.Bounds[t.text] = *t.bound
			}
		}
	}
	slices.SortFunc(r.Tickets, line.Order)
	return r
}

func phase(final bool) string {
	if final {
		return lua.PhaseFinal
	}
	return lua.PhaseHeld
}

// renumber gives a slot a new ticket where the last one has ended, and for each try.
func (p *player) renumber(t *slot, s step) {
	tries := s.mode == lua.Try || s.mode == lua.Drain
	if last, _ := line.Read(t.text); t.text != "" && !t.ended && !s.fresh && !tries && last.Permits > 0 {
		return
	}
	p.number++
	kind, n := p.kind(s)
	*t = slot{bound: s.bound, text: lua.Ticket{
		Client: stage.ClientName(s.client), Number: p.number, Kind: kind, Permits: n,
		Lease: time.Duration(s.lease) * time.Millisecond, Grant: time.Duration(s.grant) * time.Millisecond,
	}.String()}
}
