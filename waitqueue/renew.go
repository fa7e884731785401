package waitqueue

import (
	"errors"
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/renewals"
	"github.com/headwaiter/headwaiter/internal/retry"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// A hold is renewed by internal/renewals, which asks it for what, and tells it the answer.

// Where is the node that has the hold, and what must acknowledge its renewals.
func (h *hold) Where() (*conn.Node, conn.Acks) {
	return h.ticket.site.node(), h.ticket.queue.terms.Acks()
}

// Saw takes in what the answer to a renewal says of the name.
func (h *hold) Saw(n *conn.Node, a conn.Attempt, r *lua.Reply) {
	s := h.ticket.site
	s.client.saw(n, a, s.proto, s.name, r.Head(), r.Token)
}

// Next is what the hold is to be renewed to by an attempt. Where that makes the lease shorter it counts as short from now
// on, as the server may make it so though no answer comes (I4).
func (h *hold) Next(a conn.Attempt) renewals.Renewal {
	s := h.ticket.site
	s.mu.Lock()
	defer s.mu.Unlock()
	r := renew(h.ticket, h, a.Sent)
	if u := h.until(a.Sent, r.Lasts, a.Slept, false); r.Idle && h.ticket.state == held && u.Deadline.Before(h.lasts.Deadline) {
		h.spans = r.Lasts
		h.extendLocked(u)
		s.client.servers.Timers.Before(&h.entry, u.Deadline)
	}
	r.Hold, r.Kept, r.Entries, r.Stays = h, h.kept, h.leases.Entries(), h.stays != nil
	if h.failures == 0 && h.wish != fulfilled { // It is not worth the hold: while a slot moves the key of the queue is too much.
		r.Wishes, r.Said = h.wish != noWish, h.wish == said
	}
	return r
}

// renew says for how long a ticket's hold, made or about to be made, is to last from now on.
func renew(t *ticket, h *hold, now time.Time) renewals.Renewal {
	lasts := t.queue.terms.Lease.Truncate(time.Millisecond)
	s := t.site
	r := renewals.Renewal{
		Proto: s.proto, Keys: &s.keys, Slot: s.slot, Ticket: t.text, Token: t.grant.token, Who: s.client.who, Lasts: lasts, Least: t.queue.terms.MinHold,
	}
	if h != nil && (!h.idle.IsZero() || now.Before(h.short)) { // So that a client that dies meanwhile does not keep the others waiting.
		r.Idle, r.Lasts = !h.idle.IsZero(), min(lasts, s.client.opts.GrantLease)
		h.kept = 0 // The key's life gets shorter too, or may.
	}
	if limit := t.grant.limit; !limit.IsZero() && limit.Sub(now) <= lasts {
		r.Final = true
		r.Lasts = max(limit.Sub(now).Truncate(time.Millisecond), lease.MinLease)
	}
	return r
}

// Renewed takes in the answer to a renewal. An error is retried until the deadline: only then, or by the
// server's word, is the hold lost.
func (h *hold) Renewed(r *renewals.Renewal, a conn.Attempt, reply *lua.Reply, err error) {
	s := h.ticket.site
	s.mu.Lock()
	defer s.mu.Unlock()
	h.renewing, h.kept = false, r.Kept
	if err != nil && !conn.Answered(err) && !conn.Unsent(err) {
		h.ghost = timers.Later(h.ghost, a.Expires.Add(r.Lasts))
		if !r.Final && r.Lasts < h.ticket.queue.terms.Lease.Truncate(time.Millisecond) { // Also of a hold that was taken up since.
			h.short = a.Expires
		}
	}
	if h.ticket.state != held || h.leases.Releasing() {
		return
	}
	if r.Stays && h.stays != nil && (err == nil && reply.Status == lua.Granted || errors.Is(err, lease.ErrReplicas)) {
		h.stays <- err
		h.stays = nil
	}
	switch {
	case err != nil:
		h.failures++
		for sh := range h.leases.Each {
			sh.Keeper.Failing(h.lasts.Deadline.Add(-h.spans), err)
		}
		h.due = time.Now().Add(min(retry.Backoff(h.failures-1), h.ticket.queue.terms.Lease/10))
		h.use.teller.Tell(observe.Observation{Moment: observe.RenewalFailed, Token: h.use.token, Margin: time.Until(h.lasts.Deadline), Lease: h.spans, Count: h.failures, Err: err})
	case reply.Status == lua.Late:
		h.due = time.Now()
	case reply.Status != lua.Granted:
		head := reply.Head()
		h.loseLocked(h.lossOfLocked(&head))
		return
	default:
		h.failures = 0
		margin := time.Until(h.lasts.Deadline)
		lasts := time.Duration(reply.Until-reply.Now) * time.Microsecond
		u := h.until(a.Sent, lasts, a.Slept, r.Final)
		if !h.extendLocked(u) {
			h.loseLocked(lease.ErrExpired)
			return
		}
		h.use.teller.Tell(observe.Observation{Moment: observe.Renewed, Token: h.use.token, Margin: margin, Lease: h.spans})
		h.spans = lasts
		h.due = renewals.At(s.client.born, a.Sent, r.Lasts)
		if h.hurried.After(a.Sent) {
			h.due = time.Now()
		} else {
			h.ticket.doubted = false // Whoever said that it was released by force was wrong.
			if r.Final {
				h.due = time.Time{}
			}
		}
		h.wishedLocked(r, reply.Has(lua.Wanted))
		h.shortenLocked()
		if r.Entries != h.leases.Entries() && !r.Final {
			h.due = timers.Earlier(h.due, time.Now().Add(entriesPause)) // It has changed since this was sent.
		}
	}
	next := timers.First(h.due, h.attendLocked(time.Now(), h.tellLongLocked(h.use.since, h.restsLocked(time.Now(), h.endsLocked()))))
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
	wanted, proof := renew(t, nil, a.Sent), s.proof(t)
	wanted.Stays = t.staysLocked() && proof.Mark == "" // Else the call may not return for a lease.
	s.mu.Unlock()

	c.stats.Renewals.Add(1)
	connection := n.Connection()
	v := &c.servers.Vouch(n, []conn.Job{wanted.Job(a)}, proof)[0]
	n.Aged(s.slot, v, a.Sent, connection)
	r, err := v.Reply()
	if err != nil {
		s.mu.Lock()
		if wanted.Stays && !conn.Answered(err) && !conn.Unsent(err) {
			t.ghost = timers.Later(t.ghost, a.Expires)
		}
		if !t.passesLocked(err) {
			t.refused = conn.Advise(err)
		}
		s.mu.Unlock()
		return r, err
	}
	c.saw(n, a, s.proto, s.name, r.Head(), r.Token)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case t.state != confirming:
	case r.Status == lua.Granted:
		t.grant.from, t.grant.slept, t.grant.confirmed, t.grant.final = a.Sent, a.Slept, true, wanted.Final
		t.grant.lasts = time.Duration(r.Until-r.Now) * time.Microsecond
		switch {
		case v.Short() != nil:
			t.refused = v.Short()
		case v.Left > 0:
			t.believed = time.Now().Add(v.Left)
		default:
			if t.grant.vouched = true; wanted.Stays == t.staysLocked() {
				t.to(held) // Else the server is old enough now, and is told by another one.
			}
		}
	case r.Status == lua.Refused:
		t.ranOutLocked(t.arrival == 0) // Without a place it would ask again and again: nobody makes it wait.
	}
	return r, nil
}

