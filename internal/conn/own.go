package conn

import (
	"context"
	"time"

	"github.com/headwaiter/headwaiter/lua"
)

// How a client hears that a hold was released by force: on one channel of its own, whatever the names. It is subscribed
// to while anything is held for longer than a moment. So short holds send nothing for it, and ten thousand long ones need
// one subscription.

// ID is the identity of the client.
func (c *Servers) ID() string { return *c.id.Load() }

// own is the channel on which the client hears of its holds, whatever their names.
func (c *Servers) own() string { return lua.ClientChannel(c.opts.Prefix, c.ID()) }

// Rename gives the client another identity, and cuts its connections: requests under way on them are of the old identity.
func (c *Servers) Rename(id string) {
	before := c.own()
	c.id.Store(&id)
	for _, n := range c.routes.all() {
		n.listener.leave(before)
		n.intro.met.Store(nil)
	}
	c.links.forget()
	if c.sockets != nil {
		c.sockets.cut("")
		c.hearing.cut("")
	}
}

// leave ends the subscription to one of the client's own channels.
func (l *listener) leave(own string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sub := l.channels[own]; sub != nil && sub.want {
		sub.want = false
		l.wanted--
		l.touchLocked(own)
	}
}

func (l *listener) Attend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds++
	if sub := l.channels[l.servers.own()]; sub == nil || !sub.want {
		l.subscriptionLocked(l.servers.own(), nil)
	}
}

func (l *listener) Leave() {
	l.mu.Lock()
	l.holds--
	last := l.holds == 0
	l.left = time.Now()
	until := l.left.Add(l.servers.opts.Linger)
	l.mu.Unlock()
	if last {
		l.servers.Timers.Before(&l.attended, until)
	}
}

// unattended is the listener's timer, some time after the last hold.
func (l *listener) unattended(now time.Time) {
	l.mu.Lock()
	sub := l.channels[l.servers.own()]
	if l.holds > 0 || sub == nil || !sub.want {
		l.mu.Unlock()
		return
	}
	until := l.left.Add(l.servers.opts.Linger)
	if over := !now.Before(until); over {
		sub.want = false
		l.wanted--
		l.touchLocked(l.servers.own())
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.servers.Timers.Before(&l.attended, until)
}

// Operators are told about a client from a key of the client, not from each hold and ticket. Nothing else depends on it:
// if the key is missing, they see the client's id.

const (
	// whoEvery is how often a client says who it is while it uses a name.
	whoEvery = 20 * time.Second
	// whoLasts is how long that is known.
	whoLasts = time.Minute
)

// Introduce says who the client is, at each node where it has done so. An answer makes no difference, and none is waited for longer than [SlowAnswer].
func (c *Servers) Introduce() {
	c.workMu.Lock()
	c.said = time.Now()
	if c.used {
		c.Timers.Before(&c.again, c.said.Add(whoEvery))
	}
	c.workMu.Unlock()
	if !IsBare(c.opts.Redis) {
		c.links.state.CompareAndSwap(linksUnwanted, linksMade)
	}
	ctx, cancel := context.WithTimeout(context.Background(), SlowAnswer)
	defer cancel()
	if c.Clustered() { // Where people look for it.
		_, _ = InBackground(ctx, c, func() (struct{}, error) {
			return struct{}{}, c.Run(lua.Introduce, []string{lua.ClientKey(c.opts.Prefix, c.ID())}, c.introduction("", nil)...).Error()
		})
	}
	for _, n := range c.routes.all() {
		if !c.Clustered() || n.intro.met.Load() != nil {
			_ = n.introduce(ctx, c.commands)
		}
	}
	if c.guard != nil {
		c.guard.Refresh(ctx)
	}
	c.masters.look()
}

// Used notes whether the client uses any name now. While it does, it introduces itself again every whoEvery.
func (c *Servers) Used(now bool) {
	c.workMu.Lock()
	defer c.workMu.Unlock()
	if c.used = now; now {
		c.Timers.Before(&c.again, c.said.Add(whoEvery))
	} else {
		c.Timers.Remove(&c.again)
	}
}
