package permits

import (
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Bury is a request of semaphore/bury.
type Bury struct {
	Client    string
	Floor     int64
	Uncounted bool
}

// Script returns semaphore/bury.
func (Bury) Script() *lua.Script { return lua.Semaphore.Bury }

// Args returns what the script gets.
func (r Bury) Args() []string {
	return stage.Args(r.Client, lua.GraveLasts.Milliseconds(), r.Floor, !r.Uncounted, "0")
}

// Run ends what a client holds and waits for, and serves the queue. In a history it has fewer holds than the script looks at.
func (r Bury) Run(l *Lock, now int64) wire.Tuple {
	c := l.call(now, "", r.Floor, !r.Uncounted, 0, 0)
	c.open()
	c.settle(false)
	status, states, rests := wire.Refused, []string(nil), false
	for _, a := range l.ends() {
		if wire.TicketClient(a.Ticket) != r.Client || wire.Rests(a.Ticket) {
			continue
		}
		hold := l.Hash.Holds[a.Ticket]
		c.free(a.Ticket, a.Arrival)
		rests = c.rest(a.Ticket, hold, final) || rests
		c.finish(a.Ticket, hold, wire.HowDied)
		status, states = wire.Done, append(states, a.Ticket)
	}
	if len(states) > 0 {
		l.Hash.Died = r.Client
		l.Publish(r.Client, "F "+states[0]+" lock")
	}
	if len(l.Queue) > 0 {
		c.Shun(r.Client)
	}
	c.advance()
	c.keep(len(l.Queue))
	if rests {
		c.look()
	}
	return c.reply(status, -1, len(l.Queue), 0, states...)
}

// look tells the head to look.
func (c *call) look() {
	if len(c.Queue) > 0 {
		head := c.Queue[0].Ticket
		c.Publish(wire.TicketClient(head), "L "+head)
	}
}
