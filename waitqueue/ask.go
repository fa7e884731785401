package waitqueue

import (
	"cmp"
	"errors"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
)

// askPool has the acquire requests that were answered: a call takes one and puts it back.
var askPool = sync.Pool{New: func() any { return &ask{} }}

// An ask is an acquire request as it is sent.
type ask struct {
	core.Acquire
	attempt conn.Attempt
	crowded bool // the request before was told to wait
	usual   bool // it has the usual time
	args    []string
	room    [16]string         // where args are
	fast    int                // how many of args will do in the usual case; 0: all are needed
	ahead   []*outItem[sender] // releases that go in the same round trip
	jobs    []conn.Job         // of these; the room is used again
}

// send sends one acquire request of a call, takes in the reply, and returns what the call does next. If the reply may be
// slow, all of that is done in the background, and send comes back early if the context ends: the request stays in flight
// until it is answered, and then the release of its ticket is sent again (R1).
func (w *wait) send(q *ask) (plan, error) {
	e := w.entry
	c, n := e.client, e.node()
	var ahead []*outItem[sender]
	if q != nil {
		w.fill(q)
	} else {
		var err error
		if ahead, err = w.endsAhead(); err != nil {
			return plan{}, err
		}
		if q = w.prepare(); q == nil {
			c.ends.unclaim(e.node(), ahead)
			return plan{}, nil // A message was faster, or the ticket is ending.
		}
	}
	q.takeAlong(ahead)
	c.stats.AcquireRequests.Add(1)
	if w.ctx.Done() == nil || !n.Sluggish() {
		return w.replied(q, w.askFor(nil, q), true)
	}
	begun := false
	do, err := conn.InBackground(w.ctx, c.servers, func() (plan, error) {
		begun = true
		if w.ctx.Err() != nil {
			c.ends.unclaim(e.node(), ahead)
			w.unsent()
			return plan{}, w.ctx.Err()
		}
		return w.replied(q, w.askFor(n, q), false)
	})
	if errors.Is(err, lease.ErrClosed) && !begun {
		c.ends.unclaim(e.node(), ahead)
		w.unsent()
	}
	return do, err
}

// unsent takes back an acquire request that was not sent.
func (w *wait) unsent() {
	x := w.entry.begin()
	w.entry.lock.Unsent(&x.Input, &w.ticket.Ticket)
	w.entry.end(x)
}

// replied takes in the reply to an acquire request, or its lack. waits: its call waits for the next step here, whatever
// happens.
func (w *wait) replied(q *ask, res rueidis.RedisResult, waits bool) (plan, error) {
	e := w.entry
	if len(q.ahead) > 0 {
		w.endedAhead(q)
	}
	r, err := e.proto.Ask.Decode(res)
	r.Complete(q.Ticket.Lease, 0)
	return w.onAcquireReply(q, &r, err, waits), err
}

// onAcquireReply takes in the decoded answer.
func (w *wait) onAcquireReply(q *ask, r *wire.Reply, err error, waits bool) (do plan) {
	e := w.entry
	var refusal error
	if err == nil {
		n := e.node()
		if r.Status == wire.Waiting && q.Arrival == 0 {
			n.Clock.Showed(r.Arrival + w.ticket.queue.terms.headStart())
		}
		e.client.observeHeader(n, q.attempt, e.proto, e.name, r.Head(), r.Token)
		refusal = w.refusal(q, r)
	}
	f, a := failure(err), attempt(&q.attempt)
	ended := waits && w.ctx.Err() != nil
	x := e.begin()
	do.Step = e.lock.OnAcquireReply(&x.Input, &q.Acquire, a, r, &f, refusal)
	if waits && err == nil && (do.Do == core.Go || do.Do == core.Take) {
		do = w.nextLocked(x, ended, false)
	}
	e.end(x)
	if err == nil {
		askPool.Put(q) // Without an answer it may still be on its way.
	}
	return do
}

// refusal is the error of a call whose acquire request was refused; nil if it was not.
func (w *wait) refusal(q *ask, r *wire.Reply) error {
	switch r.Status {
	case wire.Granted, wire.Waiting, wire.Late:
		return nil
	case wire.Busy, wire.Full:
		return cmp.Or(busyBy(r), bound(q.Limit).fullBy(r))
	}
	if w.from != nil {
		return unadopted(r.States)
	}
	return w.ticket.queue.verdict(r.Status, r.States)
}

