package main

import (
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/verify/model"
)

// A step is one thing that somebody does, or that happens.
type step struct {
	format string
	args   []any
	do     func(w *world)
}

// far is how far ahead a timer is that does not count: the name is retired then.
const far = 30 * time.Minute

// mayPass reports whether time can come to a point: no client that runs lets its own renewal wait until its lease is over (I4), nor
// waits for an answer for longer than a request may take.
func (w *world) mayPass(at time.Time) bool {
	for _, w := range w.names {
		for _, c := range w.clients {
			if c.life != alive {
				continue
			}
			for _, all := range [...][]*flight{c.requests, c.replies} {
				for _, f := range all {
					if f.Late && at.After(f.Attempt.Expires) {
						return false
					}
				}
			}
		}
		if o := w.awaited(); o != nil && !o.mayPass(w, at) {
			return false
		}
		for _, k := range w.calls {
			if k.client.life == alive && k.believes() && !at.Before(k.using.hold.Lasts.Deadline) {
				return false
			}
		}
	}
	return true
}

// to lets time come to a point.
func (w *world) to(at time.Time) {
	if at.After(w.now) {
		w.now = at
	}
}

// steps are all that can be next, in an order that only the world decides.
func (w *world) steps() (all []step) {
	add := func(do func(w *world), format string, args ...any) {
		all = append(all, step{format, args, do})
	}
	for _, x := range w.names {
		x.usualSteps(x.adds(add))
	}
	w.multiSteps(add)
	w.usual = len(all)
	if w.budget.Faults > 0 {
		for _, x := range w.names {
			x.faults(x.adds(add))
		}
	}
	return all
}

// usualSteps are those of one name that are no faults.
func (w *world) usualSteps(add adder) {
	for i, k := range w.calls {
		if k.client.life == alive {
			w.callSteps(i, k, add)
		}
	}
	for i, c := range w.clients {
		if c.life == stopped && c.first() {
			add(func(w *world) { w.clients[i].each(func(c *client) { c.life = alive }) }, "%s goes on", c.name)
		}
		for _, l := range [...]lane{toServer, toClient, subscribes, pushes} {
			if all := *c.lane(l); len(all) > 0 && all[0].Late && (c.life == alive || l == toServer || l == subscribes) {
				add(func(w *world) { (*w.clients[i].lane(l))[0].Late = false }, "what was held up goes on: %s %s", all[0].what(), direction(l, c))
			}
		}
		if c.life == alive {
			w.clientSteps(i, c, add)
		}
	}
	for i, f := range w.old {
		owner := w.ownerOf(f)
		add(func(w *world) {
			f := w.old[i]
			w.old = slices.Delete(w.old, i, i+1)
			w.run(w.clients[owner], f, false)
		}, "%s runs at last", f.what())
		if at := micro(f.NotAfter + 1); at.After(w.now) && w.mayPass(at) {
			add(func(w *world) { w.to(at) }, "%s is too late from now on", f.what())
		}
	}
	for _, g := range w.grips() {
		k := w.ofTicket(g.text)
		believed := k != nil && k.client.life == alive && k.believes()
		if at := micro(g.until); !believed && at.After(w.now) && w.mayPass(at) {
			add(func(w *world) { w.to(at) }, "the lease of %s runs out", shortly(g.text))
		}
	}
	if at := micro(w.notes().Mark); w.notes().Mark != 0 && at.After(w.now) && w.mayPass(at) {
		add(func(w *world) { w.to(at) }, "the mark at the queue runs out")
	}
	if o := w.awaited(); o != nil {
		o.steps(w, add)
	}
	w.termSteps(add)
}

type adder func(do func(w *world), format string, args ...any)

func (w *world) ownerOf(f *flight) int {
	return slices.IndexFunc(w.clients, func(c *client) bool { return c.name == f.From })
}

