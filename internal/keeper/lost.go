package keeper

import (
	"fmt"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
)

// lost is a loss with what is known of it.
type lost struct {
	name  string
	cause error
	// Of a lease that ran out while renewals failed.
	why   error         // nil otherwise
	after time.Duration // without an answer
}

func (e *lost) Error() string {
	text := strings.TrimPrefix(e.cause.Error(), reason.ErrLost.Error()+": ")
	if e.why != nil {
		text = fmt.Sprintf("no renewal was answered for %v: %v", e.after, e.why)
	}
	if e.name != "" {
		text = e.name + ": " + text
	}
	return reason.ErrLost.Error() + ": " + text
}

func (e *lost) Unwrap() []error {
	if e.why == nil {
		return []error{e.cause}
	}
	return []error{e.cause, e.why}
}
