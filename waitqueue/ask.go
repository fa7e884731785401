package waitqueue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/terms"
	"github.com/headwaiter/headwaiter/internal/trust"
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
	bound   terms.Bound         // 0 if it has none
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
		c.ends.Unclaim(s.node(), ahead)
		return answer{} // A message was faster, or the ticket is ending.
	}
	q.takeAlong(ahead)
	c.stats.Asks.Add(1)
	if w.ctx.Done() == nil || !n.Sluggish() {
		return s.replied(q, s.askFor(w.ctx, nil, q))
	}
	begun := false
	a, err := conn.InBackground(w.ctx, c.servers, func() (answer, error) {
		begun = true
		if w.ctx.Err() != nil {
			c.ends.Unclaim(s.node(), ahead)
			s.unsent(w.ticket)
			return answer{}, w.ctx.Err()
		}
		a := s.replied(q, s.askFor(w.ctx, n, q))
		return a, a.err
	})
	if errors.Is(err, lease.ErrClosed) && !begun {
		c.ends.Unclaim(s.node(), ahead)
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
	refused := cmp.Or(terms.BusyBy(&r), q.bound.FullBy(&r))
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
	if q.bound = 0; w.mode == lua.Wait {
		q.bound = t.bound
	}
	if w.event != nil && !t.unanswered.IsZero() {
		earliest := n.Clock.AtLeast(t.unanswered)
		if since = strconv.FormatInt(earliest, 10); earliest == 0 {
			q.NotAfter = "0" // Of a node that has not answered yet it is first asked what time it is.
		}
	}
	s.mu.Unlock()

	mode = q.bound.Mode(mode)
	place, head := strconv.FormatInt(arrival, 10), strconv.FormatInt(t.queue.terms.HeadStart(), 10)
	if q.light, q.moves = 0, w.from != nil; q.moves {
		q.args = append(q.room[:0], w.from.Ticket(), q.text, "0", w.from.Hex(), t.phase(), q.NotAfter, c.highest(), c.servers.Counted())
		return q
	}
	if light, _ := s.proto.Light(); light {
		q.args = append(q.room[:0], q.text, mode, q.NotAfter, "", place, head, c.servers.Counted(), t.phase())
		tells := c.floor.Load() > uint64(max(lua.SentBy(q.Latest), 0))
		if arrival == 0 && t.queue.terms.HeadStart() == 0 && t.phase() == lua.PhaseHeld && w.budget == conn.AttemptTime {
			if q.light = askFloor; tells || s.waited.Load() { // Empty, it says that the lock is not expected to be free.
				q.light++
			}
		}
		if tells || q.light == 0 {
			q.args[askFloor] = c.highest()
		}
		return q
	}
	q.args = append(q.room[:0], q.text, mode, q.NotAfter, place, head, c.highest(), c.servers.Counted(), t.phase(), c.who)
	q.args = append(q.args, t.queue.extras...)
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
	s.answers.Sent(q.Sent)
	q.ticket, q.text, q.hearing = t, t.text, s.trust.Confirmed
	return mode
}

// unsent takes back an ask that was not sent.
func (s *site) unsent(t *ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settledLocked(t, false)
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
			if t.place = int(r.Place); r.Place < 0 {
				t.place = r.Waiting + 1 // It would be the last.
				t.to(subscribing)
			} else {
				t.to(waiting)
			}
			t.tellQueuedLocked(r.Waiting)
		}
	case r.Status == lua.Granted:
		t.inherits = q.moves && slices.Contains(r.States, lua.StateRests)
		s.deliverLocked(lua.Grant{Ticket: q.text, Token: r.Token, At: r.Now, Until: r.Until}, q.Sent, q.Slept, "")
	}
	s.mu.Unlock()
	if err == nil {
		s.absorb(q.Attempt, r, false)
		s.waited.Store(r.Status == lua.Waiting)
		if r.Status == lua.Waiting {
			s.await(t, trust.SightOf(r.Waiting, r.Now, r.Until, r.Token), r.Place < 0)
		}
		askPool.Put(q) // Without an answer it may still be on its way.
	}
}

// A light request has only the keys and arguments that the usual case needs. In any other case the script answers UNUSUAL
// and has changed nothing; then it is sent all of them.

