package model

import (
	"crypto/sha1" //nolint:gosec // As the script.
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// A Move is a request of fairlock/move.
type Move struct {
	From, To  string
	Token     int64 // 0: any
	Secret    string
	Phase     string
	NotAfter  int64
	Floor     int64
	Uncounted bool
}

// Script returns fairlock/move.
func (Move) Script() *lua.Script { return lua.Move }

// Args returns what the script gets.
func (r Move) Args() []string {
	return stage.Args(r.From, r.To, r.Token, r.Secret, r.Phase, r.NotAfter, r.Floor, !r.Uncounted)
}

// Run lets a hold that lasts go from one ticket to another, with a higher token. What is in transit only who has the secret
// takes out of it (R11).
func (r Move) Run(m *Mutex, now int64) wire.Tuple {
	if now > r.NotAfter {
		return wire.Tuple{Status: wire.Late, Now: now}
	}
	c := m.call(now, wire.TicketClient(r.To), r.Floor, !r.Uncounted)
	c.Calm()
	h := &m.Lock
	if !c.held() || c.over() || c.stepped() {
		c.settle()
		c.advance()
	}
	if h.Owner == r.From && len(c.Grants) == 0 && r.genuine() && (r.Token == 0 || h.Token == r.Token) {
		c.open()
		c.past(now, "moved")
		rests, keeps := h.rests(now), h.keeps()
		how := fmt.Sprintf("%s:%d", wire.HowHanded, h.Token)
		if told := h.told(); told != "" && lua.InTransit(r.From) {
			how = told
		}
		h.Previous = Previous{How: how}
		c.own(r.To, stage.Lease(r.To), r.Phase)
		if h.Moved = r.From; rests > now {
			h.Rests, h.Stayed = rests, h.Token
		}
		if keeps > 0 {
			h.Keeps = [2]int64{h.Token, keeps}
		}
	}
	c.keep(len(m.Queue))
	switch {
	case h.Owner == r.To:
		if lua.InTransit(r.To) {
			c.look()
		}
		reply := c.holds()
		if h.rests(now) > now {
			reply.States = append([]string{wire.StateRests}, reply.States...)
		}
		return reply
	case !r.genuine():
		return c.reply(wire.Refused, -1, 0, 0, wire.StateForgotten)
	case h.Moved == r.From:
		return c.reply(wire.Refused, -1, 0, 0, wire.StateMoved)
	}
	return c.reply(wire.Refused, -1, 0, 0, m.reason(r.From))
}

// genuine reports whether the request may take a hold out of transit, if that is what it wants.
func (r Move) genuine() bool {
	f := strings.Split(r.From, ":")
	if f[2] != string(wire.Moving) {
		return true
	}
	sum := sha1.Sum([]byte(r.Secret)) //nolint:gosec // As the script.
	return f[1] == hex.EncodeToString(sum[:])
}
