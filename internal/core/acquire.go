package core

import (
	"errors"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/wire"
)

const (
	// LongestAttempt is how long an acquire request may take from its sending to its not-after, at the most.
	LongestAttempt = time.Minute
	// TryTime is how long a call that does not wait for its turn waits out errors that pass by themselves.
	TryTime = 3 * time.Second
)

// A Step is what a call does next.
type Step struct {
	Do   Next
	Err  error         // for Fail
	Rest time.Duration // for Pause
	Hold *Hold         // for Enter
}

// Next is what a call does next.
type Next uint8

const (
	Go      Next = iota // asks again what to do
	Enter               // enters a hold of its owner
	Fail                // ends, with Err
	TimeOut             // ends, because its context has ended
	Ask                 // sends an acquire request: see [Lock.BeginAcquire]
	Confirm             // sends a renewal that says whether it holds: see [Lock.BeginConfirm]
	Take                // makes a lease of the grant: see [Lock.MayTake]
	Sleep               // waits until it is woken
	Pause               // waits for Rest
	Return              // ends: the event has come
	Act                 // runs the action of a barrier
	GiveWay             // asks whether others come first, and gives the hold back to them: see [Lock.GiveWay]
)

// Next says what the call of a ticket does next. ended: its context has ended. alone: it has just failed to enter the hold
// that its owner has.
func (l *Lock) Next(x *Input, t *Ticket, ended, alone bool) Step {
	if h := l.owners[t.Behalf]; !alone && h != nil && h.Ticket != t && t.state != held {
		return Step{Do: Enter, Hold: h}
	}
	if err := errors.Join(t.WaitErr, t.Refused); err != nil {
		return Step{Do: Fail, Err: err}
	}
	if ended {
		t.Over = true
		return Step{Do: TimeOut}
	}
	switch t.state {
	case idling, asking:
		return Step{Do: Ask}
	case confirming:
		return Step{Do: Confirm}
	case held:
		return Step{Do: Take}
	}
	return Step{Do: Sleep}
}

// An Acquire is an acquire request of a ticket.
type Acquire struct {
	Ticket  *Ticket
	Text    string
	Mode    string
	Limit   int
	Arrival int64
	Moves   bool // it is for a hold in transit
}

// BeginAcquire begins an acquire request in a mode. It reports false if there is none to send: a message may have brought the
// grant first. Without a subscription the request takes a free lock, but does not queue (R2).
func (l *Lock) BeginAcquire(x *Input, t *Ticket, mode string, sent time.Time) (q Acquire, ok bool) {
	if !t.MayAsk() {
		return q, false
	}
	q = Acquire{Ticket: t, Text: t.Text, Mode: mode, Arrival: t.Arrival}
	if mode == wire.Wait {
		q.Limit = t.Limit
		if !l.Subscribed() {
			q.Mode = wire.Look
		}
	}
	t.to(x, asking)
	t.Clean = false
	t.Send()
	l.Sent(sent)
	return q, true
}

// Unsent takes back a request that was not sent.
func (l *Lock) Unsent(x *Input, t *Ticket) { l.undo(x, t, false) }

