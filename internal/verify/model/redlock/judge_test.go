package redlock

import (
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter/internal/verify/model"
	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// happened is one request that was served, as seen from outside.
type happened struct {
	request       model.Request
	reply         lua.Tuple
	now           int64
	before, after stage.State // before with the time of the request
}

// judge holds what a node does against what a Redlock needs of it, whatever the model says.
func judge(h happened) error {
	return errors.Join(rises(h), ours(h), untouched(h))
}

// rises: a token never falls while the node has its data.
func rises(h happened) error {
	before, after := h.before[0].Number("token"), h.after[0].Number("token")
	if h.before[0].Left != 0 && after < before {
		return fmt.Errorf("the token fell from %d to %d", before, after)
	}
	return nil
}

// ours: only a hold whose lease lasts is renewed, or has its token raised, and by nobody but its client.
func ours(h happened) error {
	if h.reply.Status != lua.Granted {
		return nil
	}
	b, a := h.before[0], h.after[0]
	owner, token := b.Members["owner"], b.Number("token")
	lasts := owner != "" && b.Until() > h.now
	switch r := h.request.(type) {
	case Renew:
		if !lasts || owner != r.Ticket || token < r.Token {
			return fmt.Errorf("renewed for %s with %d: %s held with %d until %d", r.Ticket, r.Token, owner, token, b.Until())
		}
		if a.Until() != h.now+r.Lease*stage.Millisecond || a.Number("token") != token {
			return fmt.Errorf("renewed until %d with token %d", a.Until(), a.Number("token"))
		}
		if a.Left < a.Until()-h.now+stage.Minute-stage.Stall {
			return fmt.Errorf("renewed until %d, and the key lives for %d µs", a.Until(), a.Left)
		}
	case Raise:
		if !lasts || lua.TicketClient(owner) != r.Client || token != r.Token && token != r.Wanted {
			return fmt.Errorf("raised for %s: %s held with %d until %d", r.Client, owner, token, b.Until())
		}
		if a.Number("token") != max(token, r.Wanted) || a.Until() != b.Until() {
			return fmt.Errorf("raised to %d, until %d", a.Number("token"), a.Until())
		}
		if a.Left < a.Until()-h.now+line.LeastKept-stage.Stall {
			return fmt.Errorf("raised for a lease until %d, and the key lives for %d µs", a.Until(), a.Left)
		}
	}
	return nil
}

// untouched: what is late or refused changes nothing, and to look neither.
func untouched(h happened) error {
	_, ahead := h.request.(Ahead)
	_, renew := h.request.(Renew)
	_, raise := h.request.(Raise)
	if !ahead && (!renew && !raise || h.reply.Status == lua.Granted) {
		return nil
	}
	for i := range h.before {
		if fmt.Sprint(h.before[i].Members) != fmt.Sprint(h.after[i].Members) {
			return fmt.Errorf("key %d changed from %v", i, h.before[i].Members)
		}
	}
	return nil
}
