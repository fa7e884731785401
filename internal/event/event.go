// Package event decides what one client does about the waiters for an event of one name: the opening of a latch, the tripping of a
// barrier, a change of who leads. Waiters have no place in a queue, and nothing is held. All their clients hear one channel, and
// one message is for all. An acquire request comes first, then the subscription, then a check: what happens in between is seen by
// one of them.
//
// Each event has a generation, a number that rises; a message or an answer about another one than the waiter's opens nothing
// (I10). A waiter at a barrier has a lease, which its client's checks prolong.
//
// Like package core, from which it has subscriptions and requests, it is pure: inputs come in, decisions go out.
package event

import (
	"errors"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/internal/times"
	"github.com/headwaiter/headwaiter/internal/wire"
)

const (
	// checkFirst is how long after an acquire request a client polls at the latest.
	checkFirst = 10 * time.Second
	// busyBackoffs is how often the pause doubles between the requests of a call for which there is no room yet: it lasts as
	// long as somebody else's action.
	busyBackoffs = 4
)

// An Event is all that a client knows of the event of one name. Its methods are called one at a time.
type Event struct {
	Config
	core.Name

	waiters    core.Calls[*Waiter]
	news       int64 // the newest generation that a message told of
	generation int64 // and the newest that anything told of
}

// Config is what does not change about an [Event].
type Config struct {
	Places bool // waiters have a place in Redis, which checks prolong and a release ends
	Latest bool // what waits for a generation goes on with any later one
}

// New returns what a client knows of an event that it has not used yet.
func New(x *core.Input, c Config, n core.Name) *Event {
	e := &Event{Config: c, Name: n}
	e.Rest(x, true, time.Time{})
	return e
}

// A Waiter is one call that waits for the event.
type Waiter struct {
	core.Call

	Generation int64         // for which it waits; 0 until a reply has told
	Takes      time.Duration // for how long Close waits for its release

	state state
	tries int // requests since there was room for it
}

// state is where a waiter is in its life. Only [Waiter.to] changes it.
type state uint8

const (
	idling      state = iota // registered, nothing sent
	asking                   // an acquire request is under way
	subscribing              // it waits, and its client is not subscribed yet
	waiting                  // it waits
	acting                   // the last at a barrier: it runs the action before the others pass
	passed                   // the event has come
	ending                   // its release is under way
	ended                    // forgotten
)

// leads has the states that come after each.
var leads = [ended + 1][]state{
	idling:      {asking, ending, ended},
	asking:      {subscribing, waiting, acting, passed, ending, ended},
	subscribing: {waiting, passed, ending},
	waiting:     {passed, ending},
	acting:      {passed, ending, ended},
	passed:      {ending, ended},
	ending:      {ended},
	ended:       nil,
}

// to takes the waiter to another state, and is all that does. A step that is not in the table is not taken, and counted.
func (w *Waiter) to(x *core.Input, next state) {
	switch {
	case w.state == next:
	case slices.Contains(leads[w.state], next):
		w.state = next
	default:
		x.Add(core.Effect{Do: core.Impossible, Call: &w.Call})
	}
}

// Waits reports whether checks name the waiter.
func (w *Waiter) Waits() bool {
	return (w.state == waiting || w.state == subscribing || w.state == acting) && w.Generation != 0
}

// Register makes a waiter known before anything is sent for it (R8).
func (e *Event) Register(w *Waiter) { e.waiters.Add(w) }

// Next says what the call of a waiter does next. ended: its context has ended.
func (e *Event) Next(w *Waiter, ended bool) core.Step {
	failure := errors.Join(w.WaitErr, w.Refused)
	switch {
	case w.state == passed:
		return core.Step{Do: core.Return}
	case failure != nil:
		return core.Step{Do: core.Fail, Err: failure}
	case ended:
		w.Over = true
		return core.Step{Do: core.TimeOut}
	case w.state == idling || w.state == asking:
		return core.Step{Do: core.Ask}
	case w.state == acting:
		return core.Step{Do: core.Act}
	}
	return core.Step{Do: core.Sleep}
}

// An Acquire is the request of a waiter.
type Acquire struct {
	Waiter        *Waiter
	Text          string
	Mode          string
	Generation    int64
	Seen          int64     // the newest generation that the client knows of
	LostSince     time.Time // when its first request was sent that was not answered; zero if all were
	confirmations int
}

