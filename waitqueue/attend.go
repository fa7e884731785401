package waitqueue

import (
	"time"

	"github.com/headwaiter/headwaiter/internal/timers"
	"github.com/headwaiter/headwaiter/lua"
	"github.com/headwaiter/headwaiter/observe"
)

// A hold that lasts listens on its client's own channel for a release by force. What is released by force while that is
// not heard is found by the next renewal.

// attendAfter is how long a hold lasts before its client listens for it.
const attendAfter = 250 * time.Millisecond

// attendLocked sees that the client hears of a release by force once the hold has lasted for some time, also where
// the slot of its name has moved, and returns when to look again.
func (h *hold) attendLocked(now, next time.Time) time.Time {
	s := h.ticket.site
	if h.ears == nil {
		if at := h.ticket.grant.from.Add(attendAfter); now.Before(at) {
			return timers.Earlier(next, at)
		}
	}
	if l := s.client.servers.Ears(s.slot); h.ears != l {
		if h.ears != nil {
			h.ears.Leave()
		}
		h.ears = l
		l.Attend()
	}
	return next
}

// unwatchLocked ends the hold's timer, because the hold ends.
func (h *hold) unwatchLocked() {
	h.ticket.site.client.servers.Timers.Remove(&h.entry)
	if h.ears != nil {
		h.ears.Leave()
		h.ears = nil
	}
}

// told takes in what was heard on the client's own channel. It runs on the reader of the connection.
func (c *client) told(text string) {
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
			t.hold.hurryLocked()
		}
	}
}
