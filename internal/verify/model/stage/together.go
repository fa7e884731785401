package stage

import (
	"fmt"
	"slices"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// Together looks at tickets of a lock with those of two other locks, one of another type and one that is absent, and reports
// whether there was nothing to do and no news of any. If there was, it has prolonged keys at the most.
func Together(h Host, k lua.Keys, s *lua.Script, notAfter int64, client string, counted bool, tickets []lua.Arrival) (reply wire.Tuple, ok bool, err error) {
	all := k.All()
	keys, args := append([]string{k.Queue}, slices.Repeat([]string{k.Lock}, len(all)-1)...), Args(notAfter, client, counted, "wrong", "0")
	for _, a := range tickets {
		keys, args = append(keys, all...), append(args, a.Ticket, Decimal(a.Arrival))
	}
	keys, args = append(append(keys, k.Lock+"absent"), all[1:]...), append(args, "absent", "0")
	now, token, seen, err := s.DecodeChecks(h.Call(keys, s, args), len(tickets)+2)
	if err != nil {
		return reply, false, err
	}
	reply = wire.Tuple{Status: wire.Done, Now: now, Token: token, Place: -1}
	for i, g := range seen {
		switch other := i == 0 || i == len(seen)-1; {
		case other && g.Place >= 0:
			return reply, false, fmt.Errorf("%s tells of a lock that is of another type, or absent: %v", s.Name, g)
		case g.Place >= 0:
			reply.Until = g.Until
			reply.States = append(reply.States, fmt.Sprint(wire.StateQueued, " ", g.Place))
		}
	}
	return reply, len(tickets) > 0 && len(reply.States) == len(tickets), nil
}
