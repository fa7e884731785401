package lease

import (
	"fmt"
	"strings"
	"time"
)

// A WaitError says how far a call had come when it ended without the lock. It wraps why it ended: the
// context's error and cause, ErrClosed, or an error of the server that no retry would mend.
type WaitError struct {
	Place  int           // how many were ahead at the last look, the holder among them; -1 if that is unknown
	Waited time.Duration // since the call
	Last   error         // the last error that was waited out, nil once the server answers; or why it cannot be heard, an ErrUnusable
	Err    error
}

func (e *WaitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "waited %v", readable(e.Waited))
	if e.Place > 0 {
		fmt.Fprintf(&b, " behind %d", e.Place)
	}
	if e.Last != nil && !strings.Contains(fmt.Sprint(e.Err), e.Last.Error()) {
		fmt.Fprintf(&b, " (last error: %v)", e.Last)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// Unwrap returns why the wait ended.
func (e *WaitError) Unwrap() error { return e.Err }

// A BusyError says who holds what a try wanted. It is an [ErrBusy].
type BusyError struct {
	Client  string    // who holds; "" where nobody does and others wait, and where the engine does not tell
	Token   uint64    // of that hold
	Since   time.Time // when it was got, by the clock of this machine; zero if its token does not tell
	Waiting int       // how many wait
	Kept    bool      // it is a client that keeps the lock between two of its calls
}

func (e *BusyError) Error() string {
	if e.Client == "" {
		return ErrBusy.Error()
	}
	text := fmt.Sprintf("%v: client %s holds it with token %d", ErrBusy, e.Client, e.Token)
	if !e.Since.IsZero() {
		text += fmt.Sprintf(" for %v", readable(time.Since(e.Since)))
	}
	if e.Waiting > 0 {
		text += fmt.Sprintf(", %d wait", e.Waiting)
	}
	return text
}

// Unwrap returns [ErrBusy].
func (e *BusyError) Unwrap() error { return ErrBusy }

// A QueueFullError says what a call found that there was no room for in the queue. It is an [ErrQueueFull].
type QueueFullError struct {
	Waiting int           // how many wait
	Oldest  time.Duration // for how long the head of the queue had waited when its tickets were last looked at
	Left    time.Duration // until the deadline of the call, if it would have waited for longer than that; 0 if too many wait
}

func (e *QueueFullError) Error() string {
	text := fmt.Sprintf("%v: %d wait, the first for %v", ErrQueueFull, e.Waiting, readable(e.Oldest))
	if e.Left > 0 {
		text += fmt.Sprintf(", too long for the %v until the deadline", readable(e.Left))
	}
	return text
}

// Unwrap returns [ErrQueueFull].
func (e *QueueFullError) Unwrap() error { return ErrQueueFull }

// readable makes a duration readable: three digits are enough.
func readable(d time.Duration) time.Duration {
	for unit := time.Duration(1); unit <= time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d
}