// What a grant must have beside the word of the server before its call returns, where that is asked for:
// replicas that know of it, and a server that cannot have forgotten another's lease. Both are asked for behind a
// renewal, on the connection that wrote it: a grant by message was written by somebody else's.

// proof is what the grant of a ticket needs beside the word of its node; nothing by default.
func (s *site) proof(t *ticket) conn.Proof {
	p := conn.Proof{Acks: t.queue.terms.Acks()}
	if terms := &t.queue.terms; terms.SafeRestart && !t.grant.vouched && !s.node().Sound(s.slot, terms.Lease) {
		p.Lease, p.Mark = terms.Lease, lua.MarkKey(s.client.opts.Prefix, s.slot, s.client.servers.Clustered())
	}
	return p
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
		arrival = now.Add(-time.Since(w.begun)).UnixMicro() - t.queue.terms.HeadStart()
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
	c.ends.Count(1) // Close waits for it.
	defer c.ends.Count(-1)
	s.mu.Unlock()

	// Its place first, then the end of what it held, so that it has that place when the queue is served.
	c.send(n, []*ask{w.prepare(n)}, []*end{d})
}

// A holder may want to know that somebody waits for what it has. Its renewals then say so: where somebody waits, they are
// told; else they leave a mark, by which the script that queues the first ticket sends one message to the client. A
// message that is lost is made up for by the next renewal, which does not find the mark any more. A client without
// subscriptions hears of no message: there the hold is renewed more often, and each renewal looks. Without the wish nothing
// is sent, and nothing is stored.