func (w *world) callSteps(i int, k *call, add adder) {
	switch k.phase {
	case unborn:
		if w.mayCall(i) {
			add(func(w *world) { w.calls[i].start() }, "%s asks", k.name)
		}
		for j, x := range w.texts {
			if x.Client != k.client.name {
				add(func(w *world) { w.calls[i].adopt(w.texts[j]) }, "%s adopts the hold of %s", k.name, x.Client)
			}
		}
		return
	case holding:
		if k.multi != nil {
			break
		}
		add(func(w *world) { w.calls[i].release() }, "%s releases", k.name)
		if k.client.name == w.scope.Gives {
			add(func(w *world) { w.calls[i].handOver() }, "%s hands over", k.name)
		}
	case pausing:
		if w.mayPass(k.until) {
			add(func(w *world) {
				k := w.calls[i]
				w.to(k.until)
				k.phase = running
				k.run(core.Step{})
			}, "%s tries again", k.name)
		}
	}
	if k.ticket != nil && k.doubt.After(w.now) && w.mayPass(k.doubt) {
		add(func(w *world) { w.to(w.calls[i].doubt) }, "nothing that %s has lost can run any more", k.name)
	}
	if k.hold != nil && !k.holdTimer.IsZero() && k.ticket.Held() {
		add(func(w *world) { w.calls[i].fire() }, "the time of the hold of %s comes", k.name)
	}
	if w.budget.Cancels > 0 && k.phase == following {
		add(func(w *world) {
			w.budget.Cancels--
			k := w.calls[i]
			if k.client.cohort.Leave(k.follower) {
				k.phase, k.follower, k.placed = over, nil, false
			}
		}, "%s gives up", k.name)
	}
	if w.budget.Cancels > 0 && !k.ended && k.multi == nil && (k.phase == asking || k.phase == confirming || k.phase == sleeping || k.phase == pausing) {
		add(func(w *world) {
			w.budget.Cancels--
			k := w.calls[i]
			k.ended = true
			k.run(core.Step{})
		}, "%s gives up", k.name)
	}
}

// mayCall reports whether a call may begin: clients that are alike call first in one order only.
func (w *world) mayCall(i int) bool {
	k := w.calls[i]
	active, first := 0, true
	for j, o := range w.calls {
		switch {
		case o.client == k.client && j < i:
			first = false
			if o.phase == unborn {
				return false
			}
			fallthrough
		case o.client == k.client && o.phase != unborn && o.phase != over:
			if o.phase != over {
				active++
			}
		}
	}
	if active >= w.scope.slots(k.client.name) || k.client.cohort != nil && w.waits(k.client) {
		return false
	}
	if !first {
		return true
	}
	for j, o := range w.calls[:i] {
		if o.client != k.client && w.scope.alike(o.client.name, k.client.name) && o.phase == unborn && o.client.life == alive && w.isFirst(j) {
			return false
		}
	}
	return true
}

// waits reports whether a call of a cohort waits for the others.
func (w *world) waits(c *client) bool {
	return slices.ContainsFunc(w.calls, func(k *call) bool { return k.client == c && k.phase == following })
}

func (w *world) isFirst(i int) bool {
	return !slices.ContainsFunc(w.calls[:i], func(k *call) bool { return k.client == w.calls[i].client })
}

// fire has the timer of a hold go off, and again until something comes of it.
func (k *call) fire() {
	c := k.client
	for range 6 {
		at := k.holdTimer
		if at.IsZero() || !c.world.mayPass(at) {
			return
		}
		c.world.to(at)
		k.holdTimer = time.Time{}
		if c.input(func(x *core.Input) { c.lock.OnHoldTimer(x, k.hold, k.leases()) }) {
			return
		}
	}
}

// fire has the timer of a name go off, and again until something comes of it.
func (c *client) fire() {
	w := c.world
	for range 6 {
		at := c.timer
		if at.IsZero() || at.Sub(w.now) > far || !w.mayPass(at) {
			return
		}
		w.to(at)
		c.timer = time.Time{}
		if c.input(c.decider().OnTimer) {
			return
		}
	}
}

