package waitqueue

import (
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// What a client tells its observer beside what a call and its hold tell of themselves ([notify.Teller]). Without one all of
// this is a comparison with nil.

// tell tells of a name.
func (s *site) tell(o observe.Observation) {
	if w := s.client.notifier; w != nil {
		o.Kind, o.Name = s.proto.Kind, s.name
		w.Tell(context.Background(), o)
	}
}

// tellQueuedLocked tells once that a ticket has its place.
func (t *ticket) tellQueuedLocked(behind int) {
	if t.state == waiting {
		t.teller.Queued(t.place, behind)
	}
}

// ended tells how the wait of a call ended without a hold.
func (w *wait) ended(err error) { w.ticket.teller.Passed(time.Since(w.begun), w.joined, err) }

// held is how long the present call has had it, by the clock of this machine.
func (h *hold) held() time.Duration { return time.Since(h.use.since) }

// released tells how the release of a hold went that lasted for so long.
func (h *hold) released(held time.Duration, err error) { h.ended(observe.Released, held, err) }

// ended tells how a hold ended that its holder gave away.
func (h *hold) ended(by observe.Moment, held time.Duration, err error) {
	if h.idle.IsZero() { // Else no call had it.
		h.use.teller.Ended(by, h.use.token, held, err)
	}
}

// tellLostLocked tells of a loss, with the cause that the holder sees: a lease may have ended by itself before.
func (h *hold) tellLostLocked(cause error) {
	if h.use.teller == nil {
		return
	}
	for sh := range h.leases.Each {
		if seen := sh.Cause(); errors.Is(seen, lease.ErrLost) {
			cause = seen
		}
	}
	h.use.teller.Tell(observe.Observation{Moment: observe.Lost, Token: h.use.token, Held: h.held(), Err: cause})
}

// tellLongLocked tells of a hold that lasts for longer than it should, and returns when to look for that.
func (h *hold) tellLongLocked(now, next time.Time) time.Time {
	if !h.idle.IsZero() {
		return next
	}
	if left, wanted := h.use.teller.Holds(h.use.token, now.Sub(h.use.since)); wanted {
		return timers.Earlier(next, now.Add(left))
	}
	return next
}

// tellLong tells of a wait that lasts for longer than it should, and returns what tells when to look for that; nil if
// nobody wants to know.
func (w *wait) tellLong(place int) <-chan time.Time {
	if w.ticket.teller == nil {
		return nil
	}
	w.site.mu.Lock()
	defer w.site.mu.Unlock()
	if left, wanted := w.ticket.teller.Waits(place, time.Since(w.begun)); wanted {
		return time.After(left)
	}
	return nil
}

// suspect counts that the server says that this client let a lease run out.
func (s *site) suspect() {
	s.client.stats.Suspected.Add(1)
	s.tell(observe.Observation{Moment: observe.Suspected})
}