// prepare begins an acquire request and returns it, or nil if there is none to send.
func (w *wait) prepare() *ask {
	x := w.entry.begin()
	q := w.beginAskLocked(x)
	w.entry.end(x)
	if q != nil {
		w.fill(q)
	}
	return q
}

// beginAskLocked begins an acquire request within an input, and returns it, or nil if there is none to send.
func (w *wait) beginAskLocked(x *turn) *ask {
	e, t := w.entry, w.ticket
	q := askPool.Get().(*ask)
	q.attempt = e.node().AttemptFrom(conn.Attempt{Sent: x.Now, Slept: x.slept}, t.Budget)
	var ok bool
	if q.Acquire, ok = e.lock.BeginAcquire(&x.Input, &t.Ticket, w.mode, q.attempt.Sent); !ok {
		askPool.Put(q)
		return nil
	}
	q.crowded, q.usual = e.lock.Waited, t.Budget == conn.AttemptTime
	return q
}

// fill says in an acquire request what its script gets.
func (w *wait) fill(q *ask) {
	e, t := w.entry, w.ticket
	c := e.client
	_, phase := t.queue.terms.first()
	q.fast = 0
	if q.Moves = w.from != nil; q.Moves {
		q.args = append(q.room[:0], w.from.Ticket(), q.Text, "0", w.from.Hex(), phase, q.attempt.NotAfter, c.highest(), c.servers.Counted())
		return
	}
	place, head, counted := strconv.FormatInt(q.Acquire.Arrival, 10), strconv.FormatInt(t.queue.terms.headStart(), 10), c.servers.Counted()
	q.args = append(q.room[:0], q.Text, bound(q.Limit).mode(q.Mode), q.attempt.NotAfter)
	several := e.proto.Several()
	if several {
		q.args = append(q.args, c.who, t.queue.extras[0], "")
		copy(q.args[len(q.args)-1:], t.queue.extras[1:])
	}
	floor := len(q.args)
	q.args = append(q.args, "", place, head, counted, phase)
	// A reader has the token of those who read already, unless it knows of a higher one.
	tells := t.Kind == wire.Read || c.minToken.Load() > uint64(max(lua.SentBy(q.attempt.Latest), 0))
	plain := q.Acquire.Arrival == 0 && t.queue.terms.headStart() == 0 && phase == wire.PhaseHeld && q.usual
	if plain && (!several || counted == "1" && q.Mode != wire.Drain) {
		if q.fast = floor; tells || q.crowded { // Empty, it says that the lock is not expected to be free.
			q.fast++
		}
	}
	if tells || q.fast == 0 {
		q.args[floor] = c.highest()
	}
}

// A request on the fast path has only the arguments that the usual case needs. Where one ticket holds at a time it has only
// the keys too, and in any other case the script changes nothing and answers UNUSUAL; then the request is sent again with all of
// them.

// askFor sends an acquire request, on the fast path if it can be. A request to a sluggish node, if given, is sent once
// and in full.
func (w *wait) askFor(sluggish *conn.Node, q *ask) rueidis.RedisResult {
	e, ctx := w.entry, w.ctx
	servers, ahead, script := e.client.servers, q.jobs, e.proto.Ask
	if q.Moves {
		script = lua.Move
	}
	if q.fast > 0 && sluggish == nil {
		// It ends no hold, so it has nothing to add to a history.
		if res := servers.RunBehind(ctx, ahead, script, e.keys.FastPath(), q.args[:q.fast]...); !lua.Fallback(res) {
			return res
		}
		ahead = nil
	}
	j := e.job(script, e.keys.All(), q.args)
	if sluggish != nil {
		return servers.Patiently(sluggish, ahead, j.Script, j.Keys, j.Args)
	}
	return servers.RunBehind(ctx, ahead, j.Script, j.Keys, j.Args...)
}

// An asking is an acquire request with the call that waits for its answer.
type asking struct {
	*wait
	*ask // nil: there is nothing to ask
}

func (q asking) job() (j conn.Job, ok bool) {
	if q.ask == nil {
		return conn.Job{}, false
	}
	q.entry.client.stats.AcquireRequests.Add(1)
	return q.entry.job(q.entry.proto.Ask, q.entry.keys.All(), q.args), true
}

func (q asking) answered(_ conn.Attempt, res rueidis.RedisResult) (a answer) {
	do, err := q.replied(q.ask, res, false)
	a.step, a.err = do.Step, err
	return a
}

func (q asking) unsent() {
	if q.ask != nil {
		q.wait.unsent()
	}
}
