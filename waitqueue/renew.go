package waitqueue

import (
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/keeper"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lua"
)

// The batch of renewals asks a hold what to renew, and gives it the reply.

// where is the node that has the hold, and what must acknowledge its renewals.
func (h *hold) where() (*conn.Node, conn.Acks) {
	return h.ticket.entry.node(), h.ticket.queue.terms.acks()
}

// observeHeader takes in what the answer to a renewal says of the name.
func (h *hold) observeHeader(n *conn.Node, a conn.Attempt, r *wire.Reply) {
	e := h.ticket.entry
	e.client.observeHeader(n, a, e.proto, e.name, r.Head(), r.Token)
}

// next returns the renewal to send in an attempt.
func (h *hold) next(a conn.Attempt) renewal {
	e := h.ticket.entry
	x := e.begin()
	r := e.renewal(e.lock.NextRenewal(&x.Input, &h.Hold, attempt(&a)))
	e.end(x)
	r.of = h
	return r
}

// renewal is a renewal as it is sent.
func (e *lockEntry) renewal(r core.Renewal) renewal {
	return renewal{Renewal: r, proto: e.proto, keys: &e.keys, slot: e.slot, who: e.client.who}
}

// renewed handles the reply to a renewal, or the failure of the request.
func (h *hold) renewed(r *renewal, a conn.Attempt, reply *wire.Reply, err error) {
	e, f := h.ticket.entry, failure(err)
	if err == nil && len(reply.States) > 0 && reply.States[0] == wire.StateDied {
		e.client.identity.Lost()
	}
	x := e.begin()
	e.lock.OnRenewed(&x.Input, &h.Hold, &r.Renewal, attempt(&a), reply, &f, h.leases())
	e.end(x)
}

// confirmOnce asks by a renewal whether a grant that is old, or came over a gap, still holds, and for what else its terms
// want.
func (w *wait) confirmOnce() error {
	t, e := w.ticket, w.entry
	c, n := e.client, e.node()
	a := n.Attempt(conn.AttemptTime)
	x := e.begin()
	durability := w.durability()
	wanted, ok := e.lock.BeginConfirm(&x.Input, &t.Ticket, a.Sent, durability.Mark != "")
	e.end(x)
	if !ok {
		return nil
	}
	request := e.renewal(wanted)

	c.stats.Renewals.Add(1)
	connection := n.Connection()
	v := &c.servers.Acknowledge(n, []conn.Job{request.job(a)}, durability)[0]
	n.Aged(e.slot, v, a.Sent, connection)
	r, err := v.Reply()
	if err == nil {
		c.observeHeader(n, a, e.proto, e.name, r.Head(), r.Token)
	}
	f := failure(err)
	x = e.begin()
	e.lock.OnConfirmReply(&x.Input, &t.Ticket, &wanted, attempt(&a), &r, &f, v.Short(), v.Left)
	e.end(x)
	return err
}

// What a grant needs, apart from the server's reply, before its call returns, where that is asked for: replicas that know
// of it, and a server that cannot have forgotten another's lease. Both are asked for after a renewal, on the connection
// that wrote it: a grant by message was written by somebody else's.

// durability is what else the grant of a ticket needs, apart from its node's reply; nothing by default.
func (w *wait) durability() conn.Durability {
	t, e := w.ticket, w.entry
	p := conn.Durability{Acks: t.queue.terms.acks()}
	if terms := &t.queue.terms; terms.SafeRestart && t.Acknowledgement() && !e.node().Sound(e.slot, terms.Lease) {
		p.Lease, p.Mark = terms.Lease, lua.MarkKey(e.client.opts.Prefix, e.slot, e.client.servers.Clustered())
	}
	return p
}

// giveWay gives back a hold whose call had to wait after a restart, if earlier callers have come back to the queue
// meanwhile: the lock then goes to the first arrival again. The call waits on, at its place.
func (w *wait) giveWay() {
	if w.from != nil {
		return // What was handed over has had its turn.
	}
	t, e := w.ticket, w.entry
	c, n := e.client, e.node()
	e.mu.Lock()
	arrival := t.Arrival
	e.mu.Unlock()
	if now, ok := n.Clock.Steady(); arrival == 0 && ok {
		arrival = now.Add(-time.Since(w.Begun)).UnixMicro() - t.queue.terms.headStart()
	}
	r, err := lua.Ahead.Decode(c.servers.RunFor(w.ctx, lua.Ahead.Script, e.keys.All(), strconv.FormatInt(arrival, 10)))
	if err != nil || r.Before == 0 {
		return
	}
	x := e.begin()
	d := e.lock.GiveWay(&x.Input, &t.Ticket, arrival)
	if d == nil {
		e.end(x)
		return
	}
	c.ends.count(1) // Close waits for it.
	defer c.ends.count(-1)
	e.end(x)

	// Its place first, then the release of what it held, so that it has that place when the queue is served.
	c.send(n, []request{asking{w, w.prepare()}, e.sending(d)})
}

// Want is what the first Wanted of a lease does. All leases of a hold have one wish.
func (sh *share) Want(*keeper.Keeper) {
	e := sh.hold.ticket.entry
	x := e.begin()
	e.lock.Wish(&x.Input, &sh.hold.Hold)
	e.end(x)
}
