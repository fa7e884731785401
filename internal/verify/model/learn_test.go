package model

import (
	"strings"

	"github.com/headwaiter/headwaiter/lua"
)

// learn lets a client take in a reply as waitqueue does.
func (p *player) learn(r Request, reply lua.Tuple) {
	for _, g := range reply.Grants {
		p.granted(g.Ticket, g.Token)
	}
	switch r := r.(type) {
	case Renew:
		p.renewed(r, reply)
	case Move:
		if reply.Status == lua.Granted {
			p.granted(r.To, reply.Token)
		}
	}
	if r, ok := r.(Check); ok && reply.Status == lua.Done {
		p.looked(r.Tickets, reply.States)
	}
	a, ok := r.(Ask)
	if !ok {
		return
	}
	t := p.find(a.Ticket)
	switch {
	case t == nil:
	case reply.Status == lua.Granted:
		p.granted(a.Ticket, reply.Token)
	case reply.Status == lua.Busy:
		t.ended = true
	case reply.Status == lua.Full:
		t.ended = true
	case reply.Status == lua.Waiting:
		t.arrival = reply.Arrival
		if reply.Place >= 0 {
			t.bound = nil
		}
	}
}

// looked takes in what a check says of tickets.
func (p *player) looked(tickets []lua.Arrival, states []string) {
	for i, a := range tickets {
		t := p.find(a.Ticket)
		switch state, _, _ := strings.Cut(states[i], " "); {
		case t == nil || state == lua.StateGone:
		case state == lua.StateFull:
			t.ended = true
		default:
			t.bound = nil
		}
	}
}

func (p *player) renewed(r Renew, reply lua.Tuple) {
	t := p.find(r.Ticket)
	if t == nil || reply.Status != lua.Granted || r.Still {
		return
	}
	t.kept, t.renewed = reply.Until+lua.Spare.Microseconds(), r.Lease
	if r.Phase != lua.PhaseHeld || r.Count > 0 {
		t.kept = 0 // One of several has no count.
	}
}

func (p *player) granted(ticket string, token uint64) {
	t := p.find(ticket)
	if t == nil {
		return
	}
	if t.token != int64(token) {
		t.kept = 0 // Another hold: of its renewals none has written anything yet.
	}
	t.token, t.bound = int64(token), nil
}

func (p *player) find(ticket string) *slot {
	for c := range p.clients {
		for i := range p.clients[c] {
			if t := &p.clients[c][i]; t.text == ticket {
				return t
			}
		}
	}
	return nil
}
