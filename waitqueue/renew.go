package waitqueue

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// renewals collects the holds that are due at one moment and renews them in one round trip a node. They have a
// connection of their own, so that they never queue behind asks.
type renewals struct {
	client *client

	mu  sync.Mutex // guards due; nothing is called under it
	due []*hold
}

// renewBatch is how many renewals go in one round trip at the most.
const renewBatch = 512

// addLocked puts a hold into the next batch.
func (r *renewals) addLocked(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = append(r.due, h)
}

// flush sends what is due, in the background: a server that does not answer holds up nobody's clock, nor what is
// at another.
func (r *renewals) flush() {
	r.mu.Lock()
	due := r.due
	r.due = nil
	r.mu.Unlock()
	if len(due) == 0 {
		return
	}
	type alike struct {
		node *conn.Node
		acks conn.Acks
	}
	groups := make(map[alike][]*hold, 1)
	for _, h := range due {
		as := alike{h.ticket.site.node(), h.ticket.queue.terms.acks()}
		groups[as] = append(groups[as], h)
	}
	for as, due := range groups {
		for batch := range slices.Chunk(due, renewBatch) {
			r.client.servers.Spawn(func() { r.client.renew(as.node, batch, as.acks) })
		}
	}
}

// A renewal is one request to let a hold last.
type renewal struct {
	hold  *hold
	lasts time.Duration
	final bool // to the maximum hold: there is none after it
	idle  bool // nobody uses the hold now
	still bool // nothing but the end of the lease changes
	wish  wish // what it says of the wish of the holder to be told when somebody waits

	entries string // what the server is to be told of how often the hold was entered
}

// renew renews a batch: those that can go together in few scripts, and what is left of them one by one. A renewal that
// too few replicas acknowledge counts as one that was not answered: a hold never lasts longer than the replicas know.
func (c *client) renew(n *conn.Node, batch []*hold, acks conn.Acks) {
	a := n.Attempt(conn.AttemptTime)
	asked := make([]renewal, len(batch))
	for i, h := range batch {
		asked[i] = h.next(a)
	}
	c.stats.renewals.Add(uint64(len(batch)))
	alone := asked
	if acks == (conn.Acks{}) {
		alone = c.renewTogether(n, a, asked)
	}
	if len(alone) > 0 {
		c.renewEach(n, a, alone, acks)
	}
}

// renewEach renews with a script for each hold.
func (c *client) renewEach(n *conn.Node, a conn.Attempt, asked []renewal, acks conn.Acks) {
	jobs := make([]conn.Job, len(asked))
	for i, r := range asked {
		jobs[i] = r.hold.ticket.site.renewJob(r.hold.ticket, r.hold.token, r, a)
	}
	found := c.servers.Vouch(n, jobs, conn.Proof{Acks: acks})
	for i := range found {
		v := &found[i]
		r, err := v.Reply()
		if err == nil {
			s := asked[i].hold.ticket.site
			c.saw(n, a, s.proto, s.name, r.Head(), r.Token)
			if r.Status == lua.Granted {
				err = v.Short()
			}
		}
		asked[i].answered(a, &r, err)
	}
}

// next is what the hold is to be renewed to by an attempt. Where that makes the lease shorter it counts as short from now
// on, as the server may make it so though no answer comes (I4).
func (h *hold) next(a conn.Attempt) renewal {
	s := h.ticket.site
	s.mu.Lock()
	defer s.mu.Unlock()
	r := renew(h.ticket, h, a.Sent)
	if u := h.until(a.Sent, r.lasts, a.Slept, false); r.idle && u.Deadline.Before(h.lasts.Deadline) {
		h.spans = r.lasts
		h.extendLocked(u)
		s.client.servers.Timers.Before(&h.entry, u.Deadline)
	}
	r.entries = h.entries()
	if h.failures == 0 && h.wish != fulfilled { // It is not worth the hold: while a slot moves the key of the queue is too much.
		r.wish = h.wish
	}
	return r
}