// BeginAcquire begins a request, and reports whether there is one to send.
func (e *Event) BeginAcquire(x *core.Input, w *Waiter, sent time.Time) (q Acquire, ok bool) {
	if w.state != idling && w.state != asking {
		return q, false
	}
	q = Acquire{
		Waiter: w, Text: w.Text, Mode: wire.Wait, Generation: w.Generation, Seen: e.generation, LostSince: w.LostSince(),
		confirmations: e.Confirmations,
	}
	if !e.Subscribed() {
		q.Mode = wire.Look
	}
	w.to(x, asking)
	w.Clean = false
	w.Send()
	e.Sent(sent)
	return q, true
}

// Unsent takes back a request that was not sent.
func (e *Event) Unsent(x *core.Input, w *Waiter) { e.undo(x, w, false) }

// OnReply takes in the answer to the request of a waiter, or its lack, and says what its call does next if it has an answer.
// refusal is the error that a refusal means.
func (e *Event) OnReply(x *core.Input, q *Acquire, a core.Attempt, r *wire.EventReply, f *core.Failure, refusal error) core.Step {
	w := q.Waiter
	e.requestDone(x, w, a, f)
	if f.Err != nil {
		return core.Step{}
	}
	e.answered(x, w, r, q.confirmations)
	switch r.Status {
	case wire.Waiting, wire.Acting:
		e.await(x, w, r)
	case wire.Late:
		// The reply has corrected the clock. If it was the way to the server that took long, more time helps.
		w.Budget = min(2*w.Budget, core.LongestAttempt)
		return core.Step{}
	case wire.Busy, wire.Full: // Not now, but soon.
		w.tries++
		return core.Step{Do: core.Pause, Rest: x.Backoff(min(w.tries-1, busyBackoffs))}
	case wire.Granted:
	default:
		w.Clean = true
		return core.Step{Do: core.Fail, Err: refusal}
	}
	w.tries = 0
	return core.Step{}
}

// answered notes what the answer to a request says. confirmations is how often the subscription was confirmed before it was sent.
func (e *Event) answered(x *core.Input, w *Waiter, r *wire.EventReply, confirmations int) {
	e.generation = max(e.generation, r.Generation)
	if w.state != asking {
		return
	}
	switch r.Status {
	case wire.Granted:
		w.Place = r.Index
		e.pass(x, w)
	case wire.Waiting, wire.Acting:
		w.Place, w.Generation = r.Index, r.Awaited
		switch {
		case r.Status == wire.Acting:
			w.to(x, acting)
		case e.Subscribed():
			w.to(x, waiting)
			e.queued(x, w, r.Waiting)
		default:
			w.to(x, subscribing)
		}
		if w.Generation <= e.news || e.Subscribed() && e.Confirmations != confirmations {
			e.Poll(x) // The message may have overtaken the answer, or come before the subscription.
		}
	}
}

// await makes sure that the client is subscribed, and that a check is scheduled, after a waiter was told to wait.
func (e *Event) await(x *core.Input, w *Waiter, r *wire.EventReply) {
	e.Since = x.Now
	v := core.SightOf(r.Waiting, r.Now, r.Until, 0)
	e.sees(w, &v)
	e.CheckAt(x, times.Earlier(e.NextOfEvent(x, &v), x.Now.Add(checkFirst)))
	if e.Want() {
		x.Add(core.Effect{Do: core.Subscribe})
	}
}

// sees adds a waiter to what a check is for.
func (e *Event) sees(w *Waiter, v *core.Sight) {
	if e.Places && w.Waits() {
		v.Keep(w.Lease)
	}
}

// Retry says what the call of a waiter does about the failure of its request: it waits out what will pass.
func (e *Event) Retry(x *core.Input, w *Waiter, f *core.Failure) core.Step {
	if !f.Passes && (w.Generation == 0 || !f.Mendable) {
		return core.Step{Do: core.Fail, Err: f.Advice}
	}
	if w.Deadline.IsZero() || x.Now.Before(w.Deadline) {
		e.Last = f.Advice
	}
	w.tries++
	return core.Step{Do: core.Pause, Rest: x.Backoff(w.tries - 1)}
}

