package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/line"
	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// reached reports whether a pass looks at a ticket: up to the cursor of the pass before nobody was alive. But
// if the request names a ticket that stands there, the pass begins at the head again.
func (h *happened) reached(a lua.Arrival) bool {
	if h.scan == nil || a.Arrival > h.scan.Arrival {
		return true
	}
	var named []lua.Arrival
	switch r := h.request.(type) {
	case Ask:
		for _, s := range h.before.queue {
			if arrival, _ := strconv.ParseInt(s.score, 10, 64); s.name == r.Ticket {
				named = append(named, lua.Arrival{Ticket: s.name, Arrival: arrival})
			}
		}
	case Check:
		named = r.Tickets
	}
	return slices.ContainsFunc(named, func(b lua.Arrival) bool { return b.Arrival <= h.scan.Arrival })
}

// order: the first that is alive is granted; where nobody is, whoever asks (I3). A lock is not left free
// with somebody alive in the queue (R3).
func (h *happened) order() error {
	if h.held() && !h.freed() || h.reply.Status == lua.Late || h.reply.Status == lua.Refused && !h.serves() {
		return nil
	}
	var first string
	for _, a := range h.queue() {
		if h.reached(a) && h.alive(lua.TicketClient(a.Ticket)) {
			first = a.Ticket
			break
		}
	}
	if h.granted() && first != "" && h.after.owner() != first {
		return fmt.Errorf("%s was granted, %s is the first that is alive", h.after.owner(), first)
	}
	if h.granted() && first == "" {
		if ask, ok := h.request.(Ask); !ok || ask.Ticket != h.after.owner() {
			return fmt.Errorf("%s was granted and is not alive", h.after.owner())
		}
	}
	if h.after.owner() == "" && first != "" && !h.reply.Has(lua.More) && !h.reply.Has(lua.Unwoken) {
		return fmt.Errorf("the lock is free, and %s is alive", first)
	}
	return nil
}

// serves reports whether a request that was refused serves the queue all the same.
func (h *happened) serves() bool {
	_, renew := h.request.(Renew)
	return !renew
}

// dropped: only the dead leave the queue unasked, and where it looks as if the server had lost its
// subscriptions nobody does before a mark has passed (R6).
func (h *happened) dropped() error {
	stays := map[string]bool{h.after.owner(): true}
	for _, s := range h.after.queue {
		stays[s.name] = true
	}
	named := map[string]bool{} // by a check: what it names of a deaf client leaves the queue
	if check, ok := h.request.(Check); ok {
		for _, a := range check.Tickets {
			named[a.Ticket] = true
		}
	}
	var gone []string
	silent, alive := map[string]bool{}, false
	for _, a := range h.queue() {
		client := lua.TicketClient(a.Ticket)
		alive = alive || h.alive(client)
		if !h.alive(client) && !h.suspect(client) {
			silent[client] = true
		}
		if stays[a.Ticket] || named[a.Ticket] {
			continue
		}
		gone = append(gone, a.Ticket)
		if stage.Lease(a.Ticket) != 0 && h.alive(client) && h.reached(a) {
			return fmt.Errorf("%s was dropped though it is alive", a.Ticket)
		}
	}
	switch mark := h.before.number("mark"); {
	case len(gone) == 0:
	case len(gone) > line.Drops:
		return fmt.Errorf("%d tickets were dropped at once", len(gone))
	case !h.granted() && !alive && len(silent) >= 2 && (mark == 0 || h.now < mark):
		return fmt.Errorf("%v were dropped although %d clients are silent and nobody is alive", gone, len(silent))
	case h.held() && !h.freed() && !h.bounded():
		return fmt.Errorf("%v were dropped while the lock was held", gone)
	}
	return nil
}

// bounded reports whether the request had to see whether there is room.
func (h *happened) bounded() bool {
	switch r := h.request.(type) {
	case Ask:
		return r.Bound != nil
	case Check:
		return len(r.Bounds) > 0
	}
	return false
}

// placed: the places and the arrival in a reply are those in the queue.
func (h *happened) placed() error {
	place := func(ticket string) int {
		rank := slices.IndexFunc(h.after.queue, func(s scored) bool { return s.name == ticket })
		if rank >= 0 && h.after.owner() != "" {
			rank++
		}
		return rank
	}
	switch r := h.request.(type) {
	case Ask:
		if h.reply.Status != lua.Waiting || h.reply.Place < 0 {
			return nil
		}
		at := slices.IndexFunc(h.after.queue, func(s scored) bool { return s.name == r.Ticket })
		if at < 0 || h.reply.Place != int64(place(r.Ticket)) {
			return fmt.Errorf("place %d in the reply, %d in the queue", h.reply.Place, place(r.Ticket))
		}
		if score := h.after.queue[at].score; score != stage.Decimal(h.reply.Arrival) {
			return fmt.Errorf("arrival %d in the reply to %s, %s in the queue", h.reply.Arrival, r.Ticket, score)
		}
	case Check:
		for i, state := range h.reply.States {
			kind, at, queued := strings.Cut(state, " ")
			queued = queued && kind != lua.StateFull
			if want := place(r.Tickets[i].Ticket); queued != (want >= 0) || queued && at != strconv.Itoa(want) {
				return fmt.Errorf("%s is %q %s, its place is %d", r.Tickets[i].Ticket, kind, at, want)
			}
		}
	}
	return nil
}

// forgotten: suspects are forgotten when they have shown that they live, or after a minute, and after ten where they wait since
// before.
func (h *happened) forgotten() error {
	if !h.before.calmed(h.after) {
		return nil
	}
	for _, s := range h.before.suspects {
		at, _ := strconv.ParseInt(s.score, 10, 64)
		waits := func(a lua.Arrival) bool { return lua.TicketClient(a.Ticket) == s.name && a.Arrival <= at }
		if s.name != h.caller() && (at > h.now-minute || at > h.now-10*minute && slices.ContainsFunc(arrivals(h.before), waits)) {
			return fmt.Errorf("%s is a suspect since %d, and was forgotten", s.name, at)
		}
	}
	return nil
}

// room: who finds a full queue is told so, nobody else is, and it leaves nothing (I11).
func (h *happened) room() error {
	r := line.Room{Looked: h.before.lock["looked"], Now: h.now, Alive: h.alive}
	r.Before, r.After = arrivals(h.before), arrivals(h.after)
	switch q := h.request.(type) {
	case Ask:
		return r.Asked(q.Ticket, q.at(h.now), q.Bound, h.reply.Status == lua.Full, h.arrived())
	case Check:
		return r.Checked(q.Tickets, q.Bounds, h.reply.States)
	}
	return nil
}

// arrivals are those of the queue.
func arrivals(s state) []lua.Arrival {
	var all []lua.Arrival
	for _, t := range s.queue {
		arrival, _ := strconv.ParseInt(t.score, 10, 64)
		all = append(all, lua.Arrival{Ticket: t.name, Arrival: arrival})
	}
	return all
}
