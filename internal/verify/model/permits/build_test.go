package permits

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// kind is what a ticket of a step asks for.
func (p *player) kind(s step) (byte, int64) {
	switch {
	case p.locks && s.Permits%3 == 0:
		return wire.Write, p.limit
	case p.locks:
		return wire.Read, 1
	case s.Mode == wire.Drain:
		return wire.Permit, 0
	}
	n := [...]int64{1, 1, 1, 2, 1, 3, p.limit, p.limit - 1}[s.Permits%8]
	if s.Permits == 8 {
		n = p.limit + 1
	}
	return wire.Permit, min(max(n, 1), 1<<53-1)
}

// put queues tickets by hand, if there are any.
func (p *player) put(tickets []lua.Arrival) error {
	if len(tickets) == 0 {
		return nil
	}
	if h := &p.Model.Hash; h.Limit != 0 && h.High == 0 { // As a request does that queues a ticket.
		h.High = 1
		if err := p.Host.Do("HSET", p.Keys.Lock, "high", "1").Error(); err != nil {
			return err
		}
	}
	if err := p.Put(tickets, max(p.Model.Hash.Kept-p.Now, 0)+2*stage.Minute); err != nil {
		return err
	}
	return p.Compare()
}

// build makes the request of a step from what its client knows, or nil.
func (p *player) build(s step) Request {
	notAfter, floor := p.Terms(s, line.SentBy+stage.Millisecond)
	limit, born := p.limit, p.born
	if born != 0 {
		born += int64(s.Client) * stage.Second
	}
	if s.Other {
		limit = max(1, limit-1)
	}
	t := &p.Clients[s.Client][s.Slot]
	if t.Text == "" && (s.Op == line.OpEnd || s.Op == line.OpRenew || s.Op == line.OpForce || s.Op == line.OpDowngrade) {
		return nil
	}
	switch s.Op {
	case line.OpAsk:
		if p.locks && s.Mode == wire.Drain {
			s.Mode = wire.Try
		}
		if p.renumber(t, s); t.Arrival == 0 {
			t.Head = s.Head
		}
		r := Ask{
			Ticket: t.Text, Mode: s.Mode, NotAfter: notAfter, Arrival: t.Arrival, Head: t.Head, Floor: floor,
			Uncounted: s.Blank, Phase: s.Phase(), Who: "who of: " + stage.ClientName(s.Client), Limit: limit, Born: born,
		}
		if s.Mode == wire.Wait || s.Mode == wire.Look {
			r.Bound = t.Bound
		}
		r.FastPath = r.Arrival == 0 && r.Head == 0 && !s.Blank && !s.Final && s.Mode != wire.Drain && s.Choice%2 == 0
		return r
	case line.OpEnd:
		t.Ended = true
		token := [...]int64{0, 0, 0, 0, 0, t.Token, t.Token, t.Token - 1}[s.Choice]
		note := ""
		if s.Choice%2 == 1 {
			note = "00-a-b~c-01"
		}
		r := End{Ticket: t.Text, Token: max(token, 0), Floor: floor, Uncounted: s.Blank, Note: note, Rests: s.Rests, How: s.How}
		r.FastPath = r.Token == 0 && !r.Rests && r.How == "" && !s.Blank && s.Size%2 == 0
		return r
	case line.OpRenew:
		token := t.Token
		if s.Choice == 7 {
			token--
		}
		return Renew{
			Ticket: t.Text, Token: token, Lease: s.Lease, Phase: s.Phase(), Who: "again", NotAfter: notAfter,
			Wants: s.Wants, Least: s.Least, Stays: s.Least > 0,
		}
	case line.OpBury:
		return Bury{Client: stage.ClientName(s.Client), Floor: floor, Uncounted: s.Blank}
	case line.OpForce:
		return Force{Ticket: t.Text, Floor: floor, Uncounted: s.Blank}
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
		token := t.Token
		if s.Choice == 7 {
			token--
		}
		return Downgrade{Ticket: t.Text, Token: token, Floor: floor, Uncounted: s.Blank, NotAfter: notAfter}
	}
	r := Check{
		Client: stage.ClientName(s.Client), Mode: s.Mode, NotAfter: notAfter, Floor: floor, Uncounted: s.Blank, Limit: limit, Born: born,
	}
	r.Tickets, r.Bounds, r.Heads = p.Waiting(s)
	r.Together = s.Mode == wire.Hears && len(r.Bounds) == 0 && s.Choice%4 != 0
	return r
}

// renumber gives a slot a new ticket where the last one has ended, and for each try.
func (p *player) renumber(t *line.Slot, s step) {
	tries := s.Mode == wire.Try || s.Mode == wire.Drain
	if t.Text != "" && !t.Ended && !s.Fresh && !tries && t.Ticket.Permits > 0 {
		return
	}
	kind, n := p.kind(s)
	*t = p.Fresh(s, kind, n)
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
		AskModes: []string{wire.Wait, wire.Wait, wire.Wait, wire.Wait, wire.Wait, wire.Look, wire.Try, wire.Drain},
		Ops: stage.Weights{
			{line.OpAsk, 28}, {line.OpEnd, 11}, {line.OpRenew, 6}, {line.OpCheck, 10}, {line.OpForce, 2}, {line.OpBury, 2}, {line.OpResize, 5},
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
