package waitqueue

import (
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// What a client tells its observer. Without one all of this is a comparison with nil.

// tell tells of a name.
func (s *site) tell(o observe.Observation) {
	if w := s.client.notifier; w != nil {
		o.Kind, o.Name = s.proto.Kind, s.name
		w.Tell(context.Background(), o)
	}
}

// tell tells of a ticket.
func (t *ticket) tell(o observe.Observation) {
	if w := t.queue.client.notifier; w != nil {
		o.Kind, o.Name, o.Ticket = t.queue.proto.Kind, t.queue.name, t.text
		w.Tell(t.ctx, o)
	}
}

// asked begins what is told of a ticket.
func (t *ticket) asked(ctx context.Context) {
	w := t.queue.client.notifier
	if w == nil {
		return
	}
	o := observe.Observation{Moment: observe.Asked, Kind: t.queue.proto.Kind, Name: t.queue.name, Ticket: t.text}
	t.ctx = context.WithoutCancel(ctx)
	if w.Traces() {
		t.ctx = w.Wait(t.ctx, o)
	}
	w.Tell(t.ctx, o)
}

// tellQueuedLocked tells once that a ticket has its place.
func (t *ticket) tellQueuedLocked(behind int) {
	if w := t.site.client.notifier; w != nil && !t.placed && t.state == waiting {
		t.placed = true
		t.tell(observe.Observation{Moment: observe.Queued, Place: t.place, Waiting: behind})
	}
}

// tellGrantedLocked tells of a hold that is about to be made, and returns the context that it is made with.
func (t *ticket) tellGrantedLocked(ctx context.Context, token uint64, waited time.Duration, note string) context.Context {
	w := t.queue.client.notifier
	if w == nil {
		return ctx
	}
	o := observe.Observation{
		Moment: observe.Granted, Kind: t.queue.proto.Kind, Name: t.queue.name, Ticket: t.text,
		Token: token, Waited: waited, Note: note,
	}
	if w.Traces() {
		t.ctx = w.Hold(t.ctx, o)
		ctx = t.ctx
	}
	w.Tell(t.ctx, o)
	return ctx
}

// ended tells how the wait of a call ended without a hold.
func (w *wait) ended(err error) {
	if w.ticket.queue.client.notifier == nil {
		return
	}
	o := observe.Observation{Moment: observe.Passed, Waited: time.Since(w.begun)}
	switch {
	case err != nil:
		o.Moment, o.Err = observe.Failed, err
	case w.joined:
		o.Moment = observe.Entered
	}
	w.ticket.tell(o)
}

// held is how long the present call has had it, by the clock of this machine.
func (h *hold) held() time.Duration { return time.Since(h.use.since) }

// released tells how the release of a hold went that lasted for so long.
func (h *hold) released(held time.Duration, err error) { h.ended(observe.Released, held, err) }

// ended tells how a hold ended that its holder gave away.
func (h *hold) ended(by observe.Moment, held time.Duration, err error) {
	if h.ticket.site.client.notifier == nil || !h.idle.IsZero() {
		return
	}
	o := observe.Observation{Moment: by, Token: h.use.token, Held: held, Err: err}
	if errors.Is(err, lease.ErrLost) {
		o.Moment = observe.Lost
	}
	h.use.teller.tell(o)
}

// tellLostLocked tells of a loss, with the cause that the holder sees: a lease may have ended by itself before.
func (h *hold) tellLostLocked(cause error) {
	if h.ticket.site.client.notifier != nil {
		for sh := range h.leases.Each {
			if seen := sh.Cause(); errors.Is(seen, lease.ErrLost) {
				cause = seen
			}
		}
		h.use.teller.tell(observe.Observation{Moment: observe.Lost, Token: h.use.token, Held: h.held(), Err: cause})
	}
}

// note is what the grant to the next is to carry.
func (h *hold) note() string {
	w := h.ticket.site.client.notifier
	if w == nil || !w.Traces() {
		return ""
	}
	return w.Note(h.use.teller.ctx)
}

// tellLongLocked tells of a hold that lasts for longer than it should, and returns when to look for that.
func (h *hold) tellLongLocked(now, next time.Time) time.Time {
	w := h.ticket.site.client.notifier
	if w == nil || w.Held == 0 || !h.idle.IsZero() {
		return next
	}
	held := now.Sub(h.use.since)
	told, left := h.use.lasts.Look(held, w.Held)
	if told {
		h.use.teller.tell(observe.Observation{Moment: observe.HeldLong, Token: h.use.token, Held: held, Who: w.Who, Count: int(h.use.lasts)})
	}
	return timers.Earlier(next, now.Add(left))
}

// tellLong tells of a wait that lasts for longer than it should, and returns what tells when to look for that; nil if
// nobody wants to know.
func (w *wait) tellLong(place int) <-chan time.Time {
	n := w.site.client.notifier
	if n == nil || n.Waited == 0 {
		return nil
	}
	waited := time.Since(w.begun)
	told, left := w.lasts.Look(waited, n.Waited)
	if told {
		w.ticket.tell(observe.Observation{Moment: observe.WaitedLong, Waited: waited, Place: place, Count: int(w.lasts)})
	}
	return time.After(left)
}

// served tells what a reply says of the queue of a name.
func (c *client) served(kind, name string, r *lua.Head) {
	w := c.notifier
	if w == nil {
		return
	}
	o := observe.Observation{Kind: kind, Name: name}
	if o.Moment, o.Count = observe.Skipped, r.Skipped; o.Count > 0 {
		w.Tell(context.Background(), o)
	}
	if o.Moment, o.Count = observe.Expired, r.Expired; o.Count > 0 {
		w.Tell(context.Background(), o)
	}
	if o.Moment, o.Count = observe.HandedOff, 0; r.Has(lua.Handed) {
		w.Tell(context.Background(), o)
	}
}

// suspect counts that the server says that this client let a lease run out.
func (s *site) suspect() {
	s.client.stats.Suspected.Add(1)
	s.tell(observe.Observation{Moment: observe.Suspected})
}
