package core

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/wire"
)

// A grant says how the hold before ended, unless it was released. So the release of a hold says how that ended, if it was lost. If no
// call had the hold, the next one is told what this one was told. A lock without a key knows of no hold before; the client may know
// that there was one.

// forgotten is how a hold ended that the server knows nothing of, and the client does.
const forgotten = "forgotten"

// remembered is how the hold before ended: forgotten, if the server knows of no hold, and the client has seen a token of the name. The
// key of a name lives for longer after that than the client keeps the name.
func remembered(before string, seen uint64) string {
	if before == wire.UnknownBefore && seen != 0 {
		return forgotten + ":" + strconv.FormatUint(seen, 10)
	}
	return before
}

// told is how the hold before ended by a reply. An earlier reply that was lost may have said more.
func told(before string, lost bool) string {
	if before == "" && lost {
		return wire.UnknownBefore
	}
	return before
}

// causeOver is why a hold is lost whose leases have ended by themselves: it stalled, or it was not to last longer, or nobody
// renewed it.
func causeOver(now, stallBy time.Time, cause error) error {
	switch {
	case !stallBy.IsZero() && !now.Before(stallBy):
		return reason.ErrStalled
	case cause != nil:
		return cause
	}
	return reason.ErrExpired
}

// howLost is how a hold has ended that was lost for a reason, as its release says it. Close is a release.
func howLost(gone error) string {
	switch {
	case gone == nil, errors.Is(gone, reason.ErrClientClosed):
		return ""
	case errors.Is(gone, reason.ErrExpired):
		return wire.HowExpired
	case errors.Is(gone, reason.ErrStalled), errors.Is(gone, reason.ErrMaxHold):
		return wire.HowStalled
	}
	return wire.HowUnused // The server has ended it. If it has something of the ticket, nobody knows.
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

// Previous is how the hold before ended, for a call that uses a hold now. Where several may hold, nobody is told.
func Previous(h *Hold, several bool) reason.Ending {
	switch {
	case several:
		return reason.Ending{}
	case h.UseToken > h.Token:
		return reason.Ending{How: reason.Released, Token: h.UseToken - 1} // By a call of the same client.
	}
	return EndingOf(h.Ticket.grant.Before)
}
