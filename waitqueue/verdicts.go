package waitqueue

import (
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
)

// Verdicts are a primitive's own errors for what the server may answer.
type Verdicts map[wire.Status]error

// of converts an answer that is no success into the primitive's error.
func (v Verdicts) of(status wire.Status, states []string) error {
	if err := v[status]; err != nil {
		return err
	}
	state := ""
	if len(states) > 0 {
		state = states[0]
	}
	if status == wire.Mismatch {
		return fmt.Errorf("%w: it was made with %s: state the same here, or wait until nobody has used it for a while", lease.ErrMismatch, state)
	}
	return fmt.Errorf("the server answered %d %q, which is no answer to this request: is a client of another version using the same names?", status, state)
}

// busyBy is why a try failed; nil if it did not. A token that is not ahead of the clock is the time of its grant.
func busyBy(r *wire.Reply) error {
	if r.Status != wire.Busy {
		return nil
	}
	e := &lease.BusyError{Client: wire.TicketClient(r.Owner()), Waiting: r.Waiting, Kept: wire.KeptBy(r.Owner())}
	if e.Client == "" {
		return e
	}
	e.Token = r.Token
	if wire.Rests(r.Owner()) {
		e.Rests = time.Now().Add(time.Duration(r.Until-r.Now) * time.Microsecond)
	}
	if ago := r.Now - int64(r.Token); ago >= 0 {
		e.Since = time.Now().Add(-time.Duration(ago) * time.Microsecond)
	}
	return e
}

// unadopted is why a hold could not be adopted.
func unadopted(states []string) error {
	switch state := append(states, "")[0]; state {
	case wire.StateMoved:
		return lease.ErrAdopted
	case wire.StateExpired:
		return fmt.Errorf("the text came too late: %w", lease.ErrExpired)
	case wire.StateForced:
		return fmt.Errorf("in transit: %w", lease.ErrForced)
	case wire.StateDied:
		return fmt.Errorf("in transit: who gave it has died: %w", lease.ErrLost)
	}
	return fmt.Errorf("%w: this Redis knows nothing of it", lease.ErrNotGenuine)
}
