package model

import (
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lua"
)

// give puts a hold in transit, mostly the present one.
func (p *player) give(t *slot, s step, notAfter, floor int64) Request {
	if owner := p.find(p.before.owner()); owner != nil && s.choice > 0 {
		t = owner
	}
	if t.text == "" || passesOf(t.text) > 0 {
		return nil
	}
	p.number++
	x := lua.Transit{Client: t.ticket.Client, Lease: time.Duration(s.grant) * time.Millisecond, Secret: strconv.FormatUint(p.number, 10)}
	p.moving = append(p.moving, x)
	t.ended = true
	return Move{
		From: t.text, To: x.Ticket(), Token: t.token - int64(s.choice/6), Phase: lua.PhaseFinal,
		NotAfter: notAfter, Floor: floor, Uncounted: s.blank,
	}
}

// adopt takes a hold out of transit, mostly the last, for a new ticket.
func (p *player) adopt(t *slot, s step, notAfter, floor int64) Request {
	if len(p.moving) == 0 {
		return nil
	}
	x := p.moving[max(len(p.moving)-1-s.choice/7, 0)]
	secret := x.Hex()
	if s.choice == 3 {
		secret = secret[1:]
	}
	s.fresh = true
	p.renumber(t, s)
	return Move{
		From: x.Ticket(), To: t.text, Secret: secret, Phase: phase(s.final),
		NotAfter: notAfter, Floor: floor, Uncounted: s.blank,
	}
}