// askFor sends an ask, light if it can be. One to a sluggish node, if given, is sent once and with everything, whoever
// waits for it.
func (s *site) askFor(ctx context.Context, sluggish *conn.Node, q *ask) rueidis.RedisResult {
	servers, ahead, script := s.client.servers, q.jobs, s.proto.Ask
	if q.moves {
		script = lua.Move
	}
	if q.light > 0 && sluggish == nil {
		// It ends no hold, so it has nothing to add to a history.
		if res := servers.RunBehind(ctx, ahead, script, s.keys.Light(), q.args[:q.light]...); !lua.Unusual(res) {
			return res
		}
		ahead = nil
	}
	j := s.job(script, s.keys.All(), q.args)
	if sluggish != nil {
		return servers.Patiently(sluggish, ahead, j.Script, j.Keys, j.Args)
	}
	return servers.RunBehind(ctx, ahead, j.Script, j.Keys, j.Args...)
}

// job is a request as it is sent: where the name keeps a history, with that.
func (s *site) job(script *lua.Script, keys, args []string) conn.Job {
	return conn.Job{Script: script, Keys: keys, Args: args}.Logged(int(s.history.Load()), s.keys.History)
}

// endFor sends the end of a ticket, light if it can be.
func (s *site) endFor(ctx context.Context, d *end) rueidis.RedisResult {
	servers := s.client.servers
	if args := d.lightly(); args != nil {
		j := s.job(d.script(), s.keys.Light(), args)
		if res := servers.RunFor(ctx, j.Script, j.Keys, j.Args...); !lua.Unusual(res) {
			return res
		}
	}
	j := d.job()
	return servers.RunFor(ctx, j.Script, j.Keys, j.Args...)
}

// lightly is the arguments of a light end. There is one for the first end of a ticket that holds by the token of its
// grant; for any other lightly is nil. One that tells no floor is of a name whose last ask had not to wait: the script then
// expects that nobody does.
func (d *end) lightly() []string {
	h := d.ticket.hold
	if _, light := d.site.proto.Light(); !light || h == nil || d.heir != nil || d.token != 0 || d.rests || d.site.client.servers.Counted() != "1" {
		return nil
	}
	args, note := append(d.room[:0], d.text), d.note()
	if seen := d.site.client.floor.Load(); d.site.waited.Load() || seen > h.token || note != "" {
		args = append(args, strconv.FormatUint(max(seen, h.token)-h.token, 10))
	}
	if note != "" {
		args = append(args, "0", "1", note)
	}
	return args
}

// An answer is what the call behind an ask or an end learns of the reply; what it says of the name, the site has taken in.
type answer struct {
	lua.Head
	drained int64 // how many permits a drain has
	refused error // why a try failed, or that there was no room
	err     error
}

// sendFor is [client.send] for a call whose context may end: what it does not wait for goes on in the background, and the
// answers are its error. over is called when all is answered, or nothing was sent.
func (c *client) sendFor(ctx context.Context, n *conn.Node, asks []*ask, ends []*end, over func()) []answer {
	answers, err := conn.InBackground(ctx, c.servers, func() ([]answer, error) {
		defer over()
		return c.send(n, asks, ends), nil
	})
	if err == nil {
		return answers
	}
	if errors.Is(err, lease.ErrClosed) { // Nothing was sent.
		for _, q := range asks {
			if q != nil {
				q.ticket.site.unsent(q.ticket)
			}
		}
		over()
	}
	answers = make([]answer, len(asks)+len(ends))
	for i := range answers {
		answers[i].err = err
	}
	return answers
}

// send sends asks, and ends behind them, in one round trip to one node, and takes in the answers. It returns them in the
// order of the requests; for an ask that is nil, as there was nothing to ask, a reply that says nothing.
//
// What is sent alone, for a call whose context may end, goes by [wait.send] and [site.sendEnd]; what one script asks or
// ends for several names, by package multilock.
func (c *client) send(n *conn.Node, asks []*ask, ends []*end) []answer {
	jobs := make([]conn.Job, 0, len(asks)+len(ends))
	for _, q := range asks {
		if q != nil {
			s := q.ticket.site
			jobs = append(jobs, s.job(s.proto.Ask, s.keys.All(), q.args))
		}
	}
	c.stats.Asks.Add(uint64(len(jobs)))
	c.stats.Ends.Add(uint64(len(ends)))
	for _, d := range ends {
		jobs = append(jobs, d.job())
	}
	sent := conn.Sending()
	results := c.servers.RunAll(n, jobs)
	answers := make([]answer, len(asks)+len(ends))
	for i, q := range asks {
		if q != nil {
			answers[i] = q.ticket.site.replied(q, results[0])
			results = results[1:]
		}
	}
	for i, d := range ends {
		sent.Note = d.note()
		answers[len(asks)+i] = d.site.ended(d, sent, results[i])
	}
	return answers
}
