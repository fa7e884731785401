package core

import (
	"errors"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A grant says how the hold before ended, unless it was released. So the release of a hold says how that ended, if it was lost. If no
// call had the hold, the next one is told what this one was told. A lock without a key knows of no hold before; the client may know
// that there was one.

// forgotten is how a hold ended that the server knows nothing of, and the client does.
const forgotten = "forgotten"

// sawToken notes the last token of the name that the client knows of. The key of the name lives for longer after that than the
// client keeps the name.
func (l *Lock) sawToken(token uint64) {
	if token != 0 {
		l.seen = token
	}
}

// remembered is how the hold before ended: forgotten, if the server knows of no hold, and the client does.
func (l *Lock) remembered(before string) string {
	if before == wire.UnknownBefore && l.seen != 0 {
		return forgotten + ":" + strconv.FormatUint(l.seen, 10)
	}
	return before
}

// how is how the hold of a ticket has ended, as its release says it. The owner's release and Close say nothing.
func (t *Ticket) how() string {
	switch h := t.Hold; {
	case h == nil || t.acknowledged: // If the server has something of it, nobody knows.
		return wire.HowUnused
	case h.Gone == nil:
		if t.Joint && t.grant.Before != "" {
			return wire.HowUnused
		}
		return ""
	case errors.Is(h.Gone, reason.ErrClientClosed):
		return ""
	case errors.Is(h.Gone, reason.ErrExpired):
		return wire.HowExpired
	case errors.Is(h.Gone, reason.ErrStalled), errors.Is(h.Gone, reason.ErrMaxHold):
		return wire.HowStalled
	}
	return wire.HowUnused
}

// words are how holds end, as they are told.
var words = map[string]reason.How{
	"unknown": reason.Unknown, "released": reason.Released, wire.HowExpired: reason.Expired, wire.HowDied: reason.Died, wire.HowForced: reason.Forced,
	wire.HowStalled: reason.Stalled, wire.HowHanded: reason.HandedOver, forgotten: reason.Forgotten,
}

// EndingOf reads how a hold ended, as [wire.Grant] has it. A word of a later version is not known.
func EndingOf(before string) reason.Ending {
	if before == "" {
		return reason.Ending{How: reason.Released}
	}
	how, token, _ := strings.Cut(before, ":")
	n, _ := strconv.ParseUint(token, 10, 64)
	return reason.Ending{How: words[how], Token: n}
}

// Previous is how the hold before ended, for a call that uses the hold now. Where several may hold, nobody is told.
func (h *Hold) Previous(several bool) reason.Ending {
	switch {
	case several:
		return reason.Ending{}
	case h.UseToken > h.Token:
		return reason.Ending{How: reason.Released, Token: h.UseToken - 1} // By a call of the same client.
	}
	return EndingOf(h.Ticket.grant.Before)
}
