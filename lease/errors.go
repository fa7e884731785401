package lease

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

var (
	// ErrLost is what every loss of a hold is: errors.Is(err, ErrLost). The errors below say why.
	ErrLost = errors.New("lease lost")
	// ErrReleased ends the context of a hold that its owner released, and answers a second Release.
	ErrReleased = errors.New("lease released")
	// ErrUnconfirmed says that a release was sent, or tried, and no answer came: the hold may have been
	// given back, and if not it ends with its lease.
	ErrUnconfirmed = errors.New("release not confirmed")
)

// The causes of a loss. Each is an ErrLost.
var (
	// ErrExpired: the lease ran out before a renewal was confirmed.
	ErrExpired error = loss("lease lost: expired")
	// ErrForced: somebody released the hold by force.
	ErrForced error = loss("lease lost: released elsewhere by force")
	// ErrForgotten: the server does not know the hold any more; it lost its state, or the key was deleted.
	ErrForgotten error = loss("lease lost: the server lost the state")
	// ErrMaxHold: the hold reached the maximum that was set for it.
	ErrMaxHold error = loss("lease lost: held for its maximum time")
	// ErrClientClosed: the client that held it was closed.
	ErrClientClosed error = loss("lease lost: client closed")
)

// loss is a cause that is an ErrLost.
type loss string

func (l loss) Error() string        { return string(l) }
func (l loss) Is(target error) bool { return target == ErrLost }

// lost is a loss with what is known of it.
type lost struct {
	name  string
	cause error
	// Of a lease that ran out while renewals failed.
	why   error         // nil otherwise
	after time.Duration // without an answer
}

func (e *lost) Error() string {
	text := strings.TrimPrefix(e.cause.Error(), ErrLost.Error()+": ")
	if e.why != nil {
		text = fmt.Sprintf("no renewal was answered for %v: %v", e.after, e.why)
	}
	if e.name != "" {
		text = e.name + ": " + text
	}
	return ErrLost.Error() + ": " + text
}

func (e *lost) Unwrap() []error {
	if e.why == nil {
		return []error{e.cause}
	}
	return []error{e.cause, e.why}
}