// wish is how far that of a hold has come.
type wish uint8

const (
	noWish    wish = iota
	unsaid         // the server is to be told of it by the next renewal
	said           // it has been, and nobody had queued since
	fulfilled      // somebody waits, and the holder knows
)

// unsaidPause is how long a hold waits at the most before it says again what the server has forgotten, or was not told
// because the renewal before went wrong, or will not be told by a message.
const unsaidPause = time.Second

// Want is what the first Wanted of a lease does. All leases of a hold have one wish.
func (sh *share) Want(*lease.Lease) {
	h := sh.hold
	s := h.ticket.site
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.ticket.state != held:
	case h.wish == fulfilled:
		h.awaitedLocked()
	case h.wish == noWish:
		h.wish = unsaid
		if s.trust.Want() {
			s.subscribeLocked() // The confirmation hurries.
		}
		if s.trust.Heard || s.trust.Polls {
			h.hurryLocked()
		}
	}
}

// fulfilLocked tells the holder, who wished so, that somebody waits.
func (h *hold) fulfilLocked() {
	if h.wish != unsaid && h.wish != said {
		return
	}
	h.wish = fulfilled
	h.awaitedLocked()
	h.use.teller.Tell(observe.Observation{Moment: observe.Wanted, Token: h.use.token, Held: h.held()})
}

func (h *hold) awaitedLocked() {
	for sh := range h.leases.Each {
		sh.Keeper.Awaited()
	}
	if h.awaited != nil {
		h.ticket.site.client.servers.Spawn(h.awaited)
	}
}

// wishedLocked takes in the answer to a renewal that said of the wish, or did not.
func (h *hold) wishedLocked(r *renewals.Renewal, wanted bool) {
	switch {
	case h.wish != unsaid && h.wish != said:
	case wanted:
		h.fulfilLocked()
	case r.Wishes && !h.ticket.site.trust.Polls:
		h.wish = said
	default:
		h.wish = unsaid
		// Also behind the last renewal before the longest hold.
		h.due = timers.First(h.due, time.Now().Add(min(h.ticket.queue.terms.Lease/10, unsaidPause)))
	}
}

// wantedLocked tells the holders that a message is about, which are those with a token up to that.
func (s *site) wantedLocked(token uint64) {
	for _, t := range s.tickets {
		if t.hold != nil && t.state == held && t.hold.token <= token {
			t.hold.fulfilLocked()
		}
	}
}

// wishAgainLocked lets the holds of the site look whether somebody waits, because messages may have been missed.
func (s *site) wishAgainLocked() {
	for _, t := range s.tickets {
		if h := t.hold; h != nil && t.state == held && (h.wish == unsaid || h.wish == said) {
			h.wish = unsaid
			h.hurryLocked()
		}
	}
}