// renew says for how long a ticket's hold, made or about to be made, is to last from now on.
func renew(t *ticket, h *hold, now time.Time) renewal {
	lasts := t.queue.terms.Lease.Truncate(time.Millisecond)
	r := renewal{hold: h, lasts: lasts}
	if h != nil && (!h.idle.IsZero() || now.Before(h.short)) { // So that a client that dies meanwhile does not keep the others waiting.
		r.idle, r.lasts = !h.idle.IsZero(), min(lasts, t.site.client.opts.GrantLease)
	}
	if limit := t.grant.limit; !limit.IsZero() && limit.Sub(now) <= lasts {
		r.final = true
		r.lasts = max(limit.Sub(now).Truncate(time.Millisecond), lease.MinLease)
	}
	return r
}

// phase is what the end of the hold without a release will say of the client.
func (r renewal) phase() string {
	if r.idle && r.wish != noWish {
		return lua.PhaseIdle
	}
	if r.final {
		return lua.PhaseFinal
	}
	return lua.PhaseHeld
}

func (s *site) renewJob(t *ticket, token uint64, r renewal, a conn.Attempt) conn.Job {
	args := []string{
		t.text, strconv.FormatUint(token, 10), strconv.FormatInt(r.lasts.Milliseconds(), 10),
		r.phase(),
	}
	if s.proto.Several() {
		args = append(args, s.client.who)
	}
	args = append(args, a.NotAfter)
	if r.entries != "" {
		args = append(args, r.entries)
	}
	keys := s.keys.Renewed()
	if r.wish != noWish {
		keys = s.keys.Wanting()
	}
	return conn.Job{Script: s.proto.Renew, Keys: keys, Args: args}
}

// answered takes in the answer to a renewal. An error is retried until the deadline: only then, or by the
// server's word, is the hold lost.
func (r renewal) answered(a conn.Attempt, reply *lua.Reply, err error) {
	h := r.hold
	s := h.ticket.site
	s.mu.Lock()
	defer s.mu.Unlock()
	h.renewing = false
	if err != nil && !conn.Answered(err) && !conn.Unsent(err) {
		h.ghost = timers.Later(h.ghost, a.Expires.Add(r.lasts))
		if r.idle {
			h.short = a.Expires
		}
	}
	if h.ticket.state != held || h.releasingLocked() {
		return
	}
	switch {
	case err != nil:
		h.failures++
		for sh := range h.sharesLocked {
			sh.keeper.Failing(h.lasts.Deadline.Add(-h.spans), err)
		}
		h.due = time.Now().Add(min(retry.Backoff(h.failures-1), h.ticket.queue.terms.Lease/10))
		h.use.teller.tell(observe.Observation{Moment: observe.RenewalFailed, Token: h.use.token, Margin: time.Until(h.lasts.Deadline), Lease: h.spans, Err: err})
	case reply.Status == lua.Late:
		h.due = time.Now()
	case reply.Status != lua.Granted:
		head := reply.Head()
		h.loseLocked(h.lossOf(&head))
		return
	default:
		h.failures = 0
		margin := time.Until(h.lasts.Deadline)
		lasts := time.Duration(reply.Until-reply.Now) * time.Microsecond
		u := h.until(a.Sent, lasts, a.Slept, r.final)
		if !h.extendLocked(u) {
			h.loseLocked(lease.ErrExpired)
			return
		}
		h.use.teller.tell(observe.Observation{Moment: observe.Renewed, Token: h.use.token, Margin: margin, Lease: h.spans})
		h.spans = lasts
		h.due = s.client.renewAt(a.Sent, r.lasts)
		hurried := h.hurried.After(a.Sent)
		switch {
		case hurried:
			h.due = time.Now()
		case r.final:
			h.due = time.Time{}
		}
		h.wishedLocked(r, reply.Has(lua.Wanted))
		h.shortenLocked()
		if r.entries != h.entries() && !r.final {
			h.due = timers.Earlier(h.due, time.Now().Add(entriesPause)) // It has changed since this was sent.
		}
		if !hurried {
			h.ticket.doubted = false // Whoever said that it was released by force was wrong.
		}
	}
	next := h.attendLocked(time.Now(), h.tellLongLocked(h.use.since, h.restsLocked(time.Now(), h.endsLocked())))
	if !h.due.IsZero() {
		next = timers.Earlier(next, h.due)
	}
	s.client.servers.Timers.Remove(&h.entry)
	s.client.servers.Timers.Before(&h.entry, next)
}

