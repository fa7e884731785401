package main

import (
	"slices"

	"github.com/headwaiter/headwaiter/internal/core"
)

// What follows from a step at once. Requests, replies and messages arrive, each connection in its order, and clients do what
// they have to, until all that is left has been held up.

// flow lets all of that happen.
func (w *world) flow() {
	for range 2000 {
		if w.bad() != "" || !slices.ContainsFunc(w.names, (*world).deliver) && !slices.ContainsFunc(w.names, (*world).owed) && !slices.ContainsFunc(w.multis, (*multi).goesOn) {
			for _, x := range w.names {
				x.forget()
			}
			return
		}
	}
	w.judge.find("no end of messages")
}

// forget forgets of calls that are over what their clients have forgotten.
func (w *world) forget() {
	if !w.scope.Stale {
		w.old = slices.DeleteFunc(w.old, func(f *flight) bool { return w.us() > f.NotAfter }) // They change nothing (R7).
	}
	for _, k := range w.calls {
		if k.phase == over && k.ticket != nil && k.client.lock.Ticket(k.ticket.Text) == nil {
			if k.multi != nil {
				k.multi.keepPlace(k)
			}
			*k = call{name: k.name, client: k.client, phase: over}
		}
	}
	w.calls = slices.DeleteFunc(w.calls, func(k *call) bool { return len(w.multis) > 0 && k.phase == over && k.ticket == nil })
}

// deliver brings the next of what arrives, and reports whether there is any.
func (w *world) deliver() bool {
	for _, c := range w.clients {
		if c.life == alive && len(c.failed) > 0 {
			f := c.failed[0]
			c.failed = c.failed[1:]
			c.answered(f, &failure)
			return true
		}
		for _, l := range [...]lane{toServer, toClient, subscribes, pushes} {
			if c.arrives(l) {
				return true
			}
		}
	}
	return false
}

// arrives brings the next on a lane, and reports whether there is one that comes now.
func (c *client) arrives(l lane) bool {
	all := c.lane(l)
	i := 0
	if c.world.scope.Overtake && l == toServer {
		for i < len(*all)-1 && (*all)[i].Late {
			i++
		}
	}
	if i >= len(*all) || (*all)[i].Late || (l == toClient || l == pushes) && c.life != alive {
		return false
	}
	f := (*all)[i]
	*all = slices.Delete(*all, i, i+1)
	w := c.world
	switch l {
	case toServer, subscribes:
		w.run(c, f, true)
	case toClient:
		w.tell("    %s receives the reply to %s (%s)", c.name, f.what(), f.answer())
		c.answered(f, &answered)
	case pushes:
		switch f.Kind {
		case subscribeKind:
			c.confirmed()
		case goneKind:
			w.tell("    %s finds its subscription cut", c.name)
			c.unheard()
		default:
			w.tell("    %s receives %s", c.name, f.what())
			c.message(f.Message)
		}
	}
	return true
}

// owed does the next thing that a client has to do, and reports whether there is one.
func (w *world) owed() bool {
	for _, k := range w.calls {
		c := k.client
		if c.life != alive {
			continue
		}
		switch {
		case k.woken && k.phase == sleeping:
			k.woken = false
			k.run(core.Step{})
		case k.leads:
			k.leads = false
			k.lead(true)
		case k.renews && k.ticket != nil && k.ticket.Held():
			k.renew()
		default:
			continue
		}
		return true
	}
	for _, c := range w.clients {
		if c.life == alive && c.recalled {
			c.recalled = false
			c.recall()
			return true
		}
		if c.life == alive && c.poll && c.round == nil {
			c.poll = false
			if c.event != nil || c.lock.Checking {
				c.check()
			} else {
				c.input(func(x *core.Input) { c.lock.Poll(x) }) // A usual one, which no other name is due with.
			}
			return true
		}
	}
	return false
}
