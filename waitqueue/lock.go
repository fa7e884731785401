package waitqueue

import (
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/observe"
)

// A lockEntry is the entry of a name that can be held. Its core decides; the lockEntry asks the core, and performs the effects.
type lockEntry struct {
	entry
	lock    *core.Lock                 // guarded by mu
	cohorts map[cohortKey]*core.Cohort // guarded by mu
	lowers  []chan struct{}            // of those by which only reading was left, each closed when the server has been told; guarded by mu
}

// A ticket is the shell's part of one call for a hold.
type ticket struct {
	core.Ticket
	caller
	queue *binding // with the terms of its call
	entry *lockEntry
	hold  *hold // once the lease is made
}

func newLockEntry(c *client, q *binding) *lockEntry {
	e := &lockEntry{}
	e.init(c, q.proto, q.name, q.keys, e)
	x := e.begin()
	e.lock = core.New(&x.Input, core.Config{
		Client: e.id, GrantLease: c.opts.GrantLease, Entries: q.proto.Entries, Several: q.proto.Several(), Together: q.proto.Checks != nil,
	}, c.unused())
	e.core = e.lock
	e.end(x)
	return e
}

// do performs an effect on a hold or the queue. The caller holds act.
func (e *lockEntry) do(x *turn, f *core.Effect) {
	switch f.Do {
	case core.PollSoon:
		e.client.looks.Add(e)
	case core.Unlocked:
		t := ticketOf(f.Call)
		t.hold.released(f.Release.Held, t.queue.explained(f.Err))
	case core.Lead:
		f.Follower.Owner.(interface{ goOn(error) }).goOn(f.Err)
	default:
		ticketOf(f.Call).hold.do(x, f)
	}
}

func ticketOf(c *core.Call) *ticket { return c.Owner.(*ticket) }

// register makes the ticket of a call known. A call that goes on at once, as part of the same input, gets its first step.
func (q Queue) register(t *ticket, w *wait) (do plan, err error) {
	c := q.client
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return do, lease.ErrClosed
	}
	e := q.entryLocked()
	t.entry = e
	if wire.TicketClient(t.Text) != e.id { // The client has drawn another identity since.
		t.Named(e.id, c.numbers.Add(1), c.opts.GrantLease)
	}
	if q.terms.History > 0 {
		e.history.Store(int32(q.terms.History))
	}
	x := e.begin()
	e.lock.Register(&t.Ticket)
	if t.Begun.IsZero() { // Else its call has waited for others.
		t.Begun = x.Now
	}
	c.mu.Unlock()
	if w != nil {
		do = w.nextLocked(x, false, false) // It has just begun.
	}
	e.end(x)
	return do, nil
}

// entryLocked returns the entry of a queue, which it makes if there is none. The caller has the lock of the client.
func (q Queue) entryLocked() *lockEntry {
	e, _ := q.client.entries[q.keys.Entry].(*lockEntry)
	if e == nil {
		e = newLockEntry(q.client, q.binding)
		q.client.useLocked(e)
	}
	return e
}

func (e *lockEntry) close(o outstanding, now time.Time) outstanding {
	x := e.begin()
	defer e.end(x)
	e.lock.Close(&x.Input)
	e.lock.Outstanding(now,
		func(t *core.Ticket) { o = append(o, ticketOf(&t.Call)) },
		func(d *core.Release) { o = append(o, &unknown{e, d}) })
	return o
}

// Left is the latest time at which the server can still hold something of the ticket.
func (t *ticket) Left(begun time.Time) (until time.Time, hold bool, unended error) {
	t.entry.mu.Lock()
	defer t.entry.mu.Unlock()
	return t.Ticket.Left(begun), t.hold != nil, t.Unended
}

// unknown is the release of a grant to a ticket that is not known any more.
type unknown struct {
	entry   *lockEntry
	release *core.Release
}

// Left is the same of such a grant.
func (u *unknown) Left(time.Time) (until time.Time, hold bool, unended error) {
	u.entry.mu.Lock()
	defer u.entry.mu.Unlock()
	until, unended = u.entry.lock.Left(u.release)
	return until, false, unended
}

// Message takes in what was heard on the wake channel. It runs on the reader of the connection.
func (e *lockEntry) Message(text string, received time.Time) {
	m, ok := e.heard(text)
	if !ok {
		return
	}
	x := e.begin()
	switch m.Kind {
	case wire.MessageGrant:
		for _, g := range m.Grants {
			from, slept := e.node().Clock.Since(g.At, received)
			lasts := time.Duration(g.Until-g.At) * time.Microsecond
			e.lock.OnGrant(&x.Input, g.Ticket, core.Grant{Token: g.Token, From: from, Slept: slept, Lasts: lasts, Note: m.Note, Before: g.Before})
		}
	case wire.MessageSuspect:
		e.lock.OnSuspected(&x.Input, m.Ticket)
	case wire.MessageLook:
		e.lock.Poll(&x.Input)
	case wire.MessageExcess:
		if t := e.lock.Ticket(m.Ticket); t != nil {
			e.lock.OnExcess(&x.Input, m.Ticket, excess(t.Permits, strconv.FormatInt(m.Limit, 10)))
		}
	case wire.MessageWanted:
		e.lock.OnWanted(&x.Input, m.Token)
	case wire.MessageEcho:
		e.lock.OnPing(&x.Input, m.Nonce)
	}
	e.end(x)
}

// forced takes in what was heard on the client's own channel.
func (e *lockEntry) forced(ticket string) {
	e.tell(observe.Observation{Event: observe.Woken})
	x := e.begin()
	e.lock.OnForced(&x.Input, ticket)
	e.end(x)
}

// applyReply takes in a reply to a request that belongs to no ticket.
func (e *lockEntry) applyReply(a conn.Attempt, r *wire.Reply) {
	e.client.observeHeader(e.node(), a, e.proto, e.name, r.Head(), r.Token)
	x := e.begin()
	e.lock.OnReply(&x.Input, attempt(&a), r, a.Note, false)
	e.end(x)
}
