package model

import (
	"slices"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// An AskAll is a request of multilock/ask: a ticket for each of several locks, all of one client.
type AskAll struct {
	Tickets   []string
	Arrivals  []int64
	Mode      string
	NotAfter  int64
	Head      int64
	Floor     int64
	Uncounted bool
	Phase     string
}

// An EndAll is a request of multilock/end.
type EndAll struct {
	Tickets   []string
	Hows      []string // how each hold ended, if it was not released; nil: all were
	Floor     int64
	Uncounted bool
}

// Script returns multilock/ask.
func (AskAll) Script() *lua.Script { return lua.MultiAsk }

// Args returns what the script gets.
func (r AskAll) Args() []string {
	args := stage.Args(r.Mode, r.NotAfter, r.Head, r.Floor, !r.Uncounted, r.Phase)
	for i, ticket := range r.Tickets {
		args = append(args, ticket, stage.Decimal(r.Arrivals[i]))
	}
	return args
}

// One is what the request asks of the nth lock.
func (r AskAll) One(n int) Request {
	return Ask{
		Ticket: r.Tickets[n], Mode: r.Mode, NotAfter: r.NotAfter, Arrival: r.Arrivals[n], Head: r.Head, Floor: r.Floor,
		Uncounted: r.Uncounted, Phase: r.Phase,
	}
}

// Run takes all if all are free and nobody waits, else what is free, and keeps a place in the queues of the rest. A try
// that cannot have all takes nothing.
func (r AskAll) Run(all []*Mutex, now int64) []wire.Tuple {
	if now > r.NotAfter { // R7
		return slices.Repeat([]wire.Tuple{{Status: wire.Late, Now: now}}, len(all))
	}
	calls := make([]*call, len(all))
	var last int64
	for i, m := range all {
		calls[i] = m.call(now, wire.TicketClient(r.Tickets[i]), r.Floor, !r.Uncounted)
		last = max(last, m.Lock.Token)
	}
	atOnce, free := true, true
	for _, c := range calls {
		c.Floor = max(c.Floor, last) // A guard that goes by one of the tokens may have seen the highest.
		atOnce = atOnce && !c.held() && len(c.Queue) == 0 && !c.Lock.Pending()
	}
	replies := make([]wire.Tuple, len(all))
	if atOnce {
		for i, c := range calls {
			one := r.One(i).(Ask)
			lease := stage.Lease(one.Ticket)
			replies[i] = one.atOnce(c, lease)
		}
		return replies
	}
	served := make([]bool, len(all))
	for i, c := range calls {
		c.Calm()
		ticket := r.Tickets[i]
		if !c.held() || c.over() || c.stepped() {
			c.serve(ticket)
			served[i] = true
		}
		free = free && (c.Lock.Owner == ticket || !c.held() && len(c.Queue) == 0)
	}
	for i, c := range calls {
		ticket := r.Tickets[i]
		if !c.held() && len(c.Queue) == 0 && (free || r.Mode != wire.Try) {
			lease := stage.Lease(ticket)
			c.own(ticket, lease, r.Phase)
		}
		if served[i] {
			c.keep(len(c.Queue))
		}
		switch {
		case c.Lock.Owner == ticket:
			replies[i] = c.holds()
		case r.Mode == wire.Try:
			replies[i] = c.busy()
		default:
			replies[i] = r.One(i).(Ask).queue(c)
		}
	}
	return replies
}

// Script returns multilock/end.
func (EndAll) Script() *lua.Script { return lua.MultiEnd }

// Args returns what the script gets.
func (r EndAll) Args() []string {
	args := stage.Args(r.Floor, !r.Uncounted)
	for i, ticket := range r.Tickets {
		if how := r.how(i); how != "" {
			ticket += " " + how
		}
		args = append(args, ticket)
	}
	return args
}

func (r EndAll) how(n int) string {
	if r.Hows == nil {
		return ""
	}
	return r.Hows[n]
}

// One is what the request asks of the nth lock.
func (r EndAll) One(n int) Request {
	return End{Ticket: r.Tickets[n], Floor: r.Floor, Uncounted: r.Uncounted, How: r.how(n)}
}

// Run ends a ticket of each lock. The locks that were held have the highest of their tokens from then on, or the floor
// if that is higher.
func (r EndAll) Run(all []*Mutex, now int64) []wire.Tuple {
	calls := make([]*call, len(all))
	atOnce, highest := true, int64(0)
	for i, m := range all {
		calls[i] = m.call(now, wire.TicketClient(r.Tickets[i]), r.Floor, !r.Uncounted)
		if m.Lock.Owner == r.Tickets[i] {
			highest = max(highest, m.Lock.Token, calls[i].Floor)
		}
		atOnce = atOnce && m.Lock.Owner == r.Tickets[i] && len(m.Queue) == 0 && r.how(i) == ""
	}
	replies := make([]wire.Tuple, len(all))
	for i, c := range calls {
		owned := c.Lock.Owner == r.Tickets[i]
		if owned {
			c.Floor = max(c.Floor, highest)
		}
		one := End{Ticket: r.Tickets[i], How: r.how(i)}
		if atOnce {
			replies[i] = one.atOnce(c, highest)
		} else {
			c.Calm()
			replies[i] = one.leave(c, owned, highest)
		}
	}
	return replies
}