// OnAcquireReply takes in the answer to an acquire request, or its lack, and says what its call does next if it has an answer.
// refusal is the error that a refusal means.
func (l *Lock) OnAcquireReply(x *Input, q *Acquire, a Attempt, r *wire.Reply, f *Failure, refusal error) Step {
	t := q.Ticket
	l.requestDone(x, t, q.Text, a, f)
	if f.Err != nil {
		return Step{}
	}
	switch r.Status {
	case wire.Waiting:
		if t.Arrival == 0 {
			t.Arrival = r.Arrival // Also if a message was faster: a grant may run out, the place stays.
		}
		if t.state == asking {
			if t.Place = int(r.Place); r.Place < 0 {
				t.Place = r.Waiting + 1 // It would be the last.
				t.to(x, subscribing)
			} else {
				t.to(x, waiting)
			}
			l.queued(x, t, r.Waiting)
		}
	case wire.Granted:
		t.Drained = r.Drained()
		t.Inherits = q.Moves && slices.Contains(r.States, wire.StateRests)
		l.deliver(x, q.Text, Grant{Token: r.Token, From: a.Sent, Slept: a.Slept, Lasts: micros(r.Until - r.Now), Before: told(r.Before(), !t.unanswered.IsZero() && !q.Moves)})
	}
	l.OnReply(x, a, r, "", false)
	l.Waited = r.Status == wire.Waiting
	if r.Status == wire.Waiting {
		v := SightOf(r.Waiting, r.Now, r.Until, r.Token)
		l.await(x, t, &v, r.Place < 0)
	}
	switch r.Status {
	case wire.Late:
		// The reply has corrected the clock. If the way to the server was slow, more time helps.
		t.Budget = min(2*t.Budget, LongestAttempt)
		return Step{}
	case wire.Granted, wire.Waiting:
		t.tries = 0
		if t.state == held && t.WaitErr == nil && t.Refused == nil {
			return Step{Do: Take}
		}
		return Step{}
	}
	t.Clean = true
	return Step{Do: Fail, Err: refusal}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// Retry says what the call of a ticket does about the failure of an acquire request: it waits out what will pass.
func (l *Lock) Retry(x *Input, t *Ticket, f *Failure) Step {
	passes := t.passes(f)
	if t.Over = passes && t.tryIsOver(x.Now); t.Over || !passes {
		return Step{Do: Fail, Err: f.Advice}
	}
	return l.pause(x, t, f)
}

// passes reports whether the call waits for an error to pass. A call with a place in the queue keeps it for as long as
// somebody may mend the server. A call without a place fails, and its caller learns why.
func (t *Ticket) passes(f *Failure) bool { return f.Passes || t.Arrival != 0 && f.Mendable }

// tryIsOver reports whether a call that does not wait for its turn has waited out errors for long enough.
func (t *Ticket) tryIsOver(now time.Time) bool { return t.Try && now.Sub(t.Begun) > TryTime }

// pause notes an error that the call waits out, and has it rest the longer the more there were.
func (l *Lock) pause(x *Input, t *Ticket, f *Failure) Step {
	l.note(x, t, f)
	t.tries++
	return Step{Do: Pause, Rest: x.Backoff(t.tries - 1)}
}

// note keeps the last error that a call has waited out. Where its own deadline has ended the request, the one before counts.
func (l *Lock) note(x *Input, t *Ticket, f *Failure) {
	if t.Deadline.IsZero() || x.Now.Before(t.Deadline) {
		l.Last = f.Advice
	}
}

// requestDone notes the end of an acquire request or a check that named a ticket by that text.
func (l *Lock) requestDone(x *Input, t *Ticket, text string, a Attempt, f *Failure) {
	if t.NoteDoubt(a, f) {
		if text != t.Text {
			l.releaseUnknown(x, text, a.Expires, t.Inherits)
		}
		l.ReplyLost(x) // It may have told of a grant to another ticket of this client.
	}
	l.undo(x, t, f.Err == nil)
}

// undo notes that a request of a ticket is no longer in flight, and whether it was answered.
func (l *Lock) undo(x *Input, t *Ticket, answered bool) {
	l.Answers.Over(answered, x.Now)
	if t.Done(answered) && t.state == ending {
		l.repeat(x, t)
	}
}

// queued says once that a ticket has its place, and how many tickets are behind it.
func (l *Lock) queued(x *Input, t *Ticket, behind int) {
	if t.state == waiting && !t.placed {
		t.placed = true
		x.Add(Effect{Do: Queued, Call: &t.Call, Place: t.Place, Count: behind})
	}
}

// Hear reports whether acquire requests of the ticket may queue, or none is needed any more. It subscribes otherwise, and
// the call is woken when that is confirmed.
func (l *Lock) Hear(x *Input, t *Ticket) bool {
	if !t.MayAsk() {
		return true // It is granted, or the client was closed.
	}
	t.to(x, idling)
	if l.Want() {
		x.Add(Effect{Do: Subscribe})
	}
	return l.Subscribed()
}

// Fail ends the wait of a ticket with an error.
func (l *Lock) Fail(t *Ticket, err error) { t.Refused = err }
