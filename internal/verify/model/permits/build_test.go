package permits

import (
	"fmt"
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
	case p.locks && s.Permits%3 == 0:
		return lua.Write, p.limit
	case p.locks:
		return lua.Read, 1
	case s.Mode == lua.Drain:
		return lua.Permit, 0
	}
	n := [...]int64{1, 1, 1, 2, 1, 3, p.limit, p.limit - 1}[s.Permits%8]
	if s.Permits == 8 {
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
	first := p.now - int64(s.Size)
	if len(p.model.Queue) > 0 && s.Ahead {
		first = p.model.Queue[0].Arrival - int64(s.Size)
	}
	var tickets []lua.Arrival
	for i := range s.Size {
		p.number++
		t := lua.Ticket{Client: "dead" + strconv.FormatUint(p.number, 10), Number: p.number, Kind: kind, Permits: n}
		if s.Single {
			t.Client = "dead"
		}
		t.Lease, t.Grant = 10*time.Second, time.Duration(s.Grant)*time.Millisecond
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
	if s.Late {
		notAfter = p.now - 1
	}
	floor := [...]int64{0, p.highest, p.highest + 1000, 1<<53 - 2}[s.Floor]
	limit, born := p.limit, p.born
	if born != 0 {
		born += int64(s.Client) * stage.Second
	}
	if s.Other {
		limit = max(1, limit-1)
	}
	t := &p.clients[s.Client][s.Slot]
	if t.text == "" && (s.Op == line.OpEnd || s.Op == line.OpRenew || s.Op == line.OpForce || s.Op == line.OpDowngrade) {
		return nil
	}
	switch s.Op {
	case line.OpAsk:
		if p.locks && s.Mode == lua.Drain {
			s.Mode = lua.Try
		}
		if p.renumber(t, s); t.arrival == 0 {
			t.head = s.Head
		}
		r := Ask{
			Ticket: t.text, Mode: s.Mode, NotAfter: notAfter, Arrival: t.arrival, Head: t.head, Floor: floor,
			Uncounted: s.Blank, Phase: s.Phase(), Who: "who of: " + stage.ClientName(s.Client), Limit: limit, Born: born,
		}
		if s.Mode == lua.Wait || s.Mode == lua.Look {
			r.Bound = t.bound
		}
		return r
	case line.OpEnd:
		t.ended = true
		token := [...]int64{0, 0, 0, 0, 0, t.token, t.token, t.token - 1}[s.Choice]
		note := ""
		if s.Choice%2 == 1 {
			note = "00-a-b~c-01"
		}
		return End{Ticket: t.text, Token: max(token, 0), Floor: floor, Uncounted: s.Blank, Note: note, Rests: s.Rests}
	case line.OpRenew:
		token := t.token
		if s.Choice == 7 {
			token--
		}
		return Renew{
			Ticket: t.text, Token: token, Lease: s.Lease, Phase: s.Phase(), Who: "again", NotAfter: notAfter,
			Wants: s.Wants, Least: s.Least, Stays: s.Least > 0,
		}
	case line.OpForce:
		return Force{Ticket: t.text, Floor: floor, Uncounted: s.Blank}
	case line.OpResize:
		if s.Late {
			return nil // It is lib/once that refuses it.
		}
		if p.locks {
			return nil
		}
		return Resize{Permits: limits[s.Permits], Floor: floor, Uncounted: s.Blank}
	case line.OpDowngrade:
		if !p.locks {
			return nil
		}
		token := t.token
		if s.Choice == 7 {
			token--
		}
		return Downgrade{Ticket: t.text, Token: token, Floor: floor, Uncounted: s.Blank, NotAfter: notAfter}
	}
	r := Check{
		Client: stage.ClientName(s.Client), Mode: s.Mode, NotAfter: notAfter, Floor: floor, Uncounted: s.Blank, Limit: limit, Born: born,
		Bounds: map[string]line.Bound{}, Heads: map[string]int64{},
	}
	for i, t := range p.clients[s.Client] {
		if s.Slots>>i&1 == 1 && t.arrival != 0 && !t.ended {
			r.Tickets = append(r.Tickets, lua.Arrival{Ticket: t.text, Arrival: t.arrival})
			r.Heads[t.text] = t.head
			if t.bound != nil {
				r.Bounds[t.text] = *t.bound
			}
		}
	}
	slices.SortFunc(r.Tickets, line.Order)
	r.Together = s.Mode == lua.Hears && len(r.Bounds) == 0 && s.Choice%4 != 0
	return r
}

// renumber gives a slot a new ticket where the last one has ended, and for each try.
func (p *player) renumber(t *slot, s step) {
	tries := s.Mode == lua.Try || s.Mode == lua.Drain
	if last, _ := line.Read(t.text); t.text != "" && !t.ended && !s.Fresh && !tries && last.Permits > 0 {
		return
	}
	p.number++
	kind, n := p.kind(s)
	*t = slot{bound: s.Bound, text: lua.Ticket{
		Client: stage.ClientName(s.Client), Number: p.number, Kind: kind, Permits: n,
		Lease: time.Duration(s.Lease) * time.Millisecond, Grant: time.Duration(s.Grant) * time.Millisecond,
	}.String()}
}

// A history is one of a semaphore or a read-write lock.
type history struct {
	line.History
	locks bool  // a read-write lock, not a semaphore
	fixed bool  // a semaphore whose limit cannot change
	limit int64 // of the semaphore at the start
}

const (
	clients = line.Clients
	slots   = 4 // tickets that a client has at a time
)

type step = line.Step

var (
	limits    = []int64{3, 1, 2, 5, 3, 16, 4, 1<<53 - 1}
	histories = line.Histories{
		Slots: slots, Longest: 2 * day, Limits: true,
		AskModes: []string{lua.Wait, lua.Wait, lua.Wait, lua.Wait, lua.Wait, lua.Look, lua.Try, lua.Drain},
		Ops: stage.Weights{
			{line.OpAsk, 28}, {line.OpEnd, 11}, {line.OpRenew, 6}, {line.OpCheck, 10}, {line.OpForce, 4}, {line.OpResize, 5},
			{line.OpDowngrade, 3}, {line.OpInspect, 1}, {line.OpRepeat, 3}, {line.OpHear, 3}, {line.OpHush, 3}, {line.OpPass, 6},
			{line.OpClock, 1}, {line.OpDelete, 1}, {line.OpDeny, 2}, {line.OpCrowd, 1},
		},
	}
)

// decode makes a history of any bytes: two for the start, then four for each step.
func decode(data []byte) history {
	h := history{History: histories.Decode(data, 2)}
	if len(data) >= 2 {
		h.locks, h.fixed, h.limit = data[1]&1 == 1, data[1]>>4%4 == 0, limits[data[1]>>1%8]
	}
	return h
}

// random makes the bytes of a history from a seed.
func random(seed uint64) []byte { return stage.Random(seed, 4, 2) }

// Start tells what is not among the steps.
func (h history) Start() string {
	if h.locks {
		return "  a read-write lock\n" + h.History.Start()
	}
	return fmt.Sprintf("  a semaphore of %d, fixed: %t\n", h.limit, h.fixed) + h.History.Start()
}
