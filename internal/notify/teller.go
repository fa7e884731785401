package notify

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// A Teller tells of one call, and of what it holds. Where nobody looks it is nil, and its methods do nothing. Tell may be
// called by several goroutines at a time; the others change what it knows, and their caller guards that.
type Teller struct {
	notifier     *Notifier
	kind, name   string
	ticket       *string         // by which the call goes, now
	ctx          context.Context // with which is told
	queued       bool            // it was told that there is a place
	waits, holds Reminder
}

// Teller makes, in a room that the caller has for it, what tells of a call for a name, which goes by a ticket. It may be called
// on nil, and then needs no room.
func (n *Notifier) Teller(room *Teller, kind, name string, ticket *string) *Teller {
	if n == nil {
		return nil
	}
	*room = Teller{notifier: n, kind: kind, name: name, ticket: ticket, ctx: context.Background()}
	return room
}

func (t *Teller) of(o observe.Observation) observe.Observation {
	o.Kind, o.Name, o.Ticket = t.kind, t.name, *t.ticket
	return o
}

// Tell tells of the call, or of its hold.
func (t *Teller) Tell(o observe.Observation) {
	if t != nil {
		t.notifier.Tell(t.ctx, t.of(o))
	}
}

// Asked begins what is told, with the context of the call.
func (t *Teller) Asked(ctx context.Context) {
	if t == nil {
		return
	}
	t.ctx = context.WithoutCancel(ctx)
	o := observe.Observation{Event: observe.Began}
	t.traced(o, observe.Tracer.Wait)
	t.Tell(o)
}

// traced lets the tracer, if there is one, make the context of what follows. That stays as it is if the tracer panics or makes
// none.
func (t *Teller) traced(o observe.Observation, trace func(observe.Tracer, context.Context, observe.Observation) context.Context) {
	defer t.notifier.contain()
	if t.notifier.tracer != nil {
		t.ctx = cmp.Or(trace(t.notifier.tracer, t.ctx, t.of(o)), t.ctx)
	}
}

// Queued tells once that the call has its place.
func (t *Teller) Queued(place, waiting int) {
	if t != nil && !t.queued {
		t.queued = true
		t.Tell(observe.Observation{Event: observe.Queued, Place: place, Waiting: waiting})
	}
}

// Granted tells of a hold that is about to be made, and returns the context to make it with. before is how the one before ended,
// as a grant has it.
func (t *Teller) Granted(ctx context.Context, token uint64, waited time.Duration, note, before string) context.Context {
	if t == nil {
		return ctx
	}
	o := observe.Observation{Event: observe.Granted, Token: token, Waited: waited, Note: note}
	if how, _, _ := strings.Cut(before, ":"); how != "unknown" && how != "handed" {
		o.Previous = how
	}
	if t.notifier.tracer != nil {
		t.traced(o, observe.Tracer.Hold)
		ctx = t.ctx
	}
	t.Tell(o)
	return ctx
}

// Passed tells how a call ended that makes no hold: it failed, has entered another, or waited for an event.
func (t *Teller) Passed(waited time.Duration, entered bool, err error) {
	o := observe.Observation{Event: observe.Passed, Waited: waited}
	switch {
	case err != nil:
		o.Event, o.Err = observe.Failed, err
	case entered:
		o.Event = observe.Entered
	}
	t.Tell(o)
}

// Ended tells how a hold ended that its holder gave away by an event.
func (t *Teller) Ended(by observe.EventKind, token uint64, held time.Duration, err error) {
	if t != nil && errors.Is(err, lease.ErrLost) {
		by = observe.Lost
	}
	t.Tell(observe.Observation{Event: by, Token: token, Held: held, Err: err})
}

// Note is what the tracer wants the grant to the next to carry; nothing if that cannot stand in a message.
func (t *Teller) Note() (note string) {
	if t == nil || t.notifier.tracer == nil {
		return ""
	}
	defer t.notifier.contain()
	if made := t.notifier.tracer.Note(t.ctx); len(made) <= observe.MaxNote && wordy(made) {
		note = made
	}
	return note
}

// Holds tells of a hold that lasts for longer than it should, and returns in how long to look again, if anybody wants to
// know.
func (t *Teller) Holds(token uint64, held time.Duration) (left time.Duration, wanted bool) {
	if t == nil || t.notifier.Held == 0 {
		return 0, false
	}
	told, left := t.holds.Look(held, t.notifier.Held)
	if told {
		t.Tell(observe.Observation{Event: observe.HeldLong, Token: token, Held: held, Who: t.notifier.Who, Count: int(t.holds)})
	}
	return left, true
}

// Waits tells of a wait that lasts for longer than it should, as Holds.
func (t *Teller) Waits(place int, waited time.Duration) (left time.Duration, wanted bool) {
	if t == nil || t.notifier.Waited == 0 {
		return 0, false
	}
	told, left := t.waits.Look(waited, t.notifier.Waited)
	if told {
		t.Tell(observe.Observation{Event: observe.WaitedLong, Waited: waited, Place: place, Count: int(t.waits)})
	}
	return left, true
}
