package waitqueue

import (
	"cmp"
	"errors"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/terms"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// askPool has those that were answered: a call takes one and gives it back.
var askPool = sync.Pool{New: func() any { return &ask{} }}

// askFloor is where an ask that can be light says the highest token seen.
const askFloor = 3

// An ask is a request for a hold, or for an event, under way.
type ask struct {
	conn.Attempt
	ticket  *ticket
	text    string
	args    []string
	room    [16]string          // where args are
	light   int                 // how many of args will do in the usual case; 0: all are needed
	moves   bool                // it is for a hold in transit
	bound   *terms.Bound        // nil if it has none
	hearing int                 // how often the channel was confirmed before it was sent
	ahead   []*outbox.Item[end] // go in the same round trip
	jobs    []conn.Job          // of these; the room is used again
}

// send sends one ask of a call and takes in the reply. Where the answer may be long in coming, all of that is
// done in the background, and send comes back early if the context ends: the ask stays in flight until it
// is answered, and then the end of its ticket is sent again (R1).
func (w *wait) send() answer {
	s := w.site
	c, n := s.client, s.node()
	ahead, err := w.endsAhead()
	if err != nil {
		return answer{err: err}
	}
	q := w.prepare(n)
	if q == nil {
		c.ends.Unclaim(n, ahead)
		return answer{} // A message was faster, or the ticket is ending.
	}
	q.takeAlong(ahead)
	c.stats.asks.Add(1)
	if w.ctx.Done() == nil || !n.Sluggish() {
		return s.replied(q, s.askFor(w.ctx, nil, q))
	}
	begun := false
	a, err := conn.InBackground(w.ctx, c.servers, func() (answer, error) {
		begun = true
		if w.ctx.Err() != nil {
			c.ends.Unclaim(n, ahead)
			s.unsent(w.ticket)
			return answer{}, w.ctx.Err()
		}
		a := s.replied(q, s.askFor(w.ctx, n, q))
		return a, a.err
	})
	if errors.Is(err, lease.ErrClosed) && !begun {
		c.ends.Unclaim(n, ahead)
		s.unsent(w.ticket)
	}
	a.err = err
	return a
}

// replied takes in the answer to an ask, which is of the kind of the site's protocol.
func (s *site) replied(q *ask, res rueidis.RedisResult) answer {
	if len(q.ahead) > 0 {
		s.endedAhead(q)
	}
	if s.proto.Broadcast {
		r, err := s.proto.DecodeEvent(s.proto.Ask, res)
		s.told(q, &r, err)
		return answer{Head: r.Head, err: err}
	}
	r, err := s.proto.Ask.Decode(res)
	r.Complete(q.ticket.lease(), 0)
	refused := cmp.Or(busyBy(&r), q.bound.FullBy(&r))
	s.taken(q, &r, err)
	return answer{r.Head(), r.Drained(), refused, err}
}

// prepare notes that an ask is under way and returns it, or nil if there is none to send.
func (w *wait) prepare(n *conn.Node) *ask {
	s, t := w.site, w.ticket
	c := s.client
	q := askPool.Get().(*ask)
	q.Attempt = n.Attempt(w.budget)
	s.mu.Lock()
	if !t.asksLocked() {
		s.mu.Unlock()
		askPool.Put(q)
		return nil
	}
	mode := q.beginLocked(t, w.mode)
	arrival, seen, since := t.arrival, s.generation, ""
	if q.bound = nil; w.mode == lua.Wait {
		q.bound = t.bound
	}
	if !t.unanswered.IsZero() {
		since = strconv.FormatInt(n.Clock.AtLeast(t.unanswered), 10)
	}
	s.mu.Unlock()

	place, head := strconv.FormatInt(arrival, 10), strconv.FormatInt(t.queue.terms.HeadStart(), 10)
	if q.light, q.moves = 0, w.from != nil; q.moves {
		q.args = append(q.room[:0], w.from.Ticket(), q.text, "0", w.from.Hex(), t.phase(), q.NotAfter, c.highest(), c.servers.Counted())
		return q
	}
	if light, _ := s.proto.Light(); light {
		q.args = append(q.room[:0], q.text, mode, q.NotAfter, "", place, head, c.servers.Counted(), t.phase())
		q.args = q.bound.Args(q.args)
		if q.bound == nil && arrival == 0 && t.queue.terms.HeadStart() == 0 && t.phase() == lua.PhaseHeld && w.budget == conn.AttemptTime {
			q.light = askFloor
			if c.floor.Load() > uint64(max(lua.SentBy(q.Latest), 0)) {
				q.light++
			}
		}
		if q.light != askFloor {
			q.args[askFloor] = c.highest()
		}
		return q
	}
	q.args = append(q.room[:0], q.text, mode, q.NotAfter, place, head, c.highest(), c.servers.Counted(), t.phase(), c.who)
	q.args = append(q.args, t.queue.extras...)
	q.args = q.bound.Args(q.args)
	if w.event != nil && w.event.Extras != nil {
		q.args = append(q.args, w.event.Extras(since, strconv.FormatInt(seen, 10))...)
	}
	return q
}

// beginLocked notes that the ask of a ticket is under way, and returns the mode for that: a client that does not hear only
// looks.
func (q *ask) beginLocked(t *ticket, mode string) string {
	s := t.site
	if mode == lua.Wait && !s.hearsLocked() {
		mode = lua.Look
	}
	t.to(asking)
	t.inflight++
	q.ticket, q.text, q.hearing = t, t.text, s.trust.confirmed
	return mode
}

// inFull is the arguments for all keys. Where a light ask stops short of the highest token seen, that is put in here.
func (q *ask) inFull(c *client) []string {
	if q.light == askFloor {
		q.args[askFloor] = c.highest()
	}
	return q.args
}

// unsent takes back an ask that was not sent.
func (s *site) unsent(t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settledLocked(t)
}

// taken takes in the answer to an ask, or its lack.
func (s *site) taken(q *ask, r *lua.Reply, err error) {
	t := q.ticket
	s.mu.Lock()
	s.landedLocked(t, q.text, q.Attempt, err)
	switch {
	case err != nil:
	case r.Status == lua.Waiting:
		if t.arrival == 0 {
			t.arrival = r.Arrival // Also if a message was faster: a grant may lapse, the place stays.
			s.node().Clock.Showed(r.Arrival + t.queue.terms.HeadStart())
		}
		if t.state == asking {
			t.place = int(r.Place)
			if r.Place < 0 {
				t.to(subscribing)
			} else {
				t.to(waiting)
			}
			t.tellQueuedLocked(r.Waiting)
		}
	case r.Status == lua.Granted:
		s.offerLocked(lua.Grant{Ticket: q.text, Token: r.Token, At: r.Now, Until: r.Until}, q.Sent, q.Slept, "")
	}
	s.mu.Unlock()
	if err == nil {
		s.absorb(q.Attempt, r, false)
		if r.Status == lua.Waiting {
			s.await(t, sight{r.Waiting, r.Now, r.Until, int64(r.Token)}, r.Place < 0)
		}
		askPool.Put(q) // Without an answer it may still be on its way.
	}
}
