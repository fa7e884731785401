package model

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// together is a look as fairlock/checks has it, and reports whether nothing is to be done, nor news, of any of the tickets.
// The keys are prolonged for the first such ticket, and where a check does it.
func (r Check) together(m *Mutex, now int64) (wire.Tuple, bool) {
	c := m.call(now, r.Client, 0, !r.Uncounted)
	h, size := &m.Lock, len(m.Queue)
	need := max(h.Until, c.Ahead(), c.Watched(size))
	_, marked := m.Suspects[r.Client]
	calm := now <= r.NotAfter && c.held() && !c.over() && !c.stepped() && h.Scan == nil && !(h.Marked && marked) &&
		line.Exact(size) && h.Kept <= max(need, now+stage.Lease(h.Owner))+line.MostKept
	var states []string
	for _, a := range r.Tickets {
		i := m.Rank(a.Ticket)
		if !calm || h.Owner == a.Ticket || i < 0 || m.Queue[i].Arrival > a.Arrival || h.High <= 1 || h.High < a.Arrival {
			continue
		}
		if states == nil || h.Kept < need+line.LeastKept {
			c.Created = true
			c.keep(size)
		}
		states = append(states, fmt.Sprint(wire.StateQueued, " ", c.Place(a.Ticket, true)))
	}
	return c.reply(wire.Done, -1, 0, 0, states...), len(states) > 0 && len(states) == len(r.Tickets)
}
