package waitqueue

import (
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/internal/conn"
	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/outbox"
	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/internal/wire"
	"github.com/headwaiter/headwaiter/lease"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// An entry is a name that can be held. Its core decides; the entry asks the core, and performs the effects.
type entry struct {
	site
	lock    *core.Lock                 // guarded by mu
	cohorts map[cohortKey]*core.Cohort // guarded by mu
	lowers  []chan struct{}            // of those by which only reading was left, each closed when the server has been told; guarded by mu
}

// A ticket is what is kept of one call for a hold.
type ticket struct {
	core.Ticket
	caller
	entry *entry
	hold  *hold // once the lease is made
}

func newEntry(c *client, q *binding) *entry {
	e := &entry{}
	e.init(c, q)
	e.tick.Target = timers.Func(e.ticked)
	x := e.begin()
	e.lock = core.New(&x.Input, core.Config{
		Client: e.id, GrantLease: c.opts.GrantLease, Entries: q.proto.Entries, Several: q.proto.Several(), Together: q.proto.Checks != nil,
	}, c.unused())
	e.end(x)
	return e
}

// end performs the effects of an input, which ends it.
func (e *entry) end(x *turn) {
	if len(x.Effects) == 0 {
		e.mu.Unlock()
		x.over()
		return
	}
	e.act.Lock()
	e.endActing(x)
}

// endActing is end for a caller that holds act.
func (e *entry) endActing(x *turn) {
	e.mu.Unlock()
	for i := range x.Effects {
		if f := &x.Effects[i]; !e.perform(f, e) {
			e.do(x, f)
		}
	}
	e.act.Unlock()
	for _, h := range x.lost {
		y := e.begin()
		e.lock.Lose(&y.Input, &h.Hold, lease.ErrExpired)
		e.end(y)
	}
	x.over()
}

// do does what of an effect concerns a hold or the queue. act is held.
func (e *entry) do(x *turn, f *core.Effect) {
	c := e.client
	switch f.Do {
	case core.Poll:
		c.servers.Spawn(e.runChecks)
	case core.PollSoon:
		c.looks.Add(e)
	case core.Retire:
		e.retire(e, func() (over, subscribed bool) {
			x := e.begin()
			over, subscribed = e.lock.Retire(&x.Input)
			e.end(x)
			return over, subscribed
		})
	case core.Send:
		e.sending(f.Release).push(f.Flag)
	case core.SendLater:
		e.sending(f.Release).later(f.At)
	case core.Unlocked:
		callerOf(f).ticket.hold.released(f.Release.Held, callerOf(f).queue.explained(f.Err))
	case core.Lead:
		f.Follower.Owner.(interface{ goOn(error) }).goOn(f.Err)
	case core.Stuck:
		e.sending(f.Release).stick()
	default:
		callerOf(f).ticket.hold.do(x, f)
	}
}

// ticked is called by the timer.
func (e *entry) ticked(time.Time) {
	x := e.begin()
	e.lock.OnTimer(&x.Input)
	e.end(x)
}

func (e *entry) close(o outbox.Outstanding, now time.Time) outbox.Outstanding {
	x := e.begin()
	defer e.end(x)
	e.lock.Close(&x.Input)
	e.lock.Outstanding(now,
		func(t *core.Ticket) { o = append(o, t.Owner.(*caller).ticket) },
		func(d *core.Release) { o = append(o, &unknown{e, d}) })
	return o
}

func (e *entry) abandon() {
	x := e.begin()
	subscribed := e.lock.Abandon(&x.Input)
	e.end(x)
	if subscribed {
		e.drop(e)
	}
}

func (e *entry) silent() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lock.Silent(time.Now())
}

// Left is what the server may have of the ticket.
func (t *ticket) Left(begun time.Time) (until time.Time, hold bool, unended error) {
	t.entry.mu.Lock()
	defer t.entry.mu.Unlock()
	return t.Ticket.Left(begun), t.hold != nil, t.Unended
}

// unknown is the release of a grant to a ticket that is not known any more.
type unknown struct {
	entry   *entry
	release *core.Release
}

// Left is the same of such a grant.
func (u *unknown) Left(time.Time) (until time.Time, hold bool, unended error) {
	u.entry.mu.Lock()
	defer u.entry.mu.Unlock()
	until, unended = u.entry.lock.Left(u.release)
	return until, false, unended
}

// Confirmed is called by a listener when the channel's subscription is confirmed. n is the number of channels of the connection.
func (e *entry) Confirmed(from conn.Ears, n int) {
	x := e.begin()
	if e.lock.Wanted && e.listensAt(from) && from.Hears(e) {
		e.lock.OnSubscribed(&x.Input, n, e.client.nonce())
	}
	e.end(x)
}

// nonce is what a ping carries: what nothing else has.
func (c *client) nonce() string { return strconv.FormatUint(c.numbers.Add(1), 10) }

// Unheard is called by a listener when the subscription is gone.
func (e *entry) Unheard(from conn.Ears) {
	x := e.begin()
	if e.listensAt(from) && !from.Hears(e) {
		e.lock.OnUnsubscribed(&x.Input)
	}
	e.end(x)
}

// Rehome is called by a listener whose node has not the site's slot any more.
func (e *entry) Rehome(from conn.Ears) {
	x := e.begin()
	if e.lock.Wanted && e.listensAt(from) {
		x.Add(core.Effect{Do: core.Subscribe})
		e.lock.OnUnsubscribed(&x.Input)
		from.Drop(e)
	}
	e.end(x)
}

// Refused is called by the listener when the server refuses the subscription for good.
func (e *entry) Refused(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lock.OnSubscribeRefused(conn.Unusable(err))
}

// Message takes in what was heard on the wake channel. It runs on the reader of the connection.
func (e *entry) Message(text string, received time.Time) {
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
			e.lock.OnGrant(&x.Input, g.Ticket, core.Grant{Token: g.Token, From: from, Slept: slept, Lasts: lasts, Note: m.Note})
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

// told takes in what was heard on the client's own channel. It runs on the reader of the connection.
func (c *client) told(text string) {
	c.stats.Messages.Add(1)
	m, err := wire.ParseMessage(text)
	if err != nil || m.Kind != wire.MessageForced {
		c.stats.Forged.Add(1)
		return
	}
	e, _ := c.known(m.Lock).(*entry)
	if e == nil {
		return
	}
	e.tell(observe.Observation{Moment: observe.Woken})
	x := e.begin()
	e.lock.OnForced(&x.Input, m.Ticket)
	e.end(x)
}

// absorb takes in a reply to a request that belongs to no ticket.
func (e *entry) absorb(a conn.Attempt, r *wire.Reply) {
	e.client.saw(e.node(), a, e.proto, e.name, r.Head(), r.Token)
	x := e.begin()
	e.lock.OnReply(&x.Input, attempt(&a), r, a.Note, false)
	e.end(x)
}

// job is a request as it is sent: where the name keeps a history, with that.
func (s *site) job(script *lua.Script, keys, args []string) conn.Job {
	return conn.Job{Script: script, Keys: keys, Args: args}.Logged(int(s.history.Load()), s.keys.History)
}