// queued tells once that a waiter has its place.
func (e *Event) queued(x *core.Input, w *Waiter, others int) {
	if w.state == waiting {
		x.Add(core.Effect{Do: core.Queued, Call: &w.Call, Place: w.Place, Count: others})
	}
}

// pass ends the wait for an event that has come. Who runs the action learns of it by its own answer.
func (e *Event) pass(x *core.Input, w *Waiter) {
	if w.state != acting {
		w.to(x, passed)
		x.Add(core.Effect{Do: core.Wake, Call: &w.Call})
	}
}

// refuse ends the wait with an error.
func (e *Event) refuse(x *core.Input, w *Waiter, err error) {
	w.Refused = err
	x.Add(core.Effect{Do: core.StopAction, Call: &w.Call})
	x.Add(core.Effect{Do: core.Wake, Call: &w.Call})
}

// MayAct reports whether the call of a waiter runs the action: its wait has not ended meanwhile.
func (w *Waiter) MayAct() bool { return w.Refused == nil && w.WaitErr == nil }

// Acted takes in that the event has come with the action of a call. place is what the scripts tell of its place.
func (e *Event) Acted(x *core.Input, w *Waiter, place int) {
	w.Place = place
	if w.state == acting { // Else the client was closed meanwhile, and its release is under way. The event has come all the same.
		w.to(x, passed)
	}
}

// Errors are the errors of the primitive that a wait for the event can end with.
type Errors struct {
	Broken    error // the event cannot come any more
	Forgotten error // the server does not know it
}

// OnMessage takes in the news of an event: it has come, or is broken. What a message does not say for certain a check finds out.
// broken is the error of a waiter whose event is broken.
func (e *Event) OnMessage(x *core.Input, generation int64, open bool, broken func(*Waiter) error) {
	e.news = max(e.news, generation)
	e.generation = max(e.generation, generation)
	unsure := false
	for _, w := range e.waiters.All() {
		switch {
		case !w.Waits():
		case e.Latest:
			if w.Generation <= generation {
				e.pass(x, w)
			}
		case w.Generation < generation:
			unsure = true
		case w.Generation > generation:
			// Old news.
		case open:
			e.pass(x, w)
		default:
			e.refuse(x, w, broken(w))
		}
	}
	if unsure {
		e.Poll(x)
	}
}

// requestDone notes that a request or a check is over that named a waiter.
func (e *Event) requestDone(x *core.Input, w *Waiter, a core.Attempt, f *core.Failure) {
	if w.NoteDoubt(a, f) {
		e.ReplyLost(x)
	}
	e.undo(x, w, f.Err == nil)
}

func (e *Event) undo(x *core.Input, w *Waiter, answered bool) {
	e.Answers.Over(answered, x.Now)
	if w.Done(answered) && w.state == ending {
		e.repeat(x, w)
	}
}

// Finish ends a waiter whose call is over. Where nothing of it can be in the server, it is just forgotten.
func (e *Event) Finish(x *core.Input, w *Waiter) {
	if w.state == passed || w.Quiet() && (w.Clean || w.state == idling) {
		e.forget(x, w)
		return
	}
	e.end(x, w)
}

// end begins the release of a waiter in the background.
func (e *Event) end(x *core.Input, w *Waiter) {
	if w.state == ending || w.state == ended {
		return
	}
	w.to(x, ending)
	if !e.Places || e.Copied {
		e.forget(x, w) // The server never has anything of it, or what it has may be the other copy's.
		return
	}
	w.Releasing()
	x.Add(core.Effect{Do: core.Send, Release: &core.Release{Call: &w.Call, Text: w.Text}, Flag: true})
}

func (e *Event) forget(x *core.Input, w *Waiter) {
	w.to(x, ended)
	e.Use(x)
	e.waiters.Remove(w)
	w.Owe(x, false)
	w.Acknowledge(x)
}

func (e *Event) repeat(x *core.Input, w *Waiter) {
	w.Repeat(x, &core.Release{Call: &w.Call, Text: w.Text})
}

