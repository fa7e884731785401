package lease

import (
	"fmt"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/internal/times"
)

// A WaitError says how far a call had come when it ended without the lock. It wraps why it ended: the
// context's error and cause, ErrClosed, or an error of the server that no retry would mend.
type WaitError struct {
	Place  int           // how many were ahead at the last look, the holder among them; -1 if that is unknown
	Waited time.Duration // since the call
	Last   error         // the last error that was waited out, nil once the server answers; or why it cannot be heard, an ErrUnusable
	Err    error

	// Unanswered: the wait ended by its time limit before the server had answered the last request. It is an ErrUnavailable.
	Unanswered bool
}

func (e *WaitError) Error() string {
	var b strings.Builder
	timedOut := e.Err == ErrWaitTimeout
	if timedOut {
		fmt.Fprintf(&b, "timed out after %v (WithMaxWait)", times.Readable(e.Waited))
	} else {
		fmt.Fprintf(&b, "waited %v", times.Readable(e.Waited))
	}
	if e.Place > 0 {
		fmt.Fprintf(&b, ", %d ahead", e.Place)
	}
	if e.Unanswered {
		fmt.Fprintf(&b, ", %v", ErrUnavailable)
	}
	if e.Last != nil && !strings.Contains(fmt.Sprint(e.Err), e.Last.Error()) {
		fmt.Fprintf(&b, " (last error: %v)", e.Last)
	}
	if !timedOut {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap returns why the wait ended.
func (e *WaitError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrUnavailable] and the server had not answered.
func (e *WaitError) Is(target error) bool { return e.Unanswered && target == ErrUnavailable }

// A BusyError says who holds what a try wanted. It is an [ErrBusy].
type BusyError struct {
	Client  string    // who holds; "" where nobody does and others wait, and where the engine does not tell
	Token   uint64    // of that hold
	Since   time.Time // when it was got, by the clock of this machine; zero if its token does not tell
	Waiting int       // how many wait
	Kept    bool      // it is a client that keeps the lock between two of its calls
	// Rests is until when nobody gets it though that hold has ended, because its holder wanted so (headwaiter.WithMinHold), by
	// the clock of this machine; zero if somebody holds it.
	Rests time.Time
}

func (e *BusyError) Error() string {
	if e.Client == "" {
		return ErrBusy.Error()
	}
	text := fmt.Sprintf("%v: client %s holds it with token %d", ErrBusy, e.Client, e.Token)
	if !e.Rests.IsZero() {
		layout := time.TimeOnly
		if time.Until(e.Rests) >= 24*time.Hour {
			layout = time.DateTime
		}
		text = fmt.Sprintf("%v: until %s, after the hold of client %s with token %d", ErrBusy, e.Rests.Format(layout), e.Client, e.Token)
	} else if !e.Since.IsZero() {
		text += fmt.Sprintf(" for %v", times.Readable(time.Since(e.Since)))
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
}

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("%v: %d wait, the first for %v", ErrQueueFull, e.Waiting, times.Readable(e.Oldest))
}

// Unwrap returns [ErrQueueFull].
func (e *QueueFullError) Unwrap() error { return ErrQueueFull }
