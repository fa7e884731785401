package waitqueue

import (
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/internal/calls"
	"github.com/headwaiter/headwaiter/lease"
)

// Holds of a call, for several names perhaps, that it has not returned yet: only what it returns counts as used.

// stay tells the servers, for a call for several names that has all it is going to have, for how long each of the names is to
// stay taken ([Terms].MinHold): only now, so that nothing stays taken that the call gives back before it returns, or leaves as its
// process dies. It waits for the answers as long as ctx lasts, and returns in the order of the leases why one was not told: the
// loss of the lease, [lease.ErrReplicas], or the end of ctx, of a call that began at a time. The leases go on; one may be nil.
func (m *multi) stay(ctx context.Context, leases []*lease.Lease) []error {
	if m.core.Try {
		var free context.CancelFunc
		ctx, free = context.WithTimeoutCause(ctx, calls.TryTime, errUntold)
		defer free()
	}
	told := make([]<-chan error, len(leases))
	for i, l := range leases {
		if l != nil {
			told[i] = stay(l)
		}
	}
	errs := make([]error, len(leases))
	for i, l := range leases {
		if told[i] == nil {
			continue
		}
		select {
		case errs[i] = <-told[i]:
		case <-l.Context().Done():
			errs[i] = context.Cause(l.Context())
		case <-ctx.Done():
			why := calls.WhyEnded(ctx)
			if errors.Is(why, errUntold) {
				why = errUntold
			}
			errs[i] = &lease.WaitError{Place: -1, Waited: time.Since(m.begun), Err: why, Unanswered: true}
		}
	}
	return errs
}

// errUntold is why a try gives up that has got all its names.
var errUntold = errors.New("the server has not answered that the names stay taken")

// stay has the next renewal, which is sent now, say for how long the name stays taken. It returns the channel of the
// answer; nil if there is nothing to say.
func stay(l *lease.Lease) <-chan error {
	sh, ok := shareBehind(l)
	if !ok {
		return nil
	}
	if t := &sh.hold.ticket.queue.terms; t.MinHold == 0 && t.Remember == 0 {
		return nil
	}
	h := sh.hold
	e := h.ticket.entry
	answer := make(chan error, 1)
	x := e.begin()
	defer e.end(x)
	if !e.lock.Stay(&x.Input, &h.Hold) {
		return nil
	}
	e.act.Lock()
	defer e.act.Unlock()
	h.stays = answer
	return answer
}

// Returned says that a call for several names, or one of [Queue.Unreturned], returns now, with this lease: the time without progress
// ([Terms].MaxStall) begins, and the name stays taken after the hold ([Terms].MinHold). It does nothing to a lease of another call.
func Returned(l *lease.Lease) {
	sh, ok := shareBehind(l)
	if !ok {
		return
	}
	if t := &sh.hold.ticket.queue.terms; l.Previous().Kind == lease.EndingReleased && sh.hold.stall == nil && t.MinHold == 0 && t.Remember == 0 {
		return
	}
	h := sh.hold
	e := h.ticket.entry
	x := e.begin()
	defer e.end(x)
	h.stall.Resume()
	e.lock.Returned(&x.Input, &h.Hold, h.leases())
}

// Unused says that no work was done with the hold of a lease that no call is going to return, so that its release frees the name at
// once ([Terms].MinHold).
func Unused(l *lease.Lease) {
	if sh, ok := shareBehind(l); ok {
		t := sh.hold.ticket
		t.entry.mu.Lock()
		defer t.entry.mu.Unlock()
		t.Joint = true
	}
}
