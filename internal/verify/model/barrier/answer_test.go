package barrier

import (
	"fmt"
	"strings"

	"github.com/headwaiter/headwaiter/internal/verify/model/stage"
	"github.com/headwaiter/headwaiter/lua"
)

// messages: what breaks or trips a generation tells it, and nothing else.
func (j *judge) messages(h happened) error {
	b, a := h.Before[Lock], h.After[Lock]
	generation, was := b.Number("generation"), b.Members["broken"] != ""
	if b.Left == 0 {
		generation, was = j.first(h), false
	}
	want := ""
	if ended := turned(h) || b.Left == 0 && a.Members["past"] != ""; a.Left == 0 || was {
	} else if ended && a.Members["past"][0] == tripped {
		want = fmt.Sprint("O ", generation)
	} else if ended || a.Members["broken"] != "" {
		want = fmt.Sprint("B ", generation)
	}
	if h.Muted && want != "" {
		if !h.Reply.Has(lua.Unwoken) {
			return fmt.Errorf("the message was refused, and the reply does not tell")
		}
		want = ""
	}
	if got := strings.Join(h.Sent, ", "); got != want {
		return fmt.Errorf("published %q, should be %q", got, want)
	}
	return nil
}

// fate is what is to be said of a generation: of one that is older than the outcomes reach, nothing.
func (j *judge) fate(h happened, generation int64) string {
	present := h.After[Lock].Number("generation")
	fate := j.fates[generation]
	switch {
	case h.After[Lock].Left == 0 || generation > present || present-generation > outcomes:
		return lua.StateForgotten
	case fate == tripped:
		return lua.StateGranted
	case fate == broken:
		return lua.StateBroken
	case generation == present:
		return lua.StateQueued
	}
	return lua.StateForgotten
}

// answers: what a reply says is so.
func (j *judge) answers(h happened) error {
	if h.Reply.Status == lua.Late {
		return nil
	}
	until := int64(0)
	for ticket := range h.After[Leases].Members {
		if ends := h.After[Leases].Number(ticket); until == 0 || ends < until {
			until = ends
		}
	}
	if h.Reply.Status != lua.Mismatch && h.After[Lock].Left != 0 && h.Reply.Until != until {
		return fmt.Errorf("the first lease ends at %d, in the reply at %d", until, h.Reply.Until)
	}
	if j.blurred {
		return nil
	}
	switch r := h.Request.(type) {
	case Ask:
		return j.asked(h, r)
	case Check:
		for i, said := range h.Reply.States {
			ticket, generation := r.Tickets[i].Ticket, r.Tickets[i].Arrival
			want := j.fate(h, generation)
			if here, ok := h.After[Arrivals].Members[ticket]; want == lua.StateQueued {
				want = lua.StateForgotten
				if ok {
					want = fmt.Sprint(lua.StateQueued, " ", indexOf(here))
					if ends := h.After[Leases].Number(ticket); ends != h.Now+stage.Lease(ticket) {
						return fmt.Errorf("%s was looked after, and its lease ends at %d", ticket, ends)
					}
				}
			}
			if said != want {
				return fmt.Errorf("%s in %d is %s, not %s", ticket, generation, want, said)
			}
		}
	case End:
		if fate := j.fate(h, h.Reply.Arrival); h.Reply.Status == lua.Done && fate != lua.StateBroken {
			return fmt.Errorf("%s has left, and %d is %s", r.Ticket, h.Reply.Arrival, fate)
		}
		if state := append(h.Reply.States, "")[0]; state == lua.StateGranted || state == lua.StateBroken {
			if fate := j.fate(h, j.came[r.Ticket]); fate != state {
				return fmt.Errorf("%s came in %d, which is %s, not %s", r.Ticket, j.came[r.Ticket], fate, state)
			}
		}
	case Open:
		want := map[lua.Status]string{lua.Granted: lua.StateGranted, lua.Broken: lua.StateBroken}[h.Reply.Status]
		if fate := j.fate(h, r.Generation); want != "" && want != fate || want == "" && fate == lua.StateGranted {
			return fmt.Errorf("%d is %s, the reply %d", r.Generation, fate, h.Reply.Status)
		}
	}
	return nil
}

// asked judges the answer of an ask.
func (j *judge) asked(h happened, r Ask) error {
	generation, came := j.came[r.Ticket]
	here, present := h.After[Arrivals].Members[r.Ticket]
	fate := j.fate(h, h.Reply.Arrival)
	acting := h.After[Lock].Members["acting"]
	full := h.After[Lock].Number("arrived") == h.After[Lock].Number("parties")
	ok := true
	switch h.Reply.Status {
	case lua.Granted:
		ok = came && h.Reply.Arrival == generation && fate == lua.StateGranted
		ok = ok && (h.Reply.Place == int64(j.index[r.Ticket]) || h.Reply.Place == -1 && r.Arrival != 0)
	case lua.Waiting, lua.Acting:
		ok = present && h.Reply.Place == int64(indexOf(here)) && fate == lua.StateQueued && h.Reply.Arrival == generation
		ok = ok && h.After[Leases].Number(r.Ticket) == h.Now+stage.Lease(r.Ticket)
		ok = ok && (h.Reply.Status == lua.Acting) == (acting == r.Ticket)
		ok = ok && (h.Reply.Status == lua.Waiting || full)
	case lua.Broken:
		ok = h.Reply.Arrival == 0 && h.After[Lock].Members["broken"] != "" || fate == lua.StateBroken
		ok = ok && (h.Reply.Arrival == 0 || h.Reply.Arrival == generation)
	case lua.Busy:
		ok = full && acting != "" && acting != r.Ticket && !present
	case lua.Mismatch:
		ok = h.After[Lock].Number("parties") != r.Parties
	case lua.Refused:
		_, ended := h.Before[Calls].Members[gone(r.Ticket)]
		_, again := h.Before[Calls].Members[r.Ticket]
		ok = r.Repeated || r.Arrival != 0 || ended || again || came
		ok = ok && !present || h.After[Lock].Left == 0
	}
	if !ok {
		return fmt.Errorf("%s came in %d: the answer is wrong", r.Ticket, generation)
	}
	return nil
}