// OnReleaseReply takes in the answer to the release of a waiter, or its lack. sent is when it was.
func (e *Event) OnReleaseReply(x *core.Input, w *Waiter, d *core.Release, sent time.Time, f *core.Failure) {
	if f.Err == nil {
		w.Acknowledge(x) // The release itself may have to be sent once more.
	} else {
		why := f.Advice
		if f.Mendable {
			if why = d.Retry(x, f); why == nil {
				return
			}
		}
		w.ReleaseErr, w.Unended = core.Unconfirmed(why), why
		e.forget(x, w)
		return
	}
	switch w.Released(x, d, sent) {
	case core.Again:
		e.repeat(x, w)
	case core.Forget:
		e.forget(x, w)
	}
}

// Close ends the waits, because the client closes.
func (e *Event) Close(x *core.Input) { e.endAll(x, reason.ErrClosed) }

// Abandon ends the waits and sends nothing for them: another client has them too, or has ended them. It reports whether there is a
// subscription to be ended.
func (e *Event) Abandon(x *core.Input, why error) (subscribed bool) {
	e.Name.Abandon()
	e.endAll(x, why)
	return e.Wanted
}

func (e *Event) endAll(x *core.Input, why error) {
	for _, w := range slices.Clone(e.waiters.All()) {
		w.WaitErr = why
		x.Add(core.Effect{Do: core.StopAction, Call: &w.Call})
		e.end(x, w)
		x.Add(core.Effect{Do: core.Wake, Call: &w.Call})
	}
}

// Outstanding calls a function with the waiters that the server may still know after a time.
func (e *Event) Outstanding(now time.Time, waiter func(*Waiter)) {
	for _, w := range e.waiters.All() {
		if w.Left(now).After(now) {
			waiter(w)
		}
	}
}

// Left is until when the server may have the place of a waiter; zero if it has none.
func (w *Waiter) Left(begun time.Time) (until time.Time) {
	if w.state == ended {
		return until
	}
	if w.Generation != 0 {
		until = begun.Add(w.Takes)
	}
	return times.Later(until, w.HeldUntil(begun))
}

// busy reports whether something is under way.
func (e *Event) busy() bool { return e.waiters.Len() > 0 || e.Checking }

func (e *Event) anyWaits() bool {
	for _, w := range e.waiters.All() {
		if w.Waits() {
			return true
		}
	}
	return false
}

// OnTimer does what is due.
func (e *Event) OnTimer(x *core.Input) {
	lost, check, _ := e.Due(x)
	if (lost || check) && e.anyWaits() { // Checks keep what nobody waits for any more.
		e.Poll(x)
	}
	e.Rest(x, e.busy(), time.Time{})
}

// Retire drops the name unless a call has come since. It reports whether it does, and whether there is a subscription to be ended.
func (e *Event) Retire(x *core.Input) (over, subscribed bool) { return e.RetireUnless(x, e.busy()) }

// OnSubscribed takes in that the subscription stands: see [core.Name.Heard].
func (e *Event) OnSubscribed(x *core.Input, channels int, nonce string) { e.Heard(x, channels, nonce) }

// OnUnsubscribed takes in that the subscription is gone. The caller makes it again.
func (e *Event) OnUnsubscribed(x *core.Input) {
	e.Drop()
	e.pollUnheard(x)
}

// pollUnheard has a client that is not subscribed poll soon.
func (e *Event) pollUnheard(x *core.Input) {
	if at := core.UnheardSoon(x); e.anyWaits() {
		e.CheckAt(x, at)
	}
}

// OnSubscribeRefused takes in that the server refuses the subscription for good. The waits go on by their own checks, and say why
// if they end.
func (e *Event) OnSubscribeRefused(err error) {
	for _, w := range e.waiters.All() {
		if w.Waits() {
			w.Deafness = err
		}
	}
}

// OnPing takes in a ping of the client to itself.
func (e *Event) OnPing(x *core.Input, nonce string) {
	if e.Verify(nonce) {
		e.Poll(x)
	}
}

// OnSuspected takes in that the server suspects the client: its subscription is broken, or it was stopped.
func (e *Event) OnSuspected(x *core.Input) {
	x.Add(core.Effect{Do: core.Suspected})
	if e.Distrust(x) {
		e.pollUnheard(x)
	}
	e.CheckAt(x, x.Now)
}
