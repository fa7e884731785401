package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/times"
)

// What a client knows about the requests of one call, whatever it waits for: which are in flight, which may still run, and
// whether its release is over (R1).

const (
	// releaseTime is how long a release that is not answered is repeated at the least; it is repeated until the lease is
	// over. What a ticket is granted that stays queued then is given back (R8).
	releaseTime = time.Minute
	// AnswerTime is how long an answer may take.
	AnswerTime = 2 * time.Second
)

// ErrNoAnswer is why a release was given up that nobody has answered.
var ErrNoAnswer = errors.New("no answer from Redis until the lease was over")

// Unconfirmed is the error of a release that was not confirmed.
func Unconfirmed(why error) error { return fmt.Errorf("%w: %w", reason.ErrUnconfirmed, why) }

var errUnanswered = Unconfirmed(ErrNoAnswer)

// Send notes that an acquire request or a check is sent that names the call.
func (c *Call) Send() { c.inflight++ }

// NoteDoubt notes that such a request may still run, if it was lost, and reports that.
func (c *Call) NoteDoubt(a Attempt, f *Failure) bool {
	if !f.InDoubt() {
		return false
	}
	if c.unanswered.IsZero() {
		c.unanswered = a.Sent
	}
	c.inDoubt = times.Later(c.inDoubt, a.Expires)
	return true
}

// Done notes that one request less is in flight, and whether it was answered. It reports whether a release that was sent
// meanwhile is to be sent again now.
func (c *Call) Done(answered bool) (releaseAgain bool) {
	c.answered = c.answered || answered
	c.inflight--
	return c.inflight == 0 && c.releaseAgain
}

// Quiet reports whether all that was sent is answered: then what the answers say is all that the server has.
func (c *Call) Quiet() bool { return c.inflight == 0 && c.inDoubt.IsZero() }

// LostSince is when the first request was sent that was not answered; zero if all were.
func (c *Call) LostSince() time.Time { return c.unanswered }

// Unanswered reports whether the server has answered nothing that the call has asked for.
func (c *Call) Unanswered() bool { return !c.answered }

// Acknowledged reports whether the server has answered its release, or that was given up.
func (c *Call) Acknowledged() bool { return c.acknowledged }

// Acknowledge lets those go on who wait for the answer to the release.
func (c *Call) Acknowledge(x *Input) {
	if !c.acknowledged {
		c.acknowledged = true
		x.do(Acknowledge, c)
	}
}

// Owe has Close wait for the release of the call, or not any more, as it is over or is going to be repeated.
func (c *Call) Owe(x *Input, owed bool) {
	if c.owed != owed {
		c.owed = owed
		x.Add(Effect{Do: Owe, Call: c, Flag: !owed})
	}
}

// Releasing notes that its release is about to be sent: it is sent again after what is in flight now.
func (c *Call) Releasing() { c.releaseAgain = c.releaseAgain || c.inflight > 0 }

// A Release is the last request of a call, on its way.
type Release struct {
	Owner any // what the caller keeps of it

	Call    *Call   // nil if it is not known any more: a grant that is given back
	Ticket  *Ticket // nil if it is not known, or waits for an event
	Text    string
	Token   uint64        // only if it holds with this token, or with one that has led to it; 0 for any
	Rests   bool          // the name is to stay taken for as long as the server was told
	How     string        // how the hold ended, for the next one; empty if it was released
	Moves   bool          // the hold goes to another process, and not to the next in the queue
	Crowded bool          // the last acquire request for the name was told to wait when the release began
	Held    time.Duration // for how long the hold was held, of one that nobody waits for
	Tries   int           // how often it was sent before

	repeat  bool      // it is sent once more, which the call waits for
	unsure  bool      // an attempt had no answer: it may have done it
	stuck   bool      // the server refuses it until somebody mends the server
	until   time.Time // when repeating is given up
	held    time.Time // latest time at which Redis can still hold the grant, of an unknown ticket
	unended error     // why it was given up, of an unknown ticket
	index   int       // among those that nobody waits for
}

// Note is what the grant to the next is to carry.
func (d *Release) Note() string {
	if d.Ticket == nil {
		return ""
	}
	return d.Ticket.Note
}

// Fate is what becomes of a call whose release was answered.
type Fate uint8

const (
	Keep   Fate = iota // something is in flight for it still
	Again              // the release is to be sent again: see [Call.Repeat]
	Forget             // it is over
)

// Released takes in that a release was answered which was sent at a time, and says what becomes of the call.
func (c *Call) Released(x *Input, d *Release, sent time.Time) Fate {
	if d.repeat {
		c.repeats--
	}
	switch {
	case c.inflight > 0:
		c.releaseAgain = true
		c.Owe(x, true)
		return Keep
	case sent.Before(c.inDoubt):
		return Again // A lost request could still run when this was sent, and so undo it: once more, when it can run no more.
	case c.repeats == 0:
		return Forget
	}
	return Keep
}

// Repeat sends a release of the call once more when what was in flight for it cannot run any more.
func (c *Call) Repeat(x *Input, d *Release) {
	c.releaseAgain = false
	c.repeats++
	d.repeat = true
	x.Add(Effect{Do: SendLater, Release: d, At: c.inDoubt})
	c.Owe(x, false)
}

// Retry sends a release again that was not answered, for as long as that can help. Else it returns why it is given up.
func (d *Release) Retry(x *Input, f *Failure) error {
	d.unsure = d.unsure || f.InDoubt()
	d.Tries++
	if d.until.IsZero() {
		d.until = times.Later(x.Now.Add(releaseTime), d.held)
		if d.Call != nil {
			d.until = x.Now.Add(max(releaseTime, d.Call.Lease+AnswerTime))
		}
	}
	switch {
	case !x.Now.After(d.until):
		x.Add(Effect{Do: SendLater, Release: d, At: x.Now.Add(x.Backoff(d.Tries - 1))})
		return nil
	case !f.Answered:
		return ErrNoAnswer
	}
	return f.Advice
}
