package waitqueue

import (
	"time"

	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// How a client hears that a hold was released by force: on one channel of its own, whatever the names. It is subscribed
// to while anything is held for longer than a moment: so short holds send nothing for it, and ten thousand long ones no
// more than one. What is released by force while it is not heard is found by the next renewal.

// attendAfter is how long a hold lasts before its client listens for it.
const attendAfter = 250 * time.Millisecond

// attend sees that the client hears of a release by force once the hold has lasted for some time, also where the slot of
// its name has moved, and returns when to look again. The site's lock is held.
func (h *hold) attend(now, next time.Time) time.Time {
	s := h.ticket.site
	if h.ears == nil {
		if at := h.ticket.grant.from.Add(attendAfter); now.Before(at) {
			return earlier(next, at)
		}
	}
	if l := s.listener(); h.ears != l {
		if h.ears != nil {
			h.ears.leave()
		}
		h.ears = l
		l.attend()
	}
	return next
}

// unwatch ends the hold's timer, because the hold ends. The site's lock is held.
func (h *hold) unwatch() {
	h.ticket.site.client.timers.Remove(&h.entry)
	if h.ears != nil {
		h.ears.leave()
		h.ears = nil
	}
}

// attend listens on the client's own channel, for one hold more. It may be called with a site's lock held.
func (l *listener) attend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds++
	if sub := l.channels[l.client.own]; sub == nil || !sub.want {
		l.subscription(l.client.own, nil)
	}
}

// leave notes that a hold has ended. The channel stays for a while after the last.
func (l *listener) leave() {
	l.mu.Lock()
	l.holds--
	last := l.holds == 0
	l.left = time.Now()
	until := l.left.Add(l.client.opts.Linger)
	l.mu.Unlock()
	if last {
		l.client.timers.Before(&l.attended, until)
	}
}

// unattended is the listener's timer, some time after the last hold.
func (l *listener) unattended(now time.Time) {
	l.mu.Lock()
	sub := l.channels[l.client.own]
	if l.holds > 0 || sub == nil || !sub.want {
		l.mu.Unlock()
		return
	}
	until := l.left.Add(l.client.opts.Linger)
	if over := !now.Before(until); over {
		sub.want = false
		l.wanted--
		l.touch(l.client.own)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	l.client.timers.Before(&l.attended, until)
}

// told takes in what was heard on the client's own channel. It runs on the reader of the connection.
func (c *Client) told(text string) {
	c.stats.messages.Add(1)
	m, err := lua.ParseMessage(text)
	if err != nil || m.Kind != lua.MessageForced {
		c.stats.forged.Add(1)
		return
	}
	c.mu.Lock()
	s := c.sites[m.Lock]
	c.mu.Unlock()
	if s == nil {
		return
	}
	s.tell(observe.Observation{Moment: observe.Woken})
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tickets[m.Ticket]; t != nil {
		t.doubted = true
		if t.hold != nil {
			t.hold.hurry()
		}
	}
}
