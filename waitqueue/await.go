package waitqueue

import (
	"context"
	"errors"
	"strconv"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/trust"
	"github.com/headwaiter/headwaiter/lua"
)

// An Event is what [Queue.Await] waits for: something that happens to all who wait at once, such as the
// opening of a latch.
type Event struct {
	// Extras is what an ask says beside what all asks do. since is a time of the server in µs before which no
	// earlier ask of the same call can have run, or empty if all of them were answered; seen is the highest
	// generation that this client knows of.
	Extras func(since, seen string) []string
	// Act is run by the call that the server tells to, before the event: its context ends with the call's, and
	// if the event cannot happen any more. Nil if there is nothing to run.
	Act func(ctx context.Context) error
	// Open is the script that tells the server how Act ended.
	Open *lua.Script
}

// Await waits for an event and returns what its scripts say of the call's place. If ctx ends first, it leaves
// and returns an error that wraps the context's and its cause.
func (q Queue) Await(ctx context.Context, e Event) (place int, err error) {
	if err := q.usable(ctx); err != nil {
		return 0, err
	}
	w, err := q.begin(ctx, lua.Wait)
	if err != nil {
		return 0, err
	}
	w.event = &e
	done := false
	defer func() {
		if !done { // The action panicked.
			w.site.finish(w.ticket, false)
			w.ended(errPanicked)
		}
	}()
	_, err = w.toTheEnd()
	done = true
	return w.ticket.place, err
}

// errPanicked is what an observer is told of a call whose action panicked.
var errPanicked = errors.New("its action panicked")

// act runs the action of a call, tells the server how it ended, and reports whether the event has come with that.
func (w *wait) act() (came bool, err error) {
	t, s := w.ticket, w.site
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	s.mu.Lock()
	if t.refused != nil || t.err != nil {
		s.mu.Unlock()
		return false, nil // The loop says how.
	}
	t.stop = cancel
	s.mu.Unlock()
	ok := false
	var failure error
	defer func() {
		if !ok && failure == nil {
			_, _ = w.open(false) // It panicked, and goes on to.
		}
	}()
	failure = w.event.Act(ctx)
	ok = failure == nil
	s.mu.Lock()
	t.stop = nil
	ended := t.refused != nil || t.err != nil // Before open: what is heard of that is this call's own doing.
	s.mu.Unlock()
	r, err := w.open(ok)
	switch {
	case ended:
		return false, nil // The loop says how.
	case failure != nil:
		w.clean = err == nil
		return false, failure
	case err != nil:
		return false, err
	case r.Status != lua.Granted:
		w.clean = true
		return false, t.verdict(r.Status, r.States)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.place = r.Index
	if t.state == acting { // Else the client was closed meanwhile, and its end is under way. The event has come all the same.
		t.to(passed)
	}
	return true, nil
}

// open tells the server how the action ended. The others wait for it, so it outlasts the call's context by
// some time.
func (w *wait) open(ok bool) (lua.EventReply, error) {
	t, result := w.ticket, "0"
	if ok {
		result = "1"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), t.queue.terms.Lease)
	defer cancel()
	_, r, err := t.queue.call(ctx, t.queue.keys.All(), w.event.Open, 0, conn.Mendable, func(a Attempt) []string {
		return []string{t.text, strconv.FormatInt(t.arrival, 10), result, a.NotAfter}
	})
	return t.queue.proto.Event(&r), err
}

// sightOf is what a reply to waiters for an event says of when to look again.
func sightOf(r *lua.EventReply) trust.Sight { return trust.SightOf(r.Waiting, r.Now, r.Until, 0) }

// told takes in the answer to an ask for an event, or its lack.
func (s *site) told(q *ask, r *lua.EventReply, err error) {
	t := q.ticket
	s.mu.Lock()
	s.landedLocked(t, q.text, q.Attempt, err)
	if err == nil {
		s.eventAnsweredLocked(t, r, q.hearing)
	}
	s.mu.Unlock()
	if err == nil {
		s.client.saw(s.node(), q.Attempt, s.proto, s.name, r.Head, 0)
		if r.Status == lua.Waiting || r.Status == lua.Acting {
			s.await(t, sightOf(r), true)
		}
		askPool.Put(q)
	}
}

// eventAnsweredLocked notes what the answer to an ask for an event says; hearing says how often the channel was
// confirmed before the ask was sent.
func (s *site) eventAnsweredLocked(t *ticket, r *lua.EventReply, hearing int) {
	s.generation = max(s.generation, r.Generation)
	if t.state != asking {
		return
	}
	switch r.Status {
	case lua.Granted:
		t.place = r.Index
		t.passLocked()
	case lua.Waiting, lua.Acting:
		t.place, t.arrival = r.Index, r.Awaited
		switch {
		case r.Status == lua.Acting:
			t.to(acting)
		case s.hearsLocked():
			t.to(waiting)
			t.tellQueuedLocked(r.Waiting)
		default:
			t.to(subscribing)
		}
		if t.arrival <= s.news || s.hearsLocked() && s.trust.Confirmed != hearing {
			s.startCheckLocked() // The message may have overtaken the answer, or come before the subscription.
		}
	}
}

// eventCheckedLocked takes in what a check says of a ticket that waits for an event, and of those that are like it.
func (s *site) eventCheckedLocked(t *ticket, state string, waiters int) {
	if s.proto.End != nil {
		t.seenLocked(state, waiters)
		return
	}
	arrival := t.arrival
	for _, alike := range s.tickets {
		if alike.arrival == arrival {
			alike.seenLocked(state, waiters)
		}
	}
}

func (t *ticket) seenLocked(state string, waiters int) {
	if !t.waits() {
		return
	}
	switch state {
	case lua.StateGranted:
		t.passLocked()
	case lua.StateBroken:
		t.refuseLocked(t.verdict(lua.Broken, nil))
	case lua.StateForgotten:
		t.refuseLocked(t.verdict(lua.Refused, []string{state}))
	default:
		if t.state == subscribing {
			t.to(waiting)
			t.tellQueuedLocked(waiters)
		}
	}
}

// eventLocked takes in the news of an event. What a message does not say for certain a check finds out.
func (s *site) eventLocked(m lua.Message) {
	s.news = max(s.news, m.Generation)
	s.generation = max(s.generation, m.Generation)
	unsure := false
	for _, t := range s.tickets {
		switch {
		case !t.waits():
		case s.proto.Latest:
			if t.arrival <= m.Generation {
				t.passLocked()
			}
		case t.arrival < m.Generation:
			unsure = true
		case t.arrival > m.Generation:
			// Old news.
		case m.Kind == lua.MessageOpen:
			t.passLocked()
		default:
			t.refuseLocked(t.verdict(lua.Broken, nil))
		}
	}
	if unsure {
		s.startCheckLocked()
	}
}
