package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/headwaiter/headwaiter/internal/core"
	"github.com/headwaiter/headwaiter/internal/times"
)

// The connections of a client: the one that subscribes, as the listener of package conn has it, and the one for requests.

// subscribe is listener.Want and listener.Reconnect.
func (c *client) subscribe() {
	if c.sub == unsubscribed || c.again && c.sub == subscribed && !slices.ContainsFunc(c.lines, func(f *flight) bool { return f.Kind == subscribeKind }) {
		if c.sub == unsubscribed {
			c.sub = subscribing
		}
		c.send(subscribes, &flight{Kind: subscribeKind})
	} else if c.sub == subscribed && !c.again {
		c.confirmed() // A slip.
	}
}

// confirmed is entry.Confirmed. A connection that is replaced ends with that, and what is still on it.
func (c *client) confirmed() {
	w := c.world
	if c.again {
		c.pushed = slices.DeleteFunc(c.pushed, func(f *flight) bool { return true })
		if c.half {
			w.zombies = append(w.zombies, c.name)
		}
		c.half, c.again = false, false
	}
	c.sub = subscribed
	w.tell("    %s is subscribed", c.name)
	if c.decider().Listens() {
		nonce := c.nonce()
		c.input(func(x *core.Input) { c.decider().OnSubscribed(x, 1, nonce) })
	}
}

// unheard is listener.silence and entry.Unheard: the connection that subscribes is gone, and another one is made.
func (c *client) unheard() {
	c.hangUp()
	c.input(func(x *core.Input) { c.decider().OnUnsubscribed(x) })
	if c.decider().Listens() {
		c.subscribe()
	}
}

// newLock makes the core of a name that the client has not used yet.
func (c *client) newLock() {
	w := c.world
	c.input(func(x *core.Input) {
		c.lock = core.New(x, core.Config{Client: c.name, GrantLease: grantTime, Several: w.permits != nil, Entries: w.scope.Enters != ""}, core.Name{
			Linger: w.scope.linger(c.name), Subscription: core.Subscription{Born: w.now},
		})
	})
}

// retire is entry.retire. No other name is subscribed to, so the connection goes with the subscription.
func (c *client) retire() {
	w := c.world
	c.retires = false
	over, listened := false, false
	c.input(func(x *core.Input) { over, listened = c.lock.Retire(x) })
	switch {
	case !over:
		return
	case listened && w.scope.HearsOn:
		w.listens(c.name, false)
	case listened:
		c.hangUp()
	}
	c.timer, c.poll = time.Time{}, false
	c.newLock()
}

// hangUp ends the connection that subscribes.
func (c *client) hangUp() {
	w := c.world
	if c.half && w.hears(c.name) {
		w.zombies = append(w.zombies, c.name)
	}
	w.listens(c.name, false)
	c.half, c.again, c.sub = false, false, unsubscribed
	c.lines, c.pushed = nil, nil
}

// cutConnection gives up the connection of commands. What was on it is lost, or may still run.
func (c *client) cutConnection(runs bool) {
	w := c.world
	if runs {
		w.tell("    %s gives up its connection; what was on it may still run", c.name)
	} else {
		w.tell("    %s loses its connection, and what was on it", c.name)
	}
	hit := append(slices.Clone(c.requests), c.replies...)
	for _, f := range c.requests {
		if runs && f.Kind != echoKind {
			w.leave(f)
		}
	}
	for _, f := range hit {
		for _, one := range f.each() {
			for _, k := range w.names[one.At].calls {
				if k.client.name == c.name && k.ticket != nil && (one.Kind == askKind || one.Kind == checkKind) && one.about(k.ticket.Text) {
					k.doubt = times.Later(k.doubt, f.Attempt.Expires)
				}
			}
		}
		if c.cohort != nil && f.Kind == askKind {
			f.Owner.(*call).placed = false
		}
	}
	c.requests, c.replies = nil, nil
	if c.life == dead {
		return
	}
	for _, f := range hit {
		for _, one := range f.each() {
			one.Reply = nil
		}
		f.Reply = nil
	}
	c.failed = append(c.failed, hit...)
}

// leave keeps a request that may still run, and that nobody waits for.
func (w *world) leave(f *flight) {
	left := *f
	left.Late, left.Left, left.Owner = false, true, nil
	if w.occasion != nil {
		left.detach()
	}
	left.All = slices.Clone(f.All)
	for i, one := range f.All {
		again := *one
		again.Owner = nil
		left.All[i] = &again
	}
	w.old = append(w.old, &left)
	slices.SortStableFunc(w.old, func(a, b *flight) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.names(), b.names()), cmp.Compare(a.NotAfter, b.NotAfter))
	})
}
