package waitqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/timers"
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
	x := lua.NewTransit(s.keys.Lock, s.client.id, min(s.client.opts.GrantLease, t.lease()))
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

// movedLocked takes in the answer to the end of a hold that is handed over. Where the server has not moved it, now or at an
// earlier attempt, it was lost before; and as what the ticket has now may be what an old ask has taken, an end follows.
func (d *end) movedLocked(r *lua.Head) {
	if d.heir != nil && r.Status != lua.Granted && (len(r.States) == 0 || r.States[0] != lua.StateMoved) {
		d.ticket.hold.gone = d.ticket.hold.lossOf(r)
		d.ticket.ghost = timers.Later(d.ticket.ghost, time.Now().Add(time.Millisecond)) // After this was sent.
	}
}

// script is that for the end of a ticket.
func (d *end) script() *lua.Script {
	if d.heir != nil {
		return lua.Move
	}
	return d.site.proto.End
}

// moving is what it gets where the hold is handed over. It may run at any time: it has no effect where the ticket does not
// hold.
func (d *end) moving() []string {
	c, token := d.site.client, strconv.FormatUint(d.ticket.grant.token, 10)
	return []string{d.text, d.heir.Ticket(), token, "", lua.PhaseFinal, lua.Ever, c.highest(), c.servers.Counted()}
}

// Adopt takes a hold of the name out of transit.
func (q Queue) Adopt(ctx context.Context, x lua.Transit) (*lease.Lease, error) {
	retry.Given(ctx)
	if q.err == nil && q.keys.Lock != x.Lock {
		return nil, fmt.Errorf("%w: it is for %.80q, and this client has the prefix %q", lease.ErrNotGenuine, x.Lock, q.client.opts.Prefix)
	}
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
