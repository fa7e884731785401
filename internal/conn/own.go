package conn

import (
	"strconv"
	"time"

	"github.com/headwaiter/headwaiter/lua"
)

// How a client hears that a hold was released by force: on one channel of its own, whatever the names. It is subscribed
// to while anything is held for longer than a moment: so short holds send nothing for it, and ten thousand long ones no
// more than one.

func (l *listener) Attend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds++
	if sub := l.channels[l.servers.Own]; sub == nil || !sub.want {
		l.subscriptionLocked(l.servers.Own, nil)
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
	sub := l.channels[l.servers.Own]
	if l.holds > 0 || sub == nil || !sub.want {
		l.mu.Unlock()
		return
	}
	until := l.left.Add(l.servers.opts.Linger)
	if over := !now.Before(until); over {
		sub.want = false
		l.wanted--
		l.touchLocked(l.servers.Own)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.servers.Timers.Before(&l.attended, until)
}

// What operators are told of a client is in a key of the client, and not in all that it holds and waits for. Nothing
// else depends on it: where the key is missing, they are told the client's id.

const (
	// whoEvery is how often a client says who it is while it uses a name.
	whoEvery = 20 * time.Second
	// whoLasts is how long that is known.
	whoLasts = time.Minute
)

// Introduce says who the client is. An answer makes no difference.
func (c *Servers) Introduce() {
	c.workMu.Lock()
	c.said = time.Now()
	if c.used {
		c.Timers.Before(&c.again, c.said.Add(whoEvery))
	}
	c.workMu.Unlock()
	key := lua.ClientKey(c.opts.Prefix, c.opts.ID)
	_ = c.Run(lua.Introduce, []string{key}, c.opts.Who, strconv.FormatInt(whoLasts.Milliseconds(), 10)).Error()
}

// Used sees that the client says so for as long as it uses a name: which it begins to do, or does no more.
func (c *Servers) Used(now bool) {
	c.workMu.Lock()
	defer c.workMu.Unlock()
	if c.used = now; now {
		c.Timers.Before(&c.again, c.said.Add(whoEvery))
	} else {
		c.Timers.Remove(&c.again)
	}
}
