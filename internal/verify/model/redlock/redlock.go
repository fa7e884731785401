// Package redlock is the protocol of one node of a Redlock told a second time, as plain Go: what the scripts of
// lua/redlock must answer and store in addition to the fair lock's scripts, which are in package model.
package redlock

import (
	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Renew is a request of redlock/renew.
type Renew struct{ model.Renew }

// A Raise is a request of redlock/raise.
type Raise struct {
	Client        string
	Token, Wanted int64
	NotAfter      int64
}

// An Ahead is a request of redlock/ahead.
type Ahead struct{ Arrival int64 }

// Script returns redlock/renew.
func (Renew) Script() *lua.Script { return lua.Redlock.Renew }

// Run does what the fair lock does, also where the token has risen since the grant.
func (r Renew) Run(m *model.Mutex, now int64) wire.Tuple {
	if m.Lock.Owner == r.Ticket {
		r.Token = max(r.Token, m.Lock.Token)
	}
	return r.Renew.Run(m, now)
}

// Script returns redlock/raise.
func (Raise) Script() *lua.Script { return lua.Raise.Script }

// Args returns what the script gets.
func (r Raise) Args() []string { return stage.Args(r.Client, r.Token, r.Wanted, r.NotAfter) }

// Run lets the token of a hold rise whose lease has not ended.
func (r Raise) Run(m *model.Mutex, now int64) wire.Tuple {
	h := &m.Lock
	switch {
	case now > r.NotAfter: // R7
		return wire.Tuple{Status: wire.Late, Now: now}
	case h.Owner == "" || wire.TicketClient(h.Owner) != r.Client || h.Until <= now:
		return wire.Tuple{Status: wire.Refused, Now: now}
	case h.Token != r.Token && h.Token != r.Wanted:
		return wire.Tuple{Status: wire.Refused, Now: now}
	}
	if h.Token < r.Wanted {
		since := h.Since()
		h.Token = r.Wanted
		h.Began, h.Plain = [2]int64{h.Token, since}, false
		if need := max(h.Until, min(r.Wanted, now+line.ForgedAhead)); h.Kept < need+line.LeastKept {
			h.Kept = need + line.Spare
			ends := (&line.Call{Now: now}).In(h.Kept - now)
			m.LockEnds = ends
			if len(m.Queue) > 0 {
				m.QueueEnds = ends
			}
			if len(m.Suspects) > 0 {
				m.SuspectsEnds = ends
			}
		}
	}
	return wire.Tuple{Status: wire.Granted, Now: now}
}

// Script returns redlock/ahead.
func (Ahead) Script() *lua.Script { return lua.Ahead.Script }

// Args returns what the script gets.
func (r Ahead) Args() []string { return stage.Args(r.Arrival) }

// Run counts the tickets with an earlier arrival, and with the same.
func (r Ahead) Run(m *model.Mutex, now int64) wire.Tuple {
	reply := wire.Tuple{Status: wire.Done, Now: now}
	for _, a := range m.Queue {
		switch {
		case a.Arrival < r.Arrival:
			reply.Place++
		case a.Arrival == r.Arrival:
			reply.Waiting++
		}
	}
	return reply
}