// confirm asks by a renewal whether a grant that is old, or came over a gap, still holds, and for what its terms
// want beside that.
func (s *site) confirm(t *ticket) (lua.Reply, error) {
	c, n := s.client, s.node()
	s.mu.Lock()
	if t.state != confirming {
		s.mu.Unlock()
		return lua.Reply{}, nil
	}
	a := n.Attempt(conn.AttemptTime)
	wanted := renew(t, nil, a.Sent)
	j := s.renewJob(t, t.grant.token, wanted, a)
	s.mu.Unlock()

	c.stats.renewals.Add(1)
	connection := n.Connection()
	v := &c.servers.Vouch(n, []conn.Job{j}, s.proof(t.queue.terms))[0]
	n.Aged(s.slot, v, a.Sent, connection)
	r, err := v.Reply()
	if err != nil {
		if !conn.Transient(err) {
			s.mu.Lock()
			t.refused = conn.Advise(err)
			s.mu.Unlock()
		}
		return r, err
	}
	c.saw(n, a, s.proto, s.name, r.Head(), r.Token)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.state != confirming {
		return r, nil
	}
	switch r.Status {
	case lua.Granted:
		t.grant.from, t.grant.slept, t.grant.confirmed, t.grant.final = a.Sent, a.Slept, true, wanted.final
		t.grant.lasts = time.Duration(r.Until-r.Now) * time.Microsecond
		switch {
		case v.Short() != nil:
			t.refused = v.Short()
		case v.Left > 0:
			t.believed = time.Now().Add(v.Left)
		default:
			t.grant.vouched = true
			t.to(held)
		}
	case lua.Refused:
		t.ranOutLocked(t.arrival == 0) // Without a place it would ask again and again: nobody makes it wait.
	}
	return r, nil
}

// What a grant must have beside the word of the server before its call returns, where that is asked for:
// replicas that know of it, and a server that cannot have forgotten another's lease. Both are asked for behind a
// renewal, on the connection that wrote it: a grant by message was written by somebody else's.

// proof is what a hold of the site on these terms needs beside the word of its node; nothing by default.
func (s *site) proof(t Terms) conn.Proof {
	p := conn.Proof{Acks: t.acks()}
	if t.SafeRestart && !s.node().Sound(s.slot, t.Lease) {
		p.Lease, p.Mark = t.Lease, lua.MarkKey(s.client.opts.Prefix, s.slot, s.client.servers.Clustered())
	}
	return p
}

// acks are the part of the proof that renewals need too.
func (t *Terms) acks() conn.Acks {
	if t.Replicas == 0 && !t.OnDisk {
		return conn.Acks{}
	}
	return conn.Acks{Replicas: t.Replicas, Disk: t.OnDisk, Timeout: t.ReplicasTimeout}
}

// giveWay gives a hold back whose call had to wait behind a restart, if others that came before it have come back to the
// queue meanwhile: what is free then goes by the order of arrivals again. The call waits on, at its place.
func (w *wait) giveWay() {
	if w.from != nil {
		return // What was handed over has had its turn.
	}
	t, s := w.ticket, w.site
	c, n := s.client, s.node()
	s.mu.Lock()
	arrival := t.arrival
	s.mu.Unlock()
	if now, ok := n.Clock.Steady(); arrival == 0 && ok {
		arrival = now.Add(-time.Since(w.begun)).UnixMicro() - t.queue.headStart()
	}
	r, err := lua.Ahead.Decode(c.servers.RunFor(w.ctx, lua.Ahead.Script, s.keys.All(), strconv.FormatInt(arrival, 10)))
	s.mu.Lock()
	if err != nil || r.Before == 0 || arrival == 0 || t.state != held {
		s.mu.Unlock()
		return
	}
	d := s.newEndLocked(t.text, t.grant.token, time.Now())
	t.arrival = arrival
	t.lapsedLocked(idling)
	c.ends.owe() // Close waits for it.
	defer c.ends.done(1)
	s.mu.Unlock()

	// Its place first, then the end of what it held, so that it has that place when the queue is served.
	c.send(n, []*ask{w.prepare(n)}, []*end{d})
}
