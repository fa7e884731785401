package waitqueue

import (
	"context"
	"errors"
	"fmt"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// A hold that goes to another process (R11). To hand over is the end of a ticket, to adopt is an ask; both are requests of
// one script.

// Gives reports whether the hold can be handed over. Where a layer makes the leases, as for a cohort, they are none of these.
func (sh *share) Gives() bool { return sh.hold.ticket.queue.proto == lua.Fairlock }

// HandOver is what HandOver of a lease does, once. The lease's context has ended.
func (sh *share) HandOver(ctx context.Context) (text string, err error) {
	h := sh.hold
	t, s := h.ticket, h.ticket.site
	todo := sh.takeOff(false)
	if !todo.last {
		return "", todo.gone
	}
	x := lua.NewTransit(s.keys.Lock, s.client.id, t.takes)
	if a := s.sendEnd(ctx, t, &x); a.err != nil {
		err = h.conclude(ctx, &a)
	}
	s.mu.Lock()
	if h.gone != nil {
		err = h.gone // The server's word, whenever it came.
	}
	s.mu.Unlock()
	h.ended(observe.HandedOver, todo.held, err)
	if err != nil && !errors.Is(err, lease.ErrUnconfirmed) {
		return "", err
	}
	return x.Text(), err
}

// movedLocked takes in the answer to a hand-over. Where the server has not moved the hold, now or at an earlier attempt, it
// was lost before.
func (h *hold) movedLocked(r *lua.Head) {
	if r.Status != lua.Granted && (len(r.States) == 0 || r.States[0] != lua.StateMoved) {
		h.gone = h.lossOf(r)
	}
}

// Transit reads the text by which a hold of the protocol is adopted, and returns the name too.
func (c *Client) Transit(p *lua.Protocol, text string) (x lua.Transit, name string, err error) {
	x, ok := lua.ReadTransit(text)
	if !ok {
		return x, "", fmt.Errorf("%w: it is no text of HandOver, or not the whole of one", lease.ErrNotGenuine)
	}
	of, name, ok := lua.NameOf(c.opts.Prefix, x.Lock)
	if !ok || of != p {
		return x, "", fmt.Errorf("%w: it is for %.80q, and this client has the prefix %q", lease.ErrNotGenuine, x.Lock, c.opts.Prefix)
	}
	return x, name, nil
}

// Adopt takes a hold of the name out of transit.
func (q Queue) Adopt(ctx context.Context, x lua.Transit) (*lease.Lease, error) {
	l, _, err := obtain(ctx, q, lua.Wait, &x)
	return l, err
}

// unadopted is why a hold could not be adopted.
func unadopted(states []string) error {
	switch state := append(states, "")[0]; state {
	case lua.StateMoved:
		return lease.ErrAdopted
	case lua.StateExpired:
		return fmt.Errorf("the text came too late: %w", lease.ErrExpired)
	case lua.StateForced:
		return fmt.Errorf("in transit: %w", lease.ErrForced)
	}
	return fmt.Errorf("%w: this Redis knows nothing of it", lease.ErrNotGenuine)
}
