package notify

import (
	"context"
	"errors"
	"time"

	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// A Teller tells of one call, and of what it holds. Where nobody looks it is nil, and its methods do nothing. Tell may be
// called by several goroutines at a time; the others change what it knows, and their caller guards that.
type Teller struct {
	notifier     *Notifier
	kind, name   string
	ticket       string
	ctx          context.Context // with which is told
	queued       bool            // it was told that there is a place
	waits, holds Reminder
}

// Teller returns what tells of a call for a name. It may be called on nil.
func (n *Notifier) Teller(kind, name string) *Teller {
	if n == nil {
		return nil
	}
	return &Teller{notifier: n, kind: kind, name: name, ctx: context.Background()}
}

// Goes says by which ticket the call goes from now on.
func (t *Teller) Goes(ticket string) {
	if t != nil {
		t.ticket = ticket
	}
}

func (t *Teller) of(o observe.Observation) observe.Observation {
	o.Kind, o.Name, o.Ticket = t.kind, t.name, t.ticket
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
	if t.notifier.Traces() {
		t.ctx = t.notifier.Wait(t.ctx, t.of(observe.Observation{Moment: observe.Asked}))
	}
	t.Tell(observe.Observation{Moment: observe.Asked})
}

// Queued tells once that the call has its place.
func (t *Teller) Queued(place, waiting int) {
	if t != nil && !t.queued {
		t.queued = true
		t.Tell(observe.Observation{Moment: observe.Queued, Place: place, Waiting: waiting})
	}
}

// Granted tells of a hold that is about to be made, and returns the context to make it with.
func (t *Teller) Granted(ctx context.Context, token uint64, waited time.Duration, note string) context.Context {
	if t == nil {
		return ctx
	}
	o := observe.Observation{Moment: observe.Granted, Token: token, Waited: waited, Note: note}
	if t.notifier.Traces() {
		t.ctx = t.notifier.Hold(t.ctx, t.of(o))
		ctx = t.ctx
	}
	t.Tell(o)
	return ctx
}

// Passed tells how a call ended that makes no hold: it failed, has entered another, or waited for an event.
func (t *Teller) Passed(waited time.Duration, entered bool, err error) {
	o := observe.Observation{Moment: observe.Passed, Waited: waited}
	switch {
	case err != nil:
		o.Moment, o.Err = observe.Failed, err
	case entered:
		o.Moment = observe.Entered
	}
	t.Tell(o)
}

// Ended tells how a hold ended that its holder gave away by a moment.
func (t *Teller) Ended(by observe.Moment, token uint64, held time.Duration, err error) {
	if t != nil && errors.Is(err, lease.ErrLost) {
		by = observe.Lost
	}
	t.Tell(observe.Observation{Moment: by, Token: token, Held: held, Err: err})
}

// Note is what the grant to the next is to carry.
func (t *Teller) Note() string {
	if t == nil || !t.notifier.Traces() {
		return ""
	}
	return t.notifier.Note(t.ctx)
}

// Holds tells of a hold that lasts for longer than it should, and returns in how long to look again, if anybody wants to
// know.
func (t *Teller) Holds(token uint64, held time.Duration) (left time.Duration, wanted bool) {
	if t == nil || t.notifier.Held == 0 {
		return 0, false
	}
	told, left := t.holds.Look(held, t.notifier.Held)
	if told {
		t.Tell(observe.Observation{Moment: observe.HeldLong, Token: token, Held: held, Who: t.notifier.Who, Count: int(t.holds)})
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
		t.Tell(observe.Observation{Moment: observe.WaitedLong, Waited: waited, Place: place, Count: int(t.waits)})
	}
	return left, true
}
