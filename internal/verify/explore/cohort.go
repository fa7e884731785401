package main

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/reason"
	"github.com/headwaiter/headwaiter/lua"
)

// Calls that let each other use one hold, and holds that go to another client. The hold of a cohort belongs to the call that
// asked for it, which may be over while others use the hold.

const (
	keepTime = time.Second // for how long a hold is kept
	thought  = time.Millisecond
)

// join is Cohort.join of waitqueue.
func (k *call) join() {
	c := k.client
	w := c.world
	k.begun = w.now
	var turn core.Turn
	u, v := c.lent, core.Leases{}
	if c.cohort.Hold == nil {
		u = nil
	} else {
		v = u.leases()
	}
	c.input(func(x *core.Input) {
		if turn = c.cohort.Join(x, false, v); turn == core.Later {
			k.follower = &core.Follower{Owner: k}
			c.cohort.Wait(x, k.follower)
		}
	})
	switch turn {
	case core.Uses:
		if u.unsure && len(w.line().Queue) > 0 {
			w.judge.find(keptFrom)
		}
		k.use(u)
	case core.Later:
		k.phase = following
		k.placed = c.lock.Subscribed() && u != nil && !v.Over
		w.tell("    %s waits for the other calls of its client", k.name)
	default:
		if u != nil {
			c.giveBack(u, nil)
		}
		k.lead(false)
	}
}

// enter is follower.enter: the call is made known. One that has waited for others has the place of the time at which it came.
func (k *call) enter(late bool) {
	c, s := k.client, k.client.world.scope
	t := k.newTicket()
	t.Permits, t.Joint = core.Tokens(s.Passes, s.keep()), true
	if late && c.heard {
		t.Arrival = k.begun.UnixMicro()
	}
	k.follower = nil
	k.register(t)
}

// lead is cohort.lead.
func (k *call) lead(late bool) {
	k.enter(late)
	k.run(core.Step{})
}

// use is lent.pass: the call has the hold of another.
func (k *call) use(u *call) {
	k.phase, k.using = holding, u
	w := k.client.world
	w.tell("    %s uses the hold with token %s", k.name, w.judge.tokenText(u.hold.UseToken))
	w.judge.takes(w, k)
}

// lends has the others of a cohort wait for the hold of its leader.
func (c *client) lends(k *call) {
	c.lent = k
	k.unsure = k.ticket.Arrival != 0
	c.input(func(x *core.Input) { c.cohort.OnHold(x, k.hold) })
	for _, o := range c.world.calls {
		if o.client == c && o.phase == following {
			o.placed = c.lock.Subscribed()
		}
	}
}

// stopUsing is lent.release.
func (k *call) stopUsing() {
	c, u := k.client, k.using
	w := c.world
	if !w.scope.Quick {
		w.to(w.now.Add(thought))
	}
	k.phase, k.using, k.placed = over, nil, false
	if u.hold == nil {
		return // It was lost.
	}
	var turn core.Turn
	var f *core.Follower
	c.input(func(x *core.Input) { turn, f = c.cohort.OnRelease(x, u.hold, false, u.leases()) })
	var next *call
	if f != nil {
		next = f.Owner.(*call)
	}
	switch turn {
	case core.Uses:
		next.follower = nil
		next.use(u)
	case core.Later:
		w.tell("    %s keeps the hold", c.name)
	default:
		c.giveBack(u, next)
	}
}

// giveBack is lent.giveBack and lent.relay: the acquire request of the call that leads next goes before the release.
func (c *client) giveBack(u *call, next *call) {
	if c.lent == u {
		c.lent = nil
	}
	last := c.leave(u)
	if next != nil {
		next.placed = next.placed && c.lock.Subscribed() && last
		if !last {
			next.lead(true)
			return
		}
		next.enter(true)
		if c.world.scope.AsksLater {
			d := core.ReleaseOf(u.ticket)
			c.sendRelease(&d)
			next.run(core.Step{})
			return
		}
		next.run(core.Step{})
	}
	if last {
		d := core.ReleaseOf(u.ticket)
		c.sendRelease(&d)
	}
}

// leave is share.takeOff: it begins the release of a hold, and reports whether there is one to send.
func (c *client) leave(u *call) (last bool) {
	if u.hold == nil {
		return false
	}
	cause, released := error(reason.ErrReleased), true
	if u.leases().Over {
		cause, released = reason.ErrExpired, false
	}
	c.input(func(x *core.Input) {
		if last, _, _ = c.lock.Leave(x, u.hold, u.ticket.Kind, cause, released); last {
			c.lock.BeginRelease(x, u.hold, "")
		}
	})
	return last
}

// recall is cohort.recall.
func (c *client) recall() {
	u, back := c.lent, false
	c.input(func(x *core.Input) { back = c.cohort.Recall() })
	if back {
		c.giveBack(u, nil)
	}
}

// handOver is share.HandOver: the hold is in transit, and whoever hears of that may adopt it.
func (k *call) handOver() {
	c := k.client
	x := lua.Transit{Lock: "lock", Client: c.name, Lease: grantTime, Secret: "secret of " + k.name}
	k.phase, k.using = over, nil
	if c.world.scope.EndsLate {
		k.using = k
	}
	if c.leave(k) {
		d := core.ReleaseOf(k.ticket)
		d.Moves, d.Owner = true, &x
		c.world.texts = append(c.world.texts, &x)
		c.sendRelease(&d)
	}
}

// adopt is Queue.Adopt.
func (k *call) adopt(x *lua.Transit) {
	k.from = x
	t := k.newTicket()
	t.Inherits = true
	k.register(t)
	k.run(core.Step{})
}
