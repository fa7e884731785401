package permits

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A pass is a look at the heads of the queue as long as they are dead, or fit.
type pass struct {
	line.Pass
	gone   int // tickets up to the last that was granted or told, or up to a head that stays
	room   int64
	grants []lua.Arrival
	excess []string // tickets that ask for more than there is
	strays int      // members that are no tickets
	alive  bool     // somebody was
	heard  bool     // by a subscription: the server has not lost them all
	why    string
}

// Why a pass ended.
const (
	met    = "met a head that ends it"
	atEnd  = "no more tickets"
	cutOff = "as many as a script may look at"
	tooFar = "more dead ahead of a head than a script may remove"
)

func (c *call) pass() *pass {
	p := &pass{Pass: c.Resume(), room: c.room()}
	size := 1
	for first := p.Looked; p.Looked-first < line.Looks; {
		heads := c.Heads(&p.Pass, size)
		if len(heads) == 0 {
			p.why = atEnd
			return p
		}
		for _, a := range heads {
			if c.past(p, a) {
				return p
			}
		}
		size = line.LookBatch
		if p.alive {
			size = int(min(line.LookBatch, p.room+1))
		}
	}
	p.why = cutOff
	return p
}

// past goes past one head, and reports whether the pass ends with it.
func (c *call) past(p *pass, a lua.Arrival) bool {
	client := wire.TicketClient(a.Ticket)
	if !c.Alive(client) {
		c.Dead(&p.Pass, a)
		return false
	}
	if p.Looked > line.Drops && !p.alive {
		p.why = tooFar
		return true
	}
	p.alive, p.heard, p.gone = true, p.heard || client != c.Caller, p.Looked
	t, ok := line.Read(a.Ticket)
	if ok && t.Permits <= c.Hash.Limit && t.Permits > p.room {
		p.why = met
		return true
	}
	p.Past(a)
	p.gone = p.Looked
	switch {
	case !ok:
		p.strays, p.why = 1, met
		c.Flags |= wire.More
	case t.Permits > c.Hash.Limit:
		p.excess = append(p.excess, a.Ticket)
	default:
		p.grants = append(p.grants, a)
		p.room -= t.Permits
	}
	if p.room <= 0 {
		p.why = met
	} else if len(p.grants)+len(p.excess) >= mostGrants {
		p.why = met
		c.Flags |= wire.More
	}
	return p.why == met
}

// advance serves the queue while something is free (R3).
func (c *call) advance() {
	if c.room() <= 0 {
		return
	}
	p := c.pass()
	switch {
	case p.alive:
		if p.why == cutOff {
			c.Flags |= wire.More
		}
		if p.why != met && (p.heard || !p.Deaf()) {
			p.gone = p.Looked // The dead after the last that was granted.
		}
		c.serve(p)
	case p.why == cutOff:
		c.Remember(&p.Pass)
	case p.why == atEnd && p.Deaf() && c.Spares():
	case !c.Drop(&p.Pass):
		c.Remember(&p.Pass)
	default:
		c.forget()
	}
	c.tidy()
}

// serve removes what a pass is done with, and grants.
func (c *call) serve(p *pass) {
	c.Queue = c.Queue[p.gone:]
	c.Skipped += p.gone - len(p.grants) - len(p.excess) - p.strays
	c.forget()
	type message struct {
		client string
		grants []lua.Arrival
	}
	var messages []*message
	open := map[string]*message{}
	for _, a := range p.grants {
		t, _ := line.Read(a.Ticket)
		phase := byte(byMessage)
		if t.Client == c.Caller {
			phase = byReply
		}
		c.take(a.Ticket, t.Permits, min(t.Lease, t.Grant), phase, "")
		if phase == byReply {
			c.Grants = append(c.Grants, c.hold(a.Ticket))
			continue
		}
		m := open[t.Client]
		if m == nil || len(m.grants) == mostTold {
			m = &message{client: t.Client}
			open[t.Client], messages = m, append(messages, m)
		}
		m.grants = append(m.grants, a)
	}
	for _, m := range messages {
		c.tell(m.client, m.grants)
	}
	for _, ticket := range p.excess {
		if client := wire.TicketClient(ticket); client != c.Caller {
			c.Publish(client, fmt.Sprintf("X %s %d", ticket, c.Hash.Limit))
		}
	}
}

// tell publishes grants of one client. If they cannot be told they are undone.
func (c *call) tell(client string, grants []lua.Arrival) {
	var b strings.Builder
	b.WriteString("G")
	for _, a := range grants {
		g := c.hold(a.Ticket)
		fmt.Fprintf(&b, " %s %d %d %d", g.Ticket, c.Now, int64(g.Token)-c.Now, (g.Until-c.Now)/1000)
	}
	if told := c.hold(grants[0].Ticket).Before; told != "" {
		b.WriteString(" ~!" + told)
	} else if c.Note != "" {
		b.WriteString(" ~" + c.Note)
	}
	if c.Publish(client, b.String()) {
		c.Flags |= wire.Handed
		return
	}
	for _, a := range grants {
		hold := c.Hash.Holds[a.Ticket]
		c.free(a.Ticket, c.Now)
		c.finish(a.Ticket, hold, wire.HowUnused)
		delete(c.taken, a.Ticket)
		c.Enqueue(a.Ticket, a.Arrival)
	}
	c.Created = true
	c.Flags |= wire.Unwoken
}

// forget clears what passes have stored.
func (c *call) forget() {
	c.Forget()
	c.tidy()
}