func (w *world) clientSteps(i int, c *client, add adder) {
	if c.retires {
		add(func(w *world) { w.clients[i].retire() }, "%s drops the name", c.name)
	}
	if !c.timer.IsZero() && c.timer.Sub(w.now) <= far && w.mayPass(c.timer) {
		add(func(w *world) { w.clients[i].fire() }, "the timer of %s goes off", c.name)
	}
	for j, d := range c.later {
		if w.mayPass(d.at) {
			add(func(w *world) {
				c := w.clients[i]
				d := c.later[j]
				c.later = slices.Delete(c.later, j, j+1)
				w.to(d.at)
				c.sendRelease(d.release)
			}, "%s sends the release of %s once more", c.name, shortly(d.release.Text))
		}
	}
	late := func(all []*flight) bool { return len(all) > 0 && all[0].Late }
	if late(c.requests) || late(c.replies) {
		add(func(w *world) { w.clients[i].cutConnection(true) }, "%s waits no more for what is held up", c.name)
	}
}

func (w *world) faults(add adder) {
	fault := func(do func(w *world)) func(w *world) {
		return func(w *world) {
			w.budget.Faults--
			do(w)
		}
	}
	listening := 0
	for i, c := range w.clients {
		hears := w.hears(c.name) && !c.half
		if w.hears(c.name) {
			listening++
		}
		if c.life != alive {
			continue
		}
		if w.scope.Skips {
			if hears {
				add(fault(func(w *world) { w.clients[i].kill(true) }), "the subscription of %s is cut", c.name)
			}
			continue
		}
		if c.first() {
			add(fault(func(w *world) { w.clients[i].each((*client).die) }), "%s dies", c.name)
		}
		if c.first() && slices.ContainsFunc(c.process, (*client).isUsed) {
			add(fault(func(w *world) {
				w.clients[i].each(func(c *client) {
					c.life = stopped
					c.world.judge.hurt(c)
				})
			}), "%s is stopped", c.name)
		}
		if hears {
			add(fault(func(w *world) {
				c := w.clients[i]
				c.half, c.lines, c.pushed = true, nil, nil
				w.judge.hurt(c)
			}), "nothing comes through to %s any more on the connection that subscribes", c.name)
			add(fault(func(w *world) { w.clients[i].kill(false) }), "the subscription of %s is cut", c.name)
		}
		if len(c.requests)+len(c.replies) > 0 {
			add(fault(func(w *world) { w.clients[i].cutConnection(false) }), "the connection of %s is cut", c.name)
			add(fault(func(w *world) { w.clients[i].cutConnection(true) }), "the connection of %s is cut after its requests", c.name)
		}
		if len(c.pushed) > 0 && c.pushed[0].Kind == messageKind {
			add(fault(func(w *world) {
				c := w.clients[i]
				c.pushed = c.pushed[1:]
				w.judge.hurt(c)
			}), "what was held up is lost: %s", c.pushed[0].what())
		}
	}
	if w.scope.Forgets {
		add(fault(func(w *world) { w.forgets() }), "the server forgets")
	}
	if listening > 1 && !w.scope.Skips {
		add(fault(func(w *world) {
			for _, c := range w.clients {
				if w.hears(c.name) {
					c.kill(true)
				}
			}
		}), "all subscriptions are cut")
	}
}

// forgets is a restart without data. The waiters come back.
func (w *world) forgets() {
	hears := w.mutex.Hears
	w.to(w.now.Add(time.Microsecond))
	w.mutex = model.New()
	w.mutex.Hears = hears
	w.judge.Forgot = true
	for _, k := range w.calls {
		k.placed = false
	}
	for _, c := range w.clients {
		w.judge.hurt(c)
	}
}

// kill ends a subscription at the server. Its client hears of that, perhaps late.
func (c *client) kill(late bool) {
	w := c.world
	if !w.hears(c.name) {
		return
	}
	w.judge.hurt(c)
	w.listens(c.name, false)
	if !c.half {
		c.pushed = append(c.pushed, &flight{Kind: goneKind, Late: late})
	}
}

// die ends a client. What it has sent may still run.
func (c *client) die() {
	w := c.world
	c.life = dead
	w.judge.hurt(c)
	c.cutConnection(true)
	c.hangUp()
	c.lock, c.event, c.cohort, c.lent, c.round, c.later, c.failed, c.recalled = nil, nil, nil, nil, nil, nil, nil, false
	c.timer, c.poll, c.retires = time.Time{}, false, false
	for _, k := range w.calls {
		if k.client == c {
			*k = call{name: k.name, client: c, phase: over}
		}
	}
	if m := c.multi(); m != nil {
		m.end()
	}
}
