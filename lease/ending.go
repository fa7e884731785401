package lease

import (
	"fmt"

	"github.com/headwaiter/headwaiter/internal/reason"
)

// An Ending is how a hold ended, as the next hold of the name is told: see [Lease.Previous]. The zero Ending says that
// nothing is known.
type Ending struct {
	Kind EndingKind
	// Token is the fencing token of the hold that ended; 0 if it is not known, as after most releases.
	Token uint64
}

// EndingKind says how a hold ended.
type EndingKind uint8

const (
	// EndingUnknown: nothing is known. Nobody has used the name for about a minute, or the engine does not tell, or several may hold.
	EndingUnknown = EndingKind(reason.Unknown)
	// EndingReleased: the holder gave it back, by Release, Unlock, the end of Do, or its client's Close.
	EndingReleased = EndingKind(reason.Released)
	// EndingExpired: its lease ended, and nobody had renewed it. The process died, was frozen, or did not reach the server.
	EndingExpired = EndingKind(reason.Expired)
	// EndingDied: the holder's process is dead, and somebody who knows that has ended the hold.
	EndingDied = EndingKind(reason.Died)
	// EndingForced: somebody released it by force.
	EndingForced = EndingKind(reason.Forced)
	// EndingStalled: headwaiter.WithMaxStall or headwaiter.WithMaxHold ended it, though its process lived.
	EndingStalled = EndingKind(reason.Stalled)
	// EndingHandedOver: its owner gave it to this one, by HandOver and fairlock.Adopt.
	EndingHandedOver = EndingKind(reason.HandedOver)
	// EndingForgotten: the server lost its state, and this client knows that there was a hold.
	EndingForgotten = EndingKind(reason.Forgotten)
)

var endings = [...]string{"unknown", "released", "expired", "died", "forced", "stalled", "handed over", "forgotten"}

// String is one word for logs, as "expired" or "handed over".
func (k EndingKind) String() string {
	if int(k) < len(endings) {
		return endings[k]
	}
	return fmt.Sprintf("ending %d", uint8(k))
}

// Orderly reports whether the hold was given back or handed over by its owner. After any other ending its work may be left
// half done; after [EndingUnknown] nobody can tell.
func (e Ending) Orderly() bool { return e.Kind == EndingReleased || e.Kind == EndingHandedOver }

// String is for logs, as "expired, token 7".
func (e Ending) String() string {
	if e.Token == 0 {
		return e.Kind.String()
	}
	return fmt.Sprintf("%v, token %d", e.Kind, e.Token)
}
