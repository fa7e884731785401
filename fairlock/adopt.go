package fairlock

import (
	"context"
	"fmt"

	"github.com/headwaiter/headwaiter"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// Adopt takes over a hold that [lease.Lease.HandOver] has put in transit, in one round trip, and returns the lease on it,
// with a higher token. No waiter comes in between. The options are those of the new hold: its lease, and a maximum hold,
// begin anew. [WithCohort] and [WithKeep] are [lease.ErrInvalid], and a priority has no meaning.
//
// A text is good once, for the grant lease of the client that gave it. Else there is no lease, and the error wraps
// [lease.ErrAdopted], [lease.ErrExpired], [lease.ErrForced] or [lease.ErrNotGenuine]. Where the reply is lost the request is
// repeated, with the same effect, until ctx ends; then the hold, if there is one, is given back.
func Adopt(ctx context.Context, c *headwaiter.Client, text string, opts ...Option) (*lease.Lease, error) {
	x, ok := lua.ReadTransit(text)
	name, named := x.Name(lua.Fairlock)
	if !ok || !named {
		return nil, fmt.Errorf("fairlock: adopt: %w: it is no text of HandOver, or not the whole of one", lease.ErrNotGenuine)
	}
	m := New(c, name, opts...)
	if m.cohort != nil {
		return nil, fmt.Errorf("fairlock: adopt %q: %w: WithCohort or WithKeep: an adopted hold is neither passed on nor kept", m.queue.Label(), lease.ErrInvalid)
	}
	l, err := m.queue.Adopt(ctx, x)
	if err != nil {
		return nil, fmt.Errorf("fairlock: adopt %q: %w", m.queue.Label(), err)
	}
	return l, nil
}
