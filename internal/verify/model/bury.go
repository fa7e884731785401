package model

import (
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Bury is a request of fairlock/bury.
type Bury struct {
	Client    string
	Floor     int64
	Uncounted bool
}

// Script returns fairlock/bury.
func (Bury) Script() *lua.Script { return lua.Fairlock.Bury }

// Args returns what the script gets.
func (r Bury) Args() []string {
	return stage.Args(r.Client, lua.GraveLasts.Milliseconds(), r.Floor, !r.Uncounted)
}

// Run ends what a client holds and waits for, and serves the queue.
func (r Bury) Run(m *Mutex, now int64) wire.Tuple {
	c := m.call(now, "", r.Floor, !r.Uncounted)
	c.Calm()
	h := &m.Lock
	size, rests := len(m.Queue), false
	c.open()
	c.settle()
	status, states := wire.Refused, []string(nil)
	if t, _ := line.Read(h.Owner); c.held() && wire.TicketClient(h.Owner) == r.Client && t.Kind != wire.Resting {
		ticket := h.Owner
		c.past(now, "died")
		if rests = c.rest(wire.HowDied); !rests {
			c.free(wire.HowDied)
		}
		h.Token += passesOf(ticket)
		h.Died = r.Client
		c.Publish(r.Client, "F "+ticket+" lock")
		status, states = wire.Done, []string{ticket}
	}
	if size > 0 {
		c.Shun(r.Client)
	}
	c.advance()
	c.keep(len(m.Queue))
	if rests {
		c.look()
	}
	return c.reply(status, -1, len(m.Queue), 0, states...)
}
