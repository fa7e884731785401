package waitqueue

import (
	"fmt"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Unwoken is [lease.ErrUnwoken] with the right that is missing.
func (q Queue) Unwoken() error { return q.unwoken() }

func (q *binding) unwoken() error {
	return fmt.Errorf("%w: the user needs PUBLISH and the wake channels (+publish &%s:*)", lease.ErrUnwoken, q.client.opts.Prefix)
}

// excess says that a ticket asks for more than there is.
func excess(t *ticket, limit string) error {
	return fmt.Errorf("%w: %d permits of %s", lease.ErrTooLarge, t.queue.permits, limit)
}

// Verdict converts a reply that is no success into the error of the primitive.
func (q Queue) Verdict(r *lua.Head) error { return q.verdicts.of(r.Status, r.States) }

// verdict converts a reply that ends the wait of a ticket into an error.
func (t *ticket) verdict(status lua.Status, states []string) error {
	if status == lua.Excess && len(states) > 0 {
		return excess(t, states[0])
	}
	return t.queue.verdicts.of(status, states)
}

func (v Verdicts) of(status lua.Status, states []string) error {
	if err := v[status]; err != nil {
		return err
	}
	state := ""
	if len(states) > 0 {
		state = states[0]
	}
	if status == lua.Mismatch {
		return fmt.Errorf("%w: it was made with %s: state the same here, or wait until nobody has used it for a while", lease.ErrMismatch, state)
	}
	return fmt.Errorf("the server answered %d %q, which is no answer to this request: is a client of another version using the same names?", status, state)
}
