package permits

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/lua"
)

// A pass is a look at the heads of the queue as long as they are dead, or fit.
type pass struct {
	looked int    // tickets it went past
	gone   int    // of them, those up to the last that was granted or told, or up to a head that stays
	silent int    // clients among them that nobody hears for
	one    string // the last of these clients
	last   int64  // arrival of the last ticket it went past
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
	p := &pass{last: never, room: c.room()}
	if s := c.Hash.Scan; s != nil {
		p.silent, p.last, p.one = s.Silent, s.Arrival, s.One
		for p.looked < len(c.Queue) && c.Queue[p.looked].Arrival <= s.Arrival {
			p.looked++
		}
	}
	counted := map[string]bool{p.one: true}
	size := 1
	for first := p.looked; p.looked-first < looks; {
		heads := c.Queue[p.looked:min(p.looked+size, len(c.Queue))]
		if len(heads) == 0 {
			p.why = atEnd
			return p
		}
		c.mustCount(heads)
		for _, a := range heads {
			if c.past(p, a, counted) {
				return p
			}
		}
		size = lookBatch
		if p.alive {
			size = int(min(lookBatch, p.room+1))
		}
	}
	p.why = cutOff
	return p
}

// past goes past one head, and reports whether the pass ends with it.
func (c *call) past(p *pass, a lua.Arrival, counted map[string]bool) bool {
	client := lua.TicketClient(a.Ticket)
	if !c.alive(client) {
		if !c.suspect(client) && !counted[client] {
			counted[client] = true
			p.silent, p.one = p.silent+1, client
		}
		p.looked, p.last = p.looked+1, a.Arrival
		return false
	}
	if p.looked > drops && !p.alive {
		p.why = tooFar
		return true
	}
	p.alive, p.heard, p.gone = true, p.heard || client != c.caller, p.looked
	t, ok := read(a.Ticket)
	if ok && t.permits <= c.Hash.Limit && t.permits > p.room {
		p.why = met
		return true
	}
	p.looked, p.gone, p.last = p.looked+1, p.looked+1, a.Arrival
	switch {
	case !ok:
		p.strays, p.why = 1, met
		c.flags |= lua.More
	case t.permits > c.Hash.Limit:
		p.excess = append(p.excess, a.Ticket)
	default:
		p.grants = append(p.grants, a)
		p.room -= t.permits
	}
	if p.room <= 0 {
		p.why = met
	} else if len(p.grants)+len(p.excess) >= mostGrants {
		p.why = met
		c.flags |= lua.More
	}
	return p.why == met
}

// suspect reports whether a client let a lease run out. A mark that lies ahead is of one that has until then to
// show that it lives.
func (c *call) suspect(client string) bool {
	at, found := c.Suspects[client]
	return found && at <= c.now && c.Hash.Marked
}

// alive reports whether a client can be granted.
func (c *call) alive(client string) bool {
	switch {
	case client == c.caller:
		return true // R5
	case c.suspect(client):
		return false
	}
	return !c.counted || c.Blind || c.Hears[client] // R4
}

// mustCount notes that the server does not tell who subscribes, if that is asked for some of the heads.
func (c *call) mustCount(heads []lua.Arrival) {
	for _, a := range heads {
		client := lua.TicketClient(a.Ticket)
		if c.Blind && c.counted && client != c.caller && !c.suspect(client) {
			c.flags |= lua.Uncounted
		}
	}
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
			c.flags |= lua.More
		}
		if p.why != met && (p.heard || p.silent < 2) {
			p.gone = p.looked // The dead behind the last that was granted.
		}
		c.serve(p)
	case p.why == cutOff:
		c.remember(p)
	case p.why == atEnd && p.silent >= 2 && len(c.Queue) > 0 && c.spares():
	case !c.drop(p.looked):
		c.remember(p)
	default:
		c.forget()
	}
	c.tidy()
}

// serve removes what a pass is done with, and grants.
func (c *call) serve(p *pass) {
	c.Queue = c.Queue[p.gone:]
	c.skipped += p.gone - len(p.grants) - len(p.excess) - p.strays
	c.forget()
	messages := map[string][]lua.Arrival{}
	var clients []string
	for _, a := range p.grants {
		t, _ := read(a.Ticket)
		phase := byte(byMessage)
		if t.client == c.caller {
			phase = byReply
		}
		c.take(a.Ticket, t.permits, min(t.lease, t.grant), phase, "")
		if phase == byReply {
			c.grants = append(c.grants, c.hold(a.Ticket))
			continue
		}
		if messages[t.client] == nil {
			clients = append(clients, t.client)
		}
		messages[t.client] = append(messages[t.client], a)
	}
	for _, client := range clients {
		c.tell(client, messages[client])
	}
	for _, ticket := range p.excess {
		if client := lua.TicketClient(ticket); client != c.caller {
			c.publish(client, fmt.Sprintf("X %s %d", ticket, c.Hash.Limit))
		}
	}
}

// tell publishes the grants of one client. If they cannot be told they are undone.
func (c *call) tell(client string, grants []lua.Arrival) {
	var b strings.Builder
	b.WriteString("G")
	for _, a := range grants {
		g := c.hold(a.Ticket)
		fmt.Fprintf(&b, " %s %d %d %d", g.Ticket, g.Token, c.now, g.Until)
	}
	if c.note != "" {
		b.WriteString(" ~" + c.note)
	}
	if c.publish(client, b.String()) {
		c.flags |= lua.Handed
		return
	}
	for _, a := range grants {
		c.free(a.Ticket, c.now)
		delete(c.taken, a.Ticket)
		c.Enqueue(a.Ticket, a.Arrival)
	}
	c.created = true
	c.flags |= lua.Unwoken
}

// forget clears what passes have left behind.
func (c *call) forget() {
	c.Hash.Scan, c.Hash.Mark = nil, 0
	c.tidy()
}

// remember keeps how far a pass came, and asks for another.
func (c *call) remember(p *pass) {
	c.Hash.Scan = &Scan{p.silent, p.last, p.one}
	c.flags |= lua.More
}

// spares sets the mark behind which nobody is dropped for the grant lease of the first ticket, unless there is
// one already, and reports whether it stands (R6). One that ends later than it can is from before a step of the
// clock.
func (c *call) spares() bool {
	t, _ := read(c.Queue[0].Ticket)
	lasts := min(t.grant, mostSpared)
	if c.now-c.Hash.Mark > markLasts || c.Hash.Mark-c.now > lasts {
		c.Hash.Mark = c.now + lasts
	}
	return c.now < c.Hash.Mark
}

// drop removes the first n tickets, as far as one script may, and reports whether that was all.
func (c *call) drop(n int) bool {
	now := min(n, drops)
	c.Queue = c.Queue[now:]
	c.skipped += now
	return now == n
}
